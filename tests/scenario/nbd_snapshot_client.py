#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a client sees of snapshots and of sizes: read-only exports, NAME/ro, skerry:dirty:SNAP.

nbd_snapshot_client.py CASE SOCKET [XSEGCTL]; exits 1 with what is wrong."""

import re
import socket
import struct
import subprocess
import sys

import nbd

KIB, MIB = 1024, 1024 * 1024
DIRTY = "skerry:dirty:"
POLICY = (1 << 31) + 2
TEXT = (
    r"the export is open for writing on host '.+' since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC; "
    r"as 'disk/ro' it can be read"
)


def connect(path, name, contexts=()):
    handle = nbd.NBD()
    for context in contexts:
        handle.add_meta_context(context)
    handle.set_export_name(name)
    handle.connect_unix(path)
    return handle


def expect(what, got, want):
    if got != want:
        sys.exit(f"{what}: {str(got)[:400]}, not {str(want)[:400]}")


def fails(what, call, *args):
    try:
        call(*args)
    except nbd.Error as error:
        return str(error)
    sys.exit(f"{what}: it was done")


def control(*args):
    subprocess.run([sys.argv[3], "volume", *args], check=True, stdout=subprocess.DEVNULL)


def changed(handle, context, offset, length):
    """Stretches of [offset, offset + length) that may differ, joined."""
    found, at = [], offset

    def extents(name, start, entries, _error):
        nonlocal at
        if name != context:
            return
        expect("the beginning of an answer", start, at)
        for size, flags in zip(entries[::2], entries[1::2]):
            if flags & 1 and found and found[-1][1] == at:
                found[-1][1] = at + size
            elif flags & 1:
                found.append([at, at + size])
            at += size

    while at < offset + length:
        before = at
        handle.block_status(offset + length - at, at, extents)
        if at <= before:
            sys.exit(f"no answer of {context} at {at}")
    return [(begin, end - begin) for begin, end in found]


def read_only(path):
    """A snapshot, and a volume of which a client says that it only reads."""
    for name in ("disk@monday", "disk/ro", "disk@monday/ro"):
        handle = connect(path, name)
        expect(f"{name} is read-only", handle.is_read_only(), True)
        handle.set_strict_mode(0)
        expect(f"what is in {name}", handle.pread(512, 0)[:4], b"old!")
        fails(f"write to {name}", handle.pwrite, b"x" * 4096, 0)
        handle.shutdown()
    handle = connect(path, "disk")
    expect("disk is read-only", handle.is_read_only(), False)
    handle.shutdown()
    fails("a snapshot that is none", connect, path, "disk@tuesday/ro")


def refusal(path, name):
    """What the server says to GO; libnbd keeps it to itself."""
    name = name.encode()
    with socket.socket(socket.AF_UNIX) as peer, peer.makefile("rb") as wire:
        peer.connect(path)
        wire.read(18)
        data = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        peer.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 7, len(data)) + data)
        _magic, _option, kind, size = struct.unpack(">QIII", wire.read(20))
        expect("the reply's type", kind, POLICY)
        return wire.read(size).decode()


def refused(path):
    """Another host has it: who that is is said, and it can be read."""
    text = refusal(path, "disk")
    if not re.fullmatch(TEXT, text):
        sys.exit(f"that does not say who has it: {text}")
    handle = connect(path, "disk/ro")
    expect("what is in it", handle.pread(512, 0)[:4], b"old!")
    handle.shutdown()


def resize(path):
    old = connect(path, "disk")
    size = old.get_size()
    control("resize", "disk", str(size + 8 * MIB))
    old.pwrite(b"a" * 4096, size - 4096)
    old.set_strict_mode(0)
    fails("a write behind the end that was told", old.pwrite, b"b" * 4096, size)
    new = connect(path, "disk")
    expect("the size that a new client sees", new.get_size(), size + 8 * MIB)
    new.pwrite(b"c" * 4096, size + 8 * MIB - 4096)
    expect("what was written there", new.pread(4096, size + 8 * MIB - 4096), b"c" * 4096)
    expect("old data", new.pread(4096, size - 4096), b"a" * 4096)
    new.shutdown()
    old.shutdown()
    asking = nbd.NBD()
    asking.set_opt_mode(True)
    asking.set_export_name("disk")
    asking.connect_unix(path)
    asking.opt_info()
    expect("the size that INFO says", asking.get_size(), size + 8 * MIB)
    control("resize", "disk", str(size + 12 * MIB))
    asking.opt_info()
    expect("INFO asked anew", asking.get_size(), size + 12 * MIB)
    asking.opt_go()
    expect("GO", asking.get_size(), size + 12 * MIB)
    asking.shutdown()


def listed(path, query, name="disk"):
    handle = nbd.NBD()
    handle.set_opt_mode(True)
    handle.set_export_name(name)
    if query:
        handle.add_meta_context(query)
    handle.connect_unix(path)
    found = []
    handle.opt_list_meta_context(lambda context: found.append(context) or 0)
    handle.opt_abort()
    return sorted(found)


def contexts(path):
    both = [DIRTY + "monday", DIRTY + "tuesday"]
    control("snapshot", "disk@tuesday")
    control("clone", "disk", "child")
    control("snapshot", "child@hers")
    expect("all", listed(path, None), ["base:allocation", *both])
    expect("skerry:", listed(path, "skerry:"), both)
    expect(DIRTY, listed(path, DIRTY), both)
    expect("one", listed(path, DIRTY + "monday"), both[:1])
    expect("another's", listed(path, DIRTY + "hers"), [])
    expect("a volume", listed(path, DIRTY + "child"), [])
    expect("the other's own", listed(path, DIRTY, "child"), [DIRTY + "hers"])
    expect("a snapshot's", listed(path, DIRTY, "disk@monday"), [])
    handle = connect(path, "disk", [DIRTY])
    expect("a wildcard sets", [handle.can_meta_context(name) for name in both], [True, True])
    expect("not base:allocation", handle.can_meta_context("base:allocation"), False)
    handle.shutdown()


def dirty(path):
    """Each piece of news is in the very next answer, flushed or not."""
    monday, tuesday = DIRTY + "monday", DIRTY + "tuesday"
    handle = connect(path, "disk", ["base:allocation", monday])
    size = handle.get_size()
    expect("nothing yet", changed(handle, monday, 0, size), [])
    handle.pwrite(b"n" * 4096, 12 * KIB)
    expect("a cluster", changed(handle, monday, 0, size), [(12 * KIB, 4 * KIB)])
    handle.pwrite(b"n" * 512, 16 * KIB + 512)
    expect("part of the next", changed(handle, monday, 0, size), [(12 * KIB, 8 * KIB)])
    handle.pwrite(b"n" * 4096, 17 * MIB)
    want = [(12 * KIB, 8 * KIB), (16 * MIB, 4 * MIB)]
    expect("an object that was a hole", changed(handle, monday, 0, size), want)
    expect("from the middle", changed(handle, monday, 16 * KIB, 17 * MIB), [
        (16 * KIB, 4 * KIB), (16 * MIB, MIB + 16 * KIB)])
    control("snapshot", "disk@tuesday")
    handle.pwrite(b"m" * 4096, 24 * MIB)
    both = connect(path, "disk", [monday, "base:allocation", tuesday])
    expect("since monday", changed(both, monday, 0, size), [*want, (24 * MIB, 4 * MIB)])
    expect("since tuesday", changed(both, tuesday, 0, size), [(24 * MIB, 4 * MIB)])
    seen = []
    both.block_status(size, 0, lambda name, *_: seen.append(name))
    expect("contexts of one answer", sorted(seen), sorted(["base:allocation", monday, tuesday]))
    entries = []
    both.block_status(size, 0, lambda _n, _o, list_, _e: entries.append(len(list_)),
                      flags=nbd.CMD_FLAG_REQ_ONE)
    expect("one each", entries, [2, 2, 2])
    both.trim(4 * MIB, 0)
    expect("discarded", changed(both, monday, 0, 4 * MIB), [(0, 4 * MIB)])
    control("resize", "disk", str(size + 8 * MIB))
    grown = connect(path, "disk", [tuesday])
    expect("what it has grown by", changed(grown, tuesday, size - MIB, 9 * MIB), [(size, 8 * MIB)])
    control("rm", "disk@tuesday", "--yes")
    expect("since what is gone", changed(grown, tuesday, 0, size), [(0, size)])
    for one in (grown, both, handle):
        one.shutdown()


def many(path):
    """More stretches than one answer of ours holds."""
    monday = DIRTY + "monday"
    handle = connect(path, "disk", [monday])
    size, want = handle.get_size(), []
    for at in range(4 * MIB, 12 * MIB, 8 * KIB):
        handle.pwrite(b"z" * 4096, at)
        want.append((at, 4 * KIB))
    expect("every second cluster", changed(handle, monday, 0, size), want)
    handle.shutdown()


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
