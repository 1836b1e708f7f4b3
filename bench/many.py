#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do many volumes and many connections cost, and does each of them get its share?

64 volumes in memory, four connections to each, one request of 4 KiB at a time on each, against one
connection with as many requests on their way; on two and on four lanes, each in one process. fio
(nbd engine) is the client, with a thread for each connection, which costs it more than one with a
deep queue: nbdkit, served and asked in the same way, says how much.
"""

import os
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
import fio  # noqa: E402
import tables  # noqa: E402
from path_servers import MIB, Nbdkit, Place, Skerry, Unavailable  # noqa: E402

AT_LEAST = "at least"
VOLUMES, CONNECTIONS = 64, 4            # of each volume
SIZE = 8 * MIB                          # of a volume
REFERENCE = "nbdkit-memory"             # one disk of that size for all


class Many(Skerry):
    """Front, composer, mapper and memory blocker in one process with so many lanes."""

    def __init__(self, place, lanes):
        store = f"store0=blocker_memory,size={(VOLUMES + 2) * SIZE}"
        mapper = "map0=mapperd,edge.store=store0"
        volume = "vol0=volume,edge.store=store0,edge.map=map0"
        super().__init__(f"lanes{lanes}", place,
                         [["-l", str(lanes), "{front},connections=512", volume, mapper, store]],
                         2048 * MIB)

    def start(self):
        super().start()
        for number in range(VOLUMES):
            self.control("-s", self.segment, "volume", "create", f"v{number}",
                         "--size", str(SIZE))


def rates(server, rw, volumes, connections, depth, seconds):
    """[operations a second of each connection]"""
    clients = [(f"v{number}-{connection}", f"nbd+unix:///v{number}?socket={server.socket}")
               for number in range(volumes) for connection in range(connections)]
    sides = fio.jobs(server.place.folder, clients, rw, depth, seconds, SIZE, "--ramp_time=1")
    return [side["iops"] for side in sides]


def measure(table, server, rw, seconds):
    name = f"{rw}, {server.name}"
    total = VOLUMES * CONNECTIONS
    one = rates(server, rw, 1, 1, total, seconds)
    many = rates(server, rw, VOLUMES, CONNECTIONS, 1, seconds)
    table.add(f"{name}, one connection at depth {total}", sum(one))
    table.add(f"{name}, {total} connections", sum(many))
    table.add(f"{name}, {total} connections, beside", sum(many))
    table.add(f"{name}, the mean of them", sum(many) / total)
    table.add(f"{name}, the least of them", min(many))


def rows(table, rw, server):
    total, ours = VOLUMES * CONNECTIONS, server != REFERENCE
    many, one = f"{total} connections", f"one connection at depth {total}"
    name, beside = f"{rw}, {server}", f"{rw}, {REFERENCE}"
    table.row(f"{name}, {one}", "1/s", f"{beside}, {one}" if ours else None)
    table.row(f"{name}, {many}", "1/s", f"{name}, {one}", (AT_LEAST, 1.0) if ours else None)
    if ours:
        table.row(f"{name}, {many}, beside", "1/s", f"{beside}, {many}")
    table.row(f"{name}, the least of them", "1/s", f"{name}, the mean of them",
              (AT_LEAST, 1 / 3) if ours else None)


def table_many(table, options):
    fio.need()
    folder = tempfile.mkdtemp(prefix="many.")
    memory = tempfile.mkdtemp(prefix="many.", dir="/dev/shm")
    shapes = ("randread",) if options.quick else ("randread", "randwrite")
    seconds = max(1, int(options.seconds))
    place = Place(folder, memory, SIZE)
    running = []
    try:
        for server in (Many(place, 2), Many(place, 4), Nbdkit(REFERENCE, place, "memory")):
            running.append(server)
            server.start()
        table.head(f"many: {VOLUMES} volumes, {CONNECTIONS} connections to each, 4 KiB")
        for _ in range(options.rounds):
            for rw in shapes:
                for server in running:
                    measure(table, server, rw, seconds)
    finally:
        for server in running:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(memory, ignore_errors=True)
    for rw in shapes:
        for server in running:
            rows(table, rw, server.name)


TABLES = {"many": table_many}


def main():
    options = tables.arguments(tables.parser_of(__doc__, TABLES), TABLES, 1.0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return 0 if tables.bench("many", TABLES, options) else 1


if __name__ == "__main__":
    sys.exit(main())
