# SPDX-License-Identifier: Apache-2.0
"""A cache that is killed, whose store fails, whose host dies, that is told to do otherwise."""

import os
import shutil
import signal
import threading
import time
import types

from cache_log import Story, judge_log, judge_map, read_log, read_map
from cache_rig import CacheRig, CacheScene, nbd_wire
from case import table
from cases_kill import arm, crash_points, strike
from rig import Failed, Stamp, alive, check, until

CASES, case = table()

BACK = {"mode": "writeback", "size": "4M", "epoch": "50ms", "age": "300ms"}
JOURNAL = {**BACK, "ack": "journal", "with_journal": True}
VOLATILE = {**BACK, "ack": "volatile"}
KINDS = {"blocker": BACK, "journal": JOURNAL}


def kinds(context):
    """With and without a journal; the short form takes one of them."""
    return [context.random.choice(sorted(KINDS))] if context.ci else sorted(KINDS)


class LoggedScene(CacheScene):
    """The store below is judged, too: the record of it, cut at every point."""

    def __init__(self, context, cache=None, kind="blocker", **options):
        super().__init__(context, cache=cache or KINDS[kind], **options)
        self.durable = self.options["cache"].get("ack", "blocker") == "blocker"

    def finish(self):
        super().finish()
        wrong, cuts = judge_log(Story(self.story_path), read_log(self.rig.log_path), self.durable)
        self.context.numbers["cuts"] = self.context.numbers.get("cuts", 0) + cuts
        check(not wrong, "\n".join(wrong))


# --- killed --------------------------------------------------------------------------------------


def kill_in_turn(context, peers, rounds):
    for kind in kinds(context):
        with LoggedScene(context, kind=kind) as scene:
            for _ in range(rounds):
                for group in peers:
                    scene.kill(*group)
                    scene.recover()


@case()
def cache_kill(context):
    """SIGKILL of the cache, the peers above and below it"""
    kill_in_turn(context, [("cache0",), ("file0",), ("nbd0",), ("vol0",), ("cache0",)],
                 1 if context.ci else 10)


@case()
def cache_kill_two(context):
    """SIGKILL of the cache and another one at once"""
    kill_in_turn(context, [("cache0", "file0"), ("cache0", "nbd0"), ("vol0", "cache0"),
                           ("cache0", "meddle0", "record0", "file0")], 1 if context.ci else 10)


@case()
def cache_kill_keeper(context):
    """SIGKILL of xsegd, and of the cache while there is none"""
    for kind in kinds(context):
        with LoggedScene(context, kind=kind) as scene:
            for _ in range(1 if context.ci else 5):
                old = scene.rig.pid("cache0")
                keeper = scene.rig.keeper()
                os.kill(keeper, signal.SIGKILL)
                until(5, lambda pid=keeper: not alive(pid), "the keeper is gone")
                os.kill(old, signal.SIGKILL)
                scene.rig.revive_keeper()
                scene.rig.wait_successor("cache0", old)
                scene.recover()


@case(ci=True)
def cache_kill_random(context):
    """SIGKILL of the cache at random instants, now and then of another one, too"""
    done = 0
    for kind in kinds(context):
        with LoggedScene(context, kind=kind, conserve=True) as scene:
            if "meddle0" in scene.rig.chain:
                scene.rig.meddle("delay=100 jitter=2000")
            while done < context.kills // len(kinds(context)):
                group = {"cache0"}
                if context.random.random() < 0.2:
                    group.add(context.random.choice(scene.rig.chain))
                scene.kill(*sorted(group))
                done += len(group)
                if context.random.random() < 0.5:
                    scene.stamp.goes_on(count=20)
                time.sleep(context.random.random() ** 3 * 0.2)
            scene.recover()
    context.numbers["kills"] = done


@case()
def cache_kill_full(context):
    """SIGKILL of the cache when nearly all of it is dirty and the store is away"""
    for kind in kinds(context):
        with LoggedScene(context, kind=kind) as scene:
            for _ in range(1 if context.ci else 20):
                scene.rig.meddle("away")
                scene.stay(0.3)
                old = scene.rig.kill("cache0")
                scene.rig.wait_successor("cache0", old)
                scene.stay(0.2)
                scene.rig.meddle()
                scene.recover()


