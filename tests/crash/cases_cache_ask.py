# SPDX-License-Identifier: Apache-2.0
"""What a guest is told by a cache, request by request, against a model; also when it is killed."""

import os
import threading
import time

from cache_rig import CacheRig, CacheScene, nbd_wire
from case import table
from cases_cache import BACK, JOURNAL, LoggedScene
from rig import Failed, alive, check, until

CASES, case = table()
SMALL = {**BACK, "size": "1M"}  # as small as it gets, on one lane
MIB = 1 << 20


class Guest:
    """One connection, and what it must find."""

    def __init__(self, rig, size=None):
        self.wire = rig.connect()
        self.model = bytearray(size or 32 * MIB)

    def do(self, command, offset, length, flags=0, meanwhile=None):
        data = os.urandom(length) if command == nbd_wire.WRITE else b""
        self.wire.start(command, offset, length, flags, data)
        if meanwhile:
            meanwhile()
        answer = self.wire.collect()
        check(answer.error == 0, f"command {command} at {offset}: error {answer.error}")
        if command == nbd_wire.WRITE:
            self.model[offset:offset + length] = data
        elif command in (nbd_wire.TRIM, nbd_wire.WRITE_ZEROES):
            self.model[offset:offset + length] = bytes(length)
        elif command == nbd_wire.READ:
            self.compare(offset, answer.data)

    def compare(self, offset, data):
        want = self.model[offset:offset + len(data)]
        if data == want:
            return
        first = next(i for i in range(0, len(data), 512) if data[i:i + 512] != want[i:i + 512])
        raise Failed(f"at {offset + first}: found {bytes(data[first:first + 8]).hex()}, "
                     f"not {bytes(want[first:first + 8]).hex()}")

    def read(self, offset, length):
        self.do(nbd_wire.READ, offset, length)

    def write(self, offset, length, flags=0):
        self.do(nbd_wire.WRITE, offset, length, flags)

    def flush(self):
        self.do(nbd_wire.FLUSH, 0, 0)

    def read_all(self, step=256 << 10):
        for at in range(0, len(self.model), step):
            self.read(at, step)

    def close(self):
        self.wire.close()


class Asked:
    """A rig and one guest on it."""

    def __init__(self, **options):
        self.rig = CacheRig(size="32M", **{"lanes": 1, **options})

    def __enter__(self):
        try:
            self.rig.up()
            self.guest = Guest(self.rig)
        except BaseException:
            self.rig.close()
            raise
        return self.rig, self.guest

    def __exit__(self, kind, value, trace):
        try:
            self.guest.close()
            if kind is None:
                self.rig.wait_healthy()
                self.rig.conserved()
        finally:
            self.rig.close()


def renew(rig, peer="cache0"):
    rig.wait_successor(peer, rig.kill(peer))


# --- a model -------------------------------------------------------------------------------------


