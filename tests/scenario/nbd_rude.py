#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rude NBD clients. During and after each the server still serves a polite one, and with --pid
its descriptors, threads and private memory are flat again. Prints TAP and numbers.

    nbd_rude.py URI [--pid PID]... [--turns N] [--only PATTERN]
"""

import argparse
import contextlib
import fnmatch
import os
import random
import socket
import statistics
import struct
import sys
import threading
import time

sys.dont_write_bytecode = True          # the source tree stays as it was
from nbd_rule import pattern
from nbd_wire import (FLUSH, GO, IHAVEOPT, LIST, READ, READ_ONLY, REQUEST, SEND_FLUSH, WRITE,
                      Broken, Closed, Place, Wire)

K, M = 1 << 10, 1 << 20
ACTS = []


def act(function):
    """Registers something rude; it returns the sockets it leaves open, to be held and closed."""
    ACTS.append(function)
    return function


def descriptors(pid):
    """How many a process has. A bell (FIFO) of another peer is opened when that peer first sleeps
    while it is needed, which can be at any time: only a second one to the same bell counts."""
    names = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            names.append(os.readlink(entry.path))
    return len(names) - len({name for name in names if "/bell." in name})


class Host:
    """The server: its place, and what the kernel knows of its processes."""

    def __init__(self, options):
        self.place, self.pids, self.turns = Place(options.uri), options.pid, options.turns
        self.slack_kib = options.slack_mib * 1024

    def dial(self):
        return Wire(self.place, 120)

    def enter(self):
        wire = self.dial()
        wire.greet()
        return wire.go()

    def measure(self):
        """(descriptors, threads, private KiB) over all pids; shared memory is the segment's."""
        total = [0, 0, 0]
        for pid in self.pids:
            total[0] += descriptors(pid)
            for line in open(f"/proc/{pid}/status", encoding="ascii"):
                if line.startswith("Threads:"):
                    total[1] += int(line.split()[1])
                if line.startswith("RssAnon:"):
                    total[2] += int(line.split()[1])
        return tuple(total)


# --- polite

class Polite(threading.Thread):
    """Writes and reads all the while; knows how long that took and whether it was right."""

    def __init__(self, host):
        super().__init__(daemon=True)
        self.host, self.over = host, threading.Event()
        self.times, self.trouble = [], None

    def run(self):
        try:
            with self.host.enter() as wire:
                while not self.over.is_set():
                    self.turn(wire)
                    time.sleep(0.01)
        except (Broken, Closed, OSError) as error:
            self.trouble = f"{type(error).__name__}: {error}"

    def turn(self, wire):
        data, before = pattern(len(self.times), 4 * K), time.monotonic()
        if not wire.flags & READ_ONLY:
            wire.write(12 * M, data)
        got = wire.read(12 * M, 4 * K)
        self.times.append(time.monotonic() - before)
        if not wire.flags & READ_ONLY and got != data:
            raise Broken("a polite client read other bytes than it wrote")

    def finish(self):
        self.over.set()
        self.join(15)
        if self.is_alive():
            self.trouble = "no answer in 15 s"
        return self.trouble


def newcomer(host):
    """A client that comes afterwards; seconds until it was served in full."""
    before = time.monotonic()
    with host.enter() as wire:
        if not wire.flags & READ_ONLY:
            wire.write(13 * M, pattern(7, 64 * K))
            if wire.read(13 * M, 64 * K) != pattern(7, 64 * K):
                raise Broken("a newcomer read other bytes than it wrote")
        if wire.flags & SEND_FLUSH:
            wire.ok(FLUSH)
    return time.monotonic() - before


# --- rude

def shout(sock, data):
    """Sends what the server takes; a server that hangs up is right to."""
    try:
        sock.sendall(data)
    except OSError:
        pass


@act
def garbage_for_a_greeting(host):
    """Random bytes instead of client flags."""
    rng = random.Random(1)
    for _ in range(20 * host.turns):
        sock = host.place.open(2)
        shout(sock, rng.randbytes(rng.choice((1, 3, 5, 64, 4 * K, 256 * K))))
        sock.close()
    return []


