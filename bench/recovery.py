#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long is a guest's pause when a process is killed, and what does watching cost?

Kills: SIGKILL of each peer under xsegd, again and again; the time from the kill to the answer of
the first request that was sent after it, with the new process's start in it and the client's
reconnect where the front was killed. Beside it, measured in the same run: how long it takes to
start such a process and nothing else.

Watching: fio against the pipeline, rounds with `xsegctl top` running and metrics scraped each
second, and rounds without, interleaved; CPU is that of the peers and the keeper.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "crash"))
# pylint: disable=wrong-import-position
from rig import PEERS, Rig, Unfit, cpu_seconds  # noqa: E402
from tables import machine  # noqa: E402

try:
    import nbd
except ImportError:
    print("recovery: python3-libnbd is not installed", file=sys.stderr)
    sys.exit(77)

GOAL_P50_MS, GOAL_WATCH = 100.0, 1.01
ROWS = []


def row(name, value, unit, reference=None, reference_name="", goal=None):
    load = os.getloadavg()[0]
    ratio = value / reference if reference else None
    ROWS.append({"name": "recovery." + name, "value": value, "unit": unit, "reference": reference,
                 "ratio": ratio, "load1": load})
    met = "" if goal is None else "met" if (ratio or value) <= goal else "MISSED"
    text = "" if goal is None else f"at most {goal:g}: {met}"
    print(f"{name:44} {value:10.2f} {unit:6} {'' if ratio is None else f'{ratio:6.3f}':6} "
          f"{reference_name:22} {text}", flush=True)


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


# --- kills ---------------------------------------------------------------------------------------


class Client:
    """One request at a time; a new connection when the old one is lost."""

    def __init__(self, uri):
        self.uri, self.handle = uri, None
        self.connect()

    def connect(self):
        end = time.monotonic() + 30
        while True:
            self.handle = nbd.NBD()
            try:
                self.handle.connect_uri(self.uri)
                return
            except nbd.Error:
                if time.monotonic() > end:
                    raise
                time.sleep(0.0005)

    def read(self):
        while True:
            try:
                return self.handle.pread(4096, 0)
            except nbd.Error:
                self.connect()