def random_step(dice, guest, killer):
    """Small places, so that things meet; ends of objects; partial pages."""
    command = dice.choices(
        (nbd_wire.WRITE, nbd_wire.READ, nbd_wire.TRIM, nbd_wire.WRITE_ZEROES, nbd_wire.FLUSH),
        (50, 35, 5, 7, 3))[0]
    if command == nbd_wire.FLUSH:
        guest.flush()
        return
    area = dice.choice((128 << 10, 128 << 10, len(guest.model)))
    count = dice.choice((1, 3, 8, 8, 16, dice.randrange(1, 200)))
    if command == nbd_wire.TRIM and dice.random() < 0.3:
        count = 1024
    sector = dice.randrange(area // 512 - count) if area // 512 > count else 0
    flags = 0
    if command == nbd_wire.WRITE and dice.random() < 0.1:
        flags = nbd_wire.FUA
    if command == nbd_wire.WRITE_ZEROES and dice.random() < 0.5:
        flags = nbd_wire.NO_HOLE
    guest.do(command, sector * 512, count * 512, flags,
             killer if dice.random() < 0.01 else None)


def model(context, cache, steps):
    with Asked(cache=cache, object_size="64K") as (rig, guest):
        killed = []

        def killer():
            killed.append(rig.kill("cache0"))
            rig.wait_successor("cache0", killed[-1])
        for _ in range(steps):
            random_step(context.random, guest, killer)
        guest.read_all()
        killer()
        guest.read_all()
        context.numbers.setdefault("kills", []).append(len(killed))


@case()
def cache_model(context):
    """random requests by the sector, trims and zeroes, against a model; killed in between"""
    modes = ("writeback", "writethrough", "writearound")
    for mode in ("writeback",) if context.ci else modes:
        for cache in (SMALL,) if context.ci else (SMALL, {**JOURNAL, "size": "1M"}):
            model(context, {**cache, "mode": mode}, context.short(5000, 600))


# --- one by one ----------------------------------------------------------------------------------


def together(rig, places):
    """Reads at once, each on a connection of its own; what they got."""
    guests = [Guest(rig) for _ in places]
    for guest, (offset, length) in zip(guests, places):
        guest.wire.start(nbd_wire.READ, offset, length)
    answers = [guest.wire.collect() for guest in guests]
    for guest in guests:
        guest.close()
    return answers


@case()
def cache_shared_fill(context):
    """two readers of one cold bucket share one fill"""
    with Asked(cache={**SMALL, "mode": "writearound", "read-ahead": "0"}) as (rig, guest):
        for at in range(8):
            guest.write(at * 65536, 4096)
        rig.meddle("delay=300000 ops=read")
        before = rig.counters("meddle0")["reads"]
        for at in range(4):
            for answer in together(rig, [(at * 65536, 4096)] * 3):
                check(answer.error == 0, f"error {answer.error}")
                guest.compare(at * 65536, answer.data)
        asked = rig.counters("meddle0")["reads"] - before
        context.numbers["reads_of_the_store"] = asked
        check(asked == 4, f"4 cold buckets, 3 readers each: {asked} reads of the store")
        # not the same, but they overlap
        for answer, at in zip(together(rig, [(5 * 65536 - 4096, 8192), (5 * 65536, 4096)]),
                              (5 * 65536 - 4096, 5 * 65536)):
            check(answer.error == 0, f"error {answer.error}")
            guest.compare(at, answer.data)
        rig.meddle()
        guest.read_all()


@case()
def cache_trim_read(context):
    """trimmed, zeroed or deleted, and then read: zeros; also after a kill, dirty or clean"""
    del context
    with Asked(cache=SMALL) as (rig, guest):
        for command in (nbd_wire.TRIM, nbd_wire.WRITE_ZEROES):
            for flush in (False, True):
                for length in (4096, 65536, 256 << 10, 512):
                    guest.write(0, 512 << 10)
                    if flush:
                        guest.flush()
                    guest.do(command, 4096, length)
                    guest.read(0, 512 << 10)
                renew(rig)
                guest.read(0, 512 << 10)
        guest.flush()
        rig.wait_healthy()
        guest.read_all()


@case()
def cache_delete_read(context):
    """a volume that is removed and made again is blank"""
    del context
    with Asked(cache=SMALL) as (rig, guest):
        for flush in (False, True, False):
            guest.write(0, 512 << 10)
            guest.write(8 * MIB, 4096)
            if flush:
                guest.flush()
            guest.close()
            until(20, lambda: rig.ctl("volume", "rm", "disk", "--yes", exits=None).returncode == 0,
                  "the volume can be removed")
            rig.ctl("volume", "create", "disk", "--size", rig.size, "--object-size", "256K")
            fresh = Guest(rig)
            fresh.read_all()
            fresh.write(4096, 512)
            fresh.read_all()
            guest.wire, guest.model = fresh.wire, fresh.model


@case()
def cache_empty_flush(context):
    """a FLUSH with nothing to flush is answered; with a store that fails it says so"""
    del context
    with Asked(cache=BACK, lanes=2) as (rig, guest):
        for _ in range(3):
            guest.flush()
        guest.read(0, 65536)
        guest.flush()
        guest.write(0, 4096)
        guest.flush()
        before = rig.counters("meddle0")["writes"]
        guest.flush()
        check(rig.counters("meddle0")["writes"] == before, "it was written twice")
        renew(rig)
        guest.flush()
        rig.meddle("fail=EIO ops=write,flush")
        guest.write(4096, 4096)
        answer = guest.wire.call(nbd_wire.FLUSH)
        check(answer.error == nbd_wire.EIO, f"a FLUSH that failed was answered {answer.error}")
        rig.meddle()
        guest.flush()
        guest.read_all()


@case()
def cache_flushed_first(context):
    """a FLUSH is not answered while the store is away, reads of what is cached are"""
    del context
    with Asked(cache=BACK, lanes=2) as (rig, guest):
        guest.write(0, 65536)
        rig.meddle("away ops=write,flush")
        guest.read(0, 65536)
        guest.write(65536, 65536)
        other = Guest(rig)
        other.wire.start(nbd_wire.FLUSH)
        done = threading.Event()

        def wait():
            other.wire.collect()
            done.set()
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        check(not done.wait(0.5), "a FLUSH was answered though nothing has reached the store")
        guest.read(0, 131072)
        rig.meddle()
        check(done.wait(30), "the FLUSH is never answered")
        other.close()


# --- limits and settings -------------------------------------------------------------------------


@case()
def cache_limit(context):
    """what it uses never exceeds its size, whatever happens"""
    size, most = 4 * MIB, 0
    with LoggedScene(context, cache=BACK, load=("--longest", "1M")) as scene:
        for rules in ("", "delay=2000 jitter=5000", "away", "fail=EIO ops=write every=2", ""):
            scene.allowed = ("EIO",)
            scene.rig.meddle(rules)
            for _ in range(context.short(60, 8)):
                said = scene.rig.counters("cache0")
                most = max(most, said["used"])
                check(said["used"] <= size, f"{said['used']} of {size} bytes are used")
                scene.stay(0.03)
        scene.recover(60)
        scene.rig.wait_successor("cache0", scene.rig.kill("cache0"))
        scene.recover(60)
        check(scene.rig.counters("cache0")["used"] <= size, "more after it was started anew")
    context.numbers["used_max"] = most
    check(most > size // 2, "it was never full")


@case()
def cache_mode(context):
    """the mode is switched all the time under load, and the cache killed in between"""
    modes = ("writethrough", "writeback", "writearound")
    with LoggedScene(context, cache=BACK) as scene:
        for i in range(context.short(200, 9)):
            scene.rig.ctl("cache", "mode", "cache0", modes[i % 3])
            scene.stay(context.random.random() * 0.1)
            if i % 4 == 3:
                scene.rig.wait_successor("cache0", scene.rig.kill("cache0"))
                scene.recover()
        context.numbers["switches"] = i + 1


@case()
def cache_told(context):
    """resized, told to drop, to flush, to change its policy under load"""
    asks = (("resize", "32M"), ("resize", "4M"), ("drop",), ("flush",), ("policy", "lru"),
            ("policy", "s3fifo"), ("policy", "clock2q"))
    with LoggedScene(context, cache=BACK) as scene:
        for i in range(context.short(200, 10)):
            verb, *rest = asks[i % len(asks)] if context.ci else context.random.choice(asks)
            scene.rig.ctl("cache", verb, "cache0", *rest)
            scene.stay(context.random.random() * 0.1)
        scene.recover()


def plugged(scene, context, *verb):
    """The cache is killed in the middle every other time; then it is said again."""
    killer = threading.Thread(target=kill_soon, args=(scene.rig, context.random.random() * 0.3))
    killed = context.random.random() < 0.5
    if killed:
        killer.start()
    done = scene.rig.ctl(*verb, seconds=120, exits=None if killed else (0,))
    if killed:
        killer.join()
    if done.returncode:
        context.numbers["said_again"] = context.numbers.get("said_again", 0) + 1
        until(30, lambda: scene.rig.ctl(*verb, seconds=60, exits=None).returncode == 0,
              f"'{' '.join(verb)}' ends well: {done.stderr.decode()[-300:]}", pause=0.2)
    scene.stamp.goes_on(60)


def kill_soon(rig, seconds):
    time.sleep(seconds)
    pid = rig.pids().get("cache0")
    if pid and alive(pid):
        os.kill(pid, 9)


@case()
def cache_plug(context):
    """plugged in and out again and again under load, with a slow store, and killed meanwhile"""
    rounds = context.short(200, 10)
    with CacheScene(context, cache=BACK, plugged=False, load=("--connections", "8")) as scene:
        for i in range(rounds):
            if i % 3 == 1:
                scene.rig.meddle("delay=1000 jitter=20000")
            plugged(scene, context, "plug", "cached", "--at", "vol0:store", "--name", "cache0",
                    *(f"{key}={value}" for key, value in BACK.items()))
            scene.stay(context.random.random() * 0.2)
            plugged(scene, context, "unplug", "cache0")
            scene.rig.meddle()
        scene.recover(60)
    context.numbers["rounds"] = rounds
