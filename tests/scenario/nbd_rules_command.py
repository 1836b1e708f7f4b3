# SPDX-License-Identifier: Apache-2.0
"""Rules of the NBD specification about requests, replies and errors."""

import random
import struct
import threading
import time

from nbd_rule import (Closed, Site, commands_in_step, expect, need, pattern, payload_max,
                      refused_in_step, rule, still_serves, unit)
from nbd_wire import (BLOCK_STATUS, CACHE, DF, DISC, DONE, EINVAL, ENOSPC, EOVERFLOW, EPERM,
                      FAST_ZERO, FLUSH, FUA, NO_HOLE, NONE, OFFSET_DATA, OFFSET_HOLE, READ,
                      READ_ONLY, REQ_ONE, REQUEST, SEND_CACHE, SEND_DF, SEND_FAST_ZERO, SEND_FLUSH,
                      SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES, TRIM, WRITE, WRITE_ZEROES)

K, M, G = 1 << 10, 1 << 20, 1 << 30

# what a command needs from the transmission flags
OFFERED = {READ: 0, WRITE: 0, FLUSH: SEND_FLUSH, TRIM: SEND_TRIM, CACHE: SEND_CACHE,
           WRITE_ZEROES: SEND_WRITE_ZEROES}
ALTERING = (WRITE, TRIM, WRITE_ZEROES)


def offered(wire):
    found = [c for c, flag in OFFERED.items() if wire.flags & flag == flag]
    if wire.flags & READ_ONLY:
        found = [c for c in found if c not in ALTERING]
    return found + ([BLOCK_STATUS] if wire.contexts else [])


def payload(command, length):
    return bytes(length) if command == WRITE else b""


# --- each command does something

@rule("must")
def advertised_commands_work(site):
    """Transmission flags: a server must not set the flag of what it does not support."""
    with site.transmit(meta=True) as wire:
        for command in offered(wire):
            length = 0 if command == FLUSH else 4096
            answer = wire.call(command, 0, length, 0, payload(command, length))
            expect(not answer.error, f"command {command}: error {answer.error}")
        commands_in_step(wire)


@rule("must")
def transmission_flags_consistent(site):
    """Transmission flags: HAS_FLAGS always; FAST_ZERO only with WRITE_ZEROES; DF with structured
    replies only."""
    for structured in (False, True):
        with site.transmit(structured) as wire:
            expect(wire.flags & 1, "HAS_FLAGS is clear")
            expect(wire.flags & SEND_WRITE_ZEROES or not wire.flags & SEND_FAST_ZERO, "FAST_ZERO")
            expect(structured or not wire.flags & SEND_DF, "DF without structured replies")


@rule("must")
def export_ends_where_it_says(site):
    """Size constraints: the last bytes of the advertised size can be read."""
    with site.transmit() as wire:
        least = unit(wire)
        expect(len(wire.read(wire.size - least, least)) == least, "the last block")
        expect(len(wire.read(wire.size - 64 * K, 64 * K)) == 64 * K, "the last 64 KiB")


@rule("must")
def simple_replies_by_default(site):
    """Simple reply: without negotiation nothing else is sent, errors included."""
    with site.transmit(structured=False) as wire:       # Wire rejects chunks
        expect(len(wire.read(0, 64 * K)) == 64 * K, "READ")
        refused_in_step(wire, wire.call(READ, wire.size, 512), EINVAL)
        refused_in_step(wire, wire.call(99), EINVAL)


@rule("must")
def structured_reads_cover_once(site):
    """NBD_CMD_READ: content chunks lie inside the range and cover it exactly once; DONE marks the
    last chunk and no other; no chunk exceeds the maximum payload by more than its header."""
    with site.writable() as wire:
        for block in range(0, 32, 2):
            wire.write(block * 64 * K, pattern(block, 64 * K))
        for offset, length in ((0, 2 * M), (64 * K - 512, 4 * K), (4 * M - 4 * K, 8 * K), (0, 512),
                               (3 * 64 * K, 64 * K), (512, 4 * M)):
            answer = wire.ok(READ, offset, length)      # assembled and checked in Wire
            flags = [chunk[1] for chunk in answer.chunks]
            expect(flags[-1] == DONE and DONE not in flags[:-1], f"flags of chunks {flags}")
            most = max((size for kind, _, size in answer.chunks if kind == OFFSET_DATA), default=0)
            expect(most <= payload_max(wire) + 8, f"a chunk of {most} bytes")


