#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does a vhost-user-blk disk cost, beside qemu-storage-daemon's?

A disk of 256 MiB, all of it written before; requests at random places by one driver on one ring,
the same for all (tests/lib/vhost_driver.c, a machine without a machine). qemu-storage-daemon serves
a file in memory. Ours are front, composer, mapper and store in one process, with a store of files
in memory, and with one of memory, the latter also over a packed ring. Kicks are what a guest pays:
system calls for each request.
"""

import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
import tables  # noqa: E402
from path_servers import (MIB, Place, QemuStorageDaemon, Skerry,  # noqa: E402
                          Unavailable, wait_socket)

SIZE = 256 * MIB
REFERENCE = "daemon"  # qemu-storage-daemon
PACKED = "memory, packed"
OURS = ("files", "memory", PACKED)
# what, bytes, depth, at least so many times the reference
WORKLOADS = (("read", 4096, 1, 1), ("write", 4096, 1, 1), ("read", 4096, 32, 1.3),
             ("write", 4096, 32, 1.3), ("read", 65536, 16, 1), ("write", 65536, 16, 1))


class Daemon(QemuStorageDaemon):
    def start(self):
        process = self.spawn(
            "qemu-storage-daemon",
            "--blockdev", f"driver=file,node-name=f0,filename={self.image()}",
            "--export", f"type=vhost-user-blk,id=e0,node-name=f0,addr.type=unix,"
                        f"addr.path={self.socket},writable=on")
        wait_socket(self.socket, process)


class Disk(Skerry):
    """As Skerry, with another front."""

    def __init__(self, name, place, store):
        front = f"vh0=front_vhost,listen=unix:{place.folder}/{name}.sock,volume=disk," \
                "edge.volume=vol0"
        below = ["vol0=volume,edge.store=store0,edge.map=map0", "map0=mapperd,edge.store=store0",
                 f"store0={store}"]
        super().__init__(name, place, [[front, *below]], 1024 * MIB)


class Rig:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="vhost.")
        self.memory = tempfile.mkdtemp(prefix="vhost.", dir="/dev/shm")
        self.place = Place(self.folder, self.memory, SIZE)
        self.servers = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)

    def has_role(self, role):
        done = subprocess.run([self.place.program("xsegpeer"), "--describe-role", role],
                              capture_output=True, env=self.place.environment, check=False)
        return done.returncode == 0

    def start(self):
        found = [Daemon(REFERENCE, self.place),
                 Disk("files", self.place, f"blocker_file,dir={self.memory}/files.data"),
                 Disk("memory", self.place, "blocker_memory")]
        for server in found:
            self.servers.append(server)
            server.start()
            self.load(server, "write", 1 << 20, 8, 0)
        return found

    def load(self, server, what, size, depth, seconds, words=()):
        """(operations a second, p50 in us, kicks for each)"""
        done = subprocess.run(
            [self.place.program("vhost_check"), *words, "load", server.socket, what, str(size),
             str(depth), str(int(seconds * 1000))],
            capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise Unavailable(f"{server.name}: {done.stdout} {done.stderr}")
        return [float(word) for word in done.stdout.split()]


def disks(table, options):
    with Rig() as rig:
        running = [(server.name, server, ()) for server in rig.start()]
        running.append((PACKED, running[-1][1], ("--packed",)))
        for _ in range(options.rounds):
            for what, size, depth, _ in WORKLOADS:
                for name, server, words in running:
                    cpu = server.cpu()
                    rate, p50, kicks = rig.load(server, what, size, depth, options.seconds, words)
                    name = f"{what} {size >> 10} KiB, depth {depth}, {name}"
                    table.add(name, rate)
                    table.add(f"{name}: p50", p50)
                    table.add(f"{name}: kicks", kicks)
                    table.add(f"{name}: CPU",
                              (server.cpu() - cpu) / 1000 / max(1, rate * options.seconds))
    table.head("requests a second")
    for what, size, depth, limit in WORKLOADS:
        stem = f"{what} {size >> 10} KiB, depth {depth}, "
        table.row(stem + REFERENCE, "1/s")
        for name in OURS:
            table.row(stem + name, "1/s", stem + REFERENCE, ("at least", limit), text=REFERENCE)
    for title, word, unit in (("p50", "p50", "us"), ("kicks of a request", "kicks", ""),
                              ("CPU of the server, of a request", "CPU", "us")):
        table.head(title)
        for what, size, depth, _ in WORKLOADS:
            for name in (REFERENCE, *OURS):
                table.row(f"{what} {size >> 10} KiB, depth {depth}, {name}: {word}", unit)


TABLES = {"disks": disks}


def main():
    options = tables.arguments(tables.parser_of(__doc__, TABLES), TABLES, 0.2)
    return tables.run("vhost", TABLES, options, Rig, ("front_vhost", "volume", "blocker_file"))


if __name__ == "__main__":
    sys.exit(main())
