# SPDX-License-Identifier: Apache-2.0
"""Rules of the NBD specification about the handshake and option negotiation."""

import struct

from nbd_rule import (Closed, Skip, closed_or_in_step, commands_in_step, enter_by_name, expect,
                      hexed, need, options_in_step, rule, still_serves)
from nbd_wire import (ABORT, ACK, BLOCK_STATUS, CAN_MULTI_CONN, EINVAL, ERR, ERR_INVALID,
                      ERR_PLATFORM, ERR_POLICY, ERR_TOO_BIG, ERR_UNKNOWN, ERR_UNSUP, EXPORT_NAME,
                      FIXED_NEWSTYLE, GO, HAS_FLAGS, IHAVEOPT, INFO, INFO_BLOCK_SIZE,
                      INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME, LIST, LIST_META, NO_ZEROES,
                      PEEK_EXPORT, READ, SEND_DF, SERVER, SET_META, STARTTLS, STRUCTURED_REPLY)

ABSENT = "no-such-export-here"


# --- greeting

@rule("must")
def greeting_magic_and_flags(site):
    """Newstyle negotiation: both magics come first, then flags of which only two exist."""
    with site.dial() as wire:
        flags = wire.greet()
        expect(flags & FIXED_NEWSTYLE, "NBD_FLAG_FIXED_NEWSTYLE is clear")
        expect(not flags & ~(FIXED_NEWSTYLE | NO_ZEROES), f"unknown handshake flags {flags:#x}")


@rule("must")
def client_flags_unknown_dropped(site):
    """Client flags: a client that sets a flag the server does not know is disconnected."""
    for flags in (FIXED_NEWSTYLE | 4, 0x80000000, 0xFFFFFFFF):
        with site.dial() as wire:
            wire.greet(flags)
            try:
                wire.send_option(LIST)      # it may be gone by now
            except Closed:
                continue
            expect(wire.is_closed(), f"client flags {flags:#x} accepted")


@rule("should")
def client_flags_byte_by_byte(site):
    """Newstyle negotiation: fields count, not packets; a client may deliver single bytes."""
    with site.dial() as wire:
        wire.recv(18)
        for byte in struct.pack(">I", 3) + IHAVEOPT + struct.pack(">II", LIST, 0):
            wire.send(bytes([byte]))
        kind, _ = wire.option_reply(LIST)
        while kind == SERVER:
            kind, _ = wire.option_reply(LIST)
        expect(kind == ACK, f"LIST ended with {hexed(kind)}")


@rule("should")
def options_sent_together(site):
    """Newstyle negotiation: client flags and the first option may share a packet."""
    with site.dial() as wire:
        wire.recv(18)
        wire.send(struct.pack(">I", 3) + IHAVEOPT + struct.pack(">II", ABORT, 0))
        expect(wire.option_reply(ABORT)[0] == ACK, "ABORT not acked")


# --- EXPORT_NAME

@rule("must")
def export_name_without_zeroes(site):
    """NBD_OPT_EXPORT_NAME: size and flags, and no 124 zeroes when NO_ZEROES was agreed."""
    with site.negotiate() as wire:
        need(wire.server_flags & NO_ZEROES, "NBD_FLAG_NO_ZEROES is not offered")
    wire, _ = enter_by_name(site)
    with wire:
        expect(wire.size == site.size, f"size {wire.size}, not {site.size}")
        expect(wire.flags & HAS_FLAGS, "NBD_FLAG_HAS_FLAGS is clear")
        expect(not wire.flags & SEND_DF, "SEND_DF without structured replies")
        commands_in_step(wire)


@rule("must")
def export_name_with_zeroes(site):
    """NBD_OPT_EXPORT_NAME: 124 reserved zero bytes follow for a client without NO_ZEROES."""
    wire, zeroes = enter_by_name(site, FIXED_NEWSTYLE)
    with wire:
        expect(zeroes == bytes(124), "the reserved bytes are not zero")
        commands_in_step(wire)