def start_time(rig):
    """Only the program: exec, libraries, modules, options."""
    took = []
    for _ in range(10):
        begin = time.monotonic()
        subprocess.run([os.path.join(rig.build, "xsegpeer"), "-s", rig.name, "--check",
                        "probe=volume,edge.store=file0"], env=rig.env, check=False,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        took.append((time.monotonic() - begin) * 1e3)
    return statistics.median(took)


def kills_of(rig, client, peer, count):
    took = []
    for _ in range(count):
        pid = rig.pid(peer)
        client.read()
        begin = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        client.read()
        took.append((time.monotonic() - begin) * 1e3)
        rig.wait_successor(peer, pid)
    return took


def measure_kills(shape, peers, count, loaded):
    with Rig(shape, wrapped=False) as rig:
        rig.up()
        client = Client(rig.uri)
        client.handle.pwrite(b"x" * 4096, 0)
        starting = start_time(rig)
        stamp = rig.load("--connections", "2", "--depth", "8", "--hot", "4K") if loaded else None
        name = f"{shape}{' under load' if loaded else ''}"
        for peer in peers:
            took = kills_of(rig, client, peer, count)
            what = "all peers" if shape == "stacked" else peer
            row(f"{name}: {what} killed, p50", statistics.median(took), "ms", starting,
                "exec of xsegpeer")
            ROWS[-1]["goal_met"] = ROWS[-1]["value"] < GOAL_P50_MS
            row(f"{name}: {what} killed, p99 of {count}", quantile(took, 0.99), "ms", starting,
                "exec of xsegpeer")
        if stamp:
            stamp.close()


# --- watching ------------------------------------------------------------------------------------


def fio(rig, seconds):
    done = subprocess.run(
        ["fio", "--name=w", "--ioengine=nbd", "--uri=" + rig.uri, "--rw=randrw", "--bs=4k",
         "--iodepth=16", "--size=" + rig.size, "--time_based", f"--runtime={seconds}", "--thread",
         "--output-format=json"], cwd=rig.dir, stdin=subprocess.DEVNULL, capture_output=True,
        check=False)
    if done.returncode:
        raise Unfit("fio: " + done.stderr.decode(errors="replace")[-300:])
    text = done.stdout.decode()
    job = json.loads(text[text.index("{"):])["jobs"][0]
    return sum(job[way]["total_ios"] for way in ("read", "write"))


class Watchers:
    """`top` and a scrape each second."""

    def __init__(self, rig):
        ctl = f'"{os.path.join(rig.build, "xsegctl")}" -s {rig.name}'
        self.processes = [
            subprocess.Popen(["sh", "-c", f"exec {ctl} top --batch -n 100000 >/dev/null"],
                             env=rig.env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
            subprocess.Popen(["sh", "-c", f"while :; do {ctl} metrics >/dev/null; sleep 1; done"],
                             env=rig.env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]

    def close(self):
        alive = all(p.poll() is None for p in self.processes)
        for process in self.processes:
            process.kill()
            process.wait()
        return alive


def one_round(rig, seconds, watched):
    """(us per operation, CPU us of the peers and the keeper per operation)"""
    pids = list(set(rig.pids().values()) | {rig.keeper()})
    watchers = Watchers(rig) if watched else None
    before = sum(cpu_seconds(pid) for pid in pids)
    count = fio(rig, seconds)
    used = sum(cpu_seconds(pid) for pid in pids) - before
    if watchers and not watchers.close():
        raise Unfit("top or metrics ended by itself")
    return seconds * 1e6 / count, used * 1e6 / count


def measure_watching(rounds, seconds):
    with Rig("split", size="64M", segment_size="256M", wrapped=False) as rig:
        rig.up()
        for verb in ("top", "metrics"):
            if rig.ctl(verb, *(["--once"] if verb == "top" else []), exits=None).returncode:
                raise Unfit(f"'xsegctl {verb}' does not work in this build")
        one_round(rig, 1, False)
        pairs = []
        for i in range(rounds):
            first = one_round(rig, seconds, i % 2 == 0)
            second = one_round(rig, seconds, i % 2 == 1)
            pairs.append((first, second) if i % 2 else (second, first))
        # of each pair: what else the machine does meanwhile meets both
        for text, unit, at in (("CPU of the pipeline", "us/op", 1), ("time per request", "us", 0)):
            off = statistics.median(p[0][at] for p in pairs)
            ratio = statistics.median(p[1][at] / p[0][at] for p in pairs)
            row("watched: " + text, off * ratio, unit, off, "not watched",
                None if at == 0 else GOAL_WATCH)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 kills of each, 2 short rounds")
    parser.add_argument("--kills", type=int, default=50, help="of each peer (50)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    kills = 10 if options.quick else options.kills
    print(f"{machine()}, load {os.getloadavg()[0]:.2f}; kill to first answer, watching\n")
    try:
        measure_kills("split", PEERS, kills, False)
        measure_kills("stacked", ("nbd0",), kills, False)
        measure_kills("split", PEERS, kills, True)
    except Unfit as e:
        print(f"recovery: {e}", file=sys.stderr)
        return 77
    slow = [r["name"] for r in ROWS if r.get("goal_met") is False]
    print(f"goal: each p50 under {GOAL_P50_MS:g} ms: " + (f"MISSED by {slow}" if slow else "met"))
    try:
        measure_watching(2 if options.quick else 15, 1 if options.quick else 3)
    except Unfit as e:
        print(f"watching: not measured: {e}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump([{k: v for k, v in r.items() if k != "goal_met"} for r in ROWS], f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
