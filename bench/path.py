#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does the whole path cost, from a client's socket to the store and back?

fio (nbd engine) and nbdcopy over a UNIX socket against Skerry and other servers, all in one run:
interleaved rounds, medians. CPU is the server's own, all its processes and threads, per operation.
Skerry is front, composer and memory blocker, stacked in one process and one each; with --default
it is the pipeline of ./quickstart (a cache, files in memory) in its two processes, and in others.
"""

import argparse
import contextlib
import fnmatch
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import fio
from path_servers import DEFAULT, MIB, Place, Unavailable, servers_in_memory, servers_of_files
from tables import machine

COPY_REQUEST = 262144

# name: (fio's rw, block size, queue depth)
FIO = {
    "randread-4k-qd1": ("randread", 4096, 1),
    "randread-4k-qd16": ("randread", 4096, 16),
    "randread-4k-qd64": ("randread", 4096, 64),
    "randwrite-4k-qd1": ("randwrite", 4096, 1),
    "randwrite-4k-qd16": ("randwrite", 4096, 16),
    "randwrite-4k-qd64": ("randwrite", 4096, 64),
    "randread-64k-qd16": ("randread", 65536, 16),
    "randwrite-64k-qd16": ("randwrite", 65536, 16),
    "read-1m-qd4": ("read", MIB, 4),
    "write-1m-qd4": ("write", MIB, 4),
}
COPY = ("nbdcopy-read", "nbdcopy-write")
WORKLOADS = (*FIO, *COPY)

# (text, server, workloads, figure, server compared with, at most or at least, ratio)
AT_MOST, AT_LEAST = "at most", "at least"
READS, WRITES = ("randread-4k-qd16", "randread-4k-qd64"), ("randwrite-4k-qd16", "randwrite-4k-qd64")
LARGE_READS, QD1 = ("randread-64k-qd16", "read-1m-qd4"), ("randread-4k-qd1", "randwrite-4k-qd1")
DEEP = tuple(name for name, (_, _, depth) in FIO.items() if depth >= 16)
SMALL = tuple(name for name, (_, block, _) in FIO.items() if block == 4096)
MEMORY_GOALS = (
    ("stacked", READS, "cpu", "nbdkit-memory", AT_MOST, 0.6),
    ("stacked", READS, "iops", "best", AT_LEAST, 1.35),
    ("stacked", WRITES, "cpu", "nbdkit-memory", AT_MOST, 0.85),
    ("stacked", WRITES, "iops", "best", AT_LEAST, 1.05),
    ("stacked", LARGE_READS, "mb", "best", AT_LEAST, 1.3),
    ("stacked", QD1, "p50", "best", AT_MOST, 1.0),
    ("three", DEEP, "cpu", "stacked", AT_MOST, 1.6),
    ("three", DEEP, "iops", "best", AT_LEAST, 1.0),
)
DEFAULT_GOALS = (
    (DEFAULT, SMALL, "cpu", "one", AT_MOST, 1.6),
    (DEFAULT, SMALL, "iops", "nbdkit-file", AT_LEAST, 1.0),
)


class Scenario:
    """Who is measured, at what, and what is expected of whom."""

    def __init__(self, servers, reference, size, workloads, goals):
        self.servers, self.reference, self.size = servers, reference, size
        self.workloads, self.goals = workloads, goals


IN_MEMORY = Scenario(servers_in_memory, "nbdkit-memory", 512 * MIB, WORKLOADS, MEMORY_GOALS)
OF_FILES = Scenario(servers_of_files, "nbdkit-file", 64 * MIB, SMALL, DEFAULT_GOALS)
UNITS = {"iops": "1/s", "mb": "MB/s", "p50": "us", "p99": "us", "cpu": "us/op"}


# --- one run ---------------------------------------------------------------------------------

def run(words, **named):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, **named)
    if done.returncode:
        raise Unavailable(f"{words[0]} failed: {done.stderr.strip()[-400:] or done.stdout[-400:]}")
    return done.stdout


def fio_figures(server, workload, seconds, folder):
    rw, block, depth = FIO[workload]
    side, = fio.jobs(folder, [("path", server.uri)], rw, depth, seconds, server.place.size,
                     # a client that wakes a sleeping server pays for it in its send: so from
                     # submission to completion, not from the end of the send
                     "--percentile_list=50:99", "--clat_percentiles=0", "--lat_percentiles=1",
                     block=block)
    percentile = side["lat_ns"]["percentile"]
    return {"iops": side["iops"], "mb": side["bw_bytes"] / 1e6, "operations": side["total_ios"],
            "p50": percentile["50.000000"] / 1e3, "p99": percentile["99.000000"] / 1e3}


def nbdcopy(server, workload, folder):
    source, target = server.uri, "null:"
    if workload == "nbdcopy-write":
        source, target = server.place.source, server.uri
    before = time.monotonic()
    run(["nbdcopy", "--no-extents", source, target], cwd=folder, timeout=300)
    seconds = time.monotonic() - before
    size = server.place.size
    return {"iops": size / COPY_REQUEST / seconds, "mb": size / 1e6 / seconds,
            "operations": size / COPY_REQUEST}


def measure(server, workload, seconds):
    """One run's figures, the server's CPU microseconds per operation among them."""
    before = server.cpu()
    if workload in FIO:
        result = fio_figures(server, workload, seconds, server.place.folder)
    else:
        result = nbdcopy(server, workload, server.place.folder)
    result["cpu"] = (server.cpu() - before) / 1e3 / max(result.pop("operations"), 1)
    result["load"] = os.getloadavg()[0]
    return result


def fill(place):
    """Random bytes, a file of the export's size: written to each server before anything else."""
    place.source = f"{place.memory}/source.raw"
    with open(place.source, "wb") as file:
        for _ in range(place.size // MIB):
            file.write(os.urandom(MIB))


# --- all runs --------------------------------------------------------------------------------

def start_all(candidates):
    running = []
    for server in candidates:
        try:
            server.start()
            nbdcopy(server, "nbdcopy-write", server.place.folder)
            running.append(server)
        except (Unavailable, subprocess.TimeoutExpired, OSError) as error:
            print(f"path: {server.name} is left out: {error}", file=sys.stderr)
            stop_one(server)
    return running


def stop_one(server):
    try:
        server.stop()
    except (Unavailable, subprocess.TimeoutExpired) as error:
        print(f"path: stopping {server.name}: {error}", file=sys.stderr)


def rounds(running, workloads, options):
    """{(workload, server): [figures of each round]}; servers take turns, each round in another
    order."""
    found = {}
    for number in range(options.rounds):
        for workload in workloads:
            shift = number % len(running)
            for server in running[shift:] + running[:shift]:
                progress(options, number, workload, server)
                try:
                    figures = measure(server, workload, options.seconds)
                    found.setdefault((workload, server.name), []).append(figures)
                except (Unavailable, subprocess.TimeoutExpired, ValueError, KeyError) as error:
                    print(f"path: {workload} on {server.name}: {error}", file=sys.stderr)
    return found


def progress(options, number, workload, server):
    if sys.stderr.isatty():
        print(f"\r\033[Kround {number + 1}/{options.rounds} {workload} {server.name}", end="",
              file=sys.stderr, flush=True)


def medians(found):
    """{(workload, server): {figure: median}}"""
    return {key: {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}
            for key, runs in found.items()}


# --- results ---------------------------------------------------------------------------------

def best_other(table, others, workload, figure):
    """The best figure of a server that is not ours, or None."""
    values = [row[figure] for (w, name), row in table.items()
              if w == workload and name in others and figure in row]
    if not values:
        return None
    return min(values) if figure in ("p50", "p99", "cpu") else max(values)


def ratio(value, reference):
    return f"{value / reference:.2f}" if reference else "-"


def print_table(table, scenario, workloads, running):
    head = (f"{'':20} {'IOPS':>9} {'MB/s':>7} {'p50 us':>8} {'p99 us':>8} {'CPU us/op':>9} "
            f"{'IOPS/kit':>8} {'CPU/kit':>7} {'IOPS/best':>9} {'load':>5}")
    others = names_of_others(running)
    for workload in workloads:
        print(f"\n{workload}\n{head}")
        reference = table.get((workload, scenario.reference), {})
        best = best_other(table, others, workload, "iops")
        for name in (server.name for server in running):
            row = table.get((workload, name))
            if row:
                latency = [f"{row[p]:8.1f}" if p in row else f"{'-':>8}" for p in ("p50", "p99")]
                print(f"{name:20} {row['iops']:9.0f} {row['mb']:7.0f} {latency[0]} {latency[1]} "
                      f"{row['cpu']:9.2f} {ratio(row['iops'], reference.get('iops')):>8} "
                      f"{ratio(row['cpu'], reference.get('cpu')):>7} "
                      f"{ratio(row['iops'], best):>9} {row['load']:5.2f}")


def names_of_others(running):
    return [server.name for server in running if not server.ours]


def goals(table, scenario, asked, running):
    """(text, met or None when not measured) of each goal of each workload that was asked for."""
    others = names_of_others(running)
    for server, workloads, figure, other, way, limit in scenario.goals:
        for workload in (w for w in workloads if w in asked):
            text = f"{server} {workload}: {figure} {way} {limit} of {other}"
            mine = table.get((workload, server), {}).get(figure)
            theirs = (best_other(table, others, workload, figure) if other == "best"
                      else table.get((workload, other), {}).get(figure))
            if mine is None or not theirs:
                yield f"{text}: not measured", None
                continue
            got = mine / theirs
            met = got <= limit if way == AT_MOST else got >= limit
            yield f"{text}: {got:.2f} ({mine:.4g} and {theirs:.4g} {UNITS[figure]})", met


def print_goals(table, scenario, workloads, running):
    print("\nGoals")
    for text, met in goals(table, scenario, workloads, running):
        print(f"{'  ?   ' if met is None else '  met ' if met else 'MISSED'} {text}")


def write_json(path, table, scenario):
    rows = []
    for (workload, name), row in table.items():
        for figure, unit in UNITS.items():
            reference = table.get((workload, scenario.reference), {}).get(figure)
            if figure in row:
                rows.append({"name": f"path.{workload}.{name}.{figure}", "value": row[figure],
                             "unit": unit, "reference": reference,
                             "ratio": row[figure] / reference if reference else None,
                             "load1": row["load"]})
    with open(path, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")


# --- main ------------------------------------------------------------------------------------

def choose(names, patterns):
    """Those that a pattern names; all when no pattern names any of them."""
    chosen = [n for n in names if any(fnmatch.fnmatch(n, p) for p in patterns)]
    return chosen or list(names)


def size_of(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    if text[-1:].upper() in units:
        return int(text[:-1]) * units[text[-1].upper()]
    return int(text)


def at_depths(parser, text):
    """Workloads of 4 KiB, added to those that fio knows."""
    if not all(depth.isdigit() and 0 < int(depth) <= 1024 for depth in text.split(",")):
        parser.error("depths are numbers from 1 to 1024, with commas")
    found = {f"{rw}-4k-qd{depth}": (rw, 4096, int(depth))
             for rw in ("randread", "randwrite") for depth in text.split(",")}
    FIO.update(found)
    return tuple(found)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="workloads: " + " ".join(WORKLOADS))
    parser.add_argument("--quick", action="store_true", help="1 round of 1 s, 256 MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2, help="of each fio run")
    parser.add_argument("--default", action="store_true", help="the pipeline of ./quickstart")
    parser.add_argument("--busy", action="store_true", help="beside one busy loop for each CPU")
    parser.add_argument("--size", type=size_of, help="of the export (512M; --default: 64M)")
    parser.add_argument("--only", default="", help="servers and workloads, shell patterns, commas")
    parser.add_argument("--depths", help="only 4 KiB, at these queue depths: 1,2,4,...")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    options.scenario = OF_FILES if options.default else IN_MEMORY
    if options.size is None:
        options.size = options.scenario.size
    options.workloads = options.scenario.workloads
    if options.depths:
        options.workloads = at_depths(parser, options.depths)
    if options.quick:
        options.rounds, options.seconds, options.size = 1, 1, min(options.size, 256 * MIB)
    if options.size % MIB or options.size < 16 * MIB or options.rounds < 1 or options.seconds < 1:
        parser.error("the size is in MiB, 16 at least; rounds and seconds are 1 at least")
    for program in ("fio", "nbdcopy"):
        if not shutil.which(program):
            parser.error(f"{program} is not installed")
    return options


@contextlib.contextmanager
def neighbours(count):
    """So many processes that only use CPU."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def bench(options, folder, memory):
    scenario = options.scenario
    place = Place(folder, memory, options.size)
    patterns = [p for p in options.only.split(",") if p]
    candidates = scenario.servers(place)
    names = choose([s.name for s in candidates], patterns)
    workloads = choose(options.workloads, patterns)
    fill(place)
    running = []
    try:
        running = start_all([s for s in candidates if s.name in names])
        if not running:
            print("path: no server to measure", file=sys.stderr)
            return 1
        busy = os.cpu_count() if options.busy else 0
        print(f"{machine()}, load {os.getloadavg()[0]:.2f}; {options.rounds} rounds of "
              f"{options.seconds} s, {options.size // MIB} MiB, beside {busy} busy loops; medians; "
              f"kit is {scenario.reference}, best the best server but ours")
        with neighbours(busy):
            table = medians(rounds(running, workloads, options))
    finally:
        for server in running:
            stop_one(server)
    print_table(table, scenario, workloads, running)
    print_goals(table, scenario, workloads, running)
    if options.json:
        write_json(options.json, table, scenario)
    return 0


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = tempfile.mkdtemp(prefix="path.")
    memory = tempfile.mkdtemp(prefix="path.", dir="/dev/shm")
    try:
        return bench(options, folder, memory)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(memory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
