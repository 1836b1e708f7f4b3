# SPDX-License-Identifier: Apache-2.0
"""What benches of tables have in common: figures of all rounds, rows, options, goals, the end.

A bench is a dict of tables by name, each a function of (Table, options), and a rig whose roles have
to be built.
"""

import argparse
import json
import os
import platform
import signal
import sys

from path_servers import Unavailable


class Table:
    """Figures of all rounds, then rows of medians with their reference and goal."""

    def __init__(self, prefix):
        self.prefix, self.samples, self.rows = prefix, {}, []

    def add(self, name, value):
        self.samples.setdefault(name, []).append((value, os.getloadavg()[0]))

    def median(self, name):
        values = sorted(value for value, _ in self.samples.get(name, []))
        if not values:
            return None
        middle = len(values) // 2
        return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2

    def load(self, name):
        loads = [load for _, load in self.samples.get(name, [])]
        return max(loads) if loads else os.getloadavg()[0]

    def row(self, name, unit, reference=None, goal=None, scale=1.0, text="", value_goal=None):
        """goal: (way, limit), of the ratio when there is a reference; value_goal: of the value."""
        value, beside = self.median(name), self.median(reference) if reference else None
        if value is None:
            return
        ratio = value / beside if beside else None
        self.put(name, value * scale, unit, beside * scale if beside else None,
                 text or reference or "", ratio, goal or value_goal,
                 value * scale if value_goal or ratio is None else ratio, self.load(name))

    def put(self, name, value, unit, reference, text, ratio, goal, measured, load):
        met = None
        if goal:
            met = measured <= goal[1] if goal[0] == "at most" else measured >= goal[1]
        self.rows.append({"name": name, "value": value, "unit": unit, "reference": reference,
                          "ratio": ratio, "load1": load, "met": met})
        said = "" if met is None else f"{goal[0]} {goal[1]:g}: {'met' if met else 'MISSED'}"
        print(f"{name:44} {value:11.4g} {unit:5} {'' if ratio is None else f'{ratio:7.3f}':7} "
              f"{text:30} {load:5.1f}  {said}", flush=True)

    def head(self, title):
        print(f"\n{title}\n{'':44} {'':11} {'':5} {'ratio':>7} {'to':30} {'load':>5}", flush=True)

    def write(self, path):
        rows = [{**{key: row[key] for key in ("value", "unit", "reference", "ratio", "load1")},
                 "name": f"{self.prefix}.{row['name']}"} for row in self.rows]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
            file.write("\n")

    def missed(self):
        return [row["name"] for row in self.rows if row["met"] is False]


def machine():
    model = "unknown CPU"
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{os.cpu_count()} x {model}, {memory:.0f} GiB, Linux {platform.release()}"


def parser_of(text, tables):
    parser = argparse.ArgumentParser(description=text,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 round of short runs, little data")
    parser.add_argument("--rounds", type=int, help="of all runs (5)")
    parser.add_argument("--seconds", type=float, help="of each run, about (1)")
    parser.add_argument("--only", default="", help="tables, commas: " + " ".join(tables))
    parser.add_argument("--disk", metavar="FOLDER", help="where files on disk lie (TMPDIR)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    return parser


def arguments(parser, tables, quick_seconds):
    """options.rounds, .seconds and .tables as asked for, or as they are for all and for --quick."""
    options = parser.parse_args()
    if options.rounds is None:
        options.rounds = 1 if options.quick else 5
    if options.seconds is None:
        options.seconds = quick_seconds if options.quick else 1.0
    options.tables = [word for word in options.only.split(",") if word] or list(tables)
    unknown = [word for word in options.tables if word not in tables]
    if unknown or options.rounds < 1 or options.seconds <= 0:
        parser.error(f"no table {unknown}" if unknown else "rounds and seconds are above 0")
    return options


def bench(prefix, tables, options):
    """False: not one table could be made."""
    table, made = Table(prefix), 0
    print(f"{machine()}, load {os.getloadavg()[0]:.2f}; {options.rounds} rounds, runs of "
          f"{options.seconds:g} s; medians", flush=True)
    for name in options.tables:
        try:
            tables[name](table, options)
            made += 1
        except Unavailable as error:
            print(f"{name}: not measured: {error}", flush=True)
    missed = table.missed()
    print("\ngoals: " + ("MISSED by " + "; ".join(missed) if missed else "all that were measured "
                         "are met"))
    if options.json:
        table.write(options.json)
    return made > 0


def run(prefix, tables, options, rig, roles):
    """The exit status; one of what rig() makes says whether the roles are built."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with rig() as tried:
            for role in roles:
                if not tried.has_role(role):
                    raise Unavailable(f"{role} is not built")
        return 0 if bench(prefix, tables, options) else 1
    except Unavailable as error:
        print(f"{prefix}: {error}", file=sys.stderr)
        return 77
