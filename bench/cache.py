#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is the cache worth, and what does it cost?

Requests go straight to its port (the load of bench/load.c), or over NBD. Each figure stands beside
a reference of the same run; runs take turns; medians. With two CPUs, the load has the first and
the peers below it the second, but where a table says otherwise. A blocker is always measured in
the same place as with the cache above it: in one process, behind one ring. Rates of deep queues
are the median of 512 operations, which is what the machine does when nobody else has its CPUs;
"whole run" is all there was in all the time.

  port    hits, copies, donated writes, write-through: against a ring, memcpy, a cache that passes
  lanes   two lanes against one
  large   more data than the cache holds, against the blocker alone; zipf over a slow blocker
  adopt   what a new process takes over after a SIGKILL; a kill under xsegd
  nbd     fio through the whole pipeline, over a file, against the memory blocker's
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
from path_servers import MIB, Unavailable  # noqa: E402
import cache_pipeline  # noqa: E402
import tables  # noqa: E402
from cache_rig import Rig, references, spec  # noqa: E402

AT_MOST, AT_LEAST = "at most", "at least"
RING, COPY = "ring round trip, p50", "memcpy of 4 KiB, one thread"


# --- peers -----------------------------------------------------------------------------------


def cache(options, size, **more):
    """The cache, or what stands in for it (--stand-in): a memory blocker, to try the bench."""
    if options.stand_in:
        return [spec("cache0", "blocker_memory")]
    return [spec("cache0", "cached", size=size, edge_store="store0", **more)]


def memory(size, name="store0"):
    return spec(name, "blocker_memory", size=size + 16 * MIB)


def steady(report):
    return report["ops_per_second_steady"] or report["ops_per_second"]


# --- port: one lane, processes of their own --------------------------------------------------


def port_asked(rig, table, options, seconds):
    """By a bare lane: what the server takes."""
    for kind, word in (("read", "read hit"), ("write", "donated write")):
        one = rig.ask("cache0", kind, 1, seconds, options.hot)
        table.add(f"{word} QD1, p50", one["p50_ns"])
        deep = rig.ask("cache0", kind, 256, seconds, options.hot)
        table.add(f"{word}s QD256", steady(deep))
        table.add(f"{word}s QD256, whole run", deep["ops_per_second"])
    filled = rig.ask("cache0", "fill", 256, seconds, options.hot)
    table.add("donated writes QD256, filled", steady(filled))
    copied = rig.ask("cache0", "copy", 64, seconds, options.hot)
    table.add("read hits QD64, copied", steady(copied) * 4096 / 1e6)


def port_loaded(rig, table, options, seconds):
    """By a peer, as a front is one: with its loop, its counters and its calls."""
    hot = {"size": options.hot, "cpu": 0, "seconds": seconds, "qd": 256}
    for word, more in (("read hits", {}), ("donated writes", {"mix": 0, "fill": "no"}),
                       ("copied writes", {"mix": 0, "fill": "no", "donate": "no"})):
        run = rig.load("cache0", **hot, **more)
        table.add(f"{word} QD256, by a peer", steady(run))
        table.add(f"{word} QD256, CPU of the peer", run["cpu_us_per_op"])
    large = rig.load("cache0", **{**hot, "qd": 4}, bs=65536, pin="no", chunk=64)
    table.add("read hits of 64K QD4, copied", steady(large) * 65536 / 1e6)


def port_alone(rig, table, options, seconds):
    """The same from pages of a memory blocker: no index, no epochs."""
    process = rig.start(memory(options.hot, "alone0"), cpu=1)
    rig.load("alone0", size=options.hot, cpu=0, seconds=0.01, prepare="write")
    one = rig.ask("alone0", "read", 1, seconds, options.hot)
    table.add("memory blocker, read QD1, p50", one["p50_ns"])
    deep = rig.ask("alone0", "read", 256, seconds, options.hot)
    table.add("memory blocker, reads QD256", steady(deep))
    deep = rig.ask("alone0", "write", 256, seconds, options.hot)
    table.add("memory blocker, writes QD256", steady(deep))
    rig.end(process)


def port_through(rig, table, options, seconds):
    """In turns: a cache that passes all on, one hop and nothing else; one that writes through."""
    for name, more in (("the blocker and a hop", {"begin": "passing"}),
                       ("write-through", {"mode": "writethrough"})):
        process = rig.start(*cache(options, options.cached, **more), memory(options.hot), cpu=1)
        for depth in (1, 16):
            run = rig.load("cache0", size=options.hot, cpu=0, seconds=seconds, mix=0, qd=depth,
                           fill="no", donate="no", server=process)
            table.add(f"{name}, write QD{depth}, p50", run["write"]["p50_ns"])
            table.add(f"{name}, write QD{depth}, CPU", run["server_cpu_us"])
            table.add(f"{name}, writes QD{depth}", steady(run))
        rig.end(process)


