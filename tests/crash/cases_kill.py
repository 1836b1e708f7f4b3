# SPDX-License-Identifier: Apache-2.0
"""Processes that are killed: each, two at once, at crash points, at random, while recovering."""

import os
import signal
import subprocess
import time

from case import Scene, table
from rig import PEERS, Failed, Unfit, alive, check, find_build, until

CASES, case = table()


def kill_each(scene, rounds):
    for _ in range(rounds):
        for peer in PEERS:
            old = scene.rig.kill(peer)
            scene.rig.wait_successor(peer, old)
            scene.recover()


@case(ci=True)
def kill_peers(context):
    """SIGKILL of each peer, each a process of its own"""
    with Scene(context, "split") as scene:
        kill_each(scene, 1 if context.ci else 10)


@case()
def kill_pair(context):
    """SIGKILL where front and volume share a process"""
    with Scene(context, "pair") as scene:
        kill_each(scene, 5)


@case()
def kill_below(context):
    """SIGKILL where volume and store share a process"""
    with Scene(context, "below") as scene:
        kill_each(scene, 5)


@case(ci=True)
def kill_stacked(context):
    """SIGKILL of a process with all peers in it"""
    with Scene(context, "stacked") as scene:
        kill_each(scene, 1 if context.ci else 7)


@case(ci=True)
def kill_two(context):
    """SIGKILL of two peers at once, and of all"""
    pairs = [("nbd0", "vol0"), ("vol0", "file0"), ("vol0", "map0"), ("nbd0", "file0"), PEERS]
    with Scene(context) as scene:
        for _ in range(1 if context.ci else 5):
            for group in pairs[-2:] if context.ci else pairs:
                pids = scene.rig.pids()
                for peer in group:
                    os.kill(pids[peer], signal.SIGKILL)
                for peer in group:
                    scene.rig.wait_successor(peer, pids[peer])
                scene.recover()


@case(ci=True)
def kill_keeper(context):
    """SIGKILL of xsegd: peers go on; its successor finds all, also what died meanwhile"""
    with Scene(context) as scene:
        for peer in (None, "vol0", "map0") if context.ci else (None, *PEERS) * 3:
            before = scene.rig.pids()
            keeper = scene.rig.keeper()
            os.kill(keeper, signal.SIGKILL)
            until(5, lambda pid=keeper: not alive(pid), "the keeper is gone")
            scene.stamp.goes_on(what="the load goes on without a keeper")
            if peer:
                os.kill(before[peer], signal.SIGKILL)
                time.sleep(0.1)
            scene.rig.revive_keeper()
            scene.recover()
            after = scene.rig.pids()
            changed = [p for p in PEERS if before[p] != after.get(p)]
            check(changed == ([peer] if peer else []), f"replaced were {changed}")


