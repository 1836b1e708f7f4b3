#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that mean no good, on a region front's socket (<xseg/region_wire.h>).

    region_rude.py SOCKET VOLUME SECONDS

First each thing that must be refused, then nonsense at random for so long. Prints what was not as
it must be; the front must serve a polite program afterwards, which is for others to see.
"""

import os
import random
import socket
import struct
import sys
import time

MAGIC, VERSION = 0x6E676572, 1
OPEN, ARM, SYNC, FETCH, ADVISE, STATUS, LEAVE = range(1, 8)
HEAD = struct.Struct("=IHHIiQQQQ")
SIZE = HEAD.size + 256
EINVAL, ENOENT, EROFS = 22, 2, 30
FAULTS = []


def message(kind, offset=0, size=0, arg=0, text=b"", **other):
    head = HEAD.pack(other.get("magic", MAGIC), other.get("version", VERSION), kind,
                     other.get("serial", 7), 0, offset, size, arg, other.get("token", 0))
    return head + text[:256].ljust(256, b"\0")


class Rude:
    """One connection."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(120)
        self.socket.connect(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data, *fds):
        try:
            if fds:
                socket.send_fds(self.socket, [data], list(fds))
            else:
                self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def answer(self):
        """(error, size, token), or None: thrown out."""
        got = b""
        while len(got) < SIZE:
            try:
                more, fds, _, _ = socket.recv_fds(self.socket, SIZE - len(got), 4)
            except ConnectionResetError:
                return None
            for one in fds:
                os.close(one)
            if not more:
                return None
            got += more
        fields = HEAD.unpack(got[:HEAD.size])
        return -fields[4], fields[6], fields[8]

    def ask(self, *words, fds=(), **more):
        self.send(message(*words, **more), *fds)
        return self.answer()


def expect(what, got, wanted):
    got = got[0] if isinstance(got, tuple) else got
    if got != wanted:
        FAULTS.append(f"{what}: {got}, not {wanted}")


def laws(path, volume):
    name = volume.encode()
    for what, data in (("no magic", message(OPEN, text=name, magic=1)),
                       ("another version", message(OPEN, text=name, version=9)),
                       ("a type that is none", message(99)), ("type 0", message(0))):
        with Rude(path) as rude:
            rude.send(data)
            expect(what, rude.answer(), None)
    with Rude(path) as rude:
        rude.send(message(OPEN, text=name)[:100])
    for kind in (ARM, SYNC, FETCH, ADVISE, STATUS, LEAVE):
        with Rude(path) as rude:
            expect(f"{kind} before OPEN", rude.ask(kind), EINVAL)
    for what, words, error in (
            ("no such volume", {"text": b"nowhere"}, ENOENT),
            ("no name", {"text": b""}, ENOENT),
            ("a name without an end", {"text": b"x" * 256}, ENOENT),
            ("an offset inside a page", {"text": name, "offset": 5}, EINVAL),
            ("a size without end", {"text": name, "size": 2**64 - 1}, EINVAL),
            ("an offset without end", {"text": name, "offset": 2**64 - 4096}, EINVAL),
            ("flags", {"text": name, "arg": 2**40}, EINVAL)):
        with Rude(path) as rude:
            got = rude.ask(OPEN, **words)
            if not got or got[0] not in (error, 36, EINVAL):
                FAULTS.append(f"OPEN with {what}: {got}")
    with Rude(path) as rude:
        expect("OPEN", rude.ask(OPEN, text=name), 0)
        expect("OPEN twice", rude.ask(OPEN, text=name), EINVAL)
        expect("SYNC before ARM", rude.ask(SYNC, size=4096), EINVAL)
        expect("ARM without a descriptor", rude.ask(ARM, arg=1 << 30), EINVAL)
        with open("/dev/null", "rb") as null:
            expect("ARM at 0", rude.ask(ARM, fds=(null.fileno(),)), EINVAL)
            expect("ARM inside a page", rude.ask(ARM, arg=5, fds=(null.fileno(),)), EINVAL)
            expect("ARM at the end of all", rude.ask(
                ARM, arg=2**64 - 4096, fds=(null.fileno(),)), EINVAL)
            many = (null.fileno(),) * 3
            rude.ask(ARM, arg=1 << 30, fds=many)
        rude.ask(STATUS)
        for kind in (SYNC, FETCH, ADVISE):
            got = rude.ask(kind, offset=2**63, size=2**63)
            if got and got[0] != EINVAL:
                FAULTS.append(f"{kind} beyond the end: {got}")


def nonsense(path, volume, seconds):
    end = time.monotonic() + seconds
    numbers = (0, 1, 4095, 4096, 65536, 1 << 30, 2**32, 2**63, 2**64 - 4096, 2**64 - 1)
    while time.monotonic() < end:
        with Rude(path) as rude:
            if random.random() < 0.7:
                rude.ask(OPEN, text=volume.encode(), arg=random.randrange(4))
            with open("/dev/zero", "rb") as zero:
                for _ in range(random.randrange(6)):
                    data = bytearray(message(
                        random.randrange(9), random.choice(numbers), random.choice(numbers),
                        random.choice(numbers), token=random.choice(numbers)))
                    if random.random() < 0.3:
                        data[random.randrange(len(data))] = random.randrange(256)
                    rude.send(bytes(data), *([zero.fileno()] if random.random() < 0.3 else []))
                    if random.random() < 0.5:
                        rude.socket.settimeout(0.05)
                        try:
                            rude.answer()
                        except TimeoutError:
                            pass


def main():
    path, volume, seconds = sys.argv[1:]
    laws(path, volume)
    nonsense(path, volume, float(seconds))
    for fault in FAULTS:
        print(fault)
    return 1 if FAULTS else 0


if __name__ == "__main__":
    sys.exit(main())
