# SPDX-License-Identifier: Apache-2.0
"""Volumes are made, kept, cloned, cut and removed while everybody dies, at every crash point."""

import os
import signal
import threading
import time

from cache_rig import CacheScene, nbd_wire
from case import table
from cases_kill import arm, crash_points
from rig import Failed, alive, check, until
from volume_life import LifeRig, World, end, live

CASES, case = table()
PEERS = ("nbd0", "vol0", "map0", "cache0", "file0")
# a machine's disk has a driver of its own: tests/scenario/vhost.sh
ROOMS = {"front_nbd": ("nbd0",), "front_vhost": (), "front_fuse": (), "front_region": (),
         "volume": ("vol0",), "mapper": ("map0",),
         "cache": ("cache0",), "cache_journal": ("cache0",), "blocker_file": ("file0",),
         "mover": ("mover0",), "xseg": PEERS, "core": PEERS, "reap": ("xsegd",),
         "keeper": ("xsegd",)}
# between a pin that is noted as gone and its going: what docs/decisions/0005 leaves open
LEAVE_A_PIN = ("xseg.put.before_unpin", "reap.answer.before_unpin")


BACK = {"mode": "writeback", "size": "8M"}
JOURNAL = {**BACK, "ack": "journal", "with_journal": True}


class LifeScene(CacheScene):
    """A rig of volumes with checked load on one of them."""

    def __init__(self, context, **options):
        super().__init__(context, journal=False, **options)

    def __enter__(self):
        self.rig = LifeRig(**self.options)
        try:
            self.rig.up()
            self.stamp = self.begin("--connections", "1", *self.load_args)
        except BaseException:
            self.rig.close()
            raise
        return self

    def finish(self):
        """Who is armed still may die now; so may the keeper, of that."""
        with Nurse(self.rig):
            super().finish()


class Nurse:
    """Starts the keeper anew whenever it is dead, as systemd would."""

    def __init__(self, rig):
        self.rig, self.over, self.error = rig, threading.Event(), None
        self.thread = threading.Thread(target=self.work, daemon=True)

    def work(self):
        while not self.over.wait(0.05):
            try:
                self.rig.revive_keeper()
            except Failed as e:
                self.error = self.error or e

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


# --- killed at random ----------------------------------------------------------------------------


@case(ci=True)
def volume_kill(context):
    """SIGKILL of random peers before random steps of a life of volumes"""
    kills = []
    with LifeScene(context) as scene:
        def turn(step):
            del step
            if context.random.random() < 0.08:
                peer = context.random.choice(PEERS)
                pid = scene.rig.pids().get(peer)
                if pid:
                    os.kill(pid, signal.SIGKILL)
                    kills.append(peer)
        for _ in range(context.short(30, 1)):
            live(World(scene.rig, context.random, turn))
            scene.recover()
    context.numbers["kills"] = len(kills)


MOVE_PEERS = (*PEERS, "mover0", "mover0", "new0")


@case(ci=True)
def volume_move_kill(context):
    """SIGKILL of random peers while volumes move between two stores, over and over"""
    kills = []
    with LifeScene(context, mover=True) as scene:
        def turn(step):
            del step
            if context.random.random() < 0.08:
                peer = context.random.choice(MOVE_PEERS)
                pid = scene.rig.pids().get(peer)
                if pid:
                    os.kill(pid, signal.SIGKILL)
                    kills.append(peer)
        for _ in range(context.short(30, 1)):
            live(World(scene.rig, context.random, turn))
            scene.recover()
    context.numbers["kills"] = len(kills)


class Dying(LifeRig):
    """Its host dies in the middle of things; the store's files stay."""

    def die_in(self, seconds):
        timer = threading.Timer(seconds, self.die)
        timer.start()
        return timer

    def die(self):
        self.dead = self.refuses = True  # until it is up again, and the leases of the dead are over
        self.host_crash()

    def up_again(self):
        self.dead = False
        super().up_again()


def host_dies(context, lives, **options):
    died = []
    with Dying(**options) as rig:
        rig.up()
        for _ in range(lives):
            world = World(rig, context.random)
            timer = rig.die_in(context.random.random() * 2.5)
            try:
                live(world)
            except (Failed, OSError, KeyError, ValueError, nbd_wire.Broken, nbd_wire.Closed):
                if not rig.dead:
                    timer.cancel()
                    raise
            timer.join()
            world.close()
            died.append(world.doing[0])
            rig.up_again()
            try:
                world.settle()
                world.fsck()
                world.gc()
                end(world)
            except Failed as e:
                raise Failed(f"the host died at {world.died}: {e}") from None
    context.numbers.update(deaths=len(died), at={what: died.count(what) for what in set(died)})


