# SPDX-License-Identifier: Apache-2.0
"""What bench/volumes.py measures with: volumes made, filled and asked by bench_volume."""

import json
import os
import shutil
import subprocess
import time

from cache_rig import Rig, pinned, spec
from path_servers import MIB, Unavailable

TIB = 1 << 40
OBJECT = 4 * MIB


class VolumeRig(Rig):
    def verb(self, *words, cpu=None, limit=600):
        """bench_volume: its JSON object."""
        done = subprocess.run(
            [self.place.program("bench_volume"), self.name, *map(str, words)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env=self.environment,
            preexec_fn=pinned(cpu), timeout=limit, check=False)
        if done.returncode:
            raise Unavailable(f"bench_volume {words[0]}: {done.stderr.strip()[-300:]}; "
                              f"{self.log_end()}")
        return json.loads(done.stdout)

    def store(self, kind, size=256 * MIB):
        if kind == "memory":
            return spec("store0", "blocker_memory", size=size)
        return spec("store0", "blocker_file", dir=f"{self.folder}/store")

    def counters(self, peer):
        found = json.loads(self.control("stats", peer, "-a", "--json", "-s", self.name))
        return next(row["counters"] for row in found["peers"] if row["name"] == peer)

    def filled(self, name, size, port="vol0"):
        """A volume that has all its objects, as far as its map knows."""
        self.verb("create", port, name, 1, size, OBJECT)
        self.verb("fill", "map0", name, size // OBJECT)


MAPPER = spec("map0", "mapperd", edge_store="store0", settle="0")
COMPOSER = spec("vol0", "volume", edge_store="store0", edge_map="map0")


def resident(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    raise Unavailable("the kernel does not tell a process's memory")


def record_ms(folder, count=10):
    """What a durable record costs at the least: written, synced, renamed, the folder synced; ms."""
    os.makedirs(folder, exist_ok=True)
    directory, took = os.open(folder, os.O_RDONLY), []
    for number in range(count):
        begin = time.monotonic()
        file = os.open(f"{folder}/new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(file, bytes(4096))
        os.fsync(file)
        os.close(file)
        os.rename(f"{folder}/new", f"{folder}/{number}")
        os.fsync(directory)
        took.append((time.monotonic() - begin) * 1e3)
    os.close(directory)
    shutil.rmtree(folder)
    return sorted(took)[count // 2]


def instructions(rig, volume, below, target, linear):
    """Of one write, all peers on one lane, as callgrind counts them. (Who only reads a volume that
    nobody here writes to is looked at each time: a writer is the common case.)"""
    valgrind = shutil.which("valgrind")
    if not valgrind:
        raise Unavailable("valgrind is not installed")
    counts = (2000, 12000)
    found = []
    for count in counts:
        load = spec("load0", "load", edge_target=target, linear=linear, volume=volume, count=count,
                    mix=0, fresh="no", fill="no", donate="no", size=64 * MIB)
        folder = f"{rig.folder}/callgrind"
        os.makedirs(folder)
        done = subprocess.run(
            [valgrind, "--tool=callgrind", "--trace-children=yes",
             f"--callgrind-out-file={folder}/%p", *rig.command(1, [load, *below])],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env=rig.environment,
            timeout=300, check=False)
        if done.returncode:
            raise Unavailable(f"valgrind: {done.stderr.strip()[-300:]}")
        # libtool's wrapper starts a shell first; only the program itself is meant
        found.append(max(summary(f"{folder}/{name}") for name in os.listdir(folder)))
        shutil.rmtree(folder)
    return (found[1] - found[0]) / (counts[1] - counts[0])


def summary(path):
    with open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("summary: "):
                return int(line.split()[1])
    return 0
