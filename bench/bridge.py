#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does a bridge cost, and what does distance?

A memory blocker in another segment is asked through a bridge: one process and CPU for the
synapse_export and the blocker, another for the synapse_import and who asks. loopback: beside a
ping-pong over TCP of as many bytes, by processes that poll and by such that sleep, and a TCP stream
(bench_tcp.c); with TLS beside AES-256-GCM of OpenSSL on one CPU. distance: with a relay
between that delays, beside an NBD server behind such a relay, and below a cache. mount: one reader
who asks for one piece after the other, through a tier that has nothing yet and one that has it all;
fault: 4 KiB at a time, alone and while another one reads 64 times 1 MiB at once. slow: programs of
this host, copied through links of 100 Mbit/s, 1 Gbit/s and any, with and without compress.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
import fio  # noqa: E402
import tables  # noqa: E402
from cache_rig import Rig, cpu_ns, spec  # noqa: E402
from path_servers import MIB, Unavailable  # noqa: E402

SIZE = 64 * MIB
RTTS = (0, 1, 5, 10, 25, 40, 100)  # ms


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def output_of(words, environment=None):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env=environment, timeout=60, check=False)
    if done.returncode:
        raise Unavailable(f"{words[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def certificate(folder):
    """One for both ends: its own authority."""
    names = {"ca": f"{folder}/tls.crt", "cert": f"{folder}/tls.crt", "key": f"{folder}/tls.key"}
    output_of(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
               "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=bridge",
               "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,URI:skerry://bench",
               "-keyout", names["key"], "-out", names["cert"]])
    return {f"tls_{key}": value for key, value in names.items()}


