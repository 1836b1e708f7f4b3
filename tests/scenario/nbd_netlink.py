#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attaches an export to /dev/nbd0 by netlink, as a client that stays: when the connection breaks
it makes a new one and hands it to the kernel, which sends again what was not answered.

    nbd_netlink.py HOST PORT EXPORT

nbd-client 3.24 has no option for it (its -persist fails what was in flight): what counts is the
attribute NBD_ATTR_DEAD_CONN_TIMEOUT, for how long the kernel waits for a new socket.
"""

import select
import socket
import struct
import sys
import time

GENERIC, REQUEST_ACK, CONTROL = 16, 5, 0x10
CONNECT, RECONFIGURE = 1, 3
INDEX, SIZE, BLOCK_SIZE, TIMEOUT, SERVER_FLAGS, SOCKETS, DEAD_CONN_TIMEOUT = 1, 2, 3, 4, 5, 7, 8
NESTED = 0x8000


def attribute(kind, data):
    return struct.pack("<HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def u64(kind, value):
    return attribute(kind, struct.pack("<Q", value))


class Netlink:
    def __init__(self):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC)
        self.socket.bind((0, 0))
        self.family = CONTROL
        self.family = self.find()

    def ask(self, command, attributes):
        """Returns the first answer's attributes; raises when it is refused."""
        body = struct.pack("<BBH", command, 1, 0) + attributes
        head = struct.pack("<IHHII", 16 + len(body), self.family, REQUEST_ACK, 1, 0)
        self.socket.send(head + body)
        found = b""
        while True:
            data = self.socket.recv(65536)
            while data:
                length, kind = struct.unpack_from("<IH", data)
                message, data = data[16:length], data[(length + 3) & ~3:]
                if kind != 2:
                    found = message[4:]
                    continue
                error = struct.unpack_from("<i", message)[0]
                if error:
                    raise OSError(-error, f"the kernel refuses command {command}")
                return found

    def find(self):
        data = self.ask(3, attribute(2, b"nbd\0"))
        while data:
            length, kind = struct.unpack_from("<HH", data)
            if kind == 1:
                return struct.unpack_from("<H", data, 4)[0]
            data = data[(length + 3) & ~3:]
        raise OSError("the kernel has no nbd")

    def give(self, command, connection, more=b""):
        fd = attribute(1, struct.pack("<I", connection.fileno()))
        sockets = attribute(SOCKETS | NESTED, attribute(1 | NESTED, fd))
        self.ask(command, attribute(INDEX, struct.pack("<I", 0)) + more + sockets)


def receive(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the server has left")
        data += part
    return data


def shake_hands(host, port, export):
    connection = socket.create_connection((host, port), 10)
    if receive(connection, 18)[:8] != b"NBDMAGIC":
        raise OSError("no NBD server")
    name = export.encode()
    connection.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, len(name)) + name)
    size, flags = struct.unpack(">QH", receive(connection, 10))
    connection.settimeout(None)
    return connection, size, flags


def try_hands(*where):
    while True:
        try:
            return shake_hands(*where)
        except OSError:
            time.sleep(0.02)


def main():
    where = (sys.argv[1], int(sys.argv[2]), sys.argv[3])
    netlink = Netlink()
    connection, size, flags = shake_hands(*where)
    netlink.give(CONNECT, connection, u64(SIZE, size) + u64(BLOCK_SIZE, 512) + u64(TIMEOUT, 1) +
                 u64(SERVER_FLAGS, flags) + u64(DEAD_CONN_TIMEOUT, 60))
    print("STEP ok attach by netlink", flush=True)
    while True:
        poll = select.poll()
        poll.register(connection, select.POLLRDHUP)
        poll.poll()
        connection.close()
        connection = try_hands(*where)[0]
        netlink.give(RECONFIGURE, connection)
        print("RECONNECTED", flush=True)


main()
