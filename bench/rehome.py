#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long do clients wait when a volume goes to another host, and what do they find there?

Two hosts, each a segment with keeper, front, re-homer, composer, mapper, cache and the blocker of a
folder that both have; bridges both ways through relays that delay. pause: how long requests wait
while the volume goes there and back, and the longest write of a client that stays where it is and
writes 4 KiB a thousand times a second: alone, and beside one who writes 64 KiB after 64 KiB; a move
writes a few durable records. warm: the working set fits the cache; the share of reads that the
other host's cache answers within 10 s of the move, beside the one here before, and how fast that
came about, beside reading the folder's files.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
import tables  # noqa: E402
from bridge import free_port  # noqa: E402
from cache_rig import Rig  # noqa: E402
from path_servers import MIB, Place, Unavailable  # noqa: E402
from volumes_rig import record_ms  # noqa: E402

try:
    import nbd
except ImportError:
    print("rehome: python3-libnbd is not installed", file=sys.stderr)
    sys.exit(77)

RTTS = (0, 1, 10, 40)  # ms
SIZE = 192 * MIB
MARGIN = 20  # ms

HOST = """[segment]
name={name}
size=768M
[peer nbd0]
role=front_nbd
listen=unix:{folder}/{name}.sock
edge.volume=home0
[peer vol0]
role=volume
edge.store=cache0
edge.map=map0
[peer map0]
role=mapperd
edge.store=file0
[peer cache0]
role=cached
edge.store=file0
size=256M
[peer file0]
role=blocker_file
dir={folder}/store
shared=yes
[peer home0]
role=rehome
edge.volume=vol0
[peer out0]
role=synapse_export
listen=tcp:127.0.0.1:{port}
edge.volume=home0
[peer far0]
role=synapse_import
remote=tcp:127.0.0.1:{relay}
port=out0
"""