@rule("should")
def export_name_plain_newstyle(site):
    """Client flags: EXPORT_NAME is the one option of a client that is not 'fixed newstyle'."""
    wire, _ = enter_by_name(site, 0)
    with wire:
        commands_in_step(wire)


@rule("must")
def export_name_unknown_closes(site):
    """NBD_OPT_EXPORT_NAME: it cannot fail politely, so the server ends the session."""
    with site.negotiate() as wire:
        wire.send_option(EXPORT_NAME, ABSENT.encode())
        expect(wire.is_closed(), "the connection stayed open")


# --- LIST, ABORT

@rule("must")
def list_names_the_export(site):
    """NBD_OPT_LIST: one NBD_REP_SERVER an export, then ACK."""
    with site.negotiate() as wire:
        need(site.place.export, "the default export need not be listed")
        expect(site.place.export in wire.list(), "the export is not listed")
        expect(wire.list() == wire.list(), "LIST is not repeatable")


@rule("should")
def list_with_data_invalid(site):
    """NBD_OPT_LIST: takes no data; a request with some is NBD_REP_ERR_INVALID."""
    with site.negotiate() as wire:
        kind = wire.final(LIST, b"x" * 7)
        expect(kind == ERR_INVALID, f"answered {hexed(kind)}")
        options_in_step(wire)


@rule("must")
def abort_is_acked(site):
    """NBD_OPT_ABORT: the server replies ACK and the session is over; data is ignored."""
    for data in (b"", b"good bye"):
        with site.negotiate() as wire:
            expect(wire.final(ABORT, data) == ACK, "ABORT not acked")
            expect(wire.is_closed(), "open after ABORT")


@rule("should")
def abort_and_leave(site):
    """NBD_OPT_ABORT: a client may close without waiting for the ACK."""
    for _ in range(20):
        with site.negotiate() as wire:
            wire.send_option(ABORT)
    still_serves(site)


# --- INFO, GO

@rule("must")
def info_export(site):
    """NBD_OPT_INFO: NBD_INFO_EXPORT before ACK; negotiation goes on afterwards."""
    with site.negotiate() as wire:
        expect(wire.info(kinds=()) == ACK, "INFO refused")
        expect(wire.size == site.size, f"size {wire.size}, not {site.size}")
        expect(wire.flags & HAS_FLAGS, "NBD_FLAG_HAS_FLAGS is clear")
        options_in_step(wire)


@rule("must")
def info_block_size(site):
    """Size constraints: powers of two; minimum at most 64 KiB, preferred at least 512 and the
    minimum, maximum at least the preferred."""
    with site.negotiate() as wire:
        expect(wire.info(kinds=(INFO_BLOCK_SIZE,)) == ACK, "INFO refused")
        need(wire.block, "no block size is advertised")
        least, preferred, most = wire.block
        for value in (least, preferred):
            expect(value and not value & (value - 1), f"{value} is not a power of two")
        expect(least <= 65536, f"minimum {least}")
        expect(preferred >= max(least, 512), f"preferred {preferred}")
        expect(most >= preferred, f"maximum {most} below preferred {preferred}")


@rule("should")
def info_block_size_generous(site):
    """Size constraints: the maximum should be 1 MiB or more, the size a multiple of the minimum."""
    with site.negotiate() as wire:
        wire.info(kinds=(INFO_BLOCK_SIZE,))
        need(wire.block, "no block size is advertised")
        expect(wire.block[2] >= min(1 << 20, wire.size), f"maximum {wire.block[2]}")
        expect(wire.size % wire.block[0] == 0, f"size {wire.size} is not in blocks")


@rule("must")
def info_unknown_requests_ignored(site):
    """NBD_OPT_INFO: information requests the server does not know are ignored."""
    kinds = (0xFFFE, INFO_NAME, 77, INFO_DESCRIPTION, INFO_EXPORT, INFO_BLOCK_SIZE)
    with site.negotiate() as wire:
        expect(wire.info(kinds=kinds) == ACK, "INFO refused")
        expect(not {0xFFFE, 77} & set(wire.infos), "an answer to a request nobody defined")
        if INFO_NAME in wire.infos and site.place.export:
            expect(wire.infos[INFO_NAME] == site.place.export.encode(), "another name")


