# SPDX-License-Identifier: Apache-2.0
"""Bits of the segment that flip, anywhere but in page data."""

import mmap
import os
import signal
import time

from case import Scene, table
from rig import PEERS, Failed, alive, check, cpu_seconds

CASES, case = table()


def regions(rig):
    """(table, first, last) of what is not page data; FLIP_TABLES chooses, for a closer look."""
    dump = rig.json("segment", "dump")
    found = [("superblock", 0, 4096)]
    for t in dump["tables"]:
        if t["table"] != "pages":
            found.append((t["table"], t["offset"], t["offset"] + t["size"]))
    only = os.environ.get("FLIP_TABLES", "").split(",")
    return [t for t in found if t[0] in only] or found


def flip(rig, offset, bit):
    with open(os.path.join(rig.shm, "xseg." + rig.name), "r+b") as f:
        with mmap.mmap(f.fileno(), 0) as segment:
            segment[offset] ^= 1 << bit


def pick(context, rig, tables):
    """A bit of a byte that is not zero, so of something in use; each table is as likely."""
    with open(os.path.join(rig.shm, "xseg." + rig.name), "rb") as f:
        with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as segment:
            while True:
                name, begin, end = context.random.choice(tables)
                used = [i for i, byte in enumerate(segment[begin:end]) if byte]
                if used:
                    return name, begin + context.random.choice(used), context.random.randrange(8)


def spins(pids):
    """Who burns a whole CPU while nothing is answered."""
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    time.sleep(1)
    return [name for name, pid in pids.items() if cpu_seconds(pid) - before[name] > 0.9]


def ended(pids):
    return sorted(name for name, pid in pids.items() if not alive(pid))


def moves(stamp, seconds):
    begin, end = stamp.answered(), time.monotonic() + seconds
    while time.monotonic() < end and stamp.process.poll() is None:
        if stamp.answered() > begin:
            return True
        time.sleep(0.01)
    return False


class Victim:
    """A pipeline under load that is used until a flip has spoilt it."""

    def __init__(self, context):
        self.scene = Scene(context, conserve=False, load=("--reconnect", "600", "--hang", "600"))
        self.scene.__enter__()
        self.rig, self.stamp = self.scene.rig, self.scene.stamp
        self.tables = regions(self.rig)
        self.flips, self.dead = [], []

    def flip(self, context):
        """(table, who died, does the load go on, guest errors, bad reads); raises Failed."""
        pids = self.rig.pids()
        name, offset, bit = pick(context, self.rig, self.tables)
        where = f"{name} at {offset} bit {bit}"
        flip(self.rig, offset, bit)
        time.sleep(0.1)
        goes = moves(self.stamp, 1.5)
        dead = ended(pids)
        # what a flip spoils may show only when the next one has the table looked at
        self.flips.append(where)
        self.dead += dead
        check(len(self.dead) <= len(self.flips), f"{self.flips}: took {self.dead} down")
        if not goes:
            burning = spins({n: p for n, p in pids.items() if alive(p)})
            check(not burning, f"{where}: {burning} spin and nothing is answered")
            for pid in pids.values():
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
            healed = "a restart heals it" if moves(self.stamp, 8) else self.why_it_stands()
            context.numbers.setdefault("stood_at", []).append(f"{where}: {healed}")
        said = self.stamp.last()
        return name, dead, goes, said.get("errors", 0), said.get("bad", 0)

    def why_it_stands(self):
        """The load may have ended itself over an error: that is an answer, too."""
        if self.stamp.process.poll() is None:
            return f"for good, after {self.flips[-4:]}: {self.who_is_not_well()}"
        return f"the load ended with status {self.stamp.process.poll()}: {self.stamp.last()}"

    def who_is_not_well(self):
        """A peer that cannot use what it finds refuses and is given up: that is allowed."""
        try:
            peers = self.rig.status()["peers"]
        except Failed as e:
            return str(e)
        bad = [p for p in peers if p.get("state") not in ("serving", "alive", "running")]
        return [(p.get("name"), p.get("state"), p.get("reason")) for p in bad] or "all serve"

    def close(self):
        """However spoilt it is, it can be taken down."""
        self.stamp.close()
        try:
            if self.rig.keeper():
                self.rig.ctl("down", "--yes", "--timeout", "5s", seconds=30, exits=None)
        finally:
            self.rig.close()


def tally(notes, name, dead, goes, errors, bad):
    n = notes.setdefault(name, {"flips": 0, "died": 0, "stood": 0, "errors": 0, "bad": 0})
    n["flips"] += 1
    n["died"] += len(dead)
    n["stood"] += not goes
    n["errors"] += errors
    n["bad"] += bad


@case(ci=True)
def flip_bits(context):
    """a bit flips in a word of the segment that is not page data: nobody spins or falls with it"""
    notes, wrong, victim, pipelines = {}, [], None, 0
    for _ in range(context.short(300, 10)):
        try:
            if not victim:
                victim, pipelines = Victim(context), pipelines + 1
            found = victim.flip(context)
            tally(notes, *found)
            # a superblock that is not whole is refused by whoever joins, xsegctl too
            spoilt = found[0] == "superblock" or found[1] or not found[2] or any(found[3:])
        except Failed as e:
            wrong.append(str(e))
            spoilt = True
        if spoilt and victim:
            try:
                victim.close()
            except Failed as e:
                wrong.append("down hangs: " + str(e))
            victim = None
    if victim:
        victim.close()
    context.numbers.update(tables=notes, wrong=len(wrong), pipelines=pipelines)
    check(not wrong, "\n".join(wrong[:20]))


@case(ci=True)
def flip_port_name(context):
    """the name of a port is damaged: the peer's successor has another port, and is found"""
    with Scene(context) as scene:
        rig = scene.rig
        (begin, end), = [t[1:] for t in regions(rig) if t[0] == "ports"]
        for bit in range(context.short(6, 2)):
            with open(os.path.join(rig.shm, "xseg." + rig.name), "rb") as f:
                f.seek(begin)
                at = begin + f.read(end - begin).index(b"file0\0")
            flip(rig, at + 1, bit)
            rig.wait_successor("file0", rig.kill("file0"))
            scene.recover()
        found = {edge["name"]: edge["to"] for edge in rig.status()["edges"]}
        check(found["map0:store"] == found["vol0:store"] == "file0", f"{found}")
        context.numbers["ports"] = bit + 1


@case()
def flip_then_restart(context):
    """after a flip each peer is restarted: what cannot be used is refused, not served"""
    refused = 0
    for _ in range(context.short(40, 3)):
        scene = Scene(context, conserve=False, load=("--reconnect", "600", "--hang", "600"))
        try:
            scene.__enter__()
            rig = scene.rig
            name, offset, bit = pick(context, rig, regions(rig))
            flip(rig, offset, bit)
            for peer in PEERS:
                pid = rig.pids().get(peer)
                if pid:
                    os.kill(pid, 9)
            time.sleep(1.5)
            pids = rig.pids()
            refused += len(pids) < 3
            burning = spins(pids) if not scene.stamp.answered() else []
            check(not burning, f"{name} at {offset} bit {bit}: {burning} spin")
        finally:
            scene.rig.close()
    context.numbers["refused"] = refused
