# SPDX-License-Identifier: Apache-2.0
"""Processes that are stopped, starved or start no more; disks, memory and clocks that fail."""

import os
import resource
import signal
import subprocess
import tempfile
import time

from case import Scene, table
from rig import PEERS, Rig, Unfit, alive, check, until

CASES, case = table()


@case(ci=True)
def stop_peers(context):
    """SIGSTOP of each peer for a while: a pause, no error"""
    with Scene(context) as scene:
        for peer in ("vol0", "map0") if context.ci else PEERS:
            pid = scene.rig.pid(peer)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(context.short(30, 5))
            os.kill(pid, signal.SIGCONT)
            scene.recover()
            check(scene.rig.pid(peer) == pid, f"'{peer}' was replaced, though it only stood still")


def peer_state(scene, peer):
    for p in scene.rig.status()["peers"]:
        if p["name"] == peer:
            return p["state"], p.get("reason") or ""
    return "", ""


def given_up(scene, peer):
    state, reason = peer_state(scene, peer)
    return state in ("given_up", "given-up", "given up", "dead") and "started again" in reason


@case(ci=True)
def exit_for_ever_store(context):
    """a store that exits with an error at once, for ever: given up, EIO, others live on"""
    keep = {"restart-limit": "3", "restart-window": "60s", "restart-delay-max": "100ms"}
    with Scene(context, allowed=("EIO",), keep=keep) as scene:
        above = ("nbd0", "vol0", "map0")
        others = [scene.rig.pid(p) for p in above]
        scene.rig.set_plan("file0", "exit 1\n")
        scene.rig.kill("file0")
        until(20, lambda: given_up(scene, "file0"), "the keeper gives it up", pause=0.1)
        until(10, lambda: scene.stamp.last().get("errors", 0) > 0, "requests are answered")
        check([scene.rig.pid(p) for p in above] == others, "others were replaced")
        scene.rig.set_plan("file0", None)
        scene.rig.ctl("peer", "start", "file0")
        scene.recover()
        errors = scene.stamp.last()["errors"]
        scene.stamp.goes_on()
        check(scene.stamp.last()["errors"] == errors, "errors go on after it is back")


@case()
def exit_for_ever_front(context):
    """a front that exits at once, for ever: clients wait, and find it when it is started by hand"""
    keep = {"restart-limit": "3", "restart-window": "60s", "restart-delay-max": "100ms"}
    with Scene(context, keep=keep) as scene:
        scene.rig.set_plan("nbd0", "exit 1\n")
        scene.rig.kill("nbd0")
        until(20, lambda: given_up(scene, "nbd0"), "the keeper gives it up", pause=0.1)
        scene.rig.set_plan("nbd0", None)
        scene.rig.ctl("peer", "start", "nbd0")
        scene.recover()


# --- memory and descriptors ----------------------------------------------------------------------