@rule("must")
def info_and_go_agree(site):
    """NBD_OPT_GO: right after an INFO with the same parameters it tells the same."""
    with site.negotiate() as wire:
        kinds = (INFO_NAME, INFO_BLOCK_SIZE)
        wire.info(kinds=kinds)
        before = wire.infos
        expect(wire.info(kinds=kinds, option=GO) == ACK, "GO refused")
        expect(wire.infos == before, f"INFO {before}, GO {wire.infos}")


@rule("must")
def go_enters_transmission(site):
    """NBD_OPT_GO: transmission starts right after ACK, without zeroes whatever was agreed."""
    for flags in (FIXED_NEWSTYLE, FIXED_NEWSTYLE | NO_ZEROES):
        with site.dial() as wire:
            wire.greet(flags)
            commands_in_step(wire.go())


@rule("must")
def unknown_export_refused(site):
    """NBD_OPT_INFO, GO: NBD_REP_ERR_UNKNOWN without infos; the client may choose again."""
    with site.negotiate() as wire:
        for option in (INFO, GO):
            kind = wire.info(ABSENT, option=option)
            expect(kind == ERR_UNKNOWN, f"answered {hexed(kind)}")
            expect(not wire.infos, "infos about an export that does not exist")
        commands_in_step(wire.go())


@rule("must")
def odd_names_refused(site):
    """Strings: names end at 4096 bytes and hold no NUL; whatever the answer, no export appears
    and the stream stays in step or ends."""
    for name in (b"\xff\xfe\x80", b"a\0b", b"../../etc/passwd", b"%s%n", b"x" * 4097, b"x" * 9000):
        with site.negotiate() as wire:
            def ask(wire=wire, name=name):
                kind = wire.final(INFO, wire.info_data(name))
                expect(kind & ERR, f"export {name[:20]!r} exists: {hexed(kind)}")
            closed_or_in_step(wire, ask)
    still_serves(site)


@rule("must")
def name_of_4096_bytes_parsed(site):
    """Strings: 4096 bytes is within the limit, so this is just an unknown export."""
    with site.negotiate() as wire:
        kind = wire.final(INFO, wire.info_data(b"n" * 4096))
        expect(kind in (ERR_UNKNOWN, ERR_TOO_BIG, ERR_INVALID), f"answered {hexed(kind)}")
        options_in_step(wire)


@rule("must")
def go_with_wrong_lengths_invalid(site):
    """NBD_OPT_GO: a name or a list longer or shorter than the data is NBD_REP_ERR_INVALID."""
    name = site.place.export.encode()
    good = struct.pack(">I", len(name)) + name
    broken = [b"", b"\0", b"\0" * 3, b"\0" * 4, b"\0" * 5, good, good + b"\0",
              struct.pack(">I", 0xFFFFFFFF) + name + b"\0\0", good + struct.pack(">HH", 2, 0),
              struct.pack(">I", len(name) + 1) + name + b"\0\0",
              good + struct.pack(">HHH", 1, 0, 0), good + struct.pack(">H", 0xFFFF),
              struct.pack(">I", len(name) + 3) + name + b"\0\0"]
    with site.negotiate() as wire:
        for data in broken:
            for option in (INFO, GO):
                kind = wire.final(option, data)
                expect(kind == ERR_INVALID, f"{data!r} answered {hexed(kind)}")
        options_in_step(wire)
        commands_in_step(wire.go())


@rule("must")
def default_export_answered(site):
    """NBD_OPT_GO: the empty name asks for the default export, which is there or is unknown."""
    with site.negotiate() as wire:
        kind = wire.info("")
        expect(kind in (ACK, ERR_UNKNOWN), f"answered {hexed(kind)}")
        options_in_step(wire)


