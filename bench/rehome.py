#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long do clients wait when a volume goes to another host, and what do they find there?

Two hosts, each a segment with keeper, front, re-homer, composer, mapper, cache and the blocker of a
folder that both have; bridges both ways through relays that delay. pause: how long requests wait
while the volume goes there and back, and the longest write of a client that stays where it is and
writes 4 KiB a thousand times a second: alone, and beside one who writes 64 KiB after 64 KiB; a move
writes a few durable records. warm: the working set fits the cache; the share of reads that the
other host's cache answers within 10 s of the move, beside the one here before, and how fast that
came about, beside reading the folder's files. data: each host has a store of its own, and what the
volume holds goes along; beside a TCP stream, and beside qemu-img, which copies the same volume to
qemu-nbd at the other end of the same link while nobody may write to it; and the longest read and
write of a client that reads and writes 4 KiB a thousand times a second all the while, also beside
blockdev-mirror, with which qemu-storage-daemon takes a file there that is used as much (half of the
rounds). from: the same the other way round, with --from: the home first, its data after it; what
those wait who stay, and a reader on the other host while the data come. machine: the same, of a
volume that is written to all the time, beside QEMU's own migration of a machine that writes to
all of its memory all the time, which is as large: first all of it, or the machine first. dirtied:
800 MiB in the cache, six tenths of it written anew, and on while the volume moves, by one who
writes 64 KiB after 64 KiB; over one store, with --on-stall force and throttle.
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
import machine  # noqa: E402
from bridge import free_port, output_of  # noqa: E402
from cache_rig import Rig  # noqa: E402
from path_servers import MIB, Place, Server, Unavailable, wait_socket  # noqa: E402
from volumes_rig import record_ms  # noqa: E402

try:
    import nbd
except ImportError:
    print("rehome: python3-libnbd is not installed", file=sys.stderr)
    sys.exit(77)

RTTS = (0, 1, 10, 40)  # ms
SIZE = 192 * MIB
DATA = 1024 * MIB
MEMORY = 512 * MIB
DIRTIED = 800 * MIB
SHARE = 0.6
MARGIN = 20  # ms
PATIENCE = 60  # s, for a mirror that does not get done
BESIDE = (("1 kHz", 4096, 0.001), ("busy", 65536, 0))

