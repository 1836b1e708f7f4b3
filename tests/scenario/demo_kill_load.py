#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills every process of a running pipeline, one after the other, while clients write and read.

    demo_kill_load.py URI [--clients N] [--rounds N]

Every block that is written says which write it was; what is read back must be the last one that was
acknowledged. A client whose connection is lost connects again and sends once more what had no
answer, as QEMU and the kernel do.
Ends with 1 when anybody saw an error, or other bytes than were written.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True          # the source tree stays as it was
from nbd_wire import READ, WRITE, Broken, Closed, Place, Wire

BLOCK, BLOCKS = 4096, 256               # of one client: 1 MiB each
LIMIT = 300                             # seconds until something is called lost
AFTER = 0.4                             # seconds of load between two kills


class Client(threading.Thread):
    """Writes and reads blocks of its own, each with its number in it, and never gives up."""

    def __init__(self, place, number):
        super().__init__(daemon=True)
        self.place, self.base = place, number * BLOCKS * BLOCK
        self.random = random.Random(number)
        self.written = [0] * BLOCKS     # of each block, the last write that was acknowledged
        self.over, self.wire = threading.Event(), None
        self.done, self.lost_lines, self.trouble = [], 0, []

    def content(self, block, number):
        return f"{self.base + block * BLOCK} {number}\n".encode().ljust(32) * (BLOCK // 32)

    def connect(self):
        end = time.monotonic() + LIMIT
        while True:
            try:
                self.wire = Wire(self.place, LIMIT)
                self.wire.greet()
                self.wire.go()
                return
            except (Closed, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.002)

    def ask(self, command, offset, payload=b""):
        """One request, on as many connections as it takes."""
        while True:
            try:
                if self.wire is None:
                    self.connect()
                answer = self.wire.call(command, offset, BLOCK, 0, payload)
            except (Closed, ConnectionError):
                self.wire.close()
                self.wire = None
                self.lost_lines += 1
                continue
            if answer.error:
                raise Broken(f"{'read' if command == READ else 'write'} at {offset}: "
                             f"{os.strerror(answer.error)}")
            return answer.data

    def turn(self, number):
        block = self.random.randrange(BLOCKS)
        offset = self.base + block * BLOCK
        if self.written[block] and number % 2:
            if self.ask(READ, offset) != self.content(block, self.written[block]):
                raise Broken(f"other bytes at {offset} than write {self.written[block]}")
        else:
            self.ask(WRITE, offset, self.content(block, number))
            self.written[block] = number
        self.done.append(time.monotonic())

    def run(self):
        number = 0
        try:
            while not self.over.is_set():
                number += 1
                self.turn(number)
            for block, last in enumerate(self.written):
                if last and self.ask(READ, self.base + block * BLOCK) != self.content(block, last):
                    raise Broken(f"write {last} of block {block} is lost")
        except (Broken, Closed, OSError) as error:
            self.trouble.append(f"{type(error).__name__}: {error}")

    def pause(self, since):
        """The longest time without an answer from then on."""
        times = [t for t in list(self.done) if t > since - 1]
        gaps = [b - max(a, since) for a, b in zip(times, times[1:]) if b > since]
        return max(gaps, default=float("inf"))


# --- the pipeline

def status():
    out = subprocess.run(["xsegctl", "status", "--json"], capture_output=True, timeout=LIMIT,
                         check=False)
    return json.loads(out.stdout)


def processes(said):
    """[(what runs in it, pid)], those who start the others last."""
    rows = {}
    for peer in said["peers"]:
        if peer["pid"]:
            rows.setdefault(peer["pid"], []).append(peer["name"])
    found = [(" ".join(names), pid) for pid, names in rows.items()]
    keeper = said["keeper"]
    return found + [("the keeper", keeper.get("pid", 0)), ("its guard", keeper.get("guard_pid", 0))]


def wait_back(names, dead):
    """Until all serves again, by another process; its pid."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        said = status()
        back = [pid for who, pid in processes(said) if who == names and pid not in (0, dead)]
        if back and said["healthy"]:
            return back[0]
        time.sleep(0.02)
    raise Broken(f"{names} did not come back within {LIMIT} s")


def kill(names, pid, clients):
    """Seconds of the longest pause that a client saw."""
    since = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    wait_back(names, pid)
    time.sleep(AFTER)
    return max(client.pause(since) for client in clients)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("uri")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    return parser.parse_args()


def rounds(options, clients):
    print(f"  {'killed':<24} {'process':>8}   longest pause of a client")
    for _ in range(options.rounds):
        for names, pid in processes(status()):
            took = kill(names, pid, clients)
            print(f"  {names:<24} {pid:>8}   {1000 * took:.0f} ms", flush=True)


def main():
    options, place = arguments(), None
    place = Place(options.uri)
    clients = [Client(place, number) for number in range(options.clients)]
    trouble = []
    for client in clients:
        client.start()
    time.sleep(AFTER)
    try:
        rounds(options, clients)
    except (Broken, OSError, subprocess.SubprocessError) as error:
        trouble.append(f"{type(error).__name__}: {error}")
    for client in clients:
        client.over.set()
    for client in clients:
        client.join(LIMIT)
        trouble += client.trouble + ["a client hangs"] * client.is_alive()
    answers = sum(len(client.done) for client in clients)
    again = sum(client.lost_lines for client in clients)
    print(f"  {answers} answers, {again} connections made again, every acknowledged write read "
          f"back: {len(trouble)} errors")
    for line in trouble:
        print(f"  {line}")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