def address_space(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


@case(ci=True)
def memory_limit(context):
    """no more memory for a peer: it may end and be restarted, the guest sees nothing"""
    with Scene(context) as scene:
        for peer in PEERS:
            pid = scene.rig.pid(peer)
            size = address_space(pid)
            resource.prlimit(pid, resource.RLIMIT_AS, (size, size))
            scene.stamp.goes_on(count=1000)
            if peer == "nbd0":  # new clients need memory of the front
                subprocess.run([os.path.join(scene.rig.build, "stamp"), "--seconds", "0.3",
                                "--verify-only", "--reconnect", "1", "--hang", "5",
                                "--connections", "32", scene.rig.uri],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
            scene.rig.wait_successor(peer, pid)
            scene.recover()


def memory_group(name):
    for base in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        path = os.path.join(base, name)
        try:
            os.mkdir(path)
        except OSError:
            continue
        for limit in ("memory.limit_in_bytes", "memory.max"):
            if os.path.exists(os.path.join(path, limit)):
                return path, os.path.join(path, limit)
        os.rmdir(path)
    raise Unfit("no memory control group can be made here")


@case()
def memory_group_kill(context):
    """the kernel's out-of-memory killer takes a peer"""
    path, limit = memory_group(f"skerry-crash-{os.getpid()}")
    try:
        with Scene(context) as scene:
            for peer in PEERS:
                pid = scene.rig.pid(peer)
                with open(limit, "w", encoding="ascii") as f:
                    f.write(str(1 << 20))
                with open(path + "/cgroup.procs", "w", encoding="ascii") as f:
                    f.write(str(pid))
                time.sleep(1)
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
                scene.rig.wait_successor(peer, pid)
                scene.recover()
    finally:
        until(5, lambda: not open(path + "/cgroup.procs", encoding="ascii").read(), "it is empty")
        os.rmdir(path)


@case(ci=True)
def no_descriptors(context):
    """a peer may open nothing more for a while"""
    with Scene(context) as scene:
        for peer in PEERS:
            pid = scene.rig.pid(peer)
            before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            used = max(int(fd) for fd in os.listdir(f"/proc/{pid}/fd"))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 1, before[1]))
            clients = subprocess.Popen(
                [os.path.join(scene.rig.build, "stamp"), "--verify-only", "--connections", "8",
                 "--reconnect", "2", scene.rig.uri], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            scene.stamp.goes_on(count=1000)
            time.sleep(0.5)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            clients.kill()
            clients.wait()
            scene.recover()
            check(alive(pid), f"'{peer}' has died of it")


# --- file systems --------------------------------------------------------------------------------


class Mount:
    """A tmpfs of our own, at a folder of our own."""

    def __init__(self, size):
        self.path = tempfile.mkdtemp(prefix="crash.mnt.")
        self.size = size
        if os.geteuid() != 0 or not self.mount():
            os.rmdir(self.path)
            raise Unfit("mounting needs root")

    def mount(self):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "crash",
                               self.path], capture_output=True, check=False).returncode == 0

    def remount(self, options):
        done = subprocess.run(["mount", "-o", "remount," + options, self.path],
                              capture_output=True, check=False)
        check(done.returncode == 0, "remount: " + done.stderr.decode(errors="replace"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.path], capture_output=True, check=False)
        try:
            os.rmdir(self.path)
        except OSError:
            pass

    def fill(self):
        with open(os.path.join(self.path, "filler"), "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(65536))
            except OSError:
                pass


@case(ci=True)
def shm_full(context):
    """/dev/shm is full: a segment that does not fit is refused; one that is there survives kills"""
    with Mount("32M") as mount:
        with Rig(shm_dir=mount.path, segment_size="64M") as rig:
            done = rig.ctl("up", "--unguarded", rig.conf, exits=None)
            check(done.returncode == 1, f"up ends with {done.returncode}")
            said = done.stderr.decode(errors="replace")
            check("space" in said or "fit" in said, "it does not say why: " + said[-300:])
            check(not os.listdir(mount.path), f"left behind: {os.listdir(mount.path)}")
    with Mount("65M") as mount:
        with Scene(context, shm_dir=mount.path, segment_size="64M") as scene:
            mount.fill()
            for peer in PEERS:
                scene.rig.wait_successor(peer, scene.rig.kill(peer))
                scene.recover()


@case(ci=True)
def store_full(context):
    """the store's disk is full: ENOSPC for writes and nothing else; room again: all is well"""
    with Mount("6M") as mount:
        with Scene(context, allowed=("ENOSPC",), blocker_dir=mount.path + "/store") as scene:
            until(20, lambda: scene.stamp.last().get("errors", 0) > 10, "the disk is full")
            check(scene.rig.healthy(), "somebody is not well")
            mount.remount("size=64M")
            time.sleep(0.3)
            errors = scene.stamp.last()["errors"]
            scene.stamp.goes_on(count=500)
            check(scene.stamp.last()["errors"] == errors, "errors go on")
        check(scene.context.numbers["errors"].get("ENOSPC", 0) > 0, "there was no ENOSPC")


def swap_store(context, break_it, repair_it, allowed):
    """The store's process dies, its folder is spoilt before the next one looks, then repaired."""
    with Mount("64M") as mount:
        with Scene(context, allowed=allowed, blocker_dir=mount.path + "/store") as scene:
            gate = os.path.join(scene.rig.dir, "gate")
            scene.rig.set_plan("file0", f'while [ ! -e "{gate}" ]; do sleep 0.01; done\n')
            pid = scene.rig.kill("file0")
            until(5, lambda: not alive(pid), "it is dead")
            break_it(mount)
            with open(gate, "w", encoding="ascii"):
                pass
            time.sleep(2)
            for peer in ("nbd0", "vol0"):
                check(scene.rig.pids().get(peer), f"'{peer}' died of it")
            repair_it(mount)
            if "file0" in scene.rig.pids():
                scene.rig.kill("file0")
            scene.recover()


@case()
def store_read_only(context):
    """the store's folder has become read-only: EPERM at most, until it can be written again"""
    swap_store(context, lambda m: m.remount("ro"), lambda m: m.remount("rw"), ("EPERM", "EROFS"))


@case()
def store_unmounted(context):
    """the store's folder is not mounted any more: nothing is served from an empty one"""
    with Mount("64M") as aside:
        def away(mount):
            done = subprocess.run(["mount", "--move", mount.path, aside.path],
                                  capture_output=True, check=False)
            if done.returncode:  # a shared mount cannot be moved
                subprocess.run(["mount", "--bind", mount.path, aside.path], check=True)
                subprocess.run(["umount", "-l", mount.path], check=True)

        def back(mount):
            subprocess.run(["mount", "--bind", aside.path, mount.path], check=True)
        swap_store(context, away, back, ("EIO",))
        subprocess.run(["umount", "-l", aside.path], capture_output=True, check=False)


def shim_scene(context, folder, peers, **options):
    scene = Scene(context, **options)
    shim = os.path.join(scene.rig.build, ".libs", "crash_shim.so")
    if not os.path.exists(shim):
        scene.rig.close()
        raise Unfit("crash_shim.so is not built")
    if "san.so" in subprocess.run(["ldd", os.path.join(scene.rig.build, "xsegpeer")],
                                  capture_output=True, check=False).stdout.decode():
        scene.rig.close()
        raise Unfit("a sanitizer wants to be loaded first")
    for peer in peers:
        scene.rig.set_plan(peer, f'export LD_PRELOAD="{shim}" CRASH_SHIM="{folder}"\n')
    return scene


def put(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="ascii") as f:
        f.write(text)


@case(ci=True)
def store_slow(context):
    """each access to the store's disk takes 10 s: slow, no error"""
    with tempfile.TemporaryDirectory(prefix="crash.") as folder:
        with shim_scene(context, folder, ["file0"], file_options={"io": "threads"},
                        load=("--hang", "600")) as scene:
            put(folder, "slow", str(context.short(10000, 1000)))
            time.sleep(context.short(40, 3))
            os.unlink(os.path.join(folder, "slow"))
            scene.recover(90)
            check(scene.rig.healthy(), "somebody is not well")
        check(context.numbers["pause_max_ms"] > context.short(5000, 500), "it was not slow at all")


@case(ci=True)
def clock_back(context):
    """the wall clock is set back by an hour, then forth; and a kill in between"""
    with tempfile.TemporaryDirectory(prefix="crash.") as folder:
        with shim_scene(context, folder, [*PEERS, "xsegd"]) as scene:
            put(folder, "clock", "")
            scene.stamp.goes_on(count=500)
            for peer in PEERS:
                scene.rig.wait_successor(peer, scene.rig.kill(peer))
                scene.recover()
            os.unlink(os.path.join(folder, "clock"))
            scene.stamp.goes_on(count=500)
            scene.rig.wait_successor("vol0", scene.rig.kill("vol0"))
            scene.recover()
