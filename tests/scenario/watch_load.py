#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes of a known number on a volume, or as long as a file is not there.

watch_load.py URI reads=N writes=N   so many, 4 KiB each, 8 in flight; prints them
watch_load.py URI until=FILE         two reads for each write until FILE is there
"""

import os
import sys

import nbd_wire as nbd

SIZE = 4096
DEPTH = 8
PLACES = 512


def commands(options):
    """(command, offset) one after the other."""
    if "until" in options:
        number = 0
        while not os.path.exists(options["until"]):
            yield (nbd.WRITE if number % 3 == 2 else nbd.READ), number % PLACES * SIZE
            number += 1
        return
    for number in range(int(options.get("writes", 0))):
        yield nbd.WRITE, number % PLACES * SIZE
    for number in range(int(options.get("reads", 0))):
        yield nbd.READ, number % PLACES * SIZE


def run(wire, options):
    done = {nbd.READ: 0, nbd.WRITE: 0}
    flying = 0
    for command, offset in commands(options):
        payload = b"w" * SIZE if command == nbd.WRITE else b""
        wire.start(command, offset, SIZE, 0, payload)
        done[command] += 1
        flying += 1
        if flying == DEPTH:
            wire.collect()
            flying -= 1
    while flying:
        wire.collect()
        flying -= 1
    print(f"reads={done[nbd.READ]} writes={done[nbd.WRITE]}")


def main():
    options = dict(word.split("=", 1) for word in sys.argv[2:])
    # its server may be stopped for as long as somebody looks at it
    with nbd.Wire(nbd.Place(sys.argv[1]), timeout=600) as wire:
        wire.greet()
        wire.go()
        run(wire, options)


main()