class Hosts:
    """a and b; `with` ends all that was started."""

    def __init__(self, disk=None):
        self.folder = tempfile.mkdtemp(prefix="rehome.", dir=disk)
        self.memory = tempfile.mkdtemp(prefix="rehome.", dir="/dev/shm")
        self.place = Place(self.folder, self.memory, SIZE)
        self.up, self.relays = [], []

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self):
        ports = [free_port() for _ in range(4)]  # a's end and b's, and the relays to them
        self.delay(0)
        for end, relay in zip(ports[:2], ports[2:]):
            self.relays.append(subprocess.Popen(
                [self.place.program("relay"), str(relay), str(end), f"{self.folder}/relay"],
                stdin=subprocess.DEVNULL))
        for name, port, relay in (("a", ports[0], ports[3]), ("b", ports[1], ports[2])):
            path = f"{self.folder}/{name}.conf"
            with open(path, "w", encoding="utf-8") as file:
                file.write(HOST.format(name=name, folder=self.folder, port=port, relay=relay))
            self.up.append(name)
            self.control("up", path)
        self.control("volume", "create", "-s", "a", "disk", "--size", str(SIZE))
        end = time.monotonic() + 30
        while not all(self.counter(name, "far0", "connects") for name in self.up):
            if time.monotonic() > end:
                raise Unavailable("the bridges do not come up")
            time.sleep(0.05)

    def __exit__(self, *_):
        for name in self.up:
            subprocess.run([self.place.program("xsegctl"), "down", name, "--yes"],
                           capture_output=True, env=self.place.environment, timeout=120,
                           check=False)
        for relay in self.relays:
            relay.terminate()
            relay.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)

    def control(self, *words):
        done = subprocess.run([self.place.program("xsegctl"), *words], capture_output=True,
                              text=True, env=self.place.environment, timeout=120, check=False)
        if done.returncode:
            raise Unavailable(f"xsegctl {' '.join(words)}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def delay(self, ms):
        path = f"{self.folder}/relay"
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(f"delay={ms * 500}")
        os.rename(f"{path}.new", path)
        time.sleep(0.05)

    def client(self, name):
        handle = nbd.NBD()
        handle.connect_uri(f"nbd+unix:///disk?socket={self.folder}/{name}.sock")
        return handle

    def move(self, name):
        """To the other one: it says what it took."""
        return json.loads(self.control("rehome", "-s", name, "disk", "--to", "far0", "--json"))

    def counter(self, name, peer, which):
        found = json.loads(self.control("stats", peer, "-s", name, "--json"))
        return sum(row["counters"][which] for row in found["peers"])


class Writer(threading.Thread):
    """4 KiB a thousand times a second, or piece after piece of another size."""

    def __init__(self, handle, block=4096, pace=0.001):
        super().__init__()
        self.handle, self.block, self.pace = handle, block, pace
        self.took, self.ends, self.error = [], False, None

    def run(self):
        data, blocks = os.urandom(self.block), SIZE // self.block
        try:
            due = time.monotonic()
            while not self.ends:
                begun = time.monotonic()
                self.handle.pwrite(data, random.randrange(blocks) * self.block)
                now = time.monotonic()
                self.took.append((begun, (now - begun) * 1e3))
                due = max(due + self.pace, now)
                time.sleep(max(0.0, due - time.monotonic()))
        except nbd.Error as error:
            self.error = error

    def end(self):
        self.ends = True
        self.join()
        if self.error:
            raise Unavailable(f"a client was refused: {self.error}")

    def between(self, begin, end):
        return sorted(took for at, took in self.took if begin <= at + took / 1e3 and at <= end)


# --- pause ----------------------------------------------------------------------------------------

def median(values):
    return values[len(values) // 2] if values else 0.0


def there_and_back(table, hosts, kind, rtt, seconds):
    handles = [hosts.client("a"), hosts.client("a")]
    writers = [Writer(handles[0])]
    if kind == "busy":
        writers.append(Writer(handles[1], 65536, 0))
    for writer in writers:
        writer.start()
    try:
        time.sleep(seconds)
        begun = time.monotonic()
        there = hosts.move("a")
        gone = time.monotonic()
        time.sleep(seconds)
        away = time.monotonic()
        hosts.move("b")
        back = time.monotonic()
    finally:
        for writer in writers:
            writer.end()
        for handle in handles:
            handle.shutdown()
    client = writers[0]
    name = f"{kind}, RTT {rtt}"
    table.add(f"write before, {name}", median(client.between(begun - seconds, begun)))
    table.add(f"client, there, {name}", client.between(begun, gone)[-1])
    table.add(f"volume, {name}", there["pause_ns"] / 1e6)
    table.add(f"write away, {name}", median(client.between(gone, away)))
    table.add(f"client, back, {name}", client.between(away, back)[-1])


def pause(table, options):
    table.head("pause: of the volume, and the longest write of a client that stays where it is")
    with Hosts(options.disk) as hosts:
        for _ in range(options.rounds):
            for rtt in RTTS:
                hosts.delay(rtt)
                table.add("a durable record", record_ms(f"{hosts.folder}/record"))
                for kind in ("alone", "busy"):
                    there_and_back(table, hosts, kind, rtt, options.seconds)
    table.row("a durable record", "ms")
    for kind in ("alone", "busy"):
        for rtt in RTTS:
            name = f"{kind}, RTT {rtt}"
            table.row(f"volume, {name}", "ms", value_goal=("at most", rtt + MARGIN))
            for way in ("there", "back"):
                table.row(f"client, {way}, {name}", "ms",
                          value_goal=("at most", rtt + MARGIN))
            table.row(f"write before, {name}", "ms")
            table.row(f"write away, {name}", "ms")


# --- warm -----------------------------------------------------------------------------------------

def hits(hosts, name, count):
    """The share of pages that the cache there had, of random reads."""
    before = [hosts.counter(name, "cache0", which) for which in ("hits", "misses")]
    handle = hosts.client(name)
    for _ in range(count):
        handle.pread(4096, random.randrange(SIZE // 4096) * 4096)
    handle.shutdown()
    hit, miss = (hosts.counter(name, "cache0", which) - old
                 for which, old in zip(("hits", "misses"), before))
    return hit / max(hit + miss, 1)


def warm_round(table, hosts, rtt, count):
    handle = hosts.client("a")
    for at in range(0, SIZE, MIB):
        handle.pwrite(os.urandom(MIB), at)
    handle.flush()
    table.add(f"here, RTT {rtt}", hits(hosts, "a", count))
    hosts.control("cache", "drop", "cache0", "-s", "b")
    before = hosts.counter("a", "home0", "warmed")
    begun = time.monotonic()
    hosts.move("a")
    while hosts.counter("a", "home0", "warmed") == before and time.monotonic() < begun + 10:
        time.sleep(0.02)
    table.add(f"fetched, RTT {rtt}", (hosts.counter("a", "home0", "warmed") - before) /
              (time.monotonic() - begun))
    table.add(f"there, RTT {rtt}", hits(hosts, "b", count))
    hosts.move("b")
    handle.shutdown()


def cat(hosts):
    begun, size = time.monotonic(), 0
    for folder, _, names in os.walk(f"{hosts.folder}/store"):
        for name in names:
            with open(f"{folder}/{name}", "rb") as file:
                size += len(file.read())
    return size / (time.monotonic() - begun)


def warm(table, options):
    table.head(f"warm: {SIZE // MIB} MiB in the cache here; within 10 s of the move there")
    with Hosts(options.disk) as hosts:
        for _ in range(options.rounds):
            for rtt in RTTS:
                hosts.delay(rtt)
                warm_round(table, hosts, rtt, 500 if options.quick else 4000)
                table.add("cat", cat(hosts))
    table.row("cat", "GB/s", scale=1e-9)
    for rtt in RTTS:
        table.row(f"here, RTT {rtt}", "")
        table.row(f"there, RTT {rtt}", "", f"here, RTT {rtt}", ("at least", 0.9))
        table.row(f"fetched, RTT {rtt}", "GB/s", "cat", scale=1e-9)


TABLES = {"pause": pause, "warm": warm}


def main():
    options = tables.arguments(tables.parser_of(__doc__, TABLES), TABLES, 0.5)
    return tables.run("rehome", TABLES, options, lambda: Rig(64 * MIB), ("rehome",))


if __name__ == "__main__":
    sys.exit(main())
