#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does a store cost more than its client library alone?

Random 4 KiB and whole objects of 4 MiB, asked of blocker_rados by a peer in its own process, and of
the same pool by a loop on librados with nothing around it (bench_rados.c), in turns.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
import tables  # noqa: E402
from cache_rig import Rig, spec  # noqa: E402
from path_servers import MIB, Unavailable  # noqa: E402

POOL = "skerry"
SIZE = 128 * MIB
# name: block, depth
SHAPES = {"4 KiB QD1": (4096, 1), "4 KiB QD16": (4096, 16), "4 KiB QD64": (4096, 64),
          "4 MiB QD4": (4 * MIB, 4)}


def bare(rig, kind, block, depth, seconds):
    done = subprocess.run(
        [rig.place.program("bench_rados"), POOL, kind, str(block), str(depth), str(seconds),
         str(SIZE)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env=rig.environment, timeout=seconds + 120, check=False)
    if done.returncode:
        raise Unavailable(f"bench_rados: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def stores_round(rig, table, options, process):
    for kind, mix in (("read", 100), ("write", 0)):
        for shape, (block, depth) in SHAPES.items():
            seconds = options.seconds * 2
            alone = bare(rig, kind, block, depth, seconds)
            table.add(f"librados, {kind} {shape}", alone["ops_per_second"])
            table.add(f"librados, {kind} {shape}, CPU", alone["cpu_us_per_op"])
            run = rig.load("rados0", size=SIZE, bs=block, qd=depth, mix=mix, fill="no",
                           seconds=seconds, chunk=max(1, min(64, depth * 4)), server=process)
            table.add(f"blocker_rados, {kind} {shape}", run["ops_per_second"])
            table.add(f"blocker_rados, {kind} {shape}, CPU", run["server_cpu_us"])


def table_rados(table, options):
    table.head("rados: one OSD in memory, on the same CPUs; 4 KiB in no order, objects of 4 MiB")
    with Rig(512 * MIB) as rig:
        if not rig.has_role("blocker_rados"):
            raise Unavailable("blocker_rados is not built")
        process = rig.start(spec("rados0", "blocker_rados", pool=POOL))
        rig.load("rados0", size=SIZE, bs=MIB, qd=4, seconds=0.01, prepare="write")
        for _ in range(options.rounds):
            stores_round(rig, table, options, process)
    for kind in ("read", "write"):
        for shape in SHAPES:
            table.row(f"librados, {kind} {shape}", "1/s")
            table.row(f"blocker_rados, {kind} {shape}", "1/s", f"librados, {kind} {shape}",
                      ("at least", 0.9))
            table.row(f"blocker_rados, {kind} {shape}, CPU", "us/op",
                      f"librados, {kind} {shape}, CPU")


TABLES = {"rados": table_rados}


def main():
    options = tables.arguments(tables.parser_of(__doc__, TABLES), TABLES, 0.2)
    return tables.run("stores", TABLES, options, lambda: Rig(64 * MIB), ("load",))


if __name__ == "__main__":
    sys.exit(main())
