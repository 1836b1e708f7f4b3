# SPDX-License-Identifier: Apache-2.0
"""The parts of bench/cache.py that need more than a port: adoption, kills under xsegd, NBD."""

import os
import signal
import subprocess
import sys
import time

import fio
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

WORKLOADS = (("randread", 1, "4k"), ("randread", 16, "4k"), ("randwrite", 1, "4k"),
             ("randwrite", 16, "4k"), ("randread", 16, "64k"), ("randread", 2, "1m"),
             ("randread", 1, "4m"))


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

    def ask(self, rw, depth, seconds, size, block="4k"):
        before = cpu_ns(self.process.pid)
        side, = fio.jobs(self.rig.folder, [("cache", self.uri)], rw, depth, seconds, size,
                         block=block)
        used = cpu_ns(self.process.pid) - before
        return side["iops"], used / 1e3 / max(side["total_ios"], 1)


def lines_of(rig, options):
    """name: pipeline: a hot set of which all may be dirty or not, and what they are beside."""
    size = options.hot
    memory = spec("mem0", "blocker_memory", size=size + 16 * MIB)
    below = {"memory": [memory]}
    for name, part in (("half", 2), ("quarter", 4)):
        below[name] = [spec(f"cache-{name}", "cached", size=size * part,
                            edge_store=f"file-{name}"),
                       spec(f"file-{name}", "blocker_file", dir=f"{rig.folder}/{name}")]
        if options.stand_in:
            below[name] = [spec(f"cache-{name}", "blocker_memory", size=size + 16 * MIB)]
    return {name: Pipeline(rig, name, size, peers) for name, peers in below.items()}


def nbd_round(table, options, lines, shapes):
    seconds = 1 if options.quick else 2
    for rw, depth, block in shapes:
        for name, line in lines.items():
            iops, cpu = line.ask(rw, depth, seconds, options.hot, block)
            table.add(f"{name}, {rw} {block} QD{depth}", iops)
            table.add(f"{name}, {rw} {block} QD{depth}, CPU", cpu)


def nbd(table, options):
    fio.need()
    shapes = WORKLOADS[1::2] if options.quick else WORKLOADS
    with Rig(options.hot * 8 + 768 * MIB, options.disk) as rig:
        lines = lines_of(rig, options)
        for line in lines.values():
            line.ask("write", 16, 1, options.hot)
            # so that what lies side by side in the volume does not in the segment
            line.ask("randwrite", 16, 1, options.hot)
        for _ in range(options.rounds):
            nbd_round(table, options, lines, shapes)
    for rw, depth, block in shapes:
        shape = f"{rw} {block} QD{depth}"
        table.row(f"memory, {shape}", "1/s")
        for name in list(lines)[1:]:
            table.row(f"{name}, {shape}", "1/s", f"memory, {shape}", ("at least", 0.9))
            table.row(f"{name}, {shape}, CPU", "us/op", f"memory, {shape}, CPU",
                      ("at most", 1.1) if block != "4k" else None)
