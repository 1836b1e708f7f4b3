#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies of a volume that is being written to are each what it was at one moment.

    volume_prefix_write.py SOCKET XSEGCTL VOLUME [--copies N] [--until FILE] [--torn]

Writers on connections of their own work in groups: each does one write, and when all of a group
have been answered the next one begins. What they write, and where, is known beforehand. Meanwhile
snapshots and clones are made. Each must hold all groups up to one of them, any of the writes of the
group after it, and nothing else; and no group may be missing that had been answered when it was
asked for. They are looked at as soon as they are there, and again when all is over.

Pieces of 4 KiB lie 5 KiB apart, so that they straddle clusters and objects. A piece that was never
written holds what the caller has put there: that of group 0.
"""

import argparse
import os
import random
import struct
import subprocess
import sys
import threading
import time

import nbd

PIECE, APART, FIRST = 4096, 5120, 512
PIECES, WRITERS = 384, 6
SIZE = 2 * 1024 * 1024
ALIVE_S, EXISTS = 60, 4


def pattern(piece, group):
    return struct.pack("<QQ", piece, group) * (PIECE // 16)


def place(piece):
    return FIRST + piece * APART


class Plan:
    """What each group writes: pieces, one for each writer, and whether they become zeros."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.groups = [[]]

    def group(self, number):
        while len(self.groups) <= number:
            pieces = self.random.sample(range(PIECES), WRITERS)
            self.groups.append([(piece, self.random.random() < 0.15) for piece in pieces])
        return self.groups[number]

    def contents(self, number):
        """Of all pieces, when all groups up to this one are done."""
        found = {piece: pattern(piece, 0) for piece in range(PIECES)}
        for group in range(1, number + 1):
            found.update(self.written(group))
        return found

    def written(self, number):
        return {piece: bytes(PIECE) if zero else pattern(piece, number)
                for piece, zero in self.group(number)}


class Writers:
    def __init__(self, path, volume, plan):
        self.plan, self.over, self.last, self.trouble = plan, False, False, []
        self.begun = self.done = 0
        self.barrier = threading.Barrier(WRITERS, self.next)
        plan.group(1)
        self.begun = 1
        self.threads = [threading.Thread(target=self.run, args=(i, connect(path, volume)))
                        for i in range(WRITERS)]
        for thread in self.threads:
            thread.start()

    def next(self):
        """All of the group have been answered; nobody goes on alone, and nobody stays behind."""
        self.done = self.begun
        self.plan.group(self.begun + 1)
        self.last = self.over
        if not self.last:
            self.begun += 1

    def run(self, number, handle):
        try:
            while not self.last:
                group = self.begun
                piece, zero = self.plan.group(group)[number]
                if zero:
                    handle.zero(PIECE, place(piece),
                                nbd.CMD_FLAG_NO_HOLE if piece % 2 else 0)
                else:
                    handle.pwrite(pattern(piece, group), place(piece))
                if number == 0 and group % 3 == 0:
                    handle.flush()
                self.barrier.wait()
        except (nbd.Error, threading.BrokenBarrierError) as error:
            self.trouble.append(str(error))
            self.barrier.abort()

    def stop(self):
        self.over = True
        for thread in self.threads:
            thread.join()


def connect(path, name):
    handle = nbd.NBD()
    handle.set_export_name(name)
    handle.connect_unix(path)
    return handle


class Copies:
    def __init__(self, options, plan, writers):
        self.options, self.plan, self.writers = options, plan, writers
        self.made = []

    def control(self, *args):
        """Said again when somebody was killed meanwhile: it may have been done then."""
        end, again = time.monotonic() + ALIVE_S, False
        while True:
            done = subprocess.run([self.options.xsegctl, "volume", *args], capture_output=True,
                                  text=True, check=False)
            if done.returncode == 0 or (again and done.returncode == EXISTS):
                return
            again = True
            if time.monotonic() > end:
                sys.exit(f"volume {' '.join(args)}: {done.stderr}")
            time.sleep(0.1)

    def make(self, number):
        volume = self.options.volume
        name = f"{volume}{number}" if number % 3 == 0 else f"{volume}@{number}"
        done = self.writers.done
        if number % 3 == 0:
            self.control("clone", volume, name)
        else:
            self.control("snapshot", name)
        self.made.append([name, done, self.writers.begun, None])
        if number % 3 == 1:
            clone = f"{volume}{number}c"
            self.control("clone", name, clone)
            self.made.append([clone, done, self.made[-1][2], None])

    def look(self, copy):
        """At which group it is, the same as at the last look."""
        name, done, begun, was = copy
        handle = connect(self.options.socket, name)
        data = bytes(handle.pread(SIZE, 0))
        handle.shutdown()
        if was is not None and data != was:
            sys.exit(f"{name} has changed")
        copy[3] = data
        found = {piece: data[place(piece):place(piece) + PIECE] for piece in range(PIECES)}
        whole = self.plan.contents(done)
        for group in range(done, begun + 1):
            some = self.plan.written(group + 1)
            if all(self.fits(found[piece], whole[piece], some.get(piece)) for piece in found):
                return group
            whole.update(some)
        self.complain(copy, found)

    def fits(self, data, old, new):
        """A write that has not been answered was done, or not; by halves if who did it was killed
        in the middle, and the next one had not yet begun it anew."""
        if data in (old, new) or new is None or not self.options.torn:
            return data in (old, new)
        return all(data[at:at + 512] in (old[at:at + 512], new[at:at + 512])
                   for at in range(0, PIECE, 512))

    def complain(self, copy, found):
        name, done, begun, _ = copy
        whole, seen = self.plan.contents(done), {}
        for piece, data in found.items():
            if data != whole[piece]:
                torn = len({data[i:i + 16] for i in range(0, PIECE, 16)}) > 1
                seen[piece] = "torn" if torn else struct.unpack_from("<QQ", data)
        sys.exit(f"{name} is at no group from {done} to {begun}; not as {done}: {seen}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("xsegctl")
    parser.add_argument("volume")
    parser.add_argument("--copies", type=int, default=12)
    parser.add_argument("--until", help="go on until this file is there")
    parser.add_argument("--torn", action="store_true", help="there are kills")
    parser.add_argument("--prepare", action="store_true", help="only write group 0")
    options = parser.parse_args()
    if options.prepare:
        handle = connect(options.socket, options.volume)
        for piece in range(PIECES):
            handle.pwrite(pattern(piece, 0), place(piece))
        handle.flush()
        handle.shutdown()
        return
    plan = Plan(int(os.environ.get("PREFIX_SEED", str(time.time_ns()))))
    writers = Writers(options.socket, options.volume, plan)
    copies = Copies(options, plan, writers)
    try:
        print("under way", flush=True)
        number = 0
        while number < options.copies or (options.until and not os.path.exists(options.until)):
            copies.make(number)
            copies.look(copies.made[-1])
            number += 1
    finally:
        writers.stop()
    if writers.trouble:
        sys.exit(f"a writer: {writers.trouble[0]}")
    for copy in copies.made:
        copies.look(copy)
    copies.made = [[options.volume, writers.done, writers.begun, None]]
    copies.look(copies.made[0])
    print(f"{number} copies, {writers.done} groups")


if __name__ == "__main__":
    main()
