# SPDX-License-Identifier: Apache-2.0
"""Rules of the NBD specification about what the bytes are afterwards."""

import random

from nbd_rule import (commands_in_step, expect, need, pattern, payload_max, refused_in_step, rule,
                      still_serves, unit)
from nbd_wire import (BLOCK_STATUS, CACHE, CAN_MULTI_CONN, EINVAL, ENOTSUP, FAST_ZERO, FLUSH, FUA,
                      HOLE, NO_HOLE, READ, REQ_ONE, SEND_CACHE, SEND_FAST_ZERO, SEND_FLUSH,
                      SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES, TRIM, WRITE, WRITE_ZEROES, ZERO)

K, M = 1 << 10, 1 << 20
OBJECT = 4 * M                      # where a store may split; harmless where it does not

# (offset, length): small, unaligned, across pages, across objects
PLACES = ((0, 512), (512, 4 * K), (4 * K, 64 * K), (64 * K - 512, K), (1, 1), (4095, 2),
          (777, 5001), (OBJECT - 4 * K, 8 * K), (OBJECT - 1, 2), (OBJECT - 777, 70001),
          (M, M + 512), (OBJECT // 2, 2 * OBJECT), (3 * OBJECT - 100, 200))


def fits(wire, offset, length):
    return (not offset % unit(wire) and not length % unit(wire) and
            offset + length <= wire.size and length <= payload_max(wire))


def fill(wire, offset, length, seed):
    data = pattern(seed, length)
    for at in range(0, length, M):
        wire.write(offset + at, data[at:at + M])
    return data


def framed(wire, offset, length, seed):
    """Fills the range and 8 KiB around it; returns where that begins and its bytes."""
    start = max(0, offset - 8 * K) // (4 * K) * 4 * K
    end = min(wire.size, (offset + length + 12 * K) // (4 * K) * 4 * K)
    return start, fill(wire, start, end - start, seed)


def replaced(before, start, offset, data):
    at = offset - start
    return before[:at] + data + before[at + len(data):]


def read_back(wire, start, want, text):
    for at in range(0, len(want), M):
        part = want[at:at + M]
        got = wire.read(start + at, len(part))
        if got != part:
            first = next(i for i, (a, b) in enumerate(zip(got, part)) if a != b)
            expect(False, f"{text}: wrong byte at {start + at + first}")


# --- WRITE, FLUSH, FUA

@rule("must")
def writes_read_back(site):
    """NBD_CMD_WRITE: what was written is read, its neighbours are what they were."""
    for structured in (False, True):
        with site.writable(structured) as wire:
            for seed, (offset, length) in enumerate(PLACES):
                if fits(wire, offset, length):
                    start, before = framed(wire, offset, length, seed)
                    data = pattern(seed + 100, length)
                    wire.write(offset, data)
                    read_back(wire, start, replaced(before, start, offset, data), f"at {offset}")


@rule("must")
def fua_writes_read_back(site):
    """NBD_CMD_FLAG_FUA: a write with FUA is a write, also on TRIM and WRITE_ZEROES."""
    with site.offering(SEND_FUA, "FUA") as wire:
        data = pattern(31, 64 * K)
        wire.write(OBJECT - 32 * K, data, FUA)
        read_back(wire, OBJECT - 32 * K, data, "with FUA")
        if wire.flags & SEND_WRITE_ZEROES:
            wire.ok(WRITE_ZEROES, OBJECT - 4 * K, 8 * K, FUA)
            read_back(wire, OBJECT - 4 * K, bytes(8 * K), "zeroes with FUA")
        if wire.flags & SEND_TRIM:
            wire.ok(TRIM, OBJECT - 4 * K, 8 * K, FUA)


@rule("must")
def flush_keeps_data(site):
    """NBD_CMD_FLUSH: succeeds with nothing and with much to do, and changes no byte."""
    with site.offering(SEND_FLUSH, "FLUSH") as wire:
        wire.ok(FLUSH)
        data = fill(wire, 0, 2 * OBJECT, 41)
        wire.ok(FLUSH)
        wire.ok(FLUSH)
        read_back(wire, 0, data, "after FLUSH")


# --- TRIM, WRITE_ZEROES, CACHE

@rule("must")
def trim_spares_neighbours(site):
    """NBD_CMD_TRIM: affects its own range at most, and that can be written again."""
    with site.offering(SEND_TRIM, "TRIM") as wire:
        for seed, (offset, length) in enumerate(PLACES):
            if not fits(wire, offset, length):
                continue
            start, before = framed(wire, offset, length, seed)
            wire.ok(TRIM, offset, length)
            at = offset - start
            read_back(wire, start, before[:at], "before a TRIM")
            read_back(wire, offset + length, before[at + length:], "behind a TRIM")
            wire.write(offset, before[at:at + length])
            read_back(wire, start, before, "written after a TRIM")


@rule("must")
def write_zeroes_reads_zero(site):
    """NBD_CMD_WRITE_ZEROES: the range reads as zeroes, with and without NO_HOLE; its neighbours
    keep their bytes."""
    with site.offering(SEND_WRITE_ZEROES, "WRITE_ZEROES") as wire:
        for flags in (0, NO_HOLE):
            for seed, (offset, length) in enumerate(PLACES):
                if fits(wire, offset, length):
                    start, before = framed(wire, offset, length, seed + 1)
                    wire.ok(WRITE_ZEROES, offset, length, flags)
                    want = replaced(before, start, offset, bytes(length))
                    read_back(wire, start, want, f"flags {flags}, at {offset}")


@rule("should")
def write_zeroes_longer_than_payload(site):
    """Size constraints: WRITE_ZEROES has no payload and may exceed the maximum; it works or is
    refused, without hanging up."""
    with site.offering(SEND_WRITE_ZEROES, "WRITE_ZEROES") as wire:
        length = min(wire.size // (4 * K) * 4 * K, 256 * M)
        answer = wire.call(WRITE_ZEROES, 0, length)
        if not answer.error:
            for offset in (0, length // 2, length - 4 * K):
                read_back(wire, offset, bytes(4 * K), "zeroed")
        commands_in_step(wire)


@rule("must")
def fast_zero_honest(site):
    """NBD_CMD_FLAG_FAST_ZERO: zeroes, or NBD_ENOTSUP with nothing changed; not offered it is
    NBD_EINVAL."""
    with site.offering(SEND_WRITE_ZEROES, "WRITE_ZEROES") as wire:
        if not wire.flags & SEND_FAST_ZERO:
            refused_in_step(wire, wire.call(WRITE_ZEROES, 0, 4 * K, FAST_ZERO), EINVAL)
            return
        for flags in (FAST_ZERO, FAST_ZERO | NO_HOLE):
            for offset, length in ((0, 4 * K), (512, K), (OBJECT, OBJECT), (0, 2 * OBJECT)):
                start, before = framed(wire, offset, length, 61)
                answer = wire.call(WRITE_ZEROES, offset, length, flags)
                expect(answer.error in (0, ENOTSUP), f"error {answer.error}")
                want = before if answer.error else replaced(before, start, offset, bytes(length))
                read_back(wire, start, want, "fast zero")


@rule("must")
def cache_changes_nothing(site):
    """NBD_CMD_CACHE: makes no difference to what is read."""
    with site.offering(SEND_CACHE, "CACHE") as wire:
        data = fill(wire, OBJECT - 64 * K, 128 * K, 71)
        for offset, length in ((OBJECT - 64 * K, 128 * K), (0, M), (wire.size - 4 * K, 4 * K)):
            wire.call(CACHE, offset, length)
        read_back(wire, OBJECT - 64 * K, data, "after CACHE")


# --- BLOCK_STATUS

def status(wire, offset, length, flags=0):
    """The extents of base:allocation, held against every rule about their lengths."""
    answer = wire.ok(BLOCK_STATUS, offset, length, flags)
    expect(set(answer.extents) == set(wire.contexts.values()), f"contexts {answer.extents.keys()}")
    extents = answer.extents[wire.contexts["base:allocation"]]
    sizes = [size for size, _ in extents]
    expect(all(sizes), "an extent of length 0")
    expect(sum(sizes[:-1]) < length, f"{len(sizes)} extents, all but the last reach {length}")
    expect(offset + sum(sizes) <= wire.size, "extents beyond the export")
    if flags & REQ_ONE:
        expect(len(sizes) == 1 and sizes[0] <= length, f"REQ_ONE: {sizes} for {length}")
    return extents


def states(wire, offset, length):
    """{flags} over the whole range, asking again where an answer was short."""
    found, at = set(), offset
    while at < offset + length:
        for size, flags in status(wire, at, offset + length - at):
            if at < offset + length:
                found.add(flags)
            at += size
    return found


@rule("must")
def block_status_lengths(site):
    """NBD_CMD_BLOCK_STATUS: extents are not empty, only the last may pass the end of the request,
    none the end of the export; with REQ_ONE there is one, no longer than asked."""
    with site.writable(meta=True) as wire:
        fill(wire, OBJECT, 64 * K, 81)
        for offset, length in ((0, 4 * K), (0, wire.size & 0xFFFF0000), (OBJECT - 4 * K, 128 * K),
                               (OBJECT + 512, 512), (wire.size - 4 * K, 4 * K)):
            for flags in (0, REQ_ONE):
                status(wire, offset, length, flags)
        commands_in_step(wire)


@rule("must")
def block_status_walk(site):
    """NBD_CMD_BLOCK_STATUS: asking again from where an answer ended passes the whole export."""
    with site.transmit(meta=True) as wire:
        for flags in (0, REQ_ONE):
            at, turns = 0, 0
            while at < wire.size:
                at += sum(size for size, _ in
                          status(wire, at, min(wire.size - at, 1 << 31), flags))
                turns += 1
            expect(at == wire.size and turns < 100000, f"ended at {at} after {turns}")


@rule("must")
def block_status_tells_the_truth(site):
    """base:allocation: what is marked ZERO reads as zeroes, so written data is not; data is no
    hole either."""
    with site.writable(meta=True) as wire:
        for offset, length in ((0, 64 * K), (OBJECT - 32 * K, 64 * K), (2 * OBJECT, OBJECT)):
            fill(wire, offset, length, 91)
            found = states(wire, offset, length)
            expect(found == {0}, f"data reported as {found}")
        at = 0
        while at < min(wire.size, 64 * M):
            for size, flags in status(wire, at, min(wire.size - at, 8 * M)):
                piece = min(size, M)
                if flags & ZERO:
                    read_back(wire, at, bytes(piece), "reported as zero")
                at += size


@rule("should")
def block_status_after_zeroes(site):
    """NBD_CMD_FLAG_NO_HOLE: the area is provisioned, so it is not reported as a hole."""
    with site.offering(SEND_WRITE_ZEROES, "WRITE_ZEROES", meta=True) as wire:
        fill(wire, 0, 2 * M, 93)
        wire.ok(WRITE_ZEROES, 0, M, NO_HOLE)
        expect(not any(flags & HOLE for flags in states(wire, 0, M)), "NO_HOLE made a hole")
        fill(wire, 0, 64 * K, 94)
        expect(states(wire, 0, 64 * K) == {0}, "data over zeroes is not reported as data")


@rule("should")
def block_status_without_context_einval(site):
    """NBD_CMD_BLOCK_STATUS: NBD_EINVAL for a client that selected no context."""
    for structured in (False, True):
        with site.transmit(structured) as wire:
            refused_in_step(wire, wire.call(BLOCK_STATUS, 0, 4 * K), EINVAL)


# --- several connections, torn writes, many writes

@rule("must")
def multi_conn_shares(site):
    """NBD_FLAG_CAN_MULTI_CONN: after FLUSH or FUA on one connection all connections see the
    data."""
    wires = [site.offering(CAN_MULTI_CONN, "multi-conn") for _ in range(4)]
    try:
        for turn in range(20):
            writer = wires[turn % 4]
            data = pattern(turn + 700, 64 * K)
            offset = OBJECT - 32 * K + turn * 4 * K
            fua = turn % 2 and writer.flags & SEND_FUA
            writer.write(offset, data, FUA if fua else 0)
            if not fua:
                need(writer.flags & SEND_FLUSH, "neither FUA nor FLUSH")
                writer.ok(FLUSH)
            for wire in wires:
                read_back(wire, offset, data, f"turn {turn}")
    finally:
        for wire in wires:
            wire.close()


@rule("must")
def torn_write_spares_neighbours(site):
    """Hard disconnect: a WRITE whose payload ends early may have written its own range in part;
    nothing else changed, and nothing but its bytes is in it."""
    offset, length = OBJECT - 512 * K, M
    for cut in (1, 4 * K + 100, 300 * K, M - 1):
        with site.writable() as wire:
            start, before = framed(wire, offset, length, 51)
            data = pattern(52, length)
            wire.send(wire.pack(WRITE, offset, length, 0, data)[:28 + cut])
        still_serves(site)
        with site.transmit() as wire:
            at = offset - start
            read_back(wire, start, before[:at], "before a torn write")
            read_back(wire, offset + length, before[at + length:], "behind a torn write")
            torn = wire.read(offset, length)
            odd = sum(a not in pair for a, *pair in zip(torn, data, before[at:]))
            expect(not odd, f"{odd} bytes in a torn write are neither old nor new")


def random_operation(wire, rng, area):
    """(command, offset, length, flags) inside the area."""
    step = max(unit(wire), rng.choice((1, 512, 4 * K)))
    length = max(step, rng.choice((512, 4 * K, 4 * K, 16 * K, 64 * K)) // step * step)
    offset = rng.randrange(0, area - length) // step * step
    kinds = [WRITE] * 6 + [READ] * 3
    kinds += [WRITE_ZEROES] if wire.flags & SEND_WRITE_ZEROES else []
    fua = FUA if wire.flags & SEND_FUA and rng.random() < 0.05 else 0
    command = rng.choice(kinds)
    if command == WRITE_ZEROES:
        fua |= rng.choice((0, NO_HOLE))
    return command, offset, length, fua if command != READ else 0


def overlaps(pending, offset, length):
    return any(a.offset < offset + length and offset < a.offset + a.length for a in pending)


def settle(wire, model):
    """Takes one answer; a read must equal the model, which its range cannot have left."""
    answer = wire.collect()
    expect(not answer.error, f"command {answer.command}: error {answer.error}")
    if answer.command == READ:
        want = model[answer.offset:answer.offset + answer.length]
        expect(answer.data == want, f"a read at {answer.offset} is not what was written")


@rule("must")
def random_operations_match_model(site):
    """NBD_CMD_READ, WRITE, WRITE_ZEROES: thousands of them, 16 in flight, equal a model in memory
    byte for byte."""
    rng, area = random.Random(site.options.seed), 12 * M
    with site.writable() as wire:
        model = bytearray(fill(wire, 0, area, 1234))
        for number in range(site.options.operations):
            command, offset, length, flags = random_operation(wire, rng, area)
            while len(wire.inflight) >= 16 or overlaps(wire.inflight.values(), offset, length):
                settle(wire, model)
            data = b""
            if command == WRITE:
                data = pattern(number + 5000, length)
            if command in (WRITE, WRITE_ZEROES):
                model[offset:offset + length] = data or bytes(length)
            wire.start(command, offset, length, flags, data)
        while wire.inflight:
            settle(wire, model)
        read_back(wire, 0, bytes(model), "after all")
