#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does a store cost more than its client library alone?

Small blocks in no order, and objects of 4 MiB, asked of a blocker by a peer in its own process, and
of the same server by a loop on its client library with nothing around it, in turns: bench_rados.c
on librados, bench_s3.c on libcurl, redis-benchmark with a pipeline. A tape is written and read from
its beginning on, by bench_tape.c as well; and it is counted how far the head goes for 64 reads.

With a cache of an eighth of the data above a store nothing is to become slower, and writes go at
the cache's speed until its dirty limit, as above a store in memory.
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


# --- a cache of an eighth above it ----------------------------------------------------------------

CACHE = SIZE // 8
BURST = CACHE * 40 // 100 // 4096  # writes that fit below dirty-soft


def cache_spec(store="store0"):
    return spec("cache0", "cached", size=CACHE, edge_store=store)


def burst(rig, table, name, store):
    """A cache that has nothing yet takes writes until its dirty limit."""
    process = rig.start(cache_spec(store))
    run = rig.load("cache0", size=SIZE, bs=4096, qd=16, mix=0, fill="no", count=BURST, seconds=60)
    rig.end(process)
    table.add(name, run["ops_per_second"])


def cached_round(rig, table, role, shapes, seconds):
    process = rig.start(cache_spec())
    for kind, mix in (("read", 100), ("write", 0)):
        for shape, (block, depth) in shapes[kind].items():
            for target, name in (("store0", role), ("cache0", f"{role}, cached")):
                run = rig.load(target, size=SIZE, bs=block, qd=depth, mix=mix, fill="no",
                               seconds=seconds)
                table.add(f"{name}, {kind} {shape}", run["ops_per_second"])
    rig.end(process)
    burst(rig, table, "cached over memory, burst", "store1")
    burst(rig, table, f"{role}, cached, burst", "store0")


def cached_of(store):
    def fill_table(table, options):
        role = store.role
        table.head(f"{role} below a cache of an eighth of the data, 4 KiB in no order")
        if store.needs not in os.environ:
            raise Unavailable(f"no server for {role}")
        shapes = {"read": SMALL, "write": SMALL}
        with Rig(768 * MIB) as rig:
            if not rig.has_role(role):
                raise Unavailable(f"{role} is not built")
            rig.start(spec("store0", role, **store.options))
            rig.start(spec("store1", "blocker_memory", size=SIZE + 16 * MIB))
            rig.load("store0", size=SIZE, bs=MIB, qd=4, seconds=0.01, prepare="write")
            for _ in range(options.rounds):
                cached_round(rig, table, role, shapes, options.seconds * 2)
        for kind in shapes:
            for shape in shapes[kind]:
                alone, ours = f"{role}, {kind} {shape}", f"{role}, cached, {kind} {shape}"
                table.row(alone, "1/s")
                table.row(ours, "1/s", alone, ("at least", 0.9))
        table.row("cached over memory, burst", "1/s")
        table.row(f"{role}, cached, burst", "1/s", "cached over memory, burst", ("at least", 0.9))
    return fill_table


# --- tape -----------------------------------------------------------------------------------------

TAPE_SIZE = 128 * MIB
TAPE_OF_ITS_OWN = 101  # the bare loop's cartridge; the store has the others


def wound(rig):
    """Blocks that the head has gone over to get somewhere."""
    for peer in json.loads(rig.control("-s", rig.name, "stats", "--json"))["peers"]:
        if peer["name"] == "store0":
            return peer["counters"]["wound"]
    raise Unavailable("the store does not say how far the head went")


def tape_round(rig, table, specs):
    """The drive is one: whoever has it lets it go before the other begins."""
    drive, changer = os.environ["TAPE_DRIVE"], os.environ["TAPE_CHANGER"]
    for kind in ("write", "read"):
        alone = json.loads(output_of(
            [rig.place.program("bench_tape"), drive, changer, str(TAPE_OF_ITS_OWN), kind,
             str(TAPE_SIZE)], rig, 60))
        table.add(f"the drive, {kind}", alone["ops_per_second"])
    process = rig.start(specs)
    for kind, mix in (("write", 0), ("read", 100)):
        run = rig.load("store0", size=TAPE_SIZE, bs=OBJECT, qd=4, mix=mix, fill="no",
                       pattern="sequential", count=TAPE_SIZE // OBJECT, seconds=60,
                       server=process)
        table.add(f"blocker_tape, {kind}", run["ops_per_second"])
    for depth in (1, 64):
        before = wound(rig)
        rig.load("store0", size=TAPE_SIZE, bs=4096, qd=depth, mix=100, fill="no", count=64,
                 seconds=60)
        table.add(f"64 reads, {depth} at a time", wound(rig) - before)
    rig.end(process)


def tape_table(table, options):
    table.head("tape: a drive and a changer behind tgt on the same CPUs; 4 MiB one after the other")
    if "TAPE_DRIVE" not in os.environ:
        raise Unavailable("no drive for blocker_tape")
    with Rig(512 * MIB) as rig:
        if not rig.has_role("blocker_tape"):
            raise Unavailable("blocker_tape is not built")
        specs = spec("store0", "blocker_tape", drive=os.environ["TAPE_DRIVE"],
                     changer=os.environ["TAPE_CHANGER"], index=rig.folder + "/index")
        for _ in range(options.rounds):
            tape_round(rig, table, specs)
    for kind in ("write", "read"):
        table.row(f"the drive, {kind}", "1/s")
        table.row(f"blocker_tape, {kind}", "1/s", f"the drive, {kind}", ("at least", 0.9))
    table.row("64 reads, 1 at a time", "blocks")
    table.row("64 reads, 64 at a time", "blocks", "64 reads, 1 at a time")


TABLES = {"rados": table_of(Rados()), "redis": table_of(Redis()), "s3": table_of(S3()),
          "tape": tape_table, "rados-cached": cached_of(Rados()),
          "redis-cached": cached_of(Redis()), "s3-cached": cached_of(S3())}


def main():
    options = tables.arguments(tables.parser_of(__doc__, TABLES), TABLES, 0.2)
    return tables.run("stores", TABLES, options, lambda: Rig(64 * MIB), ("load",))


if __name__ == "__main__":
    sys.exit(main())
