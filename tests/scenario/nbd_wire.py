# SPDX-License-Identifier: Apache-2.0
"""A strict NBD client over raw sockets, for tests: it sends what it is told, right or wrong,
and holds every answer against the specification."""

import socket
import ssl
import struct
import time
import urllib.parse

GREETING, IHAVEOPT, OPT_REPLY = b"NBDMAGIC", b"IHAVEOPT", 0x3E889045565A9
REQUEST, SIMPLE, STRUCTURED = 0x25609513, 0x67446698, 0x668E33EF

# handshake flags (server), client flags
FIXED_NEWSTYLE, NO_ZEROES = 1, 2

# options
(EXPORT_NAME, ABORT, LIST, PEEK_EXPORT, STARTTLS, INFO, GO, STRUCTURED_REPLY, LIST_META,
 SET_META) = range(1, 11)

# option replies
ACK, SERVER, REP_INFO, META_CONTEXT = 1, 2, 3, 4
ERR = 1 << 31
(ERR_UNSUP, ERR_POLICY, ERR_INVALID, ERR_PLATFORM, ERR_TLS_REQD, ERR_UNKNOWN, ERR_SHUTDOWN,
 ERR_BLOCK_SIZE_REQD, ERR_TOO_BIG) = (ERR + n for n in range(1, 10))

INFO_EXPORT, INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE = range(4)

# transmission flags
(HAS_FLAGS, READ_ONLY, SEND_FLUSH, SEND_FUA, ROTATIONAL, SEND_TRIM, SEND_WRITE_ZEROES, SEND_DF,
 CAN_MULTI_CONN, SEND_RESIZE, SEND_CACHE, SEND_FAST_ZERO) = (1 << n for n in range(12))

# commands and their flags
READ, WRITE, DISC, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS = range(8)
FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO = (1 << n for n in range(5))

# structured replies
DONE = 1
NONE, OFFSET_DATA, OFFSET_HOLE, STATUS = 0, 1, 2, 5
ERROR, ERROR_OFFSET = 0x8001, 0x8002
HOLE, ZERO = 1, 2

EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP, ESHUTDOWN = 1, 5, 12, 22, 28, 75, 95, 108
ERRORS = {0, EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP, ESHUTDOWN}

STRING_MAX = 4096
CHUNK_LIMIT = 256 << 20


class Broken(Exception):
    """The server did what the specification forbids."""


class Closed(Exception):
    """The server ended the connection."""


class Place:
    """Where a URI leads: an address and an export name."""

    def __init__(self, uri):
        parts = urllib.parse.urlsplit(uri)
        self.uri, self.tls = uri, parts.scheme.startswith("nbds")
        self.export = urllib.parse.unquote(parts.path[1:])
        self.host = parts.hostname or "localhost"
        if parts.scheme in ("nbd+unix", "nbds+unix"):
            self.family = socket.AF_UNIX
            self.address = urllib.parse.parse_qs(parts.query)["socket"][0]
        elif parts.scheme in ("nbd", "nbds"):
            self.family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            self.address = (self.host, parts.port or 10809)
        else:
            raise ValueError(f"not an NBD URI: {uri}")

    def connect(self, sock, end):
        """A UNIX socket whose backlog is full says EAGAIN to those who will not wait for ever."""
        while True:
            sock.settimeout(max(end - time.monotonic(), 0.01))
            try:
                return sock.connect(self.address)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.001)

    def open(self, timeout):
        sock = socket.socket(self.family)
        try:
            self.connect(sock, time.monotonic() + timeout)
        except OSError:
            sock.close()
            raise
        sock.settimeout(timeout)
        if self.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


