#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults against a real pipeline while the stamp checker runs on it.

  crash.py [--ci] [--seed N] [--kills N] [--list] [CASE...]

Each case has a name and can be run alone; a name may be a pattern (kill_*). TAP on stdout, with
the numbers of each case as a comment. --ci: seconds where the full run takes minutes; only the
cases meant for it. --json FILE: all numbers. --stress HOURS: cases at random until then; the seed
is printed, and the same seed does the same things in the same order.
"""

import argparse
import fnmatch
import json
import random
import sys
import time
import traceback

import cases_cache
import cases_cache_ask
import cases_control
import cases_fault
import cases_flip
import cases_kill
import cases_volume
from rig import Failed, Unfit

CASES = {**cases_control.CASES, **cases_kill.CASES, **cases_fault.CASES, **cases_flip.CASES,
         **cases_cache.CASES, **cases_cache_ask.CASES, **cases_volume.CASES}


class Context:
    """What a case may look at: how long it may take, the dice."""

    def __init__(self, args, seed):
        self.ci, self.kills = args.ci, args.kills or (30 if args.ci else 1000)
        self.random = random.Random(seed)
        self.numbers, self.met = {}, set()  # met: crash points

    def short(self, seconds, ci_seconds):
        return ci_seconds if self.ci else seconds


def run_one(name, args, seed, met):
    """(verdict, text, numbers); met: crash points, added to"""
    context = Context(args, f"{seed}:{name}")
    begin = time.monotonic()
    verdict, text = "ok", ""
    try:
        CASES[name].run(context)
    except Unfit as e:
        verdict, text = "skip", str(e)
    except Failed as e:
        verdict, text = "not ok", str(e)
    except Exception:  # pylint: disable=broad-except
        verdict, text = "not ok", traceback.format_exc()
    met |= context.met
    context.numbers["seconds"] = round(time.monotonic() - begin, 1)
    return verdict, text, context.numbers


def say(number, name, verdict, text, numbers):
    if verdict == "skip":
        print(f"ok {number} - {name} # SKIP {text}")
    else:
        print(f"{verdict} {number} - {name}")
        for line in text.splitlines():
            print(f"#   {line}")
    print("#   " + json.dumps(numbers), flush=True)


def chosen(args):
    if args.cases:
        names = [n for n in CASES if any(fnmatch.fnmatch(n, p) for p in args.cases)]
        if not names:
            sys.exit(f"crash.py: no such case: {' '.join(args.cases)}")
        return names
    return [n for n, case in CASES.items() if case.ci or not args.ci]


def say_never_met(met):
    """Of all crash points there are, if any case was about them."""
    if met:
        points = set(cases_kill.crash_points()) | set(cases_kill.crash_points("xsegd"))
        print(f"# crash points that no case has met: {' '.join(sorted(points - met)) or 'none'}")


def stress(args, names):
    dice, end, count, failed = random.Random(args.seed), time.monotonic() + args.stress * 3600, 0, 0
    while time.monotonic() < end:
        count += 1
        name, seed = dice.choice(names), dice.randrange(1 << 32)
        verdict, text, numbers = run_one(name, args, seed, set())
        failed += verdict == "not ok"
        say(count, f"{name} (--seed {seed} {name})", verdict, text, numbers)
    print(f"1..{count}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ci", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--stress", type=float, default=0, metavar="HOURS")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    args = parser.parse_args()
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1 << 32)
    names = chosen(args)
    if args.list:
        for name in names:
            print(f"{name:28} {CASES[name].summary}")
        return 0
    print(f"# seed {args.seed}")
    if args.stress:
        return 1 if stress(args, names) else 0
    results, skipped, failed, met = {}, 0, 0, set()
    for number, name in enumerate(names, 1):
        verdict, text, numbers = run_one(name, args, args.seed, met)
        say(number, name, verdict, text, numbers)
        skipped += verdict == "skip"
        failed += verdict == "not ok"
        results[name] = {"verdict": verdict, "text": text, **numbers}
    print(f"1..{len(names)}")
    if not args.ci:
        say_never_met(met)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
    if failed:
        return 1
    return 77 if skipped == len(names) else 0


if __name__ == "__main__":
    sys.exit(main())
