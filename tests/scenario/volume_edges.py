#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data of tests/scenario/volume_limits.sh, over NBD.

  volume_edges.py SOCKET put NAME OFFSET BYTE [LENGTH]    writes that byte, flushes
  volume_edges.py SOCKET is NAME OFFSET BYTE [LENGTH]     exits 1 when anything else is there
  volume_edges.py SOCKET size NAME BYTES
  volume_edges.py SOCKET behind NAME                      behind its end nothing is written
  volume_edges.py SOCKET crowd PREFIX COUNT OBJECT        a few clients at a time: each writes its
                    number behind its number of clusters, then all of them, and GOLD, are read
  volume_edges.py SOCKET levels NAME COUNT                cluster i says i + 1: COUNT levels
"""

import sys

import nbd

CLUSTER = 4096


def connect(name):
    handle = nbd.NBD()
    handle.set_export_name(name)
    handle.connect_unix(sys.argv[1])
    return handle


def expect(what, got, want):
    if got != want:
        sys.exit(f"{what}: {str(got)[:200]}, not {str(want)[:200]}")


def put(name, offset, byte, length=CLUSTER):
    handle = connect(name)
    handle.pwrite(bytes([int(byte)]) * int(length), int(offset))
    handle.flush()
    handle.shutdown()


def holds(name, offset, byte, length=CLUSTER):
    handle = connect(name)
    expect(f"{name} at {offset}", bytes(handle.pread(int(length), int(offset))),
           bytes([int(byte)]) * int(length))
    handle.shutdown()


def size(name, count):
    handle = connect(name)
    expect(f"size of {name}", handle.get_size(), int(count))
    handle.shutdown()


def behind(name):
    handle = connect(name)
    handle.set_strict_mode(0)
    end = handle.get_size()
    for offset in (end, max(end - 512, 0)):
        try:
            handle.pwrite(bytes(1024), offset)
        except nbd.Error:
            continue
        sys.exit(f"{name}: 1024 bytes were written at {offset} of {end}")
    handle.shutdown()


def crowd(prefix, count, stretch):
    """Each clone has a cluster of its own; what it shares it must go on seeing."""
    count, stretch, few = int(count), int(stretch), 8
    for first in range(0, count, few):
        numbers = range(first, min(first + few, count))
        handles = [connect(f"{prefix}{number}") for number in numbers]
        for number, handle in zip(numbers, handles):
            handle.pwrite(bytes([number + 100]) * CLUSTER, number * CLUSTER)
        for handle in handles:
            handle.flush()
            handle.shutdown()
    for number in range(count):
        handle = connect(f"{prefix}{number}")
        data = bytearray(b"\1" * stretch)
        data[number * CLUSTER:(number + 1) * CLUSTER] = bytes([number + 100]) * CLUSTER
        expect(f"clone {number}", bytes(handle.pread(stretch, 0)), bytes(data))
        handle.shutdown()


def levels(name, count):
    handle = connect(name)
    wanted = b"".join(bytes([level + 1]) * CLUSTER for level in range(int(count)))
    expect(name, bytes(handle.pread(len(wanted), 0)), wanted)
    expect(f"{name}, behind", bytes(handle.pread(CLUSTER, len(wanted))), bytes(CLUSTER))
    handle.shutdown()


if __name__ == "__main__":
    {"put": put, "is": holds, "size": size, "behind": behind, "crowd": crowd,
     "levels": levels}[sys.argv[2]](*sys.argv[3:])