def table_port(table, options):
    table.head("port: one lane, a process each; 4 KiB")
    with Rig(options.hot * 2 + 512 * MIB) as rig:
        for _ in range(options.rounds):
            for name, value in references(rig.place).items():
                table.add(name, value)
            process = rig.start(*cache(options, options.cached), memory(options.hot), cpu=1)
            rig.load("cache0", size=options.hot, cpu=0, seconds=0.05, prepare="both")
            rig.wait_idle(process)
            port_asked(rig, table, options, options.seconds)
            port_loaded(rig, table, options, options.seconds / 2)
            rig.end(process)
            port_alone(rig, table, options, options.seconds)
            port_through(rig, table, options, options.seconds / 2)
    table.row(RING, "ns")
    table.row(COPY, "MB/s")
    table.row("memory blocker, read QD1, p50", "ns", RING)
    for word, alone in (("read hit", "memory blocker, reads QD256"),
                        ("donated write", "memory blocker, writes QD256")):
        table.row(f"{word} QD1, p50", "ns", RING, (AT_MOST, 2.5) if word == "read hit" else None)
        table.row(alone, "M/s", scale=1e-6)
        table.row(f"{word}s QD256", "M/s", alone, scale=1e-6, value_goal=(AT_LEAST, 5.0))
        table.row(f"{word}s QD256, whole run", "M/s", f"{word}s QD256", scale=1e-6)
        table.row(f"{word}s QD256, by a peer", "M/s", f"{word}s QD256", scale=1e-6)
        table.row(f"{word}s QD256, CPU of the peer", "us/op")
    table.row("donated writes QD256, filled", "M/s", "donated writes QD256", scale=1e-6)
    table.row("copied writes QD256, by a peer", "M/s", "donated writes QD256, by a peer",
              scale=1e-6)
    table.row("read hits QD64, copied", "MB/s", COPY, (AT_LEAST, 0.8))
    table.row("read hits of 64K QD4, copied", "MB/s", COPY)
    for depth in (1, 16):
        table.row(f"write-through, write QD{depth}, p50", "ns",
                  f"the blocker and a hop, write QD{depth}, p50", (AT_MOST, 1.1))
        table.row(f"write-through, writes QD{depth}", "M/s",
                  f"the blocker and a hop, writes QD{depth}", (AT_LEAST, 0.9), scale=1e-6)
        table.row(f"write-through, write QD{depth}, CPU", "us/op",
                  f"the blocker and a hop, write QD{depth}, CPU")


# --- lanes -----------------------------------------------------------------------------------


def lanes_round(table, options, lanes):
    word = "one lane" if lanes == 1 else "two lanes"
    below = [*cache(options, options.cached), memory(options.hot)]
    kinds = (("hits", {"mix": 100, "prepare": "both"}), ("donated writes", {"mix": 0}))
    with Rig(options.hot * 2 + 512 * MIB) as rig:
        for kind, more in kinds:
            run = rig.load("cache0", *below, lanes=lanes, seconds=options.seconds, fill="no",
                           qd=64, size=options.hot, cpu=0 if lanes == 1 else None, **more)
            table.add(f"stacked, {word}, {kind}", steady(run))
        process = rig.start(*below, lanes=lanes)
        for kind, more in kinds:
            run = rig.load("cache0", lanes=lanes, seconds=options.seconds, fill="no", qd=64,
                           size=options.hot, **more)
            table.add(f"apart, {word}, {kind}", run["ops_per_second"])
        rig.end(process)


def table_lanes(table, options):
    table.head("lanes: two against one; 4 KiB, QD64 each; stacked: the load on the same lanes")
    for number in range(options.rounds):
        for lanes in (1, 2) if number % 2 == 0 else (2, 1):
            lanes_round(table, options, lanes)
    for where, goal in (("stacked", 1.7), ("apart", 1.0)):
        for kind in ("hits", "donated writes"):
            table.row(f"{where}, one lane, {kind}", "M/s", scale=1e-6)
            table.row(f"{where}, two lanes, {kind}", "M/s", f"{where}, one lane, {kind}",
                      (AT_LEAST, goal), scale=1e-6)


# --- large -----------------------------------------------------------------------------------


def slow(rig, microseconds, size):
    """A blocker in memory whose answers take that long."""
    if not rig.has_role("blocker_meddle"):
        raise Unavailable("blocker_meddle is not built (make check builds it)")
    rules = f"{rig.folder}/rules"
    with open(rules, "w", encoding="ascii") as file:
        file.write(f"delay={microseconds}\n")
    return [spec("store0", "blocker_meddle", rules=rules, edge_store="below0"),
            memory(size, "below0")]


def stores_of(rig, kind, size):
    if kind == "memory":
        return [memory(size)]
    if kind == "100 us":
        return slow(rig, 100, size)
    return [spec("store0", "blocker_file", dir=f"{rig.folder}/store")]