class Stirrer(threading.Thread):
    """What the checked load never does, on a volume beside it: trims and zeroes, another mode."""

    def __init__(self, rig):
        super().__init__(daemon=True)
        rig.ctl("volume", "create", "stirred", "--size", "8M", "--object-size", "256K")
        self.wire, self.enough, self.wrong = rig.connect("stirred"), threading.Event(), None
        self.start()

    def run(self):
        try:
            while not self.enough.is_set():
                for at in range(0, 8 << 20, 1 << 20):
                    self.wire.write(at, bytes(65536), nbd_wire.FUA)
                    self.wire.ok(nbd_wire.WRITE_ZEROES, at, 300 << 10)
                    self.wire.ok(nbd_wire.TRIM, at, 1 << 20)
        except Exception as e:  # pylint: disable=broad-except
            self.wrong = e

    def stop(self):
        self.enough.set()
        self.join(60)
        check(not self.is_alive() and not self.wrong, f"beside the load: {self.wrong}")
        self.wire.close()


def strike_all(context, plan, met, cache):
    """The load is written through when the cache's mode says so."""
    with LoggedScene(context, cache=cache) as scene:
        stirrer = Stirrer(scene.rig)
        for point, hit in plan:
            try:
                if strike(scene, "cache0", f"{point}:{hit}"):
                    met.add(point)
            except Failed as e:
                raise Failed(f"at {point}:{hit}: {e}") from None
        stirrer.stop()


@case(ci=True)
def cache_points(context):
    """every crash point of the cache: first and second hit"""
    points = [p for p in crash_points() if p.startswith("cache")]
    check(points, "the cache has no crash points")
    plan = [(point, hit) for point in points for hit in (1, 2)]
    context.random.shuffle(plan)
    plan = plan[:10] if context.ci else plan
    met = set()
    for kind in kinds(context):
        strike_all(context, plan, met, KINDS[kind])
    if not context.ci:
        rest = [(point, hit) for point, hit in plan if point not in met]
        strike_all(context, rest, met, {**BACK, "mode": "writethrough"})
    context.met |= met
    context.numbers.update(points=len(points), tried=len(plan), met=len(met),
                           never_met=sorted(set(points) - met))
    check(met, "no point was met at all")


# --- the host dies -------------------------------------------------------------------------------


def crash_host(scene, seconds):
    """The load runs a while, then everything is gone but the files. The story of it."""
    scene.stamp.goes_on(count=300)
    scene.stay(seconds)
    scene.rig.host_crash()
    scene.stamp = None
    return Story(scene.story_path)


def found_after(rig, name="map"):
    rig.up_again()
    rig.wait_healthy()
    return read_map(rig.read_all(name))


def tell(wrong):
    return "\n".join(wrong[:8]) + f"\n({len(wrong)} in all)"


@case()
def cache_host_crash(context):
    """the host dies: what was flushed is there, the rest is a prefix of epochs"""
    context.numbers["flushes"] = 0
    for kind in sorted(KINDS):
        for _ in range(context.short(30, 1)):
            with CacheScene(context, cache=KINDS[kind]) as scene:
                if kind == "journal" and context.random.random() < 0.7:
                    scene.rig.meddle("delay=2000 jitter=20000")
                story = crash_host(scene, context.random.random() * 0.7)
                wrong = judge_map(story, found_after(scene.rig))
                check(not wrong, f"ack={kind}: {tell(wrong)}")
                context.numbers["flushes"] += len(story.ended)
    check(context.numbers["flushes"] > 0, "nothing was flushed at all")


@case()
def cache_host_crash_volatile(context):
    """the same where a FLUSH is answered at once: only the order counts, and it is kept"""
    lost = 0
    for _ in range(context.short(30, 2)):
        with CacheScene(context, cache=VOLATILE) as scene:
            scene.rig.meddle("delay=2000 jitter=20000")
            story = crash_host(scene, 0.2 + context.random.random() * 0.5)
            found = found_after(scene.rig)
            wrong = judge_map(story, found, durable=False)
            check(not wrong, tell(wrong))
            lost += len(judge_map(story, found)) > 0
    context.numbers["lost_something"] = lost
    check(lost, "not even what was never written back is lost: this tests nothing")


def used_size(path):
    """Up to the last byte that is not zero, in whole sectors."""
    with open(path, "rb") as f:
        return (len(f.read().rstrip(b"\0")) + 511) // 512 * 512


