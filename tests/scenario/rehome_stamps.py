#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One of several clients of a volume, on any host: writes stamps, and reads everybody's.

rehome_stamps.py URI BOARD ME COUNT STOP_FILE

Sector s belongs to client s % COUNT, who alone writes it, with its number, his own and a sequence.
BOARD is a file that all of them have mapped: for each sector which sequence was begun last, and
which was acknowledged last. Who reads a sector sees no older one than was acknowledged before, and
no newer one than was begun when he has it: else a write was lost, or one that was overtaken came
late, on whatever host. A request that a broken connection left open is made again."""

import mmap
import os
import random
import struct
import sys
import time

import nbd

SECTOR, SECTORS, LINES = 512, 384, 24
STAMP = struct.Struct("<QQ")


def offset_of(sector):
    """Some share a page, and some an object."""
    return (sector % LINES << 20) + sector // LINES * SECTOR


class Client:
    def __init__(self, uri, board, me, count):
        self.uri, self.me, self.mine = uri, me, list(range(me, SECTORS, count))
        self.count, self.requests, self.worst, self.broken = count, 0, 0.0, 0
        with open(board, "r+b") as file:
            words = memoryview(mmap.mmap(file.fileno(), 16 * SECTORS)).cast("Q")
        self.begun, self.acknowledged = words[:SECTORS], words[SECTORS:]
        self.connect()

    def connect(self):
        end = time.monotonic() + 60
        while True:
            self.handle = nbd.NBD()
            try:
                self.handle.connect_uri(self.uri)
                return
            except nbd.Error:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def persist(self, request, *arguments):
        """An error is one; a broken connection is not."""
        while True:
            try:
                return request(self.handle, *arguments)
            except nbd.Error:
                if self.handle.aio_is_ready():
                    raise
                self.broken += 1
                self.connect()

    def write(self, sector):
        sequence = self.begun[sector] + 1
        self.begun[sector] = sequence
        stamp = STAMP.pack(sector << 8 | self.me, sequence) * (SECTOR // STAMP.size)
        self.persist(nbd.NBD.pwrite, stamp, offset_of(sector))
        self.acknowledged[sector] = sequence

    def read(self, sector):
        least = self.acknowledged[sector]
        data = bytes(self.persist(nbd.NBD.pread, SECTOR, offset_of(sector)))
        most = self.begun[sector]
        who, sequence = STAMP.unpack_from(data)
        whole = data == data[:STAMP.size] * (SECTOR // STAMP.size)
        right = who == (sector << 8 | sector % self.count if sequence else 0)
        if not whole or not right or not least <= sequence <= most:
            sys.exit(f"sector {sector}: {data[:32].hex()} has {sequence} of {who:#x}, "
                     f"and {least} to {most} are right")

    def step(self):
        began, what = time.monotonic(), random.random()
        if what < 0.02:
            self.persist(nbd.NBD.flush)
        elif what < 0.5:
            self.write(random.choice(self.mine))
        else:
            self.read(random.randrange(SECTORS))
        self.requests += 1
        self.worst = max(self.worst, time.monotonic() - began)


def main():
    uri, board, me, count, stop = sys.argv[1:]
    client = Client(uri, board, int(me), int(count))
    for sector in client.mine:
        client.read(sector)
    for _ in range(200):
        client.step()
    print("started", flush=True)
    while not os.path.exists(stop):
        client.step()
    for sector in range(SECTORS):
        client.read(sector)
    print(f"{client.requests} requests, the longest {client.worst * 1000:.1f} ms, "
          f"{client.broken} broken connections")


main()
