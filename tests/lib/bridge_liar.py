#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An end of a bridge that breaks the rules of docs/format-bridge.md.

    bridge_liar.py PORT LIE           a client; prints what the exporting end does about it
    bridge_liar.py --serve PORT LIE   an exporting end for one importer after another

LIE random: frames whose checksums are right and whose fields are not, out of $SEED.
"""

import os
import random
import socket
import struct
import sys

HELLO, WELCOME, REFUSE, REQUEST, ANSWER, PING, PONG = range(1, 8)
READ, WRITE = 1, 2
VOLUME = 1000  # nobody else's
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
    head = struct.pack("<IBBHQQIIQIIQQIII", 0x31594b53, kind, op, 0, sequence, VOLUME, 0, 0, 0,
                       length, size or len(data), 0, 0, room, crc32c(data) if data else 0, behind)
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


# offset and size of each field of a header
FIELDS = [(4, 1), (5, 1), (6, 2), (8, 8), (16, 8), (24, 4), (28, 4), (32, 8), (40, 4), (44, 4),
          (48, 8), (56, 8), (64, 4), (68, 4), (72, 4)]


def spoil(dice, data):
    """One to three fields of a good frame become other numbers: near ones, huge ones, any."""
    head = bytearray(data[:76])
    for _ in range(dice.randint(1, 3)):
        at, size = dice.choice(FIELDS)
        old = int.from_bytes(head[at:at + size], "little")
        number = dice.choice([0, 1, old + 1, old - 1, old * 2, old ^ 1 << dice.randrange(8 * size),
                              (1 << 8 * size) - 1, dice.getrandbits(8 * size)])
        head[at:at + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(head) + struct.pack("<I", crc32c(head)) + data[80:]


def good_request(dice, sequence):
    size = dice.choice([512, 4096, 20000 // 512 * 512, 262144])
    kind = dice.randrange(4)
    if kind == 0:
        return frame(REQUEST, READ, sequence, size, room=size)
    if kind == 1:
        return frame(REQUEST, WRITE, sequence, size, data=bytes(size))
    return frame(REQUEST, dice.randrange(1, 20), sequence, dice.choice([0, size]),
                 room=dice.choice([0, 320, 4096]), data=bytes(dice.choice([0, 320, 4096])))


def tell_random(port, dice):
    """Many connections, each until it is ended or has sent what it had."""
    for generation in range(1, 200):
        with socket.create_connection(("127.0.0.1", port), timeout=2) as sock:
            try:
                sock.sendall(hello(conn=dice.randrange(2), generation=generation))
                for sequence in range(1, dice.randint(2, 12)):
                    good = good_request(dice, sequence)
                    sock.sendall(good if dice.randrange(3) else spoil(dice, good))
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 20):
                    pass
            except OSError:
                pass
    print("ended")


def tell(port, lie):
    if lie == "random":
        tell_random(port, random.Random(os.environ["SEED"]))
        return
    with socket.create_connection(("127.0.0.1", port), timeout=50) as sock:
        sock.sendall(CLIENT_LIES[lie]())
        try:
            while True:
                if read_frame(sock)[0] == REFUSE:
                    print("refused")
                    return
        except (EOFError, ConnectionError):
            print("ended")


def answer(sock, lie, dice):
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
        "random": good if dice.randrange(3) else spoil(dice, good),
    }.get(lie, good)


def serve_one(sock, lie):
    if lie == "noise":
        sock.sendall(b"SSH-2.0-OpenSSH\r\n" + bytes(100))
        return
    dice = random.Random(os.environ.get("SEED"))
    read_frame(sock)
    window = 0 if lie == "window" else 256
    version = 9 if lie == "version" else 1
    sock.sendall(frame(WELCOME, data=struct.pack("<HBBIQ32x", version, 0, 0, window, 1 << 20)))
    while True:
        sock.sendall(answer(sock, lie, dice))


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