@rule("must")
def structured_read_errors(site):
    """NBD_CMD_READ: once structured replies are agreed, errors of a READ are chunks too."""
    with site.transmit() as wire:
        for offset, length, flags in ((wire.size, 512, 0), (0, 512, 0x4000)):
            answer = wire.call(READ, offset, length, flags)
            expect(answer.structured, "a simple reply to READ")
            expect(answer.error == EINVAL, f"error {answer.error}")
            kinds = [kind for kind, _, _ in answer.chunks]
            expect(not {OFFSET_DATA, OFFSET_HOLE} & set(kinds), f"content with an error: {kinds}")
        commands_in_step(wire)


@rule("must")
def df_is_one_chunk(site):
    """NBD_CMD_FLAG_DF: at most one content chunk, data and hole alike; up to 64 KiB it must
    work, above it may be NBD_EOVERFLOW."""
    with site.offering(SEND_DF, "DF") as wire:
        if wire.flags & SEND_WRITE_ZEROES:
            wire.ok(WRITE_ZEROES, 0, 256 * K)
        wire.write(16 * K, pattern(5, 4 * K))
        for offset, length in ((0, 64 * K), (12 * K, 8 * K), (16 * K, 64 * K), (128 * K, 64 * K),
                               (0, 256 * K)):
            answer = wire.call(READ, offset, length, DF)
            if length > 64 * K and answer.error == EOVERFLOW:
                continue
            expect(not answer.error, f"error {answer.error}")
            content = [k for k, _, _ in answer.chunks if k in (OFFSET_DATA, OFFSET_HOLE)]
            expect(len(content) == 1, f"{len(content)} content chunks at {offset}")


@rule("should")
def df_unoffered_is_einval(site):
    """NBD_CMD_FLAG_DF: not to be set unless SEND_DF is; NBD_EINVAL then."""
    with site.transmit(structured=False) as wire:
        refused_in_step(wire, wire.call(READ, 0, 512, DF), EINVAL)


# --- what cannot be done

@rule("should")
def unknown_commands_einval(site):
    """Error values: an unknown command is NBD_EINVAL; it has no payload, so the stream goes on."""
    for structured in (False, True):
        with site.transmit(structured) as wire:
            for command in (8, 9, 100, 0x1234, 0xFFFF):
                for length in (0, 4096, 0xFFFFFFFF):
                    refused_in_step(wire, wire.call(command, 0, length), EINVAL)


def wrong_flags(wire, command):
    right = {READ: DF if wire.flags & SEND_DF else 0, BLOCK_STATUS: REQ_ONE,
             WRITE_ZEROES: NO_HOLE | (FAST_ZERO if wire.flags & SEND_FAST_ZERO else 0)}
    known = right.get(command, 0) | (FUA if wire.flags & SEND_FUA else 0)
    return [1 << bit for bit in range(16) if not known & 1 << bit]


@rule("should")
def unknown_flags_einval(site):
    """Error values: a flag nobody defined, or one that belongs to another command, is NBD_EINVAL,
    and a WRITE's payload is still taken off the stream."""
    with site.transmit(meta=True) as wire:
        commands = offered(wire)
        for command in commands:
            length = 0 if command == FLUSH else 4096
            for flag in wrong_flags(wire, command):
                answer = wire.call(command, 0, length, flag, payload(command, length))
                expect(answer.error == EINVAL,
                       f"command {command} flag {flag:#x}: error {answer.error}")
            commands_in_step(wire)


@rule("must")
def fua_accepted_everywhere(site):
    """NBD_CMD_FLAG_FUA: once offered it must be accepted on every command, if only to ignore it."""
    with site.offering(SEND_FUA, "FUA", meta=True) as wire:
        for command in offered(wire):
            length = 0 if command == FLUSH else 4096
            answer = wire.call(command, 0, length, FUA, payload(command, length))
            expect(not answer.error, f"command {command} with FUA: error {answer.error}")


