# SPDX-License-Identifier: Apache-2.0
"""What a rule of the NBD specification is made of: a table of rules, the server under test,
and ways to say that something is wrong."""

from nbd_wire import (ACK, EXPORT_NAME, NO_ZEROES, READ, READ_ONLY, SET_META, Broken, Closed,
                      Place, Wire)

RULES = []


class Skip(Exception):
    """The rule does not apply to this server."""


def rule(level):
    """Registers a rule; level is 'must' or 'should', as the specification puts it."""
    def register(function):
        function.level = level
        RULES.append(function)
        return function
    return register


def expect(condition, text):
    if not condition:
        raise Broken(text)


def need(condition, text):
    if not condition:
        raise Skip(text)


def hexed(kind):
    return f"{kind:#x}"


class Site:
    """The server under test, and polite clients of it."""

    def __init__(self, uri, size, timeout=120):
        self.place, self.size, self.timeout = Place(uri), size, timeout
        self.options = None

    def dial(self):
        """Connected; not even the greeting was read."""
        return Wire(self.place, self.timeout)

    def negotiate(self):
        """Greeted, in option negotiation."""
        wire = self.dial()
        wire.greet()
        return wire

    def transmit(self, structured=True, meta=False):
        """In the transmission phase."""
        wire = self.negotiate()
        if structured or meta:
            need(wire.ask_structured() == ACK, "no structured replies")
        if meta:
            need(wire.meta(SET_META, ["base:allocation"])[1] == ACK and wire.contexts,
                 "no base:allocation")
        return wire.go()

    def writable(self, structured=True, meta=False):
        wire = self.transmit(structured, meta)
        need(not wire.flags & READ_ONLY, "the export is read-only")
        return wire

    def offering(self, flag, name, **named):
        wire = self.writable(**named)
        need(wire.flags & flag, f"{name} is not offered")
        return wire


def unit(wire):
    """The smallest length this export takes."""
    return wire.block[0] if wire.block else 1


def payload_max(wire):
    return min(wire.block[2] if wire.block else 1 << 25, 1 << 25)


def options_in_step(wire):
    """Proof that both sides agree where the next option begins."""
    name = wire.place.export
    expect(name in wire.list() or name == "", "LIST lost the export after an odd option")


def commands_in_step(wire):
    """Proof that both sides agree where the next request begins."""
    expect(not wire.inflight, "requests without an answer")
    expect(len(wire.read(0, 512)) == 512, "a read after an odd request")


def refused_in_step(wire, answer, *errors):
    want = " or ".join(map(str, errors))
    expect(answer.error in errors, f"error {answer.error}, expected {want}")
    commands_in_step(wire)


def closed_or_in_step(wire, command):
    """Either way is allowed; half a conversation is not. True when it was closed."""
    try:
        command()
        options_in_step(wire)
        return False
    except (Closed, ConnectionError):
        return True


def enter_by_name(site, client_flags=NO_ZEROES | 1):
    """EXPORT_NAME; returns the wire and the reserved bytes that followed the flags."""
    wire = site.dial()
    wire.greet(client_flags)
    wire.send_option(EXPORT_NAME, site.place.export.encode())
    wire.size, wire.flags = wire.unpack(">QH")
    zeroes = b"" if client_flags & NO_ZEROES else wire.recv(124)
    return wire, zeroes


def pattern(seed, length):
    """Bytes that differ at every offset of 8 and from seed to seed."""
    state, words = (seed * 0x9E3779B97F4A7C15 + 1) & (1 << 64) - 1, []
    for index in range(0, length, 8):
        words.append(((state ^ index * 0xD6E8FEB86659FD93) & (1 << 64) - 1).to_bytes(8, "big"))
    return b"".join(words)[:length]


def still_serves(site):
    """A new, polite client is served."""
    with site.transmit(structured=False) as wire:
        answer = wire.call(READ, 0, 512)
        expect(not answer.error, f"a polite client got error {answer.error}")