class Answer:
    """Everything the server said to one request."""

    def __init__(self, cookie, command, offset, length, flags):
        self.cookie, self.command, self.flags = cookie, command, flags
        self.offset, self.length = offset, length
        self.error, self.structured, self.message = 0, False, b""
        self.chunks, self.pieces, self.extents, self.data = [], [], {}, b""

    def assemble(self):
        """Content chunks cover the range exactly once."""
        at, parts = self.offset, []
        for start, data in sorted(self.pieces, key=lambda piece: piece[0]):
            if start != at:
                what = "overlap" if start < at else "leave a gap"
                raise Broken(f"content chunks {what} at offset {min(start, at)}")
            parts.append(data)
            at += len(data)
        if at != self.offset + self.length:
            raise Broken(f"content chunks end at {at}, not {self.offset + self.length}")
        self.data = b"".join(parts)


class Wire:
    """One connection. Methods that wait raise Closed, Broken or TimeoutError."""

    def __init__(self, place, timeout=120):
        self.place, self.sock = place, place.open(timeout)
        self.structured, self.contexts, self.inflight = False, {}, {}
        self.server_flags = self.size = self.flags = 0
        self.block, self.infos, self.next_cookie = None, {}, 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    # --- bytes

    def send(self, data):
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError) as e:
            raise Closed(str(e)) from e

    def recv(self, size):
        parts, left = [], size
        while left:
            try:
                part = self.sock.recv(min(left, 1 << 20))
            except (ConnectionResetError, ssl.SSLError) as e:
                raise Closed(str(e)) from e
            if not part:
                raise Closed(f"end of stream, {left} of {size} bytes missing")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def unpack(self, form):
        return struct.unpack(form, self.recv(struct.calcsize(form)))

    def is_closed(self, seconds=5):
        """True when the server ends the connection in time; what it still sends is thrown away."""
        self.sock.settimeout(seconds)
        try:
            while self.sock.recv(1 << 20):
                pass
        except (socket.timeout, TimeoutError):
            return False
        except OSError:
            return True
        return True

    # --- handshake

    def greet(self, client_flags=FIXED_NEWSTYLE | NO_ZEROES):
        magic, second, self.server_flags = self.unpack(">8s8sH")
        if (magic, second) != (GREETING, IHAVEOPT):
            raise Broken(f"greeting {magic!r} {second!r}")
        self.send(struct.pack(">I", client_flags))
        return self.server_flags

    def send_option(self, option, data=b"", length=None, magic=IHAVEOPT):
        length = len(data) if length is None else length
        self.send(magic + struct.pack(">II", option, length) + data)

    def option_reply(self, option):
        magic, echoed, kind, length = self.unpack(">QIII")
        if magic != OPT_REPLY:
            raise Broken(f"option reply magic {magic:#x}")
        if echoed != option:
            raise Broken(f"reply to option {echoed}, asked {option}")
        if length > 1 << 20:
            raise Broken(f"option reply of {length} bytes")
        return kind, self.recv(length)

    def option(self, option, data=b""):
        """All replies, as (type, data); the last is final."""
        self.send_option(option, data)
        replies = [self.option_reply(option)]
        while replies[-1][0] != ACK and not replies[-1][0] & ERR:
            replies.append(self.option_reply(option))
        if replies[-1][0] == ACK and replies[-1][1]:
            raise Broken("ACK with data")
        return replies

    def final(self, option, data=b""):
        return self.option(option, data)[-1][0]

    def list(self):
        replies = self.option(LIST)
        if replies[-1][0] != ACK:
            raise Broken(f"LIST: {replies[-1]}")
        names = []
        for kind, data in replies[:-1]:
            size = struct.unpack_from(">I", data)[0]
            if kind != SERVER or size > len(data) - 4:
                raise Broken(f"LIST: reply {kind}, name of {size} in {len(data)} bytes")
            names.append(data[4:4 + size].decode())
        return names

    @staticmethod
    def info_data(name, kinds=()):
        name = name if isinstance(name, bytes) else name.encode()
        return (struct.pack(">I", len(name)) + name +
                struct.pack(f">H{len(kinds)}H", len(kinds), *kinds))

    def info(self, name=None, kinds=(INFO_BLOCK_SIZE,), option=INFO):
        """The final reply type, with self.size, flags, block and infos filled in."""
        name = self.place.export if name is None else name
        replies = self.option(option, self.info_data(name, kinds))
        self.infos = {}
        for kind, data in replies[:-1]:
            if kind != REP_INFO or len(data) < 2:
                raise Broken(f"reply type {kind} to INFO or GO")
            self.infos[struct.unpack_from(">H", data)[0]] = data[2:]
        if replies[-1][0] == ACK:
            self.take_infos()
        return replies[-1][0]

    def take_infos(self):
        if INFO_EXPORT not in self.infos:
            raise Broken("success without NBD_INFO_EXPORT")
        if len(self.infos[INFO_EXPORT]) != 10:
            raise Broken("NBD_INFO_EXPORT is not 12 bytes")
        self.size, self.flags = struct.unpack(">QH", self.infos[INFO_EXPORT])
        if INFO_BLOCK_SIZE in self.infos:
            if len(self.infos[INFO_BLOCK_SIZE]) != 12:
                raise Broken("NBD_INFO_BLOCK_SIZE is not 14 bytes")
            self.block = struct.unpack(">III", self.infos[INFO_BLOCK_SIZE])

    def go(self, name=None, kinds=(INFO_BLOCK_SIZE,)):
        kind = self.info(name, kinds, GO)
        if kind != ACK:
            raise Broken(f"GO refused: {kind:#x}")
        return self

    def ask_structured(self):
        kind = self.final(STRUCTURED_REPLY)
        self.structured = kind == ACK
        return kind

    @staticmethod
    def meta_data(name, queries):
        name = name.encode()
        data = struct.pack(">I", len(name)) + name + struct.pack(">I", len(queries))
        for query in queries:
            query = query if isinstance(query, bytes) else query.encode()
            data += struct.pack(">I", len(query)) + query
        return data

    def meta(self, option, queries, name=None):
        """({name: id}, final reply type)"""
        name = self.place.export if name is None else name
        replies, found = self.option(option, self.meta_data(name, queries)), {}
        for kind, data in replies[:-1]:
            if kind != META_CONTEXT or len(data) < 5:
                raise Broken(f"reply type {kind} to a metadata option")
            if data[4:].decode() in found:
                raise Broken(f"context {data[4:]} twice")
            found[data[4:].decode()] = struct.unpack_from(">I", data)[0]
        if option == SET_META:
            self.contexts = found if replies[-1][0] == ACK else {}
            if len(set(found.values())) != len(found):
                raise Broken("context ids are not unique")
        return found, replies[-1][0]

    # --- transmission

    def cookie(self):
        self.next_cookie += 1
        return self.next_cookie * 0x9E3779B97F4A7C15 & (1 << 64) - 1

    def pack(self, command, offset=0, length=0, flags=0, payload=b"", cookie=None):
        """One request as bytes, noted as in flight."""
        cookie = self.cookie() if cookie is None else cookie
        self.inflight[cookie] = Answer(cookie, command, offset, length, flags)
        return struct.pack(">IHHQQI", REQUEST, flags, command, cookie, offset, length) + payload

    def start(self, command, offset=0, length=0, flags=0, payload=b""):
        self.send(self.pack(command, offset, length, flags, payload))

    def call(self, command, offset=0, length=0, flags=0, payload=b""):
        """One request and its Answer; nothing else may be in flight."""
        self.start(command, offset, length, flags, payload)
        return self.collect()

    def collect(self):
        """The next Answer that is complete."""
        while True:
            magic, = self.unpack(">I")
            if magic == SIMPLE:
                return self.take_simple()
            if magic != STRUCTURED:
                raise Broken(f"reply magic {magic:#x}")
            answer = self.take_chunk()
            if answer:
                return answer

    def take_simple(self):
        error, cookie = self.unpack(">IQ")
        answer = self.inflight.pop(cookie, None)
        if answer is None:
            raise Broken(f"reply to cookie {cookie:#x}, which is not in flight")
        if answer.chunks:
            raise Broken("simple reply after chunks")
        if self.structured and answer.command in (READ, BLOCK_STATUS) and not error:
            raise Broken("simple reply with payload although structured replies were negotiated")
        if self.structured and answer.command == READ:
            raise Broken("simple reply to READ although structured replies were negotiated")
        answer.error = self.check_error(error)
        if answer.command == READ and not error:
            answer.data = self.recv(answer.length)
        return answer

    @staticmethod
    def check_error(error):
        if error not in ERRORS:
            raise Broken(f"error value {error} is not one of the protocol's")
        return error

    def take_chunk(self):
        flags, kind, cookie, length = self.unpack(">HHQI")
        answer = self.inflight.get(cookie)
        if not self.structured:
            raise Broken("structured reply without negotiation")
        if answer is None:
            raise Broken(f"chunk for cookie {cookie:#x}, which is not in flight")
        if flags & ~DONE:
            raise Broken(f"chunk flags {flags:#x}")
        if length > CHUNK_LIMIT:
            raise Broken(f"chunk of {length} bytes")
        answer.structured = True
        self.take_payload(answer, kind, flags, self.recv(length))
        if not flags & DONE:
            return None
        del self.inflight[cookie]
        if answer.command == READ and not answer.error:
            answer.assemble()
        return answer

    def take_payload(self, answer, kind, flags, payload):
        answer.chunks.append((kind, flags, len(payload)))
        if kind == NONE:
            if payload or not flags & DONE:
                raise Broken("NONE chunk with payload or without DONE")
        elif kind == OFFSET_DATA and answer.command == READ and len(payload) >= 9:
            answer.pieces.append((struct.unpack_from(">Q", payload)[0], payload[8:]))
        elif kind == OFFSET_HOLE and answer.command == READ and len(payload) == 12:
            offset, size = struct.unpack(">QI", payload)
            if not 0 < size <= answer.length:
                raise Broken(f"hole of {size} bytes in a read of {answer.length}")
            answer.pieces.append((offset, bytes(size)))
        elif kind == STATUS and answer.command == BLOCK_STATUS:
            self.take_extents(answer, payload)
        elif kind & 0x8000:
            self.take_error(answer, kind, payload)
        else:
            raise Broken(f"chunk type {kind}, {len(payload)} bytes, to command {answer.command}")

    @staticmethod
    def take_extents(answer, payload):
        if len(payload) < 12 or len(payload) % 8 != 4:
            raise Broken(f"block status chunk of {len(payload)} bytes")
        words = struct.unpack(f">{len(payload) // 4}I", payload)
        if words[0] in answer.extents:
            raise Broken(f"two status chunks for context {words[0]}")
        answer.extents[words[0]] = list(zip(words[1::2], words[2::2]))

    def take_error(self, answer, kind, payload):
        tail = {ERROR: 0, ERROR_OFFSET: 8}.get(kind, 0)
        if len(payload) < 6 + tail:
            raise Broken(f"error chunk of {len(payload)} bytes")
        error, size = struct.unpack_from(">IH", payload)
        if not error or size > STRING_MAX or size > len(payload) - 6 - tail:
            raise Broken(f"error chunk: error {error}, message of {size}")
        answer.error = self.check_error(error)
        answer.message = payload[6:6 + size]
        if kind == ERROR_OFFSET:
            offset, = struct.unpack_from(">Q", payload, 6 + size)
            if not answer.offset <= offset < answer.offset + answer.length:
                raise Broken(f"error at {offset}, outside the request")

    # --- shorter for those who expect success

    def ok(self, *args, **named):
        answer = self.call(*args, **named)
        if answer.error:
            raise Broken(f"command {answer.command} at {answer.offset}, {answer.length} bytes: "
                         f"error {answer.error} {answer.message.decode(errors='replace')}")
        return answer

    def read(self, offset, length, flags=0):
        return self.ok(READ, offset, length, flags).data

    def write(self, offset, data, flags=0):
        return self.ok(WRITE, offset, len(data), flags, data)
