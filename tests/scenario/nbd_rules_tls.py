# SPDX-License-Identifier: Apache-2.0
"""Rules of the NBD specification about TLS; they need --tls-uri."""

import socket
import ssl
import struct

from nbd_rule import (Closed, Site, commands_in_step, expect, hexed, need, options_in_step, pattern,
                      rule)
from nbd_wire import (ABORT, ACK, ERR, ERR_INVALID, ERR_TLS_REQD, EXPORT_NAME, GO, IHAVEOPT, INFO,
                      LIST, LIST_META, READ, READ_ONLY, SET_META, STARTTLS, STRUCTURED_REPLY)

M = 1 << 20


def behind(site):
    """The TLS server's Site."""
    need(site.options.tls_uri, "no --tls-uri")
    there = Site(site.options.tls_uri, 0, site.timeout)
    there.options = site.options
    return there


def upgrade(site, wire, certificate=True):
    """The TLS handshake after an ACK."""
    options = site.options
    context = ssl.create_default_context(cafile=options.ca)
    context.check_hostname = bool(options.hostname) or site.place.family != socket.AF_UNIX
    if certificate and options.cert:
        context.load_cert_chain(options.cert, options.key)
    name = options.hostname or site.place.host
    try:
        wire.sock = context.wrap_socket(wire.sock, server_hostname=name)
    except (ssl.SSLError, ConnectionError) as e:
        raise Closed(str(e)) from e
    return wire


def secured(site, certificate=True):
    wire = site.negotiate()
    kind = wire.final(STARTTLS)
    expect(kind == ACK, f"STARTTLS answered {hexed(kind)}")
    return upgrade(site, wire, certificate)


def insists(site):
    """True when this server requires TLS."""
    with site.negotiate() as wire:
        return wire.final(LIST) == ERR_TLS_REQD


@rule("must")
def tls_upgrade_works(site):
    """NBD_OPT_STARTTLS: after ACK all goes through TLS, 1.2 at least, negotiation and data."""
    there = behind(site)
    with secured(there) as wire:
        expect(wire.sock.version() in ("TLSv1.2", "TLSv1.3"), f"version {wire.sock.version()}")
        options_in_step(wire)
        wire.ask_structured()
        wire.go()
        wire.send(b"".join(wire.pack(READ, n * 4096, 4096) for n in range(64)))
        while wire.inflight:
            expect(not wire.collect().error, "a read failed")
        commands_in_step(wire)


@rule("must")
def tls_carries_data(site):
    """TLS support: what is written through TLS is read, in large pieces too."""
    with secured(behind(site)) as wire:
        wire.go()
        need(not wire.flags & READ_ONLY, "the TLS export is read-only")
        data = pattern(33, 2 * M)
        wire.write(3 * M, data)
        expect(wire.read(3 * M, 2 * M) == data, "other bytes")


@rule("must")
def tls_required_refuses_all_else(site):
    """FORCEDTLS: before TLS every option but STARTTLS and ABORT is NBD_REP_ERR_TLS_REQD, unknown
    ones too, and EXPORT_NAME ends the session."""
    there = behind(site)
    if not insists(there):
        expect(not site.options.tls_required, "LIST works without TLS")
        need(False, "this server does not insist on TLS")
    with there.negotiate() as wire:
        data = wire.info_data(there.place.export)
        for option in (LIST, INFO, GO, STRUCTURED_REPLY, LIST_META, SET_META, 99, 0x7FFFFFFF):
            kind = wire.final(option, data if option in (INFO, GO) else b"")
            expect(kind == ERR_TLS_REQD, f"option {option} answered {hexed(kind)}")
        expect(wire.final(ABORT) == ACK, "ABORT not acked")
    with there.negotiate() as wire:
        wire.send_option(EXPORT_NAME, there.place.export.encode())
        expect(wire.is_closed(), "EXPORT_NAME without TLS left the session open")


