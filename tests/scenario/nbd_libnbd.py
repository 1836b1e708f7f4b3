#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four libnbd connections to one export: each writes its stripe asynchronously, flushes, and all
read everything back. Exits 1 when a byte is wrong or multi-conn is not offered."""

import sys

import nbd

CONNECTIONS, BLOCK, BLOCKS = 4, 65536, 128


def connect(uri):
    handle = nbd.NBD()
    handle.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    handle.connect_uri(uri)
    return handle


def stripe(number):
    return bytes((number * 31 + i) & 0xFF for i in range(256)) * (BLOCK // 256)


def write_all(handles):
    """Asynchronous writes, all in flight together; a callback that returns 1 retires its own."""
    errors = []

    def done(error):
        errors.append(error.value)
        return 1

    for number in range(BLOCKS):
        buffer = nbd.Buffer.from_bytearray(bytearray(stripe(number)))
        handles[number % CONNECTIONS].aio_pwrite(buffer, number * BLOCK, done)
    for handle in handles:
        while handle.aio_in_flight():
            handle.poll(-1)
    if len(errors) != BLOCKS or any(errors):
        sys.exit(f"{len(errors)} of {BLOCKS} writes ended, errors {set(errors)}")
    for handle in handles:
        handle.flush()


def read_all(handle):
    for number in range(BLOCKS):
        if handle.pread(BLOCK, number * BLOCK) != stripe(number):
            sys.exit(f"block {number} is not what another connection wrote")


def extents_are_data(handle):
    found = []
    handle.block_status(BLOCK * BLOCKS, 0, lambda *args: found.extend(args[2]))
    if not found or any(flags & nbd.STATE_ZERO for flags in found[1::2][:1]):
        sys.exit(f"written data is reported as zero: {found}")


def main():
    handles = [connect(sys.argv[1]) for _ in range(CONNECTIONS)]
    if not handles[0].can_multi_conn():
        sys.exit("multi-conn is not offered")
    write_all(handles)
    for handle in handles:
        read_all(handle)
    extents_are_data(handles[1])
    handles[2].zero(BLOCK * 2, BLOCK)
    handles[2].flush()
    if any(handles[3].pread(BLOCK * 2, BLOCK)):
        sys.exit("zeroes of one connection are not seen by another")
    for handle in handles:
        handle.shutdown()


if __name__ == "__main__":
    main()
