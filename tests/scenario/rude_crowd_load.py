#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A thousand rude NBD clients at once. Somebody polite writes and reads all the while; afterwards
descriptors, threads and memory of the servers and the free pages and requests of the segment are
what they were. Prints TAP and numbers.

    rude_crowd_load.py URI --segment NAME --pid PID... --limit CONNECTIONS [--crowd N]
"""

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True          # the source tree stays as it was
from nbd_rude import Host, Polite, newcomer, shout
from nbd_wire import READ, REQUEST, WRITE, Broken, Closed

K, M = 1 << 10, 1 << 20
MAGAZINES = 3 * 256                     # pages that three lanes may hold ready
NEWCOMERS = 256                         # front_nbd's default
ACTS = []


def act(function):
    """Registers something rude; it returns the sockets it leaves open, to be held and dropped."""
    ACTS.append(function)
    return function


class Town(Host):
    """The servers, and the segment's own books."""

    def __init__(self, options):
        super().__init__(options)
        self.segment, self.crowd, self.limit = options.segment, options.crowd, options.limit

    def books(self):
        """Free pages and free requests, as the segment says; fsck has nothing to say."""
        out = subprocess.run([os.environ.get("XSEGCTL") or "xsegctl", "segment", "fsck",
                              self.segment, "--json"], capture_output=True, check=False)
        said = json.loads(out.stdout)
        if said["problems"]:
            raise Broken(f"fsck: {said['problems'][0]}")
        return said["pages"]["free"], said["requests"]["free"]

    def people(self, count):
        """That many clients, past their handshake."""
        return [self.enter() for _ in range(count)]


def request(command, offset, length, cookie=7):
    return struct.pack(">IHHQQI", REQUEST, 0, command, cookie, offset, length)