@rule("should")
def past_the_end_refused(site):
    """Error values: beyond the export a WRITE or WRITE_ZEROES is NBD_ENOSPC, READ, TRIM and
    BLOCK_STATUS NBD_EINVAL; what lies before the end keeps its bytes."""
    want = {WRITE: (ENOSPC,), WRITE_ZEROES: (ENOSPC,), CACHE: (EINVAL, ENOSPC)}
    with site.writable(meta=True) as wire:
        tail = pattern(9, 8 * K)
        wire.write(wire.size - 8 * K, tail)
        for offset in (wire.size - 4 * K, wire.size, wire.size + 4 * K, 1 << 62, (1 << 63) - 4 * K):
            for command in [c for c in offered(wire) if c != FLUSH]:
                answer = wire.call(command, offset, 8 * K, 0, payload(command, 8 * K))
                good = answer.error in want.get(command, (EINVAL,))
                expect(good, f"command {command} at {offset}: error {answer.error}")
        commands_in_step(wire)
        expect(wire.read(wire.size - 8 * K, 8 * K) == tail, "the tail changed")


@rule("must")
def offset_plus_length_overflows(site):
    """Size constraints: offset and length must stay inside, also when their sum wraps at 2^64."""
    with site.writable(meta=True) as wire:
        head = wire.read(0, 64 * K)
        for offset in ((1 << 64) - 4 * K, (1 << 64) - 512, (1 << 63), (1 << 64) - 64 * K):
            for command in [c for c in offered(wire) if c != FLUSH]:
                answer = wire.call(command, offset, 64 * K, 0, payload(command, 64 * K))
                expect(answer.error, f"command {command} at {offset:#x} succeeded")
        commands_in_step(wire)
        expect(wire.read(0, 64 * K) == head, "a wrapped request changed the beginning")


@rule("should")
def length_zero_harmless(site):
    """Requests: a length of 0 is unspecified, but no reason to disconnect."""
    for structured in (False, True):
        with site.transmit(structured, meta=structured) as wire:
            for command in offered(wire):
                for offset in (0, wire.size):
                    wire.call(command, offset, 0)
            commands_in_step(wire)


@rule("should")
def enormous_lengths_without_payload(site):
    """Size constraints: without a payload a length of 4 GiB - 1 may fail, never disconnect."""
    for structured in (False, True):
        with site.transmit(structured, meta=structured) as wire:
            for command in [c for c in offered(wire) if c not in (FLUSH, READ, WRITE)]:
                for offset in (0, 512, wire.size - 512):
                    answer = wire.call(command, offset, 0xFFFFFFFF)
                    inside = offset + 0xFFFFFFFF <= wire.size
                    expect(inside or answer.error, f"command {command} past the end succeeded")
            commands_in_step(wire)


@rule("must")
def enormous_read_refused(site):
    """NBD_CMD_READ: more than the maximum may be refused or served, not half served; a server
    may disconnect from what looks like an attack."""
    for structured in (False, True):
        with site.transmit(structured) as wire:
            try:
                answer = wire.call(READ, 0, 0xFFFFFFFF if wire.size < 4 * G else 0xFFFFF000)
                expect(answer.error, "4 GiB were read")
                commands_in_step(wire)
            except Closed:
                pass
    still_serves(site)


@rule("must")
def enormous_write_refused(site):
    """NBD_CMD_WRITE: a payload of 4 GiB is an error or a disconnection, not memory."""
    with site.writable() as wire:
        before = wire.read(0, 64 * K)
        wire.start(WRITE, 0, 0xFFFFFFFF, 0, b"\xEE" * 64 * K)
        wire.sock.settimeout(2)
        try:
            wire.send(b"\xEE" * M)
            expect(wire.collect().error, "a write of 4 GiB succeeded")
        except (Closed, TimeoutError, OSError):
            pass
    still_serves(site)
    with site.transmit() as wire:
        expect(wire.read(0, 64 * K) == before, "a refused write changed the export")