# --- unknown, oversized, broken options

@rule("must")
def unknown_options_unsupported(site):
    """Baseline: an option the server does not implement is NBD_REP_ERR_UNSUP, and the next one
    is understood."""
    with site.negotiate() as wire:
        for option in (PEEK_EXPORT, 0, 99, 0x7FFFFFFF, 0xFFFFFFFF):
            for size in (0, 1, 8, 4096):
                kind = wire.final(option, b"\xA5" * size)
                expect(kind == ERR_UNSUP, f"option {option} answered {hexed(kind)}")
        options_in_step(wire)


@rule("must")
def large_option_refused(site):
    """Newstyle negotiation: the length lets a server skip what it does not want; it skips or
    disconnects, and does not lose its place."""
    for option in (0x7777, LIST, INFO, SET_META):
        for size in (65536, 1 << 20):
            with site.negotiate() as wire:
                def ask(wire=wire, option=option, size=size):
                    kind = wire.final(option, b"\x49" * size)
                    expect(kind & ERR, f"option {option} of {size} bytes: {hexed(kind)}")
                closed_or_in_step(wire, ask)
    still_serves(site)


@rule("must")
def gigantic_option_refused(site):
    """Newstyle negotiation: a length of gigabytes is refused at once or by disconnecting; a
    server that waits for all of it is at the client's mercy."""
    for option in (0x7777, GO, LIST):
        with site.negotiate() as wire:
            wire.send_option(option, b"", length=0xFFFFFFFF)
            try:
                wire.send(b"\0" * 65536)
                kind, _ = wire.option_reply(option)
                expect(kind & ERR, f"option {option} of 4 GiB answered {hexed(kind)}")
            except (Closed, ConnectionError):
                pass
    still_serves(site)


@rule("must")
def option_magic_wrong_closes(site):
    """Newstyle negotiation: without IHAVEOPT in front nothing after it can be trusted."""
    for magic in (b"IHAVEOPS", b"NBDMAGIC", bytes(8)):
        with site.negotiate() as wire:
            wire.send_option(LIST, magic=magic)
            try:
                kind, _ = wire.option_reply(LIST)
                expect(kind & ERR, f"bad magic answered {hexed(kind)}")
                expect(wire.is_closed(), "open after a bad magic")
            except Closed:
                pass


@rule("must")
def option_cut_short_harmless(site):
    """Termination during negotiation: a client may vanish in the middle of an option."""
    for cut in (1, 8, 12, 15, 16, 17):
        with site.negotiate() as wire:
            data = wire.info_data(site.place.export)
            wire.send((IHAVEOPT + struct.pack(">II", GO, len(data)) + data)[:cut])
    still_serves(site)


# --- STRUCTURED_REPLY

@rule("must")
def structured_reply_acked(site):
    """NBD_OPT_STRUCTURED_REPLY: ACK; a repetition is ACK or NBD_REP_ERR_INVALID."""
    with site.negotiate() as wire:
        need(wire.ask_structured() == ACK, "no structured replies")
        expect(wire.final(STRUCTURED_REPLY) in (ACK, ERR_INVALID), "repetition")
        options_in_step(wire)


@rule("should")
def structured_reply_with_data_invalid(site):
    """NBD_OPT_STRUCTURED_REPLY: takes no data, and a refused one changes nothing."""
    with site.negotiate() as wire:
        need(wire.final(STRUCTURED_REPLY, b"data") != ERR_UNSUP, "no structured replies")
    with site.negotiate() as wire:
        kind = wire.final(STRUCTURED_REPLY, b"data")
        expect(kind == ERR_INVALID, f"answered {hexed(kind)}")
        commands_in_step(wire.go())     # raises when the reply is structured


# --- metadata contexts

def meta_negotiate(site):
    wire = site.negotiate()
    need(wire.ask_structured() == ACK, "no structured replies")
    need(wire.meta(LIST_META, [])[1] != ERR_UNSUP, "no metadata contexts")
    return wire