@act
def garbage_for_options(host):
    """Random bytes after a proper greeting, some behind a proper option magic."""
    rng = random.Random(2)
    for turn in range(20 * host.turns):
        with host.dial() as wire:
            wire.greet()
            shout(wire.sock, IHAVEOPT * (turn % 2) + rng.randbytes(rng.choice((7, 16, 4 * K, M))))
    return []


@act
def garbage_for_requests(host):
    """Random bytes in the transmission phase, some behind a proper request magic."""
    rng = random.Random(3)
    for turn in range(20 * host.turns):
        with host.enter() as wire:
            magic = struct.pack(">IHH", REQUEST, 0x4000, 99) * (turn % 2)
            shout(wire.sock, magic + rng.randbytes(rng.choice((3, 20, 28, 4 * K, M))))
    return []


@act
def silence(host):
    """Connections that never say a word."""
    return [host.place.open(2) for _ in range(100)]


@act
def slow_handshake(host):
    """Many clients that deliver the handshake byte by byte and never finish."""
    data = struct.pack(">I", 3) + IHAVEOPT + struct.pack(">II", GO, 1000) + bytes(64)
    socks = [host.place.open(2) for _ in range(64)]
    for byte in data[:40]:
        for sock in socks:
            shout(sock, bytes([byte]))
        time.sleep(0.02)
    return socks


@act
def options_without_end(host):
    """Thousands of options, and nobody reads the replies."""
    wires = [host.dial() for _ in range(4)]
    for wire in wires:
        wire.greet()
        wire.sock.settimeout(0.5)
        shout(wire.sock, (IHAVEOPT + struct.pack(">II", LIST, 0)) * 20000)
    return [wire.sock for wire in wires]


@act
def replies_never_read(host):
    """Reads of 256 KiB, a thousand of them a client, and no client reads one answer."""
    wires = [host.enter() for _ in range(8)]
    for wire in wires:
        wire.sock.settimeout(0.5)
        shout(wire.sock, b"".join(wire.pack(READ, n % 32 * 256 * K, 256 * K) for n in range(1000)))
    time.sleep(2)                       # they sit there while the polite one works
    return [wire.sock for wire in wires]


def leave_during(host, count, command):
    for turn in range(20 * host.turns):
        with host.enter() as wire:
            wire.sock.settimeout(0.3)   # a server that waits for us to read need not be waited for
            data = pattern(turn, 4 * K) if command == WRITE else b""
            if data and wire.flags & READ_ONLY:
                return []
            shout(wire.sock, b"".join(wire.pack(command, n % 2048 * 4 * K, 4 * K, 0, data)
                                      for n in range(count)))
            if turn % 3 == 1:
                wire.collect()
            if turn % 3 == 2:           # a reset instead of a proper end
                wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return []


@act
def leave_during_64_reads(host):
    """Gone with 64 reads in flight."""
    return leave_during(host, 64, READ)


@act
def leave_during_1000_reads(host):
    """Gone with 1000 reads in flight."""
    return leave_during(host, 1000, READ)


@act
def leave_during_64_writes(host):
    """Gone with 64 writes in flight."""
    return leave_during(host, 64, WRITE)


@act
def leave_during_1000_writes(host):
    """Gone with 1000 writes in flight."""
    return leave_during(host, 1000, WRITE)


@act
def half_requests(host):
    """Requests that end in the header, or in the payload, and clients that stay."""
    wires = []
    for cut in (1, 4, 20, 27, 28, 29, 5000, 60000):
        for _ in range(8):
            wire = host.enter()
            data = wire.pack(WRITE, 2 * M, 64 * K, 0, bytes(64 * K))
            shout(wire.sock, data[:cut])
            wires.append(wire)
    return [wire.sock for wire in wires]