def story_in_journal(context, rig):
    """Some writes, FLUSHes and FUA writes, all of them in the journal and none in the store."""
    path = os.path.join(rig.dir, "story")
    # a cache that has just begun does not know what its predecessor owed the store
    wire = rig.connect()
    wire.ok(nbd_wire.FLUSH)
    wire.close()
    rig.meddle("away ops=write,flush")
    stamp = Stamp(rig, "--connections", "1", "--depth", "4", "--read-share", "0", "--no-final",
                  "--longest", "16K", "--ops", str(context.short(40, 300)), "--journal", path,
                  "--seed", str(context.random.randrange(1 << 31)))
    rig.stamps.append(stamp)
    check(stamp.process.wait(60) == 0, "the load: " + stamp.tail())
    rig.host_crash()
    os.unlink(rig.rules_path)
    return Story(path)


@case(ci=True)
def cache_journal_cut(context):
    """the host dies, the journal is cut at each 512 bytes of its ring: it starts, on a prefix"""
    with CacheRig(cache={**JOURNAL, "age": "60s", "size": "16M"}) as rig:
        rig.up()
        story = story_in_journal(context, rig)
        store, journal = rig.store + ".saved", rig.journal_path + ".saved"
        shutil.copytree(rig.store, store)
        shutil.copy(rig.journal_path, journal)
        # its first two blocks are written before it gets its name: no death cuts them
        points, states = list(range(8192, used_size(journal) + 1, 512)), set()
        if context.ci:
            points = sorted(context.random.sample(points, 4)) + points[-1:]
        for cut in points:
            shutil.rmtree(rig.store)
            shutil.copytree(store, rig.store)
            shutil.copy(journal, rig.journal_path)
            os.truncate(rig.journal_path, cut)
            found = found_after(rig)
            wrong = judge_map(story, found, durable=cut == points[-1])
            check(not wrong, f"cut at {cut} of {points[-1]}: {tell(wrong)}")
            states.add(hash(found))
            rig.host_crash()
        context.numbers.update(cuts=len(points), states=len(states), flushes=len(story.ended))
        check(len(states) > 1, "no cut made a difference")


@case()
def cache_replay_points(context):
    """the host dies, and the cache while it replays its journal: all that was flushed is there"""
    points = [p for p in crash_points() if p.startswith("cache.replay")]
    check(points, "a replay has no crash points")
    for point, hit in [(point, hit) for point in points for hit in (1, 2)]:
        with CacheRig(cache={**JOURNAL, "age": "60s", "size": "16M"}) as rig:
            rig.up()
            story = story_in_journal(context, rig)
            armed = arm(types.SimpleNamespace(rig=rig), "cache0", f"{point}:{hit}")
            rig.ctl("up", "--unguarded", rig.conf, seconds=60, exits=None)
            rig.wait_healthy()
            check(armed(), "it was not armed")
            context.met.update([] if alive(armed()) else [point])
            wrong = judge_map(story, read_map(rig.read_all()))
            check(not wrong, f"{point}:{hit}: {tell(wrong)}")
    context.numbers["points"] = len(points)


# --- the store is not well -----------------------------------------------------------------------


def faulty(context, rules, seconds, unwell=False, **options):
    """The store does as the rules say for a while; afterwards nothing is lost and nobody waits.
    unwell: the cache says meanwhile that something is wrong."""
    with LoggedScene(context, kind=kinds(context)[0], **options) as scene:
        scene.stamp.goes_on()
        scene.rig.meddle(rules)
        begin = scene.stamp.answered()
        scene.stay(seconds)
        if unwell and "cache0" in scene.rig.chain:
            until(20, lambda: not scene.rig.healthy(), "the status says that the store fails")
        during = scene.stamp.answered() - begin
        said = scene.rig.counters("cache0") if "cache0" in scene.rig.chain else {}
        scene.rig.meddle()
        scene.recover(60)
        context.numbers.setdefault("during", []).append(during)
        return said


@case()
def cache_store_slow(context):
    """each request to the store takes 5 to 25 ms"""
    faulty(context, "delay=5000 jitter=20000", context.short(30, 2))


@case()
def cache_store_away(context):
    """the store answers nothing for 30 s: requests wait, then go on"""
    faulty(context, "away", context.short(30, 2))