@rule("should")
def meta_before_structured_refused(site):
    """NBD_OPT_SET_META_CONTEXT: needs structured replies first, else NBD_REP_ERR_INVALID; listing
    may be refused too."""
    with site.negotiate() as wire:
        _, kind = wire.meta(SET_META, ["base:allocation"])
        need(kind != ERR_UNSUP, "no metadata contexts")
        expect(kind == ERR_INVALID, f"SET answered {hexed(kind)}")
        _, kind = wire.meta(LIST_META, ["base:allocation"])
        expect(kind in (ACK, ERR_INVALID), f"LIST answered {hexed(kind)}")
        options_in_step(wire)


@rule("must")
def meta_list(site):
    """NBD_OPT_LIST_META_CONTEXT: no query lists all, 'base:' all of base, a name just that; what
    is unknown is ignored."""
    with meta_negotiate(site) as wire:
        for queries in ([], ["base:"], ["base:allocation"], ["x-odd:", "base:"]):
            found, kind = wire.meta(LIST_META, queries)
            expect(kind == ACK and "base:allocation" in found, f"{queries}: {found}")
        expect(list(wire.meta(LIST_META, ["base:allocation"])[0]) == ["base:allocation"], "more")
        for queries in (["x-odd:name"], ["base:absent"], ["x-odd:", "x-other:"]):
            found, kind = wire.meta(LIST_META, queries)
            expect(kind == ACK and not found, f"{queries}: {found} {hexed(kind)}")


@rule("must")
def meta_set(site):
    """NBD_OPT_SET_META_CONTEXT: one reply a selected context; 'base:' selects none, unknown
    names are ignored."""
    with meta_negotiate(site) as wire:
        for queries in (["base:allocation"], ["x-odd:name", "base:allocation", "base:absent"],
                        ["base:allocation", "base:allocation"]):
            found, kind = wire.meta(SET_META, queries)
            expect(kind == ACK and list(found) == ["base:allocation"], f"{queries}: {found}")
        for queries in ([], ["base:"], ["base:absent"], ["x-odd:name"]):
            found, kind = wire.meta(SET_META, queries)
            expect(kind == ACK and not found, f"{queries}: {found} {hexed(kind)}")


@rule("must")
def meta_set_replaces(site):
    """NBD_OPT_SET_META_CONTEXT: the last one counts, also when it selects nothing or fails; a
    BLOCK_STATUS without context is NBD_EINVAL."""
    name = site.place.export.encode()
    torn = struct.pack(">I", len(name)) + name + struct.pack(">II", 1, 99) + b"base:"
    for data in (None, torn):
        with meta_negotiate(site) as wire:
            wire.meta(SET_META, ["base:allocation"])
            if data is None:
                wire.meta(SET_META, [])
            else:
                expect(wire.final(SET_META, data) & ERR, "torn query accepted")
            answer = wire.go().call(BLOCK_STATUS, 0, 4096)
            expect(answer.error == EINVAL, f"BLOCK_STATUS: error {answer.error}")
            commands_in_step(wire)


@rule("must")
def meta_with_wrong_lengths_invalid(site):
    """NBD_OPT_*_META_CONTEXT: lengths that leave the option are NBD_REP_ERR_INVALID."""
    name = site.place.export.encode()
    head = struct.pack(">I", len(name)) + name
    broken = [b"", b"\0\0", struct.pack(">I", 500) + name, head, head + b"\0\0",
              head + struct.pack(">I", 1), head + struct.pack(">II", 1, 16) + b"base:allocatio",
              head + struct.pack(">II", 2, 5) + b"base:", head + struct.pack(">I", 0xFFFFFFFF),
              head + struct.pack(">II", 1, 0xFFFFFFFF) + b"base:"]
    with meta_negotiate(site) as wire:
        for data in broken:
            for option in (LIST_META, SET_META):
                kind = wire.final(option, data)
                expect(kind == ERR_INVALID, f"{option} {data!r} answered {hexed(kind)}")
        options_in_step(wire)


