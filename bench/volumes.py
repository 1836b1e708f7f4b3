#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do maps, snapshots and clones cost?

Each figure stands beside a reference of the same run; what is compared takes turns; medians. Maps
of large volumes are told that all objects are there, and none of them is written: what a snapshot
or a look at the map costs does not depend on that.

  hop      a composer whose map is known, against a peer that hands on and does nothing else
  cold     random reads over a volume whose map nobody has read yet; what a known map takes
  copies   snapshots and clones, by size of the volume
  first    the first 4 KiB written to an object of a clone, against a write to one that is there
  share    64 clones of one image read at the same time, over a cache
  list     many volumes: their list, and a snapshot beside them
"""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
import tables  # noqa: E402
from cache_rig import cpu_ns, spec  # noqa: E402
from path_servers import MIB, Unavailable  # noqa: E402
from volumes_rig import (COMPOSER, MAPPER, OBJECT, TIB, VolumeRig, instructions,  # noqa: E402
                         record_ms, resident)

AT_MOST, AT_LEAST = "at most", "at least"
CLONES = 64
GIB = 1 << 30
RECORD = "a durable record, by hand"


# --- hop -------------------------------------------------------------------------------------

WAYS = (("store0", "the store alone"), ("forward0", "forwarded"), ("vol0", "composed"))


def hop_add(table, name, found):
    """As measured, and what each way adds to the store alone."""
    figures = {word: found[way] for way, word in WAYS}
    for word, value in figures.items():
        table.add(f"{word}, {name}", value)
    for word in ("forwarded", "composed"):
        table.add(f"{word}, {name}, added", figures[word] - figures["the store alone"])


def hop_instructions(rig, table, volume):
    null = spec("store0", "blocker_null")
    below = {"store0": [null],
             "forward0": [spec("forward0", "forward", edge_store="store0"), null],
             "vol0": [spec("vol0", "volume", edge_store="store0", edge_map="map0"), null]}
    found = {way: instructions(rig, volume, below[way], way, "yes" if way == "vol0" else "no")
             for way, _ in WAYS}
    hop_add(table, "instructions", found)


def table_hop(table, options):
    table.head("hop: 4 KiB reads, one process, a null blocker below; added: beyond the store alone")
    with VolumeRig(512 * MIB) as rig:
        if not rig.has_role("forward"):
            raise Unavailable("forward is not built (make check builds it)")
        rig.start(spec("maps0", "blocker_memory", size=128 * MIB),
                  spec("map0", "mapperd", edge_store="maps0"))
        volume = rig.verb("create", "map0", "disk", 1, 64 * MIB, OBJECT)["id"]
        rig.verb("fill", "map0", "disk", 16)
        process = rig.start(spec("store0", "blocker_null"),
                            spec("forward0", "forward", edge_store="store0"), COMPOSER, cpu=1)
        count = max(int(options.seconds * 20), 2)
        for _ in range(options.rounds):
            ways = ("store0", "forward0", "vol0:disk")
            hop_add(table, "QD1, p50", rig.verb("hops", count, 2000, 1, *ways, cpu=0))
            hop_add(table, "QD64", rig.verb("hops", count * 10, 256, 64, *ways, cpu=0))
        rig.end(process)
        if not options.quick:
            try:
                hop_instructions(rig, table, volume)
            except Unavailable as error:
                print(f"instructions: not counted: {error}", flush=True)
    for name, unit in (("QD1, p50", "ns"), ("QD64", "ns"), ("instructions", "instr")):
        for _, word in WAYS:
            table.row(f"{word}, {name}", unit,
                      f"forwarded, {name}" if word == "composed" else None)
        table.row(f"forwarded, {name}, added", unit)
        table.row(f"composed, {name}, added", unit, f"forwarded, {name}, added", (AT_MOST, 1.3))


# --- cold ------------------------------------------------------------------------------------


def cold_once(rig, table, word, size, reads):
    """Peers that have seen nothing yet: what the mapper reads while so many places are read."""
    objects = size // OBJECT
    maps = rig.start(MAPPER)
    process = rig.start(spec("null0", "blocker_null"),
                        spec("vol0", "volume", edge_store="null0", edge_map="map0"))
    rig.verb("reads", "vol0", 1, "disk")
    before, memory = rig.counters("store0"), resident(process)
    pages = -rig.counters("vol0")["pages"]
    rig.verb("reads", "vol0", reads, "disk")
    pages += rig.counters("vol0")["pages"]
    table.add(f"{word}: reads of the map for 512 objects",
              (rig.counters("store0")["reads"] - before["reads"]) * 512 / objects)
    table.add(f"{word}: map pages known", pages)
    table.add(f"{word}: bytes for each object known",
              (resident(process) - memory) / (pages * 512))
    rig.end(process)
    rig.end(maps)


def table_cold(table, options):
    shapes = [("1 TiB", TIB, 16 * 512)]
    if not options.quick:
        shapes.append(("16 TiB", 16 * TIB, 16 * 8192))
    table.head("cold: all objects there, random 4 KiB reads until all of the map has been read")
    for word, size, reads in shapes:
        with VolumeRig(768 * MIB) as rig:
            rig.start(rig.store("memory"))
            maps = rig.start(MAPPER)
            rig.filled("disk", size, "map0")
            rig.end(maps)
            for _ in range(options.rounds):
                cold_once(rig, table, word, size, reads)
        table.row(f"{word}: map pages known", "pages")
        # a page for 512 objects, and a directory for 131072
        table.row(f"{word}: reads of the map for 512 objects", "reads", goal=(AT_MOST, 1.01))
        table.row(f"{word}: bytes for each object known", "B", goal=(AT_MOST, 16))


# --- copies ----------------------------------------------------------------------------------

SIZES = (("1 GiB", GIB), ("32 GiB", 32 * GIB), ("1 TiB", TIB), ("16 TiB", 16 * TIB))


BATCH = 5


def copies_of(what, word, batch):
    """How their names begin."""
    return f"{word}@{batch}-" if what == "snapshot" else f"clone{batch}-{word}-"


def copies_batch(rig, table, kind, sizes, batch):
    """A few of each size in turn; what a durable record costs in between. All is removed again."""
    for what in ("snapshot", "clone"):
        for word, _ in sizes:
            if kind == "file":
                table.add(RECORD, record_ms(f"{rig.folder}/by-hand"))
            took = rig.verb("copy", "vol0", what, word, copies_of(what, word, batch), BATCH, "open")
            table.add(f"{kind}: {what} of {word}", took["p50_ns"] / 1e6)
    for what in ("snapshot", "clone"):
        for word, _ in sizes:
            rig.verb("remove", "vol0", copies_of(what, word, batch), BATCH)


def table_copies(table, options):
    table.head("copies: of volumes that are open, all objects there")
    for kind in ("memory", "file"):
        sizes = SIZES if kind == "memory" and not options.quick else SIZES[:3]
        with VolumeRig(768 * MIB, options.disk) as rig:
            rig.start(rig.store(kind), MAPPER, COMPOSER)
            for word, size in sizes:
                rig.filled(word, size)
            for batch in range(options.rounds * (1 if options.quick else 3)):
                copies_batch(rig, table, kind, sizes, batch)
        if kind == "file":
            table.row(RECORD, "ms")
        for what in ("snapshot", "clone"):
            first = f"{kind}: {what} of {sizes[0][0]}"
            for word, _ in sizes:
                name = f"{kind}: {what} of {word}"
                beside = RECORD if kind == "file" else None if name == first else first
                table.row(name, "ms", beside,
                          value_goal=(AT_MOST, 10.0) if kind == "file" else None)


# --- first -----------------------------------------------------------------------------------


def first_round(rig, table, kind, objects, turn):
    """A clone, a volume that has the same objects, and one that has none."""
    rig.verb("copy", "vol0", "snapshot", "base", f"base@{turn}-", 1)
    rig.verb("copy", "vol0", "clone", f"base@{turn}-0", f"c{turn}-", 1)
    rig.verb("create", "vol0", f"e{turn}", 1, objects * OBJECT, OBJECT)
    names = (f"c{turn}-0", "plain", f"e{turn}")
    words = "object of a clone", "object that is there", "object that is new"
    half = objects // 2
    found = rig.verb("writes", "vol0", 0, half, 1 + turn, *names, cpu=0)
    again = rig.verb("writes", "vol0", 0, half, 32 + turn, *names, cpu=0)
    for name, word in zip(names, words):
        # one after the other: the first would pay for what the others have written
        flushed = rig.verb("writes", "vol0", half, half, 1 + turn, name, cpu=0)
        table.add(f"{kind}: write, {word}", found[name]["p50_ns"])
        table.add(f"{kind}: second write, {word}", again[name]["p50_ns"])
        table.add(f"{kind}: FLUSH behind {half}, {word}", flushed[name]["flush_ns"] / 1e3)


def table_first(table, options):
    table.head("first: 4 KiB writes at QD1, in turns")
    objects = 64 if options.quick else 256
    for kind in ("memory", "file"):
        with VolumeRig(1536 * MIB, options.disk) as rig:
            rig.start(rig.store(kind, 1024 * MIB), MAPPER, COMPOSER,
                      cpu=1 if kind == "memory" else None)
            for name in ("base", "plain"):
                rig.verb("create", "vol0", name, 1, objects * OBJECT, OBJECT)
                rig.verb("writes", "vol0", 0, objects, 0, name)
            for turn in range(options.rounds):
                first_round(rig, table, kind, objects, turn)
        there = f"{kind}: write, object that is there"
        table.row(there, "ns")
        table.row(f"{kind}: write, object that is new", "ns", there)
        table.row(f"{kind}: write, object of a clone", "ns", there, (AT_MOST, 2.0))
        # where a store makes a file for an object, that is most of it
        new = table.median(f"{kind}: write, object that is new")
        cloned = table.median(f"{kind}: write, object of a clone")
        table.put(f"{kind}: write, clone against new", cloned / new, "times", None, "", None, None,
                  None, table.load(there))
        table.row(f"{kind}: second write, object of a clone", "ns",
                  f"{kind}: second write, object that is there")
        behind = f"{kind}: FLUSH behind {objects // 2}, object"
        table.row(f"{behind} that is there", "us")
        table.row(f"{behind} that is new", "us", f"{behind} that is there")
        table.row(f"{behind} of a clone", "us", f"{behind} that is there")


# --- share -----------------------------------------------------------------------------------


def share_run(table, options, word, names):
    """All of the image is in the store, and nothing in the cache."""
    with VolumeRig(768 * MIB) as rig:
        rig.start(rig.store("memory"), MAPPER)
        process = rig.start(spec("vol1", "volume", edge_store="store0", edge_map="map0"))
        rig.verb("create", "vol1", "image", 1, options.image, OBJECT)
        for block in range(0, 1024, 64):
            rig.verb("writes", "vol1", 0, options.image // OBJECT, block, "image")
        rig.verb("copy", "vol1", "snapshot", "image", "image@gold", 1)
        rig.verb("copy", "vol1", "clone", "image@gold0", "clone", CLONES)
        rig.end(process)
        rig.start(spec("cache0", "cached", size=128 * MIB, edge_store="store0"),
                  spec("vol0", "volume", edge_store="cache0", edge_map="map0"))
        before = rig.counters("store0")["read_bytes"]
        found = rig.verb("crowd", "vol0", 1, *names)
        read = (rig.counters("store0")["read_bytes"] - before) / 4096
    table.add(f"{word}: reads", found["reads"])
    table.add(f"{word}: of them answered by the cache", 1 - read / found["reads"])
    table.add(f"{word}: rate", found["ops_per_second"])


def table_share(table, options):
    options.image = (2 if options.quick else 4) * OBJECT
    table.head(f"share: {CLONES} clones of an image of {options.image // MIB} MiB, each read once "
               "as a whole")
    names = [f"clone{number}" for number in range(CLONES)]
    words = {"one clone": names[:1], f"{CLONES} clones": names}
    for _ in range(options.rounds):
        for word, some in words.items():
            share_run(table, options, word, some)
    for word, some in words.items():
        table.row(f"{word}: reads", "reads")
        # each block comes from the store once
        table.row(f"{word}: of them answered by the cache", "parts",
                  goal=(AT_LEAST, 1 - 1.05 / CLONES) if len(some) > 1 else None)
        table.row(f"{word}: rate", "1/s", "one clone: rate" if len(some) > 1 else None)


# --- list ------------------------------------------------------------------------------------


def seconds_of(what, *words):
    begin = time.monotonic()
    what(*words)
    return time.monotonic() - begin


def table_list(table, options):
    count = 500 if options.quick else 10000
    table.head(f"list: {count} volumes on files")
    with VolumeRig(512 * MIB, options.disk) as rig:
        process = rig.start(rig.store("file"), MAPPER, COMPOSER)
        rig.filled("disk", GIB)
        table.add("snapshot, no other volume",
                  rig.verb("copy", "vol0", "snapshot", "disk", "disk@a", 20)["p50_ns"] / 1e6)
        begin = time.monotonic()
        rig.verb("create", "vol0", "many", count, GIB, OBJECT, limit=1800)
        table.add("create, each", (time.monotonic() - begin) * 1e3 / count)
        for turn in range(max(options.rounds, 3)):
            used = cpu_ns(process.pid)
            table.add(f"list of {count}", seconds_of(
                rig.control, "volume", "list", "--json", "-s", rig.name))
            table.add(f"list of {count}, CPU of the peers", (cpu_ns(process.pid) - used) / 1e9)
            table.add(f"snapshot beside {count}", rig.verb(
                "copy", "vol0", "snapshot", "disk", f"disk@b{turn}-", 10)["p50_ns"] / 1e6)
            table.add(RECORD + ", again", record_ms(f"{rig.folder}/by-hand"))
    table.row("create, each", "ms")
    table.row(f"list of {count}", "s", goal=(AT_MOST, 1.0))
    table.row(f"list of {count}, CPU of the peers", "s")
    table.row(RECORD + ", again", "ms")
    table.row("snapshot, no other volume", "ms")
    table.row(f"snapshot beside {count}", "ms", "snapshot, no other volume",
              value_goal=(AT_MOST, 10.0))


# --- main ------------------------------------------------------------------------------------


TABLES = {"hop": table_hop, "cold": table_cold, "copies": table_copies, "first": table_first,
          "share": table_share, "list": table_list}


def main():
    options = tables.arguments(tables.parser_of(__doc__, TABLES), TABLES, 0.1)
    return tables.run("volumes", TABLES, options, lambda: VolumeRig(64 * MIB),
                      ("mapperd", "volume"))


if __name__ == "__main__":
    sys.exit(main())
