#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does a volume as a file cost, beside qemu-storage-daemon's FUSE export?

A file of 256 MiB, all of it written before; requests at random places by fio with O_DIRECT.
qemu-storage-daemon serves a file in memory. Ours are front, composer, mapper and store in one
process, with a store of files in memory, and with one of memory. Needs root, as it mounts.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
import fio  # noqa: E402
import tables  # noqa: E402
from path_servers import (MIB, Place, QemuStorageDaemon, Skerry,  # noqa: E402
                          Unavailable)

SIZE = 256 * MIB
REFERENCE = "daemon"  # qemu-storage-daemon
# what, bytes, depth, at least so many times the reference
WORKLOADS = (("read", 4096, 1, 1), ("write", 4096, 1, 1), ("read", 4096, 32, 1),
             ("write", 4096, 32, 1), ("read", 65536, 16, 1), ("write", 65536, 16, 1))


def unmount(path):
    subprocess.run(["umount", "-l", path], capture_output=True, check=False)


class Daemon(QemuStorageDaemon):
    def start(self):
        self.file = f"{self.place.folder}/{self.name}.file"
        with open(self.file, "wb"):
            pass
        process = self.spawn(
            "qemu-storage-daemon",
            "--blockdev", f"driver=file,node-name=f0,filename={self.image()}",
            "--export", f"type=fuse,id=e0,node-name=f0,mountpoint={self.file},writable=on")
        end = time.monotonic() + 20
        while os.stat(self.file).st_size != SIZE:
            if process.poll() is not None or time.monotonic() > end:
                raise Unavailable("qemu-storage-daemon exports no file")
            time.sleep(0.02)

    def stop(self):
        super().stop()
        unmount(self.file)


class Files(Skerry):
    """As Skerry, with another front."""

    def __init__(self, name, place, store):
        self.folder = f"{place.folder}/{name}.mount"
        self.file = f"{self.folder}/disk"
        os.mkdir(self.folder)
        front = f"fuse0=front_fuse,path={self.folder},edge.volume=vol0"
        below = ["vol0=volume,edge.store=store0,edge.map=map0", "map0=mapperd,edge.store=store0",
                 f"store0={store}"]
        super().__init__(name, place, [[front, *below]], 1024 * MIB)

    def wait(self):
        os.stat(self.file)  # it is mounted before its process says that it is ready

    def stop(self):
        super().stop()
        unmount(self.folder)


class Rig:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="fuse.")
        self.memory = tempfile.mkdtemp(prefix="fuse.", dir="/dev/shm")
        self.place = Place(self.folder, self.memory, SIZE)
        self.servers = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)

    def has_role(self, role):
        done = subprocess.run([self.place.program("xsegpeer"), "--describe-role", role],
                              capture_output=True, env=self.place.environment, check=False)
        return done.returncode == 0

    def start(self):
        fio.need()
        if os.geteuid() or not os.path.exists("/dev/fuse"):
            raise Unavailable("only root mounts, where there is /dev/fuse")
        found = [Daemon(REFERENCE, self.place),
                 Files("files", self.place, f"blocker_file,dir={self.memory}/files.data"),
                 Files("memory", self.place, "blocker_memory")]
        for server in found:
            self.servers.append(server)
            server.start()
            self.load(server, "write", MIB, 4, 0)
        return found

    def load(self, server, what, size, depth, seconds):
        """(operations a second, p50 in us); 0 seconds: all of it once, in order"""
        words = ["fio", "--name=x", f"--filename={server.file}", "--direct=1", f"--bs={size}",
                 f"--iodepth={depth}", f"--size={SIZE}", "--output-format=json",
                 f"--ioengine={'psync' if depth == 1 else 'libaio'}"]
        words += ["--rw=" + what] if not seconds else [
            f"--rw=rand{what}", "--time_based", f"--runtime={seconds}", "--norandommap",
            "--randrepeat=0"]
        done = subprocess.run(words, cwd=self.folder, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, check=False, timeout=300)
        if done.returncode:
            raise Unavailable(f"{server.name}: {done.stderr.strip() or done.stdout[-300:]}")
        job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0][what]
        return job["iops"], job["clat_ns"].get("percentile", {}).get("50.000000", 0) / 1000


def files(table, options):
    with Rig() as rig:
        running = rig.start()
        for _ in range(options.rounds):
            for what, size, depth, _ in WORKLOADS:
                for server in running:
                    cpu = server.cpu()
                    rate, p50 = rig.load(server, what, size, depth, options.seconds)
                    name = f"{what} {size >> 10} KiB, depth {depth}, {server.name}"
                    table.add(name, rate)
                    table.add(f"{name}: p50", p50)
                    table.add(f"{name}: CPU",
                              (server.cpu() - cpu) / 1000 / max(1, rate * options.seconds))
    table.head("requests a second")
    for what, size, depth, limit in WORKLOADS:
        stem = f"{what} {size >> 10} KiB, depth {depth}, "
        table.row(stem + REFERENCE, "1/s")
        for name in ("files", "memory"):
            table.row(stem + name, "1/s", stem + REFERENCE, ("at least", limit), text=REFERENCE)
    for title, word, unit in (("p50", "p50", "us"), ("CPU of the server, of a request", "CPU",
                                                     "us")):
        table.head(title)
        for what, size, depth, _ in WORKLOADS:
            for name in (REFERENCE, "files", "memory"):
                table.row(f"{what} {size >> 10} KiB, depth {depth}, {name}: {word}", unit)


TABLES = {"files": files}


def main():
    options = tables.arguments(tables.parser_of(__doc__, TABLES), TABLES, 0.2)
    return tables.run("fuse", TABLES, options, Rig, ("front_fuse", "volume", "blocker_file"))


if __name__ == "__main__":
    sys.exit(main())
