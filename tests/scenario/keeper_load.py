#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes and verifies blocks over NBD until a file appears; what was acknowledged must be there.

keeper_load.py URI STOP_FILE [--reconnect] [--errors] [--high]

Says "started", at the end how many requests and how long the longest took. --high: other blocks
than those without it, so that two may run on one volume. --reconnect: a broken
connection is made anew, and a write that was not answered may be there or not. --errors: a
refused request is counted, and likewise."""

import os
import random
import sys
import time

import nbd

BLOCK, BLOCKS = 4096, 512
FIRST = 4 * BLOCKS if "--high" in sys.argv else 0
reconnects = "--reconnect" in sys.argv
forgives = "--errors" in sys.argv


def block_of(index, sequence):
    return (b"%015d %015d " % (index, sequence)) * (BLOCK // 32)


class Load:
    def __init__(self, uri):
        self.uri, self.sequence, self.count, self.errors, self.worst = uri, 0, 0, 0, 0.0
        self.kinds = set()
        self.may = [set() for _ in range(BLOCKS)]  # what each block may hold
        self.connect()

    def connect(self):
        end = time.monotonic() + 120
        while True:
            self.handle = nbd.NBD()
            try:
                self.handle.connect_uri(self.uri)
                return
            except nbd.Error:
                if not reconnects or time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def lost(self, error):
        """A request failed."""
        self.errors += 1
        self.kinds.add(error.errno)
        if self.handle.aio_is_ready():
            if not forgives:
                raise error
            time.sleep(0.05)
        elif reconnects:
            self.connect()
        else:
            raise error

    def write(self, index):
        self.sequence += 1
        block = block_of(index, self.sequence)
        self.may[index].add(block)
        self.handle.pwrite(block, (FIRST + index) * BLOCK)
        self.may[index] = {block}

    def read(self, index):
        got = bytes(self.handle.pread(BLOCK, (FIRST + index) * BLOCK))
        if got not in self.may[index]:
            sys.exit(f"block {index}: {got[:32]!r} is none of "
                     f"{[bytes(b[:32]) for b in self.may[index]]}")
        self.may[index] = {got}

    def step(self):
        began, what = time.monotonic(), random.random()
        index = random.randrange(BLOCKS)
        try:
            if what < 0.02:
                self.handle.flush()
            elif what < 0.55:
                self.write(index)
            else:
                self.read(index)
        except nbd.Error as error:
            self.lost(error)
        self.count += 1
        self.worst = max(self.worst, time.monotonic() - began)
        if self.count % 32 == 0:
            time.sleep(0.005)  # several of these run at once, and are not all that runs

    def check(self):
        for index in range(BLOCKS):
            while True:
                try:
                    self.read(index)
                    break
                except nbd.Error as error:
                    self.lost(error)


def main():
    random.seed(os.environ.get("SEED", "1"))
    load = Load(sys.argv[1])
    for index in range(BLOCKS):
        load.write(index)
    for _ in range(200):
        load.step()
    print("started", flush=True)
    while not os.path.exists(sys.argv[2]):
        load.step()
    load.check()
    print(f"{load.count} requests, the longest {load.worst * 1000:.1f} ms, {load.errors} errors",
          *sorted(load.kinds, key=str))


main()