@act
def trickling_odd_writes(host):
    """Writes off the sectors' boundaries that stop, and go on, in the middle of the payload.

    Beside the polite one's bytes, not over them: the parts that are complete may be written."""
    wires = []
    for offset, size in ((3 * M + 1, 700), (12 * M + 4 * K + 5, 4 * K),
                         (12 * M + 4 * K + 100, 600 * K)) * 4:
        wire = host.dial()
        wire.greet()
        wire.go(kinds=())
        data = wire.pack(WRITE, offset, size, 0, bytes(size))
        shout(wire.sock, data[:len(data) - size // 2])
        wires.append(wire)
    for _ in range(5):
        time.sleep(0.1)
        for wire in wires:
            shout(wire.sock, b"\0")
    return [wire.sock for wire in wires]


@act
def promises_of_gigabytes(host):
    """Writes that announce 4 GiB and send 64 KiB, options that announce 4 GiB."""
    socks = []
    for _ in range(16):
        wire = host.enter()
        header = struct.pack(">IHHQQI", REQUEST, 0, WRITE, 1, 0, 0xFFFFFFFF)
        shout(wire.sock, header + bytes(64 * K))
        other = host.dial()
        other.greet()
        shout(other.sock, IHAVEOPT + struct.pack(">II", LIST, 0xFFFFFFFF) + bytes(64 * K))
        socks += [wire.sock, other.sock]
    return socks


@act
def connect_and_leave(host):
    """Five hundred clients that only knock."""
    for _ in range(500):
        host.place.open(2).close()
    return []


# --- judgement

def settle(host, base):
    """Waits up to two minutes for the server to be flat; the last measurement, and what is not."""
    end = time.monotonic() + 120
    while True:
        now = host.measure()
        growth = [name for name, a, b, slack in
                  zip(("descriptors", "threads", "memory"), now, base, (0, 0, host.slack_kib))
                  if a > b + slack]
        if not growth or time.monotonic() > end:
            return now, growth
        time.sleep(0.1)


def perform(function, host, base):
    """(trouble or '', numbers) of one act."""
    polite, before = Polite(host), time.monotonic()
    polite.start()
    socks = function(host)
    time.sleep(0.3)
    during = host.measure()
    trouble = polite.finish() or ""
    for sock in socks:
        sock.close()
    took = newcomer(host)
    after, growth = settle(host, base)
    if growth:
        trouble += f" grew: {', '.join(growth)}"
    times = [1000 * t for t in polite.times] or [0]
    numbers = (f"polite {len(times)} turns, median {statistics.median(times):.2f} ms, "
               f"max {max(times):.1f} ms; newcomer {1000 * took:.1f} ms")
    if host.pids:
        numbers += (f"; fds {base[0]}/{during[0]}/{after[0]}, threads {base[1]}/{during[1]}/"
                    f"{after[1]}, private KiB {base[2]}/{during[2]}/{after[2]}")
    return trouble.strip(), numbers + f"; {time.monotonic() - before:.1f} s"


def warm_up(host):
    """What a server allocates once is not growth: every kind of act once, small."""
    newcomer(host)
    for wire in [host.enter() for _ in range(64)]:
        wire.close()
    leave_during(argparse.Namespace(enter=host.enter, turns=1), 1000, READ)
    time.sleep(0.5)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("uri")
    parser.add_argument("--pid", type=int, action="append", default=[], help="of the server")
    parser.add_argument("--turns", type=int, default=1, help="repeats the quick acts")
    parser.add_argument("--slack-mib", type=int, default=8, help="private memory may grow by this")
    parser.add_argument("--only", default="*", help="acts to play, as a shell pattern")
    return parser.parse_args()


def main():
    options = arguments()
    host, failed = Host(options), 0
    acts = [f for f in ACTS if fnmatch.fnmatch(f.__name__, options.only)]
    try:
        warm_up(host)
    except (Broken, Closed, OSError) as error:
        print(f"Bail out! the server did not survive the warm-up: {error}")
        return 1
    base = host.measure()
    print("# fds, threads, private memory: before/during/after")
    for number, function in enumerate(acts, 1):
        try:
            trouble, numbers = perform(function, host, base)
        except (Broken, Closed, OSError) as error:
            trouble, numbers = f"{type(error).__name__}: {error}", ""
        failed += bool(trouble)
        print(f"{'not ok' if trouble else 'ok'} {number} - {function.__name__.replace('_', ' ')}")
        for line in filter(None, (trouble, numbers)):
            print(f"#   {line}", flush=True)
    print(f"1..{len(acts)}")
    return 1 if failed or not acts else 0


if __name__ == "__main__":
    sys.exit(main())
