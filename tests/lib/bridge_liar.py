#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An end of a bridge that breaks the rules of docs/format-bridge.md.

    bridge_liar.py PORT LIE           a client; prints what the exporting end does about it
    bridge_liar.py --serve PORT LIE   an exporting end for one importer after another
"""

import socket
import struct
import sys

HELLO, WELCOME, REFUSE, REQUEST, ANSWER, PING, PONG = range(1, 8)
READ, WRITE = 1, 2
TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xff] ^ crc >> 8
    return crc ^ 0xffffffff


def frame(kind, op=0, sequence=0, length=0, size=0, room=0, behind=0, data=b"", good=True):
    head = struct.pack("<IBBHQQIIQIIQQIII", 0x31594b53, kind, op, 0, sequence, 7, 0, 0, 0, length,
                       size or len(data), 0, 0, room, crc32c(data) if data else 0, behind)
    return head + struct.pack("<I", crc32c(head) ^ (0 if good else 1)) + data


def hello(version=1, conn=0, generation=1):
    return frame(HELLO, data=struct.pack("<HHBBH16s16sQ64s64s16x", version, version, conn, 0, 0,
                                         b"w" * 16, b"s" * 16, generation, b"liar", b"far"))


def receive(sock, size):
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def read_frame(sock):
    head = receive(sock, 80)
    size = struct.unpack_from("<I", head, 44)[0]
    return head[4], struct.unpack_from("<Q", head, 8)[0], head, receive(sock, size)


CLIENT_LIES = {
    "noise": lambda: b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + bytes(200),
    "header": lambda: frame(HELLO, data=bytes(192), good=False),
    "length": lambda: frame(HELLO, size=1 << 31),
    "version": lambda: hello(version=9),
    "twice": lambda: hello() + hello(),
    "window": lambda: hello() + frame(REQUEST, READ, 5000, 4096, room=4096) +
    frame(REQUEST, READ, 10, 4096, room=4096),
    "request": lambda: hello() + frame(REQUEST, 200, 1),
    "huge": lambda: hello() + frame(REQUEST, WRITE, 1, 1 << 30, size=1 << 30),
}


def tell(port, lie):
    with socket.create_connection(("127.0.0.1", port), timeout=50) as sock:
        sock.sendall(CLIENT_LIES[lie]())
        try:
            while True:
                if read_frame(sock)[0] == REFUSE:
                    print("refused")
                    return
        except (EOFError, ConnectionError):
            print("ended")


def answer(sock, lie):
    """Frames for one request, or None: this one is answered well."""
    kind, sequence, head, _ = read_frame(sock)
    if kind == PING:
        return frame(PONG, sequence=sequence)
    length = struct.unpack_from("<I", head, 40)[0]
    good = frame(ANSWER, sequence=sequence, length=length, data=bytes(length))
    return {
        "length": frame(ANSWER, sequence=sequence, length=length, data=bytes(length + 4096)),
        "unasked": frame(ANSWER, sequence=sequence + 100, data=b""),
        "twice": good + good,
    }.get(lie, good)


def serve_one(sock, lie):
    if lie == "noise":
        sock.sendall(b"SSH-2.0-OpenSSH\r\n" + bytes(100))
        return
    read_frame(sock)
    window = 0 if lie == "window" else 256
    version = 9 if lie == "version" else 1
    sock.sendall(frame(WELCOME, data=struct.pack("<HBBIQ32x", version, 0, 0, window, 1 << 20)))
    while True:
        sock.sendall(answer(sock, lie))


def serve(port, lie):
    import threading  # pylint: disable=import-outside-toplevel

    def one(sock):
        with sock:
            try:
                serve_one(sock, lie)
            except (EOFError, OSError):
                pass

    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            threading.Thread(target=one, args=[listener.accept()[0]], daemon=True).start()


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(int(sys.argv[2]), sys.argv[3])
    else:
        tell(int(sys.argv[1]), sys.argv[2])