HOST = """[segment]
name={name}
size={segment}
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
size={cache}
[peer file0]
role=blocker_file
dir={folder}/{store}
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

STORES = """[peer out1]
role=synapse_export
listen=tcp:127.0.0.1:{port}
edge.store=file0
[peer store1]
role=synapse_import
remote=tcp:127.0.0.1:{relay}
port=out1
"""


def connected(uri):
    handle = nbd.NBD()
    handle.connect_uri(uri)
    return handle


class Hosts:
    """a and b, over one store or with one of its own each; `with` ends all that was started."""

    def __init__(self, disk=None, size=SIZE, own=False, segment="768M", cache="256M"):
        self.folder = tempfile.mkdtemp(prefix="rehome.", dir=disk)
        self.memory = tempfile.mkdtemp(prefix="rehome.", dir="/dev/shm")
        self.place = Place(self.folder, self.memory, size)
        self.size, self.own, self.segment, self.cache = size, own, segment, cache
        self.up, self.relays = [], []

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self):
        self.delay(0)
        ends = {(name, part): free_port() for name in "ab" for part in (HOST, STORES)}
        relays = {key: self.relay(end) for key, end in ends.items()}
        for name, other in ("ab", "ba"):
            path = f"{self.folder}/{name}.conf"
            with open(path, "w", encoding="utf-8") as file:
                for part in (HOST, STORES) if self.own else (HOST,):
                    file.write(part.format(name=name, folder=self.folder, port=ends[name, part],
                                           segment=self.segment, cache=self.cache,
                                           relay=relays[other, part],
                                           store=f"store-{name}" if self.own else "store"))
            self.up.append(name)
            self.control("up", path)
        self.control("volume", "create", "-s", "a", "disk", "--size", str(self.size))
        end = time.monotonic() + 30
        while not all(self.counter(name, "far0", "connects") for name in self.up):
            if time.monotonic() > end:
                raise Unavailable("the bridges do not come up")
            time.sleep(0.05)

    def relay(self, end):
        """The port that leads there."""
        port = free_port()
        self.relays.append(subprocess.Popen(
            [self.place.program("relay"), str(port), str(end), f"{self.folder}/relay"],
            stdin=subprocess.DEVNULL))
        return port

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

    def uri(self, name):
        return f"nbd+unix:///disk?socket={self.folder}/{name}.sock"

    def client(self, name):
        return connected(self.uri(name))

    def move(self, name, *more):
        """To the other one: it says what it took."""
        store = ("--store", "store1") if self.own else ()
        return json.loads(self.control("rehome", "-s", name, "disk", "--to", "far0", *store,
                                       *more, "--json"))

    def fetch(self, name):
        return json.loads(self.control("rehome", "-s", name, "disk", "--from", "far0", "--store",
                                       "store1", "--json"))

    def dirty(self, name):
        found = json.loads(self.control("cache", "list", "-s", name, "--json"))
        return found["caches"][0]["dirty"]

    def counter(self, name, peer, which):
        found = json.loads(self.control("stats", peer, "-s", name, "--json"))
        return sum(row["counters"][which] for row in found["peers"])


class Client(threading.Thread):
    """Writes, or reads, 4 KiB a thousand times a second, or piece after piece of another size."""

    def __init__(self, handle, block=4096, pace=0.001, reads=False):
        super().__init__()
        self.handle, self.block, self.pace, self.reads = handle, block, pace, reads
        self.took, self.ends, self.error = [], False, None

    def run(self):
        data, blocks = os.urandom(self.block), self.handle.get_size() // self.block
        try:
            due = time.monotonic()
            while not self.ends:
                begun = time.monotonic()
                at = random.randrange(blocks) * self.block
                if self.reads:
                    self.handle.pread(self.block, at)
                else:
                    self.handle.pwrite(data, at)
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
    writers = [Client(handles[0])]
    if kind == "busy":
        writers.append(Client(handles[1], 65536, 0))
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


# --- data -----------------------------------------------------------------------------------------

def fill(handle, size):
    data = os.urandom(2 * MIB)
    for at in range(0, size, MIB):
        handle.pwrite(data[at // MIB * 512 % MIB:][:MIB], at)
    handle.flush()


def qemu_img(hosts, relay):
    """Bytes a second."""
    begun = time.monotonic()
    output_of(["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "16",
               hosts.uri("a"), f"nbd://127.0.0.1:{relay}"])
    return hosts.size / (time.monotonic() - begun)


class Mirror(Server):
    """qemu-storage-daemon, of a file that it takes elsewhere while it is used."""

    def start(self):
        qmp, file = f"{self.place.folder}/qmp", f"{self.place.folder}/source"
        process = self.spawn(
            "qemu-storage-daemon",
            "--blockdev", f"driver=file,node-name=f0,filename={file},cache.direct=on",
            "--nbd-server", f"addr.type=unix,addr.path={self.socket},max-connections=8",
            "--export", f"type=nbd,id=e0,node-name=f0,name={self.export},writable=on",
            "--chardev", f"socket,id=c0,path={qmp},server=on,wait=off", "--monitor", "chardev=c0")
        wait_socket(self.socket, process)
        self.ask = machine.Qmp(qmp).ask

    def move(self, port):
        """True: who uses it does so at the other end now."""
        end = time.monotonic() + PATIENCE
        self.ask("blockdev-add", driver="nbd", **{"node-name": "t0"},
                 server={"type": "inet", "host": "127.0.0.1", "port": str(port)})
        self.ask("blockdev-mirror", device="f0", target="t0", sync="full",
                 **{"job-id": "j0", "copy-mode": "write-blocking"})
        asked = False
        while jobs := self.ask("query-jobs"):
            if jobs[0]["status"] == "ready" and not asked:
                self.ask("job-complete", id="j0")
                asked = True
            elif time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True


def with_clients(uri, block, pace, move, usual=0.001):
    """What move() says, how long it took, and the longest write and read of 4 KiB meanwhile."""
    handles = [connected(uri) for _ in range(3)]
    clients = [Client(handles[0], pace=usual), Client(handles[1], pace=usual, reads=True),
               Client(handles[2], block, pace)]
    for each in clients:
        each.start()
    try:
        begun = time.monotonic()
        said = move()
        ended = time.monotonic()
    finally:
        for each in clients:
            each.end()
        for handle in handles:
            handle.shutdown()
    return said, ended - begun, *(each.between(begun, ended)[-1] for each in clients[:2])


def mirror_round(table, hosts, relay, rtt):
    for kind, block, pace in BESIDE:
        mirror = Mirror("mirror", hosts.place)
        try:
            mirror.start()
            done, took, write, read = with_clients(
                mirror.uri, block, pace, lambda mirror=mirror: mirror.move(relay))
        finally:
            mirror.stop()
        name = f"mirror, {kind}, RTT {rtt}"
        table.add(f"done, {name}", float(done))
        if done:
            table.add(name, hosts.size / took)
            table.add(f"write, {name}", write)
            table.add(f"read, {name}", read)


def data_round(table, hosts, relay, rtt):
    hosts.delay(rtt)
    stream = output_of([hosts.place.program("bench_tcp"), "stream", "1", str(MIB)])
    table.add("TCP stream", json.loads(stream)["bytes_per_second"])
    table.add(f"qemu-img, RTT {rtt}", qemu_img(hosts, relay))
    for name in ("a", "b"):
        begun = time.monotonic()
        said = hosts.move(name)
        table.add(f"idle, RTT {rtt}", hosts.size / (time.monotonic() - begun))
        table.add(f"pause, idle, RTT {rtt}", said["pause_ns"] / 1e6)
    for kind, block, pace in BESIDE:
        said, took, write, read = with_clients(
            hosts.uri("a"), block, pace, lambda: hosts.move("a"))
        table.add(f"{kind}, RTT {rtt}", hosts.size / took)
        table.add(f"pause, {kind}, RTT {rtt}", said["pause_ns"] / 1e6)
        table.add(f"write, {kind}, RTT {rtt}", write)
        table.add(f"read, {kind}, RTT {rtt}", read)
        hosts.move("b")
    mirror_round(table, hosts, relay, rtt)


def data(table, options):
    size = SIZE if options.quick else DATA
    table.head(f"data: {size // MIB} MiB from store to store; MB/s, and the longest wait")
    with Hosts(options.disk, size, own=True) as hosts:
        handle = hosts.client("a")
        fill(handle, size)
        handle.shutdown()
        port, copy = free_port(), f"{hosts.folder}/copy"
        with open(copy, "wb") as file:
            file.truncate(size)
        with open(f"{hosts.folder}/source", "wb") as file:
            for _ in range(0, size, MIB):
                file.write(os.urandom(MIB))
        server = subprocess.Popen(["qemu-nbd", "-t", "-f", "raw", "-p", str(port), "-b",
                                   "127.0.0.1", "-e", "4", copy], stdin=subprocess.DEVNULL)
        try:
            relay = hosts.relay(port)
            time.sleep(1)
            for _ in range((options.rounds + 1) // 2):
                for rtt in RTTS:
                    data_round(table, hosts, relay, rtt)
        finally:
            server.terminate()
            server.wait()
    table.row("TCP stream", "MB/s", scale=1e-6)
    for rtt in RTTS:
        table.row(f"qemu-img, RTT {rtt}", "MB/s", "TCP stream", scale=1e-6)
        table.row(f"idle, RTT {rtt}", "MB/s", "TCP stream", ("at least", 0.7), scale=1e-6)
        table.row(f"pause, idle, RTT {rtt}", "ms", value_goal=("at most", 2 * rtt + MARGIN))
        for kind in ("1 kHz", "busy"):
            table.row(f"{kind}, RTT {rtt}", "MB/s", "TCP stream", scale=1e-6)
            table.row(f"pause, {kind}, RTT {rtt}", "ms", value_goal=("at most", 2 * rtt + MARGIN))
            table.row(f"write, {kind}, RTT {rtt}", "ms", value_goal=("at most", 100))
            table.row(f"read, {kind}, RTT {rtt}", "ms")
            table.row(f"done, mirror, {kind}, RTT {rtt}", "")
            table.row(f"mirror, {kind}, RTT {rtt}", "MB/s", "TCP stream", scale=1e-6)
            table.row(f"write, mirror, {kind}, RTT {rtt}", "ms")
            table.row(f"read, mirror, {kind}, RTT {rtt}", "ms")


# --- from -----------------------------------------------------------------------------------------

class Late(Client):
    """Reads where the volume goes, from when it is to be seen there."""

    def __init__(self, uri):
        super().__init__(None, reads=True)
        self.uri = uri

    def run(self):
        while self.handle is None and not self.ends:
            try:
                self.handle = connected(self.uri)
            except nbd.Error:
                time.sleep(0.01)
        if self.handle is not None:
            super().run()
            self.handle.shutdown()


def from_round(table, hosts, rtt):
    hosts.delay(rtt)
    for kind, block, pace in (("idle", 4096, 0.1), *BESIDE):
        for name, other in ("ab", "ba"):
            reader = Late(hosts.uri(other))
            reader.start()
            try:
                said, took, write, _ = with_clients(
                    hosts.uri(name), block, pace, lambda other=other: hosts.fetch(other),
                    0.1 if kind == "idle" else 0.001)
            finally:
                reader.end()
            reads = sorted(ms for _, ms in reader.took)
            row = f"{kind}, RTT {rtt}"
            table.add(f"pause, from, {row}", said["pause_ns"] / 1e6)
            table.add(f"from, {row}", hosts.size / took)
            table.add(f"write, from, {row}", write)
            table.add(f"read there, p50, {row}", median(reads))
            table.add(f"read there, p99, {row}", reads[len(reads) * 99 // 100] if reads else 0.0)


def come(table, options):
    size = SIZE // 3 if options.quick else SIZE
    table.head(f"from: {size // MIB} MiB; the home first, its data after it")
    with Hosts(options.disk, size, own=True) as hosts:
        handle = hosts.client("a")
        fill(handle, size)
        handle.shutdown()
        for name in "ab":
            hosts.control("edge", "set", "-s", name, "home0:volume-to", "far0")
        for _ in range((options.rounds + 1) // 2):
            for rtt in RTTS:
                from_round(table, hosts, rtt)
    for rtt in RTTS:
        for kind in ("idle", *(kind for kind, _, _ in BESIDE)):
            row = f"{kind}, RTT {rtt}"
            table.row(f"pause, from, {row}", "ms", value_goal=("at most", 2 * rtt + MARGIN))
            table.row(f"from, {row}", "MB/s", scale=1e-6)
            if kind != "idle":
                table.row(f"write, from, {row}", "ms")
            table.row(f"read there, p50, {row}", "ms")
            table.row(f"read there, p99, {row}", "ms")


# --- machine --------------------------------------------------------------------------------------

def machine_round(table, hosts, port, relay, rtt):
    hosts.delay(rtt)
    for way, late in (("all first", False), ("machine first", True)):
        said = machine.migrate(hosts.folder, hosts.size, port, relay, late, PATIENCE / 3)
        done = said["status"] == "completed"
        name = f"QEMU, {way}, RTT {rtt}"
        table.add(f"done, {name}", float(done))
        if done:
            table.add(f"pause, {name}", said["downtime"] + said["postcopy-blocktime"])
            table.add(f"whole, {name}", said["total-time"] / 1e3)
    for name, other in ("ab", "ba"):
        said, took, _, _ = with_clients(hosts.uri(name), 65536, 0,
                                        lambda other=other: hosts.fetch(other))
        table.add(f"pause, volume, RTT {rtt}", said["pause_ns"] / 1e6)
        table.add(f"whole, volume, RTT {rtt}", took)


def machines(table, options):
    size = SIZE // 3 if options.quick else MEMORY
    if not shutil.which("qemu-system-x86_64"):
        raise Unavailable("qemu-system-x86_64 is not installed")
    table.head(f"machine: {size // MIB} MiB of memory, or of a volume, written to all the time")
    with Hosts(options.disk, size, own=True) as hosts:
        handle = hosts.client("a")
        fill(handle, size)
        handle.shutdown()
        for name in "ab":
            hosts.control("edge", "set", "-s", name, "home0:volume-to", "far0")
        port = free_port()
        relay = hosts.relay(port)
        for _ in range((options.rounds + 1) // 2):
            for rtt in RTTS:
                machine_round(table, hosts, port, relay, rtt)
    for rtt in RTTS:
        for way in ("all first", "machine first"):
            name = f"QEMU, {way}, RTT {rtt}"
            table.row(f"done, {name}", "")
            table.row(f"pause, {name}", "ms")
            table.row(f"whole, {name}", "s")
        table.row(f"pause, volume, RTT {rtt}", "ms", f"pause, QEMU, machine first, RTT {rtt}",
                  value_goal=("at most", 2 * rtt + MARGIN))
        table.row(f"whole, volume, RTT {rtt}", "s")


# --- dirtied --------------------------------------------------------------------------------------

def dirtied_round(table, hosts, rtt, way):
    handles = [hosts.client("a") for _ in range(3)]
    fill(handles[0], hosts.size)
    clients = [Client(handles[0]), Client(handles[1], reads=True), Client(handles[2], 65536, 0)]
    for client in clients:
        client.start()
    try:
        while len(clients[2].took) * clients[2].block < SHARE * hosts.size:
            time.sleep(0.01)
        before = hosts.dirty("a")
        begun = time.monotonic()
        said = hosts.move("a", "--on-stall", way)
        ended = time.monotonic()
    finally:
        for client in clients:
            client.end()
        for handle in handles:
            handle.shutdown()
    written = len(clients[2].between(begun, ended)) * clients[2].block
    table.add(f"dirty before, {way}, RTT {rtt}", before)
    table.add(f"written, {way}, RTT {rtt}", written)
    table.add(f"whole, {way}, RTT {rtt}", ended - begun)
    table.add(f"volume, {way}, RTT {rtt}", said["pause_ns"] / 1e6)
    table.add(f"write, {way}, RTT {rtt}", clients[0].between(begun, ended)[-1])
    table.add(f"read, {way}, RTT {rtt}", clients[1].between(begun, ended)[-1])
    hosts.move("b")


def dirtied(table, options):
    size = SIZE if options.quick else DIRTIED
    table.head(f"dirtied: {size // MIB} MiB in the cache, {SHARE * 100:.0f} % of it written anew")
    with Hosts(options.disk, size, segment="2G", cache="1G") as hosts:
        for _ in range(options.rounds):
            for rtt in RTTS:
                hosts.delay(rtt)
                for way in ("force", "throttle"):
                    dirtied_round(table, hosts, rtt, way)
    for rtt in RTTS:
        for way in ("force", "throttle"):
            name = f"{way}, RTT {rtt}"
            table.row(f"dirty before, {name}", "MB", scale=1e-6)
            table.row(f"written, {name}", "MB", scale=1e-6)
            table.row(f"whole, {name}", "s")
            table.row(f"volume, {name}", "ms")
            table.row(f"write, {name}", "ms", value_goal=("at most", 100))
            table.row(f"read, {name}", "ms")


TABLES = {"pause": pause, "warm": warm, "data": data, "from": come, "machine": machines,
          "dirtied": dirtied}


def main():
    options = tables.arguments(tables.parser_of(__doc__, TABLES), TABLES, 0.5)
    return tables.run("rehome", TABLES, options, lambda: Rig(64 * MIB), ("rehome",))


if __name__ == "__main__":
    sys.exit(main())