LARGE_GOALS = {"memory": 0.75, "file": 0.9, "100 us": 0.9}


def large_shapes(options):
    """(text, cache, objects) for the footprint: 1/8 and 1/64, an object each or for eight."""
    objects = max(options.footprint // (4 * MIB), 8)
    yield "1/8, objects 1:1", options.footprint // 8, objects
    yield "1/64, objects 8:1", options.footprint // 64, objects // 8


def large_run(rig, table, options, name, mix, process):
    run = rig.load("cache0", size=options.footprint, seconds=options.seconds, mix=mix, qd=16,
                   fill="no", cpu=0, chunk=256, server=process)
    table.add(name, run["ops_per_second"])
    table.add(name + ", CPU", run["server_cpu_us"])


def large_store(table, options, kind):
    """Each shape and the blocker alone in turns, over the same data."""
    with Rig(options.footprint * 2 + 768 * MIB, options.disk) as rig:
        for number in range(options.rounds):
            for text, below in [("alone", None), *(
                    (text, cache(options, size, objects=objects))
                    for text, size, objects in large_shapes(options))]:
                stores = stores_of(rig, kind, options.footprint)
                alone = [stores[0].replace("store0=", "cache0=", 1), *stores[1:]]
                process = rig.start(*([*below, *stores] if below else alone), cpu=1)
                if kind != "file" or (number == 0 and not below):
                    rig.load("cache0", size=options.footprint, cpu=0, seconds=0.01,
                             prepare="write")
                for word, mix in (("reads", 100), ("writes", 0)):
                    large_run(rig, table, options, f"{kind}, {word}, {text}", mix, process)
                rig.end(process)
    for word in ("reads", "writes"):
        table.row(f"{kind}, {word}, alone", "1/s")
        for text, _, _ in large_shapes(options):
            table.row(f"{kind}, {word}, {text}", "1/s", f"{kind}, {word}, alone",
                      (AT_LEAST, LARGE_GOALS[kind]))
            table.row(f"{kind}, {word}, {text}, CPU", "us/op", f"{kind}, {word}, alone, CPU")


def large_zipf(table, options):
    with Rig(options.footprint * 2 + 768 * MIB) as rig:
        store, below = slow(rig, 200, options.footprint)
        shapes = (("alone", [store.replace("store0=", "cache0=", 1), below]),
                  ("1/8", [*cache(options, options.footprint // 8), store, below]))
        for text, peers in shapes:
            process = rig.start(*peers, cpu=1)
            for _ in range(options.rounds):
                for depth in (1, 16):
                    run = rig.load("cache0", size=options.footprint, pattern="zipf", theta="1.0",
                                   qd=depth, seconds=options.seconds * 2, mix=70, fill="no", cpu=0)
                    table.add(f"zipf 1.0 QD{depth}, 200 us, {text}", run["ops_per_second"])
            rig.end(process)
    for depth in (1, 16):
        table.row(f"zipf 1.0 QD{depth}, 200 us, alone", "1/s")
        table.row(f"zipf 1.0 QD{depth}, 200 us, 1/8", "1/s",
                  f"zipf 1.0 QD{depth}, 200 us, alone", (AT_LEAST, 2.0))


def table_large(table, options):
    table.head(f"large: {options.footprint // MIB} MiB in no order, 4 KiB, QD16; zipf reads 70 %")
    for kind in LARGE_GOALS:
        large_store(table, options, kind)
    large_zipf(table, options)


# --- adopt, nbd ------------------------------------------------------------------------------


def table_adopt(table, options):
    table.head("adopt: a new process after a SIGKILL")
    cache_pipeline.adopt(table, options, cache)
    cache_pipeline.kills(table, options)


def table_nbd(table, options):
    table.head("nbd: fio, stacked in one process; a hot set half or a quarter of the cache")
    cache_pipeline.nbd(table, options)


# --- main ------------------------------------------------------------------------------------


TABLES = {"port": table_port, "lanes": table_lanes, "large": table_large, "adopt": table_adopt,
          "nbd": table_nbd}


def arguments():
    parser = tables.parser_of(__doc__, TABLES)
    parser.add_argument("--stand-in", action="store_true",
                        help="a memory blocker in the cache's place, to try the bench itself")
    options = tables.arguments(parser, TABLES, 0.15)
    options.hot, options.cached = 64 * MIB, 256 * MIB
    options.footprint, options.adopted, options.kills = 512 * MIB, 1024 * MIB, 20
    if options.quick:
        options.hot, options.cached = 16 * MIB, 64 * MIB
        options.footprint, options.adopted, options.kills = 64 * MIB, 128 * MIB, 3
    return options


def main():
    options = arguments()
    roles = ("load",) if options.stand_in else ("load", "cached")
    return tables.run("cache", TABLES, options, lambda: Rig(64 * MIB), roles)


if __name__ == "__main__":
    sys.exit(main())