@rule("should")
def write_over_maximum_in_step(site):
    """Size constraints: up to 32 MiB a payload is no attack even above the maximum: an error, and
    the payload is taken off the stream."""
    with site.writable() as wire:
        need(wire.block and wire.block[2] < 32 * M, "the maximum is 32 MiB or more")
        length = min(32 * M, wire.size)
        answer = wire.call(WRITE, 0, length, 0, bytes(length))
        expect(answer.error, "longer than the advertised maximum, and accepted")
        commands_in_step(wire)


@rule("should")
def maximum_payload_works(site):
    """Size constraints: the advertised maximum (32 MiB when none is) can be written and read."""
    with site.writable() as wire:
        length = min(payload_max(wire), wire.size)
        data = pattern(77, K) * (length // K)
        wire.write(0, data)
        expect(wire.read(0, len(data)) == data, "other bytes came back")


@rule("must")
def unaligned_answered(site):
    """Size constraints: below the minimum block size NBD_EINVAL, and otherwise it works."""
    with site.writable() as wire:
        wire.write(0, pattern(3, 4 * K))
        for offset, length in ((1, 1), (511, 2), (3, 1021), (4095, 1)):
            answer = wire.call(READ, offset, length)
            if offset % unit(wire) or length % unit(wire):
                expect(answer.error == EINVAL, f"unaligned: error {answer.error}")
            else:
                expect(answer.data == pattern(3, 4 * K)[offset:offset + length], "other bytes")
        commands_in_step(wire)


@rule("must")
def request_magic_wrong_closes(site):
    """Request message: without the magic the stream means nothing; the server hangs up and does
    not guess."""
    for magic in (0, REQUEST + 1, 0x12560953, 0x67446698, 0x21E41C71):
        with site.transmit() as wire:
            wire.send(struct.pack(">IHHQQI", magic, 0, READ, 1, 0, 512))
            expect(wire.is_closed(), f"magic {magic:#x} accepted")
    still_serves(site)


# --- in flight

@rule("must")
def cookies_echoed(site):
    """Transmission: each of many requests in flight gets its own cookie back, once, in any order;
    the cookie is opaque."""
    for structured in (False, True):
        with site.writable(structured) as wire:
            blocks = 64
            for block in range(blocks):
                wire.write(block * 4 * K, pattern(block + 1, 4 * K))
            cookies = [0, (1 << 64) - 1, REQUEST] + [random.getrandbits(64) for _ in range(61)]
            order = random.sample(range(blocks), blocks)
            wire.send(b"".join(wire.pack(READ, b * 4 * K, 4 * K, cookie=c)
                               for b, c in zip(order, cookies)))
            for _ in range(blocks):
                answer = wire.collect()
                want = pattern(answer.offset // (4 * K) + 1, 4 * K)
                expect(answer.data == want, f"another block's bytes at {answer.offset}")
            commands_in_step(wire)


@rule("must")
def mixed_commands_in_flight(site):
    """Transmission: good and bad requests of all kinds together; each gets its own answer."""
    with site.writable(meta=True) as wire:
        commands, batch = offered(wire), []
        for n in range(256):
            command = commands[n % len(commands)]
            bad = n % 5 == 0 and command != FLUSH
            offset = wire.size if bad else (n * 8 * K) % (8 * M)
            offset, length = (0, 0) if command == FLUSH else (offset, 4 * K)
            batch.append(wire.pack(command, offset, length, 0, payload(command, length)))
        wire.send(b"".join(batch))
        for _ in range(256):
            answer = wire.collect()
            expect(bool(answer.error) == (answer.offset == wire.size),
                   f"command {answer.command} at {answer.offset}: error {answer.error}")
        commands_in_step(wire)


@rule("must")
def thousands_in_flight(site):
    """Transmission: a client that sends on without reading is slowed down, not cut off; no
    request is lost."""
    with site.transmit() as wire:
        count = 3000
        stream = b"".join(wire.pack(READ, (n * 4 * K) % (8 * M), 4 * K) for n in range(count))
        sender = threading.Thread(target=wire.send, args=(stream,), daemon=True)
        sender.start()
        time.sleep(0.5)                 # by now both directions are full, or all is answered
        for _ in range(count):
            expect(not wire.collect().error, "a read failed")
        sender.join(10)
        commands_in_step(wire)


@rule("must")
def requests_in_odd_pieces(site):
    """Request message: header and payload may come in pieces of any size."""
    with site.writable() as wire:
        data = pattern(21, 4 * K)
        stream = (wire.pack(WRITE, 0, 4 * K, 0, data) + wire.pack(READ, 8 * K, 4 * K) +
                  wire.pack(WRITE, 4 * K, 4 * K, 0, data))
        at, steps = 0, (1, 2, 3, 5, 7, 11, 13, 1000, 17, 27, 29, 997, 1, 1, 2500)
        for step in steps:
            wire.send(stream[at:at + step])
            at += step
        wire.send(stream[at:])
        for _ in range(3):
            expect(not wire.collect().error, "a request in pieces failed")
        expect(wire.read(0, 8 * K) == data + data, "other bytes")


@rule("must")
def disc_closes_without_reply(site):
    """NBD_CMD_DISC: no reply; the server closes."""
    for structured in (False, True):
        with site.transmit(structured) as wire:
            wire.start(DISC)
            try:
                wire.recv(1)
                expect(False, "an answer to DISC")
            except Closed:
                pass


@rule("must")
def disc_completes_outstanding(site):
    """NBD_CMD_DISC: outstanding requests are handled before the connection ends."""
    with site.writable() as wire:
        batch = [wire.pack(WRITE, n * 64 * K, 64 * K, 0, pattern(n + 500, 64 * K))
                 for n in range(16)]
        wire.send(b"".join(batch) + wire.pack(DISC))
        expect(wire.is_closed(10), "open after DISC")
    with site.transmit() as wire:
        for n in range(16):
            expect(wire.read(n * 64 * K, 64 * K) == pattern(n + 500, 64 * K), f"write {n} is lost")


@rule("must")
def half_a_request_harmless(site):
    """Hard disconnect: a client may vanish in the middle of a request."""
    header = struct.pack(">IHHQQI", REQUEST, 0, WRITE, 1, 0, 4 * K)
    for cut in (1, 4, 16, 27, 28, 29, 1000):
        with site.writable() as wire:
            wire.send((header + bytes(4 * K))[:cut])
    still_serves(site)


@rule("must")
def leave_with_requests_in_flight(site):
    """Hard disconnect: requests of a client that left disturb nobody."""
    for count in (1, 64, 500):
        with site.transmit() as wire:
            wire.send(b"".join(wire.pack(READ, n * 4 * K, 64 * K) for n in range(count)))
    still_serves(site)


# --- read-only

@rule("should")
def read_only_refuses_writes(site):
    """NBD_FLAG_READ_ONLY: writes, trims and write-zeroes are NBD_EPERM, in step, and change
    nothing."""
    uri = site.options.read_only_uri
    need(uri, "no --read-only-uri")
    with Site(uri, 0, site.timeout).transmit() as wire:
        expect(wire.flags & READ_ONLY, "NBD_FLAG_READ_ONLY is clear")
        before = wire.read(0, 64 * K)
        for command in ALTERING:
            for flags in (0, FUA if wire.flags & SEND_FUA else 0):
                answer = wire.call(command, 0, 4 * K, flags, payload(command, 4 * K))
                unoffered = command != WRITE and not wire.flags & OFFERED[command]
                want = (EPERM, EINVAL) if unoffered else (EPERM,)
                expect(answer.error in want, f"command {command}: error {answer.error}")
        if wire.flags & SEND_FLUSH:
            wire.ok(FLUSH)
        expect(wire.read(0, 64 * K) == before, "the read-only export changed")
        commands_in_step(wire)


@rule("must")
def none_chunks_well_formed(site):
    """NBD_REPLY_TYPE_NONE: carries DONE and no payload; commands without data may use it."""
    with site.writable() as wire:                       # Wire checks each chunk
        for command in offered(wire):
            length = 0 if command == FLUSH else 4 * K
            answer = wire.ok(command, 0, length, 0, payload(command, length))
            kinds = [kind for kind, _, _ in answer.chunks]
            expect(command == READ or set(kinds) <= {NONE}, f"command {command}: chunks {kinds}")