@case(ci=True)
def volume_host(context):
    """the host dies in the middle of a life of volumes: what was done is done, or is not"""
    host_dies(context, context.short(60, 2))


@case(ci=True)
def volume_move_host(context):
    """the same while volumes move between two stores"""
    host_dies(context, context.short(60, 1), mover=True)


# --- crash points --------------------------------------------------------------------------------


def plans(context, points, hits):
    """Lives in which each peer has at most one point that it is to die at; each point in each
    peer that can meet it at each of these hits."""
    queues = {}
    for point in points:
        for peer in ROOMS.get(point.split(".")[0], ()):
            queues.setdefault(peer, []).extend((point, hit) for hit in hits)
    for queue in queues.values():
        context.random.shuffle(queue)
    while any(queues.values()):
        yield {peer: queue.pop() for peer, queue in queues.items() if queue}


class Armed:
    """Before a step of its own choice each process gets a successor that dies at its point. Now and
    then the cache is told to do otherwise with writes."""

    def __init__(self, scene, context, plan):
        self.scene, self.plan, self.armed = scene, plan, {}
        self.modes = {context.random.randrange(80): mode
                      for mode in ("writethrough", "writearound", "writeback")}
        # what only happens in some step is armed before them all
        self.when = {peer: 0 if point.startswith(("mapper.", "volume.", "mover."))
                     else context.random.randrange(60) for peer, (point, _) in plan.items()}

    def turn(self, step):
        for peer, when in self.when.items():
            if when == step:
                self.strike(peer, "%s:%d" % self.plan[peer])
        if step in self.modes:  # who is killed at it may or may not have done it
            self.scene.rig.ctl("cache", "mode", "cache0", self.modes[step], exits=None)

    def strike(self, peer, point):
        self.armed[peer] = arm(self.scene, peer, point)
        pid = self.scene.rig.keeper() if peer == "xsegd" else self.scene.rig.pids().get(peer)
        if pid:
            os.kill(pid, signal.SIGKILL)

    def met(self):
        """The points that somebody died at."""
        found = set()
        for peer, armed in self.armed.items():
            pid = until(30, armed, f"'{peer}' is started again")
            if not alive(pid):
                found.add(self.plan[peer][0])
            self.scene.rig.set_plan(peer, None)
        return found


def strike_lives(context, scene, every):
    met, lives = set(), 0
    for plan in every:
        armed = Armed(scene, context, plan)
        scene.left_pins += sum(point in LEAVE_A_PIN for point, _ in plan.values())
        world = World(scene.rig, context.random, armed.turn)
        try:
            with Nurse(scene.rig):
                live(world)
                scene.recover()
                met |= armed.met()
        except Failed as e:
            raise Failed(f"with {plan}, {world.said()}: {e}") from None
        lives += 1
    return met, lives


def strike_kind(context, kind, every):
    with LifeScene(context, cache=dict(kind), mover=True) as scene:
        return strike_lives(context, scene, every)


@case(ci=True)
def volume_points(context):
    """every crash point of every program, in a life of volumes: first, second and later hits"""
    points = sorted(set(crash_points()) | set(crash_points("xsegd")))
    every = list(plans(context, points, (1,) if context.ci else (1, 2, 7)))
    kind = JOURNAL if context.random.random() < 0.5 else BACK
    if context.ci:
        every = context.random.sample(every, 4)
    met, lives = strike_kind(context, kind, every)
    tried = {point for plan in every for point, _ in plan.values()}
    if not context.ci:  # what that cache cannot meet the other one may
        rest = list(plans(context, sorted(tried - met), (1, 2)))
        more, count = strike_kind(context, BACK if kind is JOURNAL else JOURNAL, rest)
        met, lives = met | more, lives + count
    context.met |= met
    context.numbers.update(points=len(points), tried=len(tried), lives=lives, met=len(met))
    check(met, "no point was met at all")
    if not context.ci:
        context.numbers["never_met"] = sorted(tried - met)


@case(ci=True)
def points_known(context):
    """each crash point is in a room of which it is known who passes it"""
    points = sorted(set(crash_points()) | set(crash_points("xsegd")))
    strangers = [point for point in points if point.split(".")[0] not in ROOMS]
    context.numbers.update(points=len(points))
    check(not strangers, f"nobody is killed at {strangers}: add the room to ROOMS")