@rule("should")
def meta_with_trailing_data_invalid(site):
    """NBD_OPT_*_META_CONTEXT: bytes behind the last query are no query: NBD_REP_ERR_INVALID."""
    with meta_negotiate(site) as wire:
        data = wire.meta_data(site.place.export, []) + b"trailing"
        for option in (LIST_META, SET_META):
            kind = wire.final(option, data)
            expect(kind == ERR_INVALID, f"{option} answered {hexed(kind)}")
        options_in_step(wire)


@rule("must")
def meta_query_without_colon(site):
    """NBD_OPT_LIST_META_CONTEXT: what lacks a namespace may be refused; it finds nothing."""
    with meta_negotiate(site) as wire:
        for query in ("base", "", "allocation"):
            for option in (LIST_META, SET_META):
                found, kind = wire.meta(option, [query])
                expect(not found and kind in (ACK, ERR_INVALID), f"{query!r}: {hexed(kind)}")
        options_in_step(wire)


@rule("must")
def meta_of_unknown_export(site):
    """NBD_OPT_SET_META_CONTEXT: for an export that does not exist nothing is selected."""
    with meta_negotiate(site) as wire:
        for option in (LIST_META, SET_META):
            found, kind = wire.meta(option, ["base:allocation"], ABSENT)
            expect(kind & ERR or not found, f"contexts {found} of nothing")
        options_in_step(wire)


@rule("must")
def meta_of_another_export_unusable(site):
    """NBD_CMD_BLOCK_STATUS: needs contexts set for the very export that is used then."""
    with meta_negotiate(site) as wire:
        others = [name for name in wire.list() if name != site.place.export]
        need(others, "only one export")
        wire.meta(SET_META, ["base:allocation"], others[0])
        answer = wire.go().call(BLOCK_STATUS, 0, 4096)
        expect(answer.error == EINVAL, f"BLOCK_STATUS: error {answer.error}")


@rule("must")
def meta_many_queries(site):
    """NBD_OPT_SET_META_CONTEXT: too many queries may be NBD_REP_ERR_TOO_BIG; in step all the
    same, or closed."""
    with meta_negotiate(site) as wire:
        def ask():
            queries = [f"x-odd:{n}" for n in range(1000)] + ["base:allocation"]
            found, kind = wire.meta(SET_META, queries)
            expect(kind & ERR or list(found) == ["base:allocation"], f"{found} {hexed(kind)}")
        closed_or_in_step(wire, ask)


# --- flags and TLS seen from here

@rule("must")
def transmission_flags_same_for_all(site):
    """Transmission flags: INFO, GO and EXPORT_NAME describe one export; DF appears only once
    structured replies were agreed."""
    with site.negotiate() as wire:
        wire.info()
        plain = wire.flags
        expect(not plain & SEND_DF, "SEND_DF before structured replies")
        if wire.ask_structured() == ACK:
            wire.info()
            expect(wire.flags & ~SEND_DF == plain, f"{wire.flags:#x} and {plain:#x}")
    wire, _ = enter_by_name(site)
    with wire:
        expect(wire.flags == plain, f"EXPORT_NAME {wire.flags:#x}, INFO {plain:#x}")
        expect(not plain & CAN_MULTI_CONN or not plain & ~0xFFF, f"unknown flags {plain:#x}")


@rule("must")
def starttls_without_tls(site):
    """NOTLS mode: STARTTLS is refused by policy or as unknown, never with TLS_REQD."""
    with site.negotiate() as wire:
        kind = wire.final(STARTTLS)
        if kind == ACK:
            raise Skip("this server has TLS")
        expect(kind in (ERR_UNSUP, ERR_POLICY, ERR_PLATFORM), f"answered {hexed(kind)}")
        options_in_step(wire)


@rule("should")
def commands_before_go_closed(site):
    """Newstyle negotiation: a request in place of an option is not an option."""
    with site.negotiate() as wire:
        wire.start(READ, 0, 512)
        expect(wire.is_closed(), "a READ during negotiation left the connection open")