@rule("must")
def tls_reqd_never_after_tls(site):
    """FORCEDTLS: once TLS runs, NBD_REP_ERR_TLS_REQD is never an answer; a second STARTTLS is
    NBD_REP_ERR_INVALID."""
    with secured(behind(site)) as wire:
        kind = wire.final(STARTTLS)
        expect(kind == ERR_INVALID, f"second STARTTLS answered {hexed(kind)}")
        for option in (LIST, STRUCTURED_REPLY, 99, INFO, GO, SET_META):
            kind = wire.final(option, b"" if option != INFO else wire.info_data("nobody"))
            expect(kind != ERR_TLS_REQD, f"option {option}")
        options_in_step(wire)


@rule("must")
def tls_resets_negotiation(site):
    """NBD_OPT_STARTTLS: nothing agreed before it survives it."""
    there = behind(site)
    with there.negotiate() as wire:
        if wire.final(STRUCTURED_REPLY) == ACK:
            wire.meta(SET_META, ["base:allocation"])
        expect(wire.final(STARTTLS) == ACK, "STARTTLS refused")
        upgrade(there, wire)
        wire.contexts = {}
        _, kind = wire.meta(SET_META, ["base:allocation"])
        expect(kind & ERR, "structured replies survived STARTTLS")
        commands_in_step(wire.go())             # raises when the reply is structured


@rule("should")
def starttls_with_data_invalid(site):
    """NBD_OPT_STARTTLS: takes no data; the refusal leaves a plain connection in step."""
    there = behind(site)
    with there.negotiate() as wire:
        kind = wire.final(STARTTLS, b"data")
        expect(kind == ERR_INVALID, f"answered {hexed(kind)}")
        expect(wire.final(STARTTLS) == ACK, "no STARTTLS after a refused one")
        options_in_step(upgrade(there, wire))


@rule("must")
def tls_ignores_plaintext_behind_starttls(site):
    """FORCEDTLS: after ACK everything is TLS; plain options sent along with STARTTLS (by whoever
    sits in between) are not executed."""
    there = behind(site)
    with there.negotiate() as wire:
        plain = IHAVEOPT + struct.pack(">II", LIST, 0)
        wire.send(IHAVEOPT + struct.pack(">II", STARTTLS, 0) + plain)
        expect(wire.option_reply(STARTTLS)[0] == ACK, "STARTTLS refused")
        try:
            upgrade(there, wire)
            wire.sock.settimeout(1)
            wire.recv(1)
            expect(False, "a plain option was executed inside TLS")
        except (Closed, TimeoutError, OSError):
            pass


@rule("must")
def tls_handshake_failure_closes(site):
    """FORCEDTLS: a failed handshake ends the session; others are served."""
    there = behind(site)
    option = IHAVEOPT + struct.pack(">II", LIST, 0)
    for garbage in (b"\0" * 64, b"GET / HTTP/1.0\r\n\r\n" * 4, option):
        with there.negotiate() as wire:
            expect(wire.final(STARTTLS) == ACK, "STARTTLS refused")
            wire.send(garbage + bytes(4096))
            expect(wire.is_closed(), "open after a failed handshake")
    with secured(there) as wire:
        options_in_step(wire)


@rule("must")
def tls_handshake_cut_short_harmless(site):
    """FORCEDTLS: a client may vanish between ACK and the handshake."""
    there = behind(site)
    for _ in range(10):
        with there.negotiate() as wire:
            wire.final(STARTTLS)
    with secured(there) as wire:
        options_in_step(wire)


@rule("must")
def tls_client_certificate_checked(site):
    """Certificates: a server that wants a client certificate serves nobody without one."""
    there = behind(site)
    need(site.options.cert_required, "no --cert-required")
    try:
        with secured(there, certificate=False) as wire:
            wire.go()
            wire.read(0, 512)
    except (Closed, OSError):
        return
    expect(False, "served without a certificate")