def reset(sock):
    """Gone without a goodbye: what was in flight is cut off."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


# --- rude

def dropped(town, one):
    """Three waves of a thousand connections, each dropped with one request in flight."""
    for wave in range(3):
        wires = town.people(town.crowd)
        for number, wire in enumerate(wires):
            shout(wire.sock, one(number % 64))
        for wire in wires:
            reset(wire.sock) if wave % 2 else wire.close()
    return []


@act
def a_thousand_reads_dropped(town):
    """1000 connections gone with 1000 reads in flight, three times."""
    return dropped(town, lambda n: request(READ, n * 64 * K, 64 * K))


@act
def a_thousand_writes_dropped(town):
    """1000 connections gone with 1000 writes in flight, three times."""
    return dropped(town, lambda n: request(WRITE, n * 4 * K, 4 * K) + bytes(4 * K))


@act
def ten_with_a_hundred_each(town):
    """Connections with many requests each, gone before the first answer; a hundred times."""
    for _ in range(100):
        wire = town.enter()
        shout(wire.sock, b"".join(request(READ, n * 4 * K, 4 * K, n) for n in range(100)))
        reset(wire.sock)
    return []


@act
def half_a_request_each(town):
    """1000 requests that end in the header or in the payload; the clients stay."""
    wires = town.people(town.crowd)
    whole = request(WRITE, 2 * M, 16 * K) + bytes(16 * K)
    for number, wire in enumerate(wires):
        shout(wire.sock, whole[:(1, 5, 27, 28, 29, 4000, 16000)[number % 7]])
    return [wire.sock for wire in wires]


@act
def nobody_reads(town):
    """300 clients ask for 4 MiB each and take nothing."""
    wires = town.people(town.crowd * 3 // 10)
    for wire in wires:
        shout(wire.sock, b"".join(request(READ, n * 256 * K, 256 * K, n) for n in range(16)))
    time.sleep(1)
    return [wire.sock for wire in wires]


@act
def silence_to_the_limit(town):
    """Connections that never say a word, more than are allowed: the oldest make room."""
    socks, left = [], 0
    for _ in range(town.limit + 50):
        socks.append(town.place.open(120))
    end = time.monotonic() + 60
    while True:
        left = sum(not gone(sock) for sock in socks)
        if left <= NEWCOMERS or time.monotonic() > end:
            break
        time.sleep(0.05)
    if left > NEWCOMERS:
        raise Closed(f"{left} of them are still there, {NEWCOMERS} may be")
    return socks


@act
def one_volume_to_the_limit(town):
    """As many clients of one volume as get in: the last places are for others."""
    wires = []
    try:
        while len(wires) <= town.limit:
            wires.append(town.enter())
    except (Broken, Closed, OSError):
        pass
    most = town.limit - town.limit // 8
    if len(wires) > most:
        raise Closed(f"{len(wires)} clients of one volume, {most} may be")
    wire = wires.pop()
    wire.sock.close()
    return [wire.sock for wire in wires]


def gone(sock):
    """Has the other side hung up, with or without a greeting?"""
    sock.setblocking(False)
    try:
        while sock.recv(4 * K):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


# --- judgement

def settle(town, base, books):
    """Waits up to two minutes for all to be as before; what is not."""
    end = time.monotonic() + 120
    while True:
        now, pool = town.measure(), town.books()
        grown = [f"{name} {a} (was {b})" for name, a, b, slack in
                 zip(("descriptors", "threads", "private KiB"), now, base, (0, 0, town.slack_kib))
                 if a > b + slack]
        grown += [f"free {name} {a} (were {b})" for name, a, b, slack in
                  zip(("pages", "requests"), pool, books, (MAGAZINES, 0)) if a < b - slack]
        if not grown or time.monotonic() > end:
            return now, pool, grown
        time.sleep(0.1)


def perform(function, town, base, books):
    """(trouble or '', numbers) of one act."""
    polite, before, trouble, socks = Polite(town), time.monotonic(), [], []
    polite.start()
    time.sleep(0.1)                     # it has its place before the crowd comes
    try:
        socks = function(town)
    except (Broken, Closed, OSError) as error:
        trouble.append(f"{type(error).__name__}: {error}")
    during = town.measure()
    for sock in socks:
        sock.close()
    trouble.append(polite.finish() or "")
    took = newcomer(town)
    after, pool, grown = settle(town, base, books)
    trouble += grown
    times = [1000 * t for t in polite.times] or [0]
    return "; ".join(t for t in trouble if t), (
        f"polite {len(times)} turns, max {max(times):.0f} ms; newcomer {1000 * took:.0f} ms; "
        f"fds {base[0]}/{during[0]}/{after[0]}, private KiB {base[2]}/{during[2]}/{after[2]}, "
        f"free pages {books[0]}/{pool[0]}, free requests {books[1]}/{pool[1]}; "
        f"{time.monotonic() - before:.1f} s")


def warm_up(town):
    """What is allocated once is no growth: each kind of act once, smaller."""
    crowd, town.crowd = town.crowd, town.crowd // 4
    for function in ACTS[:-1]:
        for sock in function(town):
            sock.close()
    town.crowd = crowd
    newcomer(town)
    time.sleep(1)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("uri")
    parser.add_argument("--segment", required=True)
    parser.add_argument("--pid", type=int, action="append", default=[], help="of the servers")
    parser.add_argument("--limit", type=int, required=True, help="connections the front allows")
    parser.add_argument("--crowd", type=int, default=1000)
    parser.add_argument("--slack-mib", type=int, default=8, help="private memory may grow by this")
    parser.set_defaults(turns=1)
    return parser.parse_args()


def main():
    town, failed = Town(arguments()), 0
    warm_up(town)
    base, books = town.measure(), town.books()
    print(f"1..{len(ACTS)}")
    for number, function in enumerate(ACTS, 1):
        trouble, numbers = perform(function, town, base, books)
        failed += bool(trouble)
        print(f"{'not ok' if trouble else 'ok'} {number} - {function.__name__}")
        print(f"# {numbers}" + (f"\n# {trouble}" if trouble else ""), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
