# SPDX-License-Identifier: Apache-2.0
"""The parts of bench/cache.py that need more than a port: adoption, kills under xsegd, NBD."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

from cache_rig import Rig, cpu_ns, spec
from path_servers import MIB, Unavailable, wait_socket

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "crash"))
# pylint: disable=wrong-import-position
import rig as crash  # noqa: E402

GIB = 1 << 30


# --- adoption --------------------------------------------------------------------------------


def start_ms(rig, specs):
    """The process, when it serves; ms until then, and how many of them of its CPU."""
    begin = time.monotonic()
    process = rig.start(*specs, cpu=1)
    return process, (time.monotonic() - begin) * 1e3, cpu_ns(process.pid) / 1e6


def adopt_once(table, options, cache):
    size = options.adopted
    with Rig(size * 2 + 512 * MIB) as rig:
        rig.start(spec("store0", "blocker_null"), cpu=1)
        specs = cache(options, size * 5 // 4, ack="volatile", age="1h", epoch="1h", dirty_hard=100,
                      dirty_soft=100)
        process, empty, empty_cpu = start_ms(rig, specs)
        table.add("start on nothing", empty)
        rig.load("cache0", size=size, mix=0, pattern="sequential", count=size // 4096, qd=64,
                 fill="no", seconds=60, cpu=0)
        rig.kill(process)
        process, full, full_cpu = start_ms(rig, specs)
        table.add("start after SIGKILL", full)
        table.add("adoption per GiB", (full - empty) * GIB / size)
        table.add("adoption per GiB, CPU", (full_cpu - empty_cpu) * GIB / size)
        # nobody is to write a gigabyte back only to end
        rig.kill(process)


def adopt(table, options, cache):
    """Started on nothing, and on what a killed one had: the difference is the adoption."""
    for _ in range(max(options.rounds, 3)):
        adopt_once(table, options, cache)
    table.row("start on nothing", "ms")
    table.row("start after SIGKILL", "ms", "start on nothing",
              text=f"nothing; {options.adopted // MIB} MiB")
    table.row("adoption per GiB", "ms", goal=("at most", 10.0))
    table.row("adoption per GiB, CPU", "ms", goal=("at most", 10.0))


# --- killed under xsegd ----------------------------------------------------------------------


def with_cache(rig, size):
    """The crash tests' pipeline, with a cache above its store."""
    with open(rig.conf, encoding="ascii") as file:
        text = file.read().replace("edge.store=file0", "edge.store=cache0", 1)
    with open(rig.conf, "w", encoding="ascii") as file:
        file.write(text + "\n[host cache0]\nrestart-limit=0\nrestart-delay-max=0s\n"
                   f"\n[peer cache0]\nhost=cache0\nrole=cached\nedge.store=file0\nsize={size}\n")


def kill_once(rig, handle):
    pid = rig.pid("cache0")
    handle.pread(4096, 0)
    begin = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    handle.pread(4096, 0)
    took = (time.monotonic() - begin) * 1e3
    rig.wait_successor("cache0", pid)
    return took


def kills(table, options):
    try:
        import nbd
    except ImportError:
        raise Unavailable("kills: python3-libnbd is not installed") from None
    if options.stand_in:
        raise Unavailable("kills: a stand-in keeps nothing")
    try:
        with crash.Rig("split", size="256M", segment_size="1G", wrapped=False) as rig:
            with_cache(rig, 384 * MIB)
            rig.up()
            handle = nbd.NBD()
            handle.connect_uri(rig.uri)
            for at in range(0, 256 * MIB, MIB):
                handle.pwrite(os.urandom(4096) * 256, at)
            for _ in range(options.kills):
                table.add("kill to first answer, p50", kill_once(rig, handle))
    except (crash.Unfit, crash.Failed, nbd.Error) as error:
        raise Unavailable(f"kills: {error}") from None
    took = sorted(value for value, _ in table.samples["kill to first answer, p50"])
    table.add("kill to first answer, worst", took[-1])
    table.row("kill to first answer, p50", "ms", goal=("at most", 100.0))
    table.row("kill to first answer, worst", "ms", text=f"of {len(took)}")


# --- NBD -------------------------------------------------------------------------------------

WORKLOADS = (("randread", 1), ("randread", 16), ("randwrite", 1), ("randwrite", 16))


class Pipeline:
    """Front, composer and what is below, in one process; a volume without a record."""

    def __init__(self, rig, name, size, below):
        self.rig, self.socket = rig, f"{rig.folder}/{name}.sock"
        top = below[0].split("=", 1)[0]
        self.process = rig.start(
            spec(f"nbd-{name}", "front_nbd", listen=f"unix:{self.socket}",
                 edge_volume=f"vol-{name}"),
            spec(f"vol-{name}", "volume", edge_store=top, fixed=f"{name}:{size}"), *below)
        self.uri = f"nbd+unix:///{name}?socket={self.socket}"
        wait_socket(self.socket, self.process)

    def fio(self, rw, depth, seconds, size):
        before = cpu_ns(self.process.pid)
        done = subprocess.run(
            ["fio", "--name=cache", "--ioengine=nbd", f"--uri={self.uri}", f"--rw={rw}", "--bs=4k",
             f"--iodepth={depth}", f"--size={size}", "--thread", "--time_based",
             f"--runtime={seconds}", "--randrepeat=0", "--norandommap", "--output-format=json"],
            cwd=self.rig.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=seconds + 120, check=False)
        if done.returncode:
            raise Unavailable(f"fio: {done.stderr.strip()[-300:]}")
        used = cpu_ns(self.process.pid) - before
        job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
        side = job["read" if "read" in rw else "write"]
        return side["iops"], used / 1e3 / max(side["total_ios"], 1)


def nbd(table, options):
    if not shutil.which("fio"):
        raise Unavailable("fio is not installed")
    size = options.hot
    with Rig(size * 4 + 768 * MIB, options.disk) as rig:
        cached = [spec("cache0", "cached", size=size * 2, edge_store="file0"),
                  spec("file0", "blocker_file", dir=f"{rig.folder}/store")]
        if options.stand_in:
            cached = [spec("cache0", "blocker_memory", size=size + 16 * MIB)]
        lines = {}
        for name, below in (("memory", [spec("mem0", "blocker_memory", size=size + 16 * MIB)]),
                            ("cached", cached)):
            lines[name] = Pipeline(rig, name, size, below)
            lines[name].fio("write", 16, 1, size)
        seconds = 1 if options.quick else 2
        shapes = WORKLOADS[1::2] if options.quick else WORKLOADS
        for _ in range(options.rounds):
            for rw, depth in shapes:
                for name, line in lines.items():
                    iops, cpu = line.fio(rw, depth, seconds, size)
                    table.add(f"{name}, {rw} QD{depth}", iops)
                    table.add(f"{name}, {rw} QD{depth}, CPU", cpu)
    for rw, depth in shapes:
        table.row(f"memory, {rw} QD{depth}", "1/s")
        table.row(f"cached, {rw} QD{depth}", "1/s", f"memory, {rw} QD{depth}", ("at least", 0.9))
        table.row(f"cached, {rw} QD{depth}, CPU", "us/op", f"memory, {rw} QD{depth}, CPU")
