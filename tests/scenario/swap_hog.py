#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses memory, and reads back all it wrote: each page says which it is and in which round.

    swap_hog.py MIB ROUNDS STOP     so many rounds, and on until there is a file STOP
"""
import mmap
import os
import struct
import sys

PAGE = 4096


def stamp(number, turn):
    return struct.pack("<QQ", number, turn) * (PAGE // 16)


def main(mib, rounds, stop):
    count = mib * 256
    memory = mmap.mmap(-1, count * PAGE)
    turn = 0
    while turn < rounds or not os.path.exists(stop):
        for number in range(count):
            at = number * PAGE
            if turn and memory[at : at + PAGE] != stamp(number, turn - 1):
                raise SystemExit(f"page {number} of round {turn} is not what was written")
            memory[at : at + PAGE] = stamp(number, turn)
        turn += 1
    print(f"all of it, {turn} times")


main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