class Bridge:
    """Two segments; `near` has a peer that stands for a memory blocker of the other."""

    def __init__(self, tls=False, relay=False, size=SIZE, spare=0):
        self.size, self.memory = size, size + 32 * MIB + spare
        self.near = Rig(192 * MIB + 2 * size)
        self.far = Rig(self.memory * 4 // 3 + 256 * MIB)
        self.tls, self.relayed = tls, relay
        self.relay, self.port = None, free_port()
        self.reached = free_port() if relay else self.port

    def __enter__(self):
        self.near.__enter__()
        self.far.__enter__()
        for rig in (self.near, self.far):
            if not rig.has_role("synapse_import"):
                raise Unavailable("synapse_import is not built")
        words = certificate(self.near.folder) if self.tls else {}
        allow = {"allow": "skerry://bench"} if self.tls else {}
        self.server = self.far.start(
            spec("out", "synapse_export", listen=f"tcp:127.0.0.1:{self.port}", edge_store="store",
                 requests=1024, bytes=self.size, **allow, **words),
            spec("store", "blocker_memory", size=self.memory), cpu=1)
        if self.relayed:
            self.delay(0)
            self.relay = subprocess.Popen([self.near.place.program("relay"), str(self.reached),
                                           str(self.port), f"{self.near.folder}/relay"],
                                          stdin=subprocess.DEVNULL)
        self.client = spec("store0", "synapse_import", remote=f"tcp:127.0.0.1:{self.reached}",
                           port="out", **words)
        self.near.load("store0", self.client, size=self.size, bs=MIB, qd=4, seconds=0.01,
                       prepare="write", cpu=0)
        return self

    def __exit__(self, *what):
        self.near.__exit__(*what)
        self.far.__exit__(*what)
        if self.relay:
            self.relay.terminate()
            self.relay.wait()

    def delay(self, ms):
        self.network(f"delay={ms * 500}")

    def network(self, words):
        path = f"{self.near.folder}/relay"
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(words)
        os.rename(f"{path}.new", path)
        time.sleep(0.05)

    def load(self, kind, block, depth, seconds, **options):
        """Small blocks in no order, large ones one after the other."""
        options.setdefault("pattern", "sequential" if block > 65536 else "random")
        return self.near.load("store0", self.client, size=SIZE, bs=block, qd=depth,
                              mix=100 if kind == "read" else 0, fill="no", seconds=seconds,
                              cpu=0, **options)


# --- loopback -------------------------------------------------------------------------------------

def tcp(rig, *words):
    return json.loads(output_of([rig.place.program("bench_tcp"), *map(str, words)]))


PINGS = {"read": (80, 4176), "write": (4176, 80)}


def loopback_round(table, bridge, seconds):
    rig = bridge.near
    for kind, sizes in PINGS.items():
        for way in ("ping", "sleep"):
            table.add(f"TCP {way}, {kind}", tcp(rig, way, seconds, *sizes)["us"])
    table.add("TCP stream", tcp(rig, "stream", seconds, MIB)["bytes_per_second"])
    for kind in ("read", "write"):
        run = bridge.load(kind, 4096, 1, seconds)
        table.add(f"bridge, {kind} 4 KiB QD1", 1e6 / run["ops_per_second"])
        run = bridge.load(kind, 4096, 64, seconds)
        table.add(f"bridge, {kind} 4 KiB QD64", run["ops_per_second"])
        run = bridge.load(kind, MIB, 16, seconds)
        table.add(f"bridge, {kind} 1 MiB QD16", run["ops_per_second"] * MIB)


def aes(seconds):
    said = output_of(["openssl", "speed", "-seconds", str(max(1, round(seconds))), "-bytes",
                      "16384", "-evp", "aes-256-gcm"])
    return float(re.search(r"^(?:AES-256-GCM|aes-256-gcm)\s+([0-9.]+)k", said, re.M).group(1)) * 1e3


def loopback(table, options):
    table.head("loopback: two processes, a CPU each, and who asks")
    with Bridge() as bridge:
        for _ in range(options.rounds):
            loopback_round(table, bridge, options.seconds)
    with Bridge(tls=True) as bridge:
        for _ in range(options.rounds):
            table.add("AES-256-GCM of one CPU", aes(options.seconds))
            for kind in ("read", "write"):
                run = bridge.load(kind, MIB, 16, options.seconds)
                table.add(f"bridge with TLS, {kind} 1 MiB QD16", run["ops_per_second"] * MIB)
    for kind in PINGS:
        table.row(f"TCP sleep, {kind}", "us")
        table.row(f"TCP ping, {kind}", "us")
        table.row(f"bridge, {kind} 4 KiB QD1", "us", f"TCP ping, {kind}", ("at most", 1.5))
        table.row(f"bridge, {kind} 4 KiB QD64", "1/s")
    table.row("TCP stream", "GB/s", scale=1e-9)
    for kind in PINGS:
        table.row(f"bridge, {kind} 1 MiB QD16", "GB/s", "TCP stream", ("at least", 0.8), 1e-9)
    table.row("AES-256-GCM of one CPU", "GB/s", scale=1e-9)
    for kind in PINGS:
        table.row(f"bridge with TLS, {kind} 1 MiB QD16", "GB/s", "AES-256-GCM of one CPU",
                  ("at least", 0.8), 1e-9)


# --- distance -------------------------------------------------------------------------------------

READ, COMMIT = {"mix": 100}, {"mix": 0, "flush": 1}
SHAPES = {"read 4 KiB QD1": (4096, 1, READ), "read 4 KiB QD64": (4096, 64, READ),
          "read 1 MiB QD32": (MIB, 32, READ), "write 4 KiB and flush": (4096, 1, COMMIT)}


class Nbd:
    """An NBD server in memory behind a relay that does what the bridge's does."""

    def __init__(self, bridge):
        self.size = bridge.size
        port, self.reached, folder = free_port(), free_port(), bridge.near.folder
        if not shutil.which("nbdkit"):
            raise Unavailable("nbdkit is not installed")
        fio.need()
        self.folder = folder
        self.processes = [
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            for words in (["nbdkit", "-f", "-i", "127.0.0.1", "-p", str(port), "memory",
                           str(self.size)],
                          [bridge.near.place.program("relay"), str(self.reached), str(port),
                           f"{folder}/relay"])]
        time.sleep(0.5)

    def rate(self, block, depth, seconds, kind=READ):
        rw = "randwrite" if kind is COMMIT else "read" if block > 65536 else "randread"
        uri = f"nbd://127.0.0.1:{self.reached}"
        job = fio.jobs(self.folder, [("bench", uri)], rw, depth, max(1, round(seconds)), self.size,
                       *(["--fsync=1"] if kind is COMMIT else []), block=str(block))[0]
        return job["iops"]

    def end(self):
        for process in self.processes:
            process.terminate()
            process.wait()


def distance_round(table, bridge, nbd, rtt, seconds):
    for shape, (block, depth, kind) in SHAPES.items():
        words = {"size": SIZE, "bs": block, "qd": depth, "fill": "no", "seconds": seconds,
                 "pattern": "sequential" if block == MIB else "random", **kind}
        found = {"nbdkit": nbd.rate(block, depth, seconds, kind)}
        for who, peer in (("bridge", "far0"), ("cache", "cache0")):
            run = bridge.near.load(peer, **words)
            found[who] = run["write" if kind is COMMIT else "read"]["ops"] / run["seconds"]
        for who, rate in found.items():
            table.add(f"{who}, {shape}, RTT {rtt}", rate * block if block == MIB else rate)


def distance(table, options):
    table.head("distance: round trips in ms; cache: one above the bridge that has the data already")
    with Bridge(relay=True) as bridge:
        nbd = Nbd(bridge)
        try:
            bridge.near.start(spec("cache0", "cached", size=SIZE + 32 * MIB, edge_store="far0"),
                              bridge.client.replace("store0", "far0"))
            bridge.near.load("cache0", size=SIZE, bs=MIB, qd=4, seconds=60, mix=100, fill="no",
                             pattern="sequential", count=SIZE // MIB)
            for _ in range(options.rounds):
                for rtt in RTTS:
                    bridge.delay(rtt)
                    distance_round(table, bridge, nbd, rtt, options.seconds)
        finally:
            nbd.end()
    for shape, (block, _, _) in SHAPES.items():
        unit, scale = ("GB/s", 1e-9) if block == MIB else ("1/s", 1)
        for rtt in RTTS:
            for who in ("nbdkit", "bridge", "cache"):
                other = None if who == "nbdkit" else f"nbdkit, {shape}, RTT {rtt}"
                table.row(f"{who}, {shape}, RTT {rtt}", unit, other, scale=scale)


# --- mount ----------------------------------------------------------------------------------------

MOUNT, LARGE = 256 * MIB, 2048 * MIB
FAULT_RTTS = (0, 10)
LARGE_RTTS = (40, 100)


def tier_round(table, bridge, link, name, seconds, rtt):
    rig, words = bridge.near, {"size": bridge.size, "bs": MIB, "mix": 100, "fill": "no",
                               "pattern": "sequential"}
    once = {**words, "qd": 1, "seconds": 100, "count": bridge.size // MIB}
    tier = rig.start(spec("tier0", "tier", edge_store="far0", edge_store_near="near0", parts=256),
                     spec("near0", "blocker_memory", size=bridge.size + 32 * MIB), cpu=0)
    ends = [process.pid for process in (tier, link, bridge.server)]
    try:
        before = sum(map(cpu_ns, ends))
        table.add(f"mount, first, {name}", rig.load("tier0", **once)["ops_per_second"] * MIB)
        table.add(f"mount, CPU, {name}",
                  (sum(map(cpu_ns, ends)) - before) / 1e9 * (1 << 30) / bridge.size)
        table.add(f"mount, again, {name}", rig.load("tier0", **once)["ops_per_second"] * MIB)
    finally:
        rig.end(tier)
    table.add(f"link, first, {name}", rig.load("far0", **words, qd=256, seconds=max(
        seconds, 20 * rtt / 1000))["ops_per_second"] * MIB)


def mount_round(table, bridge, link, nbd, rtt, seconds):
    tier_round(table, bridge, link, f"RTT {rtt}", seconds, rtt)
    table.add(f"nbdkit, first, RTT {rtt}", nbd.rate(MIB, 1, seconds) * MIB)


class Pull:
    """A load that reads far0 in large pieces, over and over, beside the one that is measured."""

    def __init__(self, rig):
        words = {"edge_target": "far0", "time": "60000000000ns", "fresh": "no", "size": MOUNT,
                 "bs": MIB, "qd": 64, "mix": 100, "fill": "no", "pattern": "sequential",
                 "report": f"{rig.folder}/pull.json"}
        self.process = subprocess.Popen(rig.command(1, [spec("pull", "load", **words)]),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env=rig.environment)
        time.sleep(0.3)

    def end(self):
        self.process.terminate()
        self.process.wait()


def fault_round(table, bridge, rtt, seconds):
    small = {"size": MOUNT, "bs": 4096, "qd": 1, "mix": 100, "fill": "no", "pattern": "random",
             "seconds": seconds}
    idle = bridge.near.load("far0", **small)
    pull = Pull(bridge.near)
    try:
        busy = bridge.near.load("far0", **small)
    finally:
        pull.end()
    table.add(f"fault, idle, RTT {rtt}", idle["read"]["p50_ns"] / 1e3)
    table.add(f"fault, pull, RTT {rtt}", busy["read"]["p50_ns"] / 1e3)


def mount(table, options):
    table.head("mount: 256 MiB or 2 GiB, 1 MiB after 1 MiB; link: 256 of them at a time")
    with Bridge(relay=True, size=MOUNT) as bridge:
        nbd = Nbd(bridge)
        try:
            link = bridge.near.start(bridge.client.replace("store0", "far0"), cpu=0)
            for _ in range(options.rounds):
                for rtt in RTTS:
                    bridge.delay(rtt)
                    mount_round(table, bridge, link, nbd, rtt, options.seconds)
                    if rtt in FAULT_RTTS:
                        fault_round(table, bridge, rtt, options.seconds)
        finally:
            nbd.end()
    with Bridge(relay=True, size=MOUNT if options.quick else LARGE) as bridge:
        link = bridge.near.start(bridge.client.replace("store0", "far0"), cpu=0)
        for _ in range(options.rounds):
            for rtt in LARGE_RTTS:
                bridge.delay(rtt)
                tier_round(table, bridge, link, f"2 GiB, RTT {rtt}", options.seconds, rtt)
    for rtt in RTTS:
        table.row(f"nbdkit, first, RTT {rtt}", "GB/s", scale=1e-9)
    for name in (*(f"RTT {rtt}" for rtt in RTTS), *(f"2 GiB, RTT {rtt}" for rtt in LARGE_RTTS)):
        table.row(f"link, first, {name}", "GB/s", scale=1e-9)
        table.row(f"mount, first, {name}", "GB/s", f"link, first, {name}",
                  ("at least", 0.9), 1e-9)
        table.row(f"mount, again, {name}", "GB/s", scale=1e-9)
        table.row(f"mount, CPU, {name}", "s/GiB")
    for rtt in FAULT_RTTS:
        table.row(f"fault, idle, RTT {rtt}", "us")
        table.row(f"fault, pull, RTT {rtt}", "us", f"fault, idle, RTT {rtt}", ("at most", 2))


# --- slow -----------------------------------------------------------------------------------------

SLOW = 48 * MIB
RATES = {"100 Mbit/s": 12500000, "1 Gbit/s": 125000000, "loopback": 0}


def programs_of(folder, size):
    """What a disk with a system on it has: machine code, for the most part."""
    path = f"{folder}/programs"
    with open(path, "wb") as out:
        for name in sorted(os.listdir("/usr/bin")):
            if out.tell() < size and os.path.isfile(f"/usr/bin/{name}"):
                with open(f"/usr/bin/{name}", "rb") as program:
                    out.write(program.read(size - out.tell()))
        out.truncate(size)
    return path


def copied(table, name, words):
    begun = time.monotonic()
    output_of(["nbdcopy", "--request-size=1048576", *words])
    table.add(name, SLOW / (time.monotonic() - begun))


def slow(table, options):
    table.head("slow: programs of this host, copied through a link that carries so much")
    if not shutil.which("nbdcopy"):
        raise Unavailable("nbdcopy is not installed")
    with Bridge(relay=True, spare=2 * SIZE) as bridge:
        folder = bridge.near.folder
        uris = {"as it is": f"nbd+unix:///v?socket={folder}/no.nbd",
                "compressed": f"nbd+unix:///v?socket={folder}/yes.nbd"}
        for word in ("no", "yes"):
            bridge.near.start(
                bridge.client.replace("store0=", f"{word}=") + f",compress={word}",
                spec(f"{word}-volume", "volume", edge_store=word, fixed=f"v:{SLOW}"),
                spec(f"{word}-nbd", "front_nbd", edge_volume=f"{word}-volume",
                     listen=f"unix:{folder}/{word}.nbd"), cpu=0)
        source = programs_of(folder, SLOW)
        for _ in range(options.rounds):
            for rate, bytes_per_second in RATES.items():
                bridge.network(f"rate={bytes_per_second}")
                time.sleep(1.2)  # until what was known of the link before is forgotten
                for who, uri in uris.items():
                    copied(table, f"{who}, write, {rate}", [source, uri])
                    copied(table, f"{who}, read, {rate}", [uri, "null:"])
    for rate, bytes_per_second in RATES.items():
        goal = ("at least", 1.1 if bytes_per_second else 0.9)
        for way in ("write", "read"):
            table.row(f"as it is, {way}, {rate}", "MB/s", scale=1e-6)
            table.row(f"compressed, {way}, {rate}", "MB/s", f"as it is, {way}, {rate}", goal,
                      scale=1e-6)


TABLES = {"loopback": loopback, "distance": distance, "mount": mount, "slow": slow}


def main():
    options = tables.arguments(tables.parser_of(__doc__, TABLES), TABLES, 0.2)
    return tables.run("bridge", TABLES, options, lambda: Rig(64 * MIB), ("load",))


if __name__ == "__main__":
    sys.exit(main())
