#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load on an export whose servers are being killed; everything that is read is checked.

    nbd_recover.py URI --until FILE [--reconnect] [--blocks N] [--depth N]

Writes, reads and flushes blocks of 4 KiB until FILE exists, then reads all back. A block that was
read or acknowledged has one value; a write that was in flight when the connection broke may have
been done or not, but once a read has told which, it must stay so: never half, never later.

Without --reconnect a lost connection is an error; any error of the server is one always.
"""

import argparse
import errno
import os
import random
import struct
import sys
import time

import nbd

BLOCK = 4096
ALIVE_S = 30


def pattern(block, sequence):
    return struct.pack("<QQ", block, sequence) * (BLOCK // 16)


def sequence_of(block, data):
    """What was written there, or a complaint."""
    found, sequence = struct.unpack_from("<QQ", data)
    if data == bytes(BLOCK):
        return 0
    if data != pattern(found, sequence):
        raise ValueError(f"block {block} is torn")
    if found != block:
        raise ValueError(f"block {block} holds block {found}")
    return sequence


class Slot:
    """One request at a time, on blocks that are no other slot's."""

    def __init__(self, load, number):
        self.load, self.number = load, number
        self.blocks = range(number, load.blocks, load.depth)
        self.truth = {}
        self.maybe = {}
        self.kind = None
        self.buffer = nbd.Buffer(BLOCK)
        self.busy = False

    def choose(self, kind=None, block=None):
        self.kind = kind or random.choices(["write", "fua", "read", "flush"], [40, 10, 45, 5])[0]
        self.block = random.choice(self.blocks) if block is None else block
        # what may or may not have been written must be read before it is written again
        if self.block in self.maybe and self.kind in ("write", "fua"):
            self.kind = "read"
        if self.kind in ("write", "fua"):
            self.load.sequence += 1
            self.sequence = self.load.sequence
        self.send()

    def send(self):
        handle, offset = self.load.handle, self.block * BLOCK
        self.busy = True
        self.began = time.monotonic()
        if self.kind == "read":
            handle.aio_pread(self.buffer, offset, self.done)
        elif self.kind == "flush":
            handle.aio_flush(self.done)
        else:
            data = nbd.Buffer.from_bytearray(bytearray(pattern(self.block, self.sequence)))
            flags = nbd.CMD_FLAG_FUA if self.kind == "fua" else 0
            handle.aio_pwrite(data, offset, self.done, flags)

    def done(self, error):
        self.busy = False
        error = getattr(error, "value", error)
        if error:
            self.load.failed(self, error)
            return 1
        self.load.note(self)
        if self.kind in ("write", "fua"):
            self.truth[self.block] = self.sequence
            self.maybe.pop(self.block, None)
        elif self.kind == "read":
            self.check(bytes(self.buffer.to_bytearray()))
        return 1

    def check(self, data):
        try:
            found = sequence_of(self.block, data)
        except ValueError as error:
            self.load.wrong(str(error))
            return
        allowed = {self.truth.get(self.block, 0)} | self.maybe.get(self.block, set())
        if found not in allowed:
            self.load.wrong(f"block {self.block} holds write {found}, allowed {sorted(allowed)}")
        self.truth[self.block] = found
        self.maybe.pop(self.block, None)

    def broken(self):
        """Its request was not answered: sent again, or given up and looked at."""
        if self.kind not in ("write", "fua"):
            self.send()
        elif random.random() < 0.5:
            self.send()
        else:
            self.maybe.setdefault(self.block, set()).add(self.sequence)
            self.choose("read", self.block)


class Load:
    def __init__(self, options):
        self.options = options
        self.blocks, self.depth = options.blocks, options.depth
        self.first = self.sequence = time.time_ns()  # another load's are other numbers
        self.answers = self.breaks = 0
        self.longest = 0.0
        self.problems = []
        self.lost = set()
        self.handle = None
        self.connect()
        self.slots = [Slot(self, i) for i in range(self.depth)]

    def connect(self):
        end = time.monotonic() + ALIVE_S
        while True:
            self.handle = nbd.NBD()
            try:
                self.handle.connect_uri(self.options.uri)
                return
            except nbd.Error:
                if time.monotonic() > end:
                    raise
                time.sleep(0.005)

    def wrong(self, text):
        self.problems.append(text)

    def note(self, slot):
        self.answers += 1
        self.longest = max(self.longest, time.monotonic() - slot.began)

    def gone(self):
        return self.handle.aio_is_dead() or self.handle.aio_is_closed()

    def failed(self, slot, error):
        """The server's errors are told from the connection's when it is known to be broken."""
        slot.error = error
        self.lost.add(slot)

    def sort_failures(self):
        if not self.lost:
            return
        if not self.gone():
            for slot in self.lost:
                self.wrong(f"{slot.kind} of block {slot.block}: {os.strerror(slot.error)}")
            self.lost.clear()

    def reconnect(self):
        began = time.monotonic()
        if not self.options.reconnect:
            raise SystemExit("the connection was lost")
        lost = set(self.lost)
        self.lost.clear()
        self.breaks += 1
        self.connect()
        for slot in self.slots:
            if slot in lost or slot.busy:
                self.attempt(slot, slot.broken)
        self.longest = max(self.longest, time.monotonic() - began)

    def attempt(self, slot, send):
        """Sends its request; the connection may be broken already, again."""
        try:
            send()
        except nbd.Error:
            slot.busy = False
            slot.error = errno.ENOTCONN
            self.lost.add(slot)

    def poll(self):
        try:
            self.handle.poll(100)
        except nbd.Error as error:
            if not self.gone():
                self.wrong(str(error))

    def turn(self, go_on):
        if self.gone():
            self.reconnect()
        for slot in self.slots:
            if not slot.busy and slot not in self.lost and go_on:
                self.attempt(slot, slot.choose)
        self.poll()
        self.sort_failures()

    def drain(self):
        end = time.monotonic() + ALIVE_S
        while any(slot.busy for slot in self.slots) or self.lost:
            self.turn(False)
            if time.monotonic() > end:
                raise SystemExit("requests are never answered")

    def look_at_all(self):
        for slot in self.slots:
            for block in slot.blocks:
                self.attempt(slot, lambda: slot.choose("read", block))
                while slot.busy or slot in self.lost:
                    self.turn(False)

    def survey(self):
        """What somebody else has left there."""
        for block in range(self.blocks):
            data = self.handle.pread(BLOCK, block * BLOCK)
            self.slots[block % self.depth].truth[block] = sequence_of(block, bytes(data))

    def run(self):
        end = time.monotonic() + self.options.limit
        self.survey()
        print("under way", flush=True)
        while not os.path.exists(self.options.until) and not self.problems:
            self.turn(True)
            if time.monotonic() > end:
                raise SystemExit("nobody said that it is enough")
        self.drain()
        self.look_at_all()

    def report(self):
        for text in self.problems[:10]:
            print(text)
        writes = self.sequence - self.first
        print(f"{self.answers} answers, {writes} writes, {self.breaks} reconnects, "
              f"longest {self.longest * 1000:.0f} ms, {len(self.problems)} problems")
        return 1 if self.problems or self.answers < 100 else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("uri")
    parser.add_argument("--until", required=True)
    parser.add_argument("--reconnect", action="store_true")
    parser.add_argument("--blocks", type=int, default=512)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--limit", type=float, default=60)
    load = Load(parser.parse_args())
    load.run()
    return load.report()


sys.exit(main())