@case()
def cache_store_fails(context):
    """the store fails: data is kept and tried again, FLUSH and reads say so, it recovers"""
    failures = ("fail=EIO ops=write every=3", "fail=EIO ops=flush", "fail=EIO ops=write")
    for rules in (context.random.choice(failures),) if context.ci else failures:
        said = faulty(context, rules, context.short(20, 1), "every" not in rules, allowed=("EIO",))
        check(said.get("retried", 1) > 0, "nothing was tried again")


@case()
def cache_store_full(context):
    """the store has no space for a while"""
    faulty(context, "full", context.short(20, 1), allowed=("ENOSPC", "EIO"))


@case()
def cache_store_worse(context):
    """all of that, one after the other, with SIGKILLs of the cache in between"""
    rules = ("fail=EIO every=2", "delay=3000 jitter=30000", "away", "full", "",
             "fail=EIO ops=flush", "away ops=flush", "fail=ENOSPC ops=write first=0 last=65536")
    for kind in kinds(context):
        with LoggedScene(context, kind=kind, allowed=("EIO", "ENOSPC")) as scene:
            for _ in range(context.short(60, 4)):
                scene.rig.meddle(context.random.choice(rules))
                scene.stay(context.random.random() * 0.5)
                if context.random.random() < 0.5:
                    scene.rig.wait_successor("cache0", scene.rig.kill("cache0"))
            scene.rig.meddle()
            scene.recover(60)


# --- what the checks are worth -------------------------------------------------------------------


def logged_lie(context, rules, found):
    """A store that is lied to: until `found`(what its record says, what the guest's checker says).

    On a busy machine a round may have so few lies that all were overwritten before anybody could
    have seen them.
    """
    for _ in range(4):
        with CacheScene(context, cache=BACK, conserve=False) as scene:
            scene.rig.meddle(rules)
            scene.stay(1.5)
            stamp, scene.stamp = scene.stamp, None
            result = stamp.finish()
            wrong, _ = judge_log(Story(scene.story_path), read_log(scene.rig.log_path))
            check(scene.rig.counters("meddle0").get("lies"), "nobody lied")
        if found(wrong, result):
            return
    check(False, f"not found: {wrong}, {result}")


@case()
def cache_lie_flush(context):
    """negative control: a FLUSH that does not reach the store is found in the record"""
    logged_lie(context, "lie=flush",
               lambda wrong, _: any(w.startswith("flushed") for w in wrong))


@case()
def cache_lie_reorder(context):
    """negative control: a write that comes to the store after later epochs is found"""
    # one that is late by a FLUSH is missing in what was flushed, too
    logged_lie(context, "lie=reorder every=7",
               lambda wrong, _: any(w.startswith(("prefix", "older", "flushed")) for w in wrong))


@case()
def cache_lie_lose(context):
    """negative control: a write that the store forgets is found, in the record and by the guest"""
    logged_lie(context, "lie=lose every=9",
               lambda wrong, result: wrong and (result["old"] or result["lost"]))


def forget_dirty(rig):
    """No page that the cache keeps is dirty any more; how many were."""
    spot = [t for t in rig.json("segment", "dump")["tables"] if t["table"] == "page descriptors"][0]
    dirty = 0
    with open(os.path.join(rig.shm, "xseg." + rig.name), "r+b") as f:
        for i in range(spot["count"]):
            f.seek(spot["offset"] + i * spot["item_size"] + 9)
            if f.read(1) != b"\0":
                dirty += 1
                f.seek(-1, os.SEEK_CUR)
                f.write(b"\0")
    return dirty


@case()
def cache_lie_dirty(context):
    """negative control: dirty marks that a kill loses are missed by the guest in the end"""
    with CacheScene(context, cache=BACK, conserve=False) as scene:
        scene.rig.meddle("away ops=write,flush")
        scene.stay(0.3)
        scene.rig.set_plan("cache0", f'while [ -e "{scene.rig.dir}/hold" ]; do sleep 0.02; done\n')
        with open(scene.rig.dir + "/hold", "wb"):
            pass
        pid = scene.rig.kill("cache0")
        until(5, lambda: not alive(pid), "it is dead")
        dirty = forget_dirty(scene.rig)
        check(dirty, "nothing was dirty")
        os.unlink(scene.rig.dir + "/hold")
        scene.rig.set_plan("cache0", None)
        scene.rig.meddle()
        scene.stay(1)
        stamp, scene.stamp = scene.stamp, None
        result = stamp.finish()
        check(result["old"] or result["lost"],
              f"{dirty} pages were forgotten and nobody has missed them")


