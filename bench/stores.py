#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does a store cost more than its client library alone?

Small blocks in no order, and objects of 4 MiB, asked of a blocker by a peer in its own process, and
of the same server by a loop on its client library with nothing around it, in turns: bench_rados.c
on librados, bench_s3.c on libcurl, redis-benchmark with a pipeline.
"""

import json
import os
import resource
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
import tables  # noqa: E402
from cache_rig import Rig, spec  # noqa: E402
from path_servers import MIB, Unavailable  # noqa: E402

SIZE = 128 * MIB
OBJECT = 4 * MIB
SMALL = {"4 KiB QD1": (4096, 1), "4 KiB QD16": (4096, 16), "4 KiB QD64": (4096, 64)}
LARGE = {"4 MiB QD4": (OBJECT, 4)}


def output_of(words, rig, seconds):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env=rig.environment, timeout=seconds + 120, check=False)
    if done.returncode:
        raise Unavailable(f"{words[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


class Store:
    def prepare(self, rig):
        """What the bare loop needs and does not make by itself."""


class Rados(Store):
    """One OSD in memory."""
    library, role, needs = "librados", "blocker_rados", "CEPH_CONF"
    reads = writes = {**SMALL, **LARGE}
    options = {"pool": "skerry"}

    def bare(self, rig, kind, block, depth, seconds):
        return json.loads(output_of(
            [rig.place.program("bench_rados"), "skerry", kind, str(block), str(depth),
             str(seconds), str(SIZE)], rig, seconds))


class Redis(Store):
    """On a UNIX socket, nothing on disk. Redis-benchmark asks for the first 4 KiB of 32 objects,
    and sends -P commands at once, then waits for all of them."""
    library, role, needs = "redis-benchmark", "blocker_redis", "REDIS_SOCKET"
    reads = writes = {**SMALL, **LARGE}

    @property
    def options(self):
        return {"socket": os.environ["REDIS_SOCKET"], "flush": "memory"}

    def prepare(self, rig):
        for i in range(SIZE // OBJECT):
            output_of(["bash", "-c", f"head -c {OBJECT} /dev/urandom | redis-cli -s "
                       f"{os.environ['REDIS_SOCKET']} -x SET bare:{i:012d}"], rig, 0)

    def bare(self, rig, kind, block, depth, seconds):
        count = int(seconds * (400 if block == OBJECT else 20000 * min(depth, 8)))
        words = ["redis-benchmark", "-s", os.environ["REDIS_SOCKET"], "-c", "1", "-P", str(depth),
                 "-n", str(count), "-r", str(SIZE // OBJECT), "--csv"]
        words += (["GETRANGE", "bare:__rand_int__", "0", str(block - 1)] if kind == "read" else
                  ["-x", "SETRANGE", "bare:__rand_int__", "0"])
        line = " ".join(map(shlex.quote, words))
        if kind == "write":
            line = f"head -c {block} /dev/urandom | base64 -w 0 | head -c {block} | {line}"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        rows = output_of(["bash", "-c", line], rig, seconds).splitlines()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"ops_per_second": float(rows[-1].split(",")[-7].strip('"')),
                "cpu_us_per_op": cpu * 1e6 / count}


class S3(Store):
    """The server that the tests have."""
    library, role, needs = "libcurl", "blocker_s3", "S3_OPTIONS"
    reads = {**SMALL, **LARGE}
    writes = LARGE  # nobody can put a part of an object

    @property
    def options(self):
        return dict(word.split("=", 1) for word in os.environ["S3_OPTIONS"].split(","))

    def bare(self, rig, kind, block, depth, seconds):
        options = self.options
        return json.loads(output_of(
            [rig.place.program("bench_s3"), f"{options['endpoint']}/{options['bucket']}",
             options["key-file"], kind, str(block), str(depth), str(seconds), str(SIZE)],
            rig, seconds))


def one_round(rig, table, store, seconds, process):
    for kind, mix, shapes in (("read", 100, store.reads), ("write", 0, store.writes)):
        for shape, (block, depth) in shapes.items():
            alone = store.bare(rig, kind, block, depth, seconds)
            table.add(f"{store.library}, {kind} {shape}", alone["ops_per_second"])
            table.add(f"{store.library}, {kind} {shape}, CPU", alone["cpu_us_per_op"])
            run = rig.load("store0", size=SIZE, bs=block, qd=depth, mix=mix, fill="no",
                           seconds=seconds, chunk=max(1, min(64, depth * 4)), server=process)
            table.add(f"{store.role}, {kind} {shape}", run["ops_per_second"])
            table.add(f"{store.role}, {kind} {shape}, CPU", run["server_cpu_us"])


def table_of(store):
    def fill_table(table, options):
        name = store.role.split("_")[1]
        table.head(f"{name}: the server is on the same CPUs; small blocks in no order")
        if store.needs not in os.environ:
            raise Unavailable(f"no server for {store.role}")
        with Rig(512 * MIB) as rig:
            if not rig.has_role(store.role):
                raise Unavailable(f"{store.role} is not built")
            process = rig.start(spec("store0", store.role, **store.options))
            rig.load("store0", size=SIZE, bs=MIB, qd=4, seconds=0.01, prepare="write")
            store.prepare(rig)
            for _ in range(options.rounds):
                one_round(rig, table, store, options.seconds * 2, process)
        for kind, shapes in (("read", store.reads), ("write", store.writes)):
            for shape in shapes:
                alone, ours = f"{store.library}, {kind} {shape}", f"{store.role}, {kind} {shape}"
                table.row(alone, "1/s")
                table.row(ours, "1/s", alone, ("at least", 0.9))
                table.row(f"{ours}, CPU", "us/op", f"{alone}, CPU")
    return fill_table


TABLES = {"rados": table_of(Rados()), "redis": table_of(Redis()), "s3": table_of(S3())}


def main():
    options = tables.arguments(tables.parser_of(__doc__, TABLES), TABLES, 0.2)
    return tables.run("stores", TABLES, options, lambda: Rig(64 * MIB), ("load",))


if __name__ == "__main__":
    sys.exit(main())