def spawn_ctl(rig, *args):
    return subprocess.Popen([os.path.join(rig.build, "xsegctl"), "-s", rig.name, *args],
                            env=rig.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


@case(ci=True)
def kill_ctl(context):
    """SIGKILL of xsegctl in the middle of commands that join the segment"""
    with Scene(context) as scene:
        image = os.path.join(scene.rig.dir, "image")
        with open(image, "wb") as f:
            f.write(os.urandom(4 << 20))
        for i in range(context.short(60, 8)):
            command = context.random.choice((
                ("volume", "create", f"v{i}", "--size", "8M"),
                ("volume", "import", image, f"v{i}", "--progress=none"),
                ("volume", "list"), ("stats",), ("segment", "dump")))
            process = spawn_ctl(scene.rig, *command)
            time.sleep(context.random.random() * 0.06)
            process.kill()
            process.wait()
        scene.stamp.goes_on()
        for volume in scene.rig.json("volume", "list")["volumes"]:
            if volume["name"] != "disk":
                # an import goes on for a moment when its command is gone: until then it is busy
                until(60, lambda name=volume["name"]: scene.rig.ctl(
                    "volume", "rm", name, "--yes", exits=(0, 3, 5)).returncode != 5,
                      f"volume {volume['name']} can be removed", 0.1)
        scene.recover()


@case(ci=True)
def kill_random(context):
    """SIGKILL of random peers at random instants"""
    done = 0
    with Scene(context) as scene:
        pids = scene.rig.pids()
        while done < context.kills:
            peer = context.random.choice(PEERS)
            if context.random.random() < 0.1 and done + 1 < context.kills:
                other = context.random.choice(PEERS)
                if pids.get(other):
                    os.kill(pids[other], signal.SIGKILL)
                    done += other != peer
            if alive(pids[peer]):
                os.kill(pids[peer], signal.SIGKILL)
            done += 1
            pids[peer] = scene.rig.wait_successor(peer, pids[peer])
            # sometimes at once, sometimes when all goes well again
            if context.random.random() < 0.5:
                scene.stamp.goes_on(count=20)
            time.sleep(context.random.random() ** 3 * 0.1)
            pids = {**pids, **scene.rig.pids()}
        scene.recover()
        context.numbers["kills"] = done


@case(ci=True)
def kill_recovery(context):
    """SIGKILL of the successor while it recovers, of the keeper while it reaps"""
    with Scene(context) as scene:
        rounds = context.short(100, 6)
        for i in range(rounds):
            peer = PEERS[i % len(PEERS)]
            old = scene.rig.kill(peer)
            successor = scene.rig.wait_successor(peer, old)
            time.sleep(context.random.random() * 0.02)
            if alive(successor):
                os.kill(successor, signal.SIGKILL)
            if i % 4 == 3:
                keeper = scene.rig.keeper()
                if keeper:
                    time.sleep(context.random.random() * 0.01)
                    os.kill(keeper, signal.SIGKILL)
                    until(5, lambda pid=keeper: not alive(pid), "the keeper is gone")
                scene.rig.revive_keeper()
            scene.recover()
        context.numbers["kills"] = 2 * rounds


# --- crash points --------------------------------------------------------------------------------


def crash_points(program="xsegpeer"):
    done = subprocess.run([os.path.join(find_build(), program), "--crash-points"],
                          capture_output=True, check=False, stdin=subprocess.DEVNULL,
                          env=dict(os.environ, SKERRY_MODULE_DIR=find_build() + "/.libs"))
    names = done.stdout.decode().split()
    if not names:
        raise Unfit("built without crash points (configure --enable-crash-points)")
    return names


def arm(scene, who, point):
    """The next process of that name has it armed, the one after that not; says its pid here."""
    path = os.path.join(scene.rig.plan, who + ".sh")
    note = os.path.join(scene.rig.plan, who + ".pid")
    if os.path.exists(note):
        os.unlink(note)
    scene.rig.set_plan(who, f'rm -f "{path}"\necho $$ >"{note}.new"\nmv "{note}.new" "{note}"\n'
                            f'export SKERRY_CRASH={point}\n')

    def armed():
        if not os.path.exists(note):
            return 0
        with open(note, encoding="ascii") as f:
            return int(f.read())
    return armed


def strike(scene, peer, point, seconds=0.4):
    """Restarts `peer` armed; was the point met? Then all is well again."""
    armed = arm(scene, peer, point)
    scene.rig.kill(peer)
    pid = until(20, armed, f"'{peer}' is started again")
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    met = not alive(pid)
    scene.rig.set_plan(peer, None)
    scene.recover()
    return met


# where a point can be met; others in any peer (tests/scenario/vhost.sh, files.sh)
ROOMS = {"front_nbd": ("nbd0",), "front_vhost": (), "front_fuse": (), "front_region": (),
         "volume": ("vol0",), "mapper": ("map0",), "blocker_file": ("file0",)}
ADMIN = """
for i in 1 2 3; do
    "$0" -s "$1" volume import "$2" x --progress=none --timeout 3s
    "$0" -s "$1" volume rm x --yes --timeout 3s
done
"""


def strike_admin(scene, peer, point):
    """The same while volumes come and go."""
    ctl, image = os.path.join(scene.rig.build, "xsegctl"), os.path.join(scene.rig.dir, "image")
    with open(image, "wb") as f:
        f.write(os.urandom(1 << 20))
    with subprocess.Popen(["sh", "-c", ADMIN, ctl, scene.rig.name, image], env=scene.rig.env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as admin:
        met = strike(scene, peer, point, seconds=1)
        admin.wait(60)
    scene.rig.ctl("volume", "rm", "x", "--yes", exits=None)
    listed = [v["name"] for v in scene.rig.json("volume", "list")["volumes"]]
    check(listed == ["disk"], f"there are volumes {listed}")
    return met


def strike_at(scene, point, peer, hit, met):
    try:
        admin = point.startswith(("volume.", "mapper.", "blocker_file.object",
                                  "blocker_file.record", "blocker_file.fence"))
        if (strike_admin if admin else strike)(scene, peer, f"{point}:{hit}"):
            met.add(point)
    except Failed as e:
        raise Failed(f"at {point}:{hit} in '{peer}': {e}") from None


@case(ci=True)
def crash_points_all(context):
    """every compiled-in crash point: first, second and tenth hit, in each peer that has it"""
    points = crash_points()
    plan = [(p, peer, hit) for p in points for hit in (1, 2, 10)
            for peer in ROOMS.get(p.split(".")[0], PEERS)]
    context.random.shuffle(plan)
    if context.ci:  # of those that all requests pass; the rest is for `make crash`
        plan = [p for p in plan if p[0].startswith("xseg.") and p[2] < 10][:10]
    met = set()
    with Scene(context) as scene:
        for point, peer, hit in plan:
            strike_at(scene, point, peer, hit, met)
    context.met |= met
    context.numbers.update(points=len(points), tried=len(plan), met=len(met))
    check(met, "no point was met at all")
    if not context.ci:
        context.numbers["never_met"] = sorted(set(points) - met)


@case()
def crash_points_keeper(context):
    """xsegd dies at crash points of what it calls: reap most of all"""
    points = [p for p in crash_points("xsegd") if p.split(".")[0] in ("reap", "keeper")]
    met = 0
    with Scene(context) as scene:
        for point in points:
            keeper = scene.rig.keeper()
            armed = arm(scene, "xsegd", point)
            os.kill(keeper, signal.SIGKILL)
            until(5, lambda pid=keeper: not alive(pid), "the keeper is gone")
            scene.rig.ctl("up", "--unguarded", scene.rig.conf, exits=None)
            peer = context.random.choice(PEERS)
            if scene.rig.pids().get(peer):
                scene.rig.kill(peer)
            time.sleep(0.2)
            died = not alive(until(20, armed, "the keeper is started"))
            met += died
            context.met.update([point] if died else [])
            scene.rig.set_plan("xsegd", None)
            scene.rig.revive_keeper()
            scene.recover()
    context.numbers.update(points=len(points), met=met)


def other_ends(context, action):
    crash_points()
    points = ("xseg.accept.taken", "xseg.respond.before_word", "xseg.submit.before_word",
              "xseg.receive.before_word", "xseg.forward.filled", "xseg.put.before_word")
    with Scene(context) as scene:
        met = 0
        for peer in PEERS:
            for _ in range(context.short(10, 1)):
                point = f"{context.random.choice(points)}:2:{action}"
                met += strike(scene, peer, point, seconds=1)
    context.numbers["met"] = met


@case(ci=True)
def end_overflow(context):
    """a stack overflows in a peer"""
    other_ends(context, "overflow")


@case()
def end_abort(context):
    """a peer aborts (a must() that fails)"""
    other_ends(context, "abort")


@case()
def end_exit(context):
    """a peer exits with status 3 in the middle of its work"""
    other_ends(context, "exit")


# --- a proven checker beside ours ----------------------------------------------------------------


@case()
def kill_under_fio(context):
    """fio --verify while the volume and the store are killed"""
    help_text = subprocess.run(["fio", "--enghelp=nbd"], capture_output=True, check=False)
    if help_text.returncode:
        raise Unfit("fio has no nbd engine")
    with Scene(context, load=("--hot", "4K"), size="32M") as scene:
        scene.rig.ctl("volume", "create", "fio", "--size", "32M")
        uri = scene.rig.uri.replace("/disk?", "/fio?")
        with subprocess.Popen(
                ["fio", "--name=v", "--ioengine=nbd", f"--uri={uri}", "--verify=crc32c",
                 "--verify_fatal=1", "--rw=randwrite", "--bs=4k", "--iodepth=16", "--size=32M",
                 "--io_size=96M", "--rate=12M", "--output=" + scene.rig.dir + "/fio.out"],
                cwd=scene.rig.dir, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL) as fio:
            kills = 0
            while fio.poll() is None:
                peer = context.random.choice(("vol0", "file0"))
                scene.rig.wait_successor(peer, scene.rig.kill(peer))
                kills += 1
                time.sleep(context.random.random() * 0.5)
                check(kills < 1000, "fio does not end")
        with open(scene.rig.dir + "/fio.out", encoding="utf-8", errors="replace") as f:
            check(fio.returncode == 0, "fio: " + f.read()[-1500:])
        context.numbers["kills"] = kills
        scene.rig.ctl("volume", "rm", "fio", "--yes", exits=None)
        scene.recover()
