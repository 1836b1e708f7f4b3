# SPDX-License-Identifier: Apache-2.0
"""A real pipeline under xsegd with the stamp checker running on it, to do things to.

Everything is private (folders, segment, sockets) and goes away with the rig; processes are ended
by the pids that the rig or its keeper started.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PEERS = ("nbd0", "vol0", "map0", "file0")

MAGAZINE = 256  # pages that a lane keeps at hand

# peer -> host, from one process for each to one for all
SHAPES = {
    "split": {"nbd0": "nbd0", "vol0": "vol0", "map0": "map0", "file0": "file0"},
    "pair": {"nbd0": "front", "vol0": "front", "map0": "front", "file0": "file0"},
    "below": {"nbd0": "nbd0", "vol0": "below", "map0": "below", "file0": "below"},
    "stacked": {"nbd0": "all", "vol0": "all", "map0": "all", "file0": "all"},
}

# Between the keeper and a program: what is in $CRASH_PLAN/PEER.sh happens to the process that has
# that peer, $CRASH_PLAN/xsegd.sh to the keeper.
WRAPPER = """#!/bin/sh
unset SKERRY_CRASH
for arg; do
    plan=$CRASH_PLAN/${arg%%=*}.sh
    case $arg in *=*) [ -e "$plan" ] && . "$plan" ;; esac
done
[ "$(basename "$0")" != xsegd ] || [ ! -e "$CRASH_PLAN/xsegd.sh" ] || . "$CRASH_PLAN/xsegd.sh"
exec "$CRASH_BUILD/$(basename "$0")" "$@"
"""


class Failed(Exception):
    """What the case is about did not hold."""


class Unfit(Exception):
    """Cannot be tried here."""


def check(true, text):
    if not true:
        raise Failed(text)


PATIENCE = 6    # a busy machine's seconds in one of an idle one: nothing is to fail for being slow


def until(seconds, true, what, pause=0.01):
    end = time.monotonic() + seconds * PATIENCE
    while True:
        value = true()
        if value:
            return value
        check(time.monotonic() < end, f"not within {seconds:g} s: {what}")
        time.sleep(pause)


def find_build():
    for place in (os.environ.get("SKERRY_BUILD"), os.environ.get("abs_top_builddir"), os.getcwd(),
                  os.path.join(TOP, "build"), TOP):
        if place and os.access(os.path.join(place, "xsegpeer"), os.X_OK):
            return os.path.abspath(place)
    raise Unfit("nothing is built; say where with SKERRY_BUILD")


def alive(pid):
    """A zombie is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def cpu_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


class Stamp:
    """The checker as a process; its progress is read from its output file."""

    def __init__(self, rig, *args, name="stamp"):
        self.out_path = os.path.join(rig.dir, name + ".out")
        self.err_path = os.path.join(rig.dir, name + ".err")
        self.process = None
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                [os.path.join(rig.build, "stamp"), "--progress", "0.02", *args, rig.uri],
                stdout=out, stderr=err, stdin=subprocess.DEVNULL)

    def last(self):
        with open(self.out_path, "rb") as f:
            f.seek(max(0, os.path.getsize(self.out_path) - 4096))
            lines = f.read().split(b"\n")
        for line in reversed(lines[:-1]):
            if line.startswith(b"{"):
                return json.loads(line)
        return {}

    def answered(self):
        said = self.last()
        return said.get("progress", said.get("reads", 0) + said.get("writes", 0))

    def goes_on(self, seconds=20, count=50, what="the load goes on"):
        check(self.process.poll() is None, "the checker has ended: " + self.tail())
        begin = self.answered()
        until(seconds, lambda: self.process.poll() is not None or
              self.answered() >= begin + count, what)
        check(self.process.poll() is None, "the checker has ended: " + self.tail())

    def tail(self):
        with open(self.err_path, "rb") as f:
            return f.read()[-1500:].decode(errors="replace") + json.dumps(self.last())

    def complaints(self):
        with open(self.err_path, "rb") as f:
            return f.read()[:1200].decode(errors="replace")

    def finish(self, seconds=60):
        """Ends the load, reads all of the volume, returns the results."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failed("the checker did not come to an end: " + self.tail()) from None
        result = self.last()
        check("guest_errors" in result, "the checker said no results: " + self.tail())
        return result

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Rig:
    """One segment, one keeper, four peers, one volume."""

    def __init__(self, shape="split", size="16M", segment_size="64M", file_options=None,
                 peer_options=None, keep=None, blocker_dir=None, shm_dir=None, wrapped=True,
                 lie=None):
        self.build = find_build()
        for need in ("xsegd", "xsegctl", "stamp"):
            if not os.access(os.path.join(self.build, need), os.X_OK):
                raise Unfit(f"{need} is not built")
        self.shape, self.size, self.segment_size = shape, size, segment_size
        self.hosts = SHAPES[shape]
        self.dir = tempfile.mkdtemp(prefix="crash.")
        self.own_shm = None if shm_dir else tempfile.mkdtemp(prefix="crash.", dir="/dev/shm")
        self.shm = shm_dir or self.own_shm
        self.name = "crash%d" % os.getpid()
        self.socket = os.path.join(self.dir, "nbd.sock")
        self.uri = f"nbd+unix:///disk?socket={self.socket}"
        self.store = blocker_dir or os.path.join(self.dir, "store")
        self.plan = os.path.join(self.dir, "plan")
        self.stamps, self.known, self.baseline = [], set(), None
        self.env = dict(os.environ, SKERRY_SHM_DIR=self.shm, CRASH_PLAN=self.plan,
                        CRASH_BUILD=self.build, SKERRY_RUN_DIR=os.path.join(self.dir, "run"),
                        SKERRY_MODULE_DIR=os.path.join(self.build, ".libs"), LC_ALL="C")
        for unwanted in ("SKERRY_SEGMENT", "NOTIFY_SOCKET", "LISTEN_FDS", "SKERRY_CRASH"):
            self.env.pop(unwanted, None)
        os.makedirs(self.plan)
        os.makedirs(os.path.join(self.dir, "run"))
        self.wrap(wrapped)
        self.conf = os.path.join(self.dir, "pipeline.conf")
        self.write_conf(file_options or {}, peer_options or {}, keep or {})
        if lie:
            self.write_liar(lie)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def wrap(self, wrapped):
        for program in ("xsegpeer", "xsegd"):
            path = os.path.join(self.build, program)
            if wrapped:
                path = os.path.join(self.dir, program)
                with open(path, "w", encoding="ascii") as f:
                    f.write(WRAPPER)
                os.chmod(path, 0o755)
            self.env["SKERRY_" + program.upper()] = path

    def write_conf(self, file_options, peer_options, keep):
        keep = {"restart-limit": "0", "restart-delay-max": "0s", **keep}
        options = {
            "nbd0": {"role": "front_nbd", "listen": "unix:" + self.socket, "edge.volume": "vol0"},
            "vol0": {"role": "volume", "edge.store": "file0", "edge.map": "map0"},
            "map0": {"role": "mapperd", "edge.store": "file0"},
            "file0": {"role": "blocker_file", "dir": self.store, **file_options},
        }
        with open(self.conf, "w", encoding="ascii") as f:
            f.write(f"[segment]\nname={self.name}\nsize={self.segment_size}\n")
            for host in sorted(set(self.hosts.values())):
                f.write(f"\n[host {host}]\n" + "".join(f"{k}={v}\n" for k, v in keep.items()))
            for peer in PEERS:
                f.write(f"\n[peer {peer}]\nhost={self.hosts[peer]}\n")
                for key, value in {**options[peer], **peer_options.get(peer, {})}.items():
                    f.write(f"{key}={value}\n")

    def write_liar(self, lie):
        """Between the volume and the store somebody tells lies; the mapper is not lied to."""
        if not os.path.exists(os.path.join(self.env["SKERRY_MODULE_DIR"], "blocker_liar.so")):
            raise Unfit("blocker_liar.so is not built")
        with open(self.conf, encoding="ascii") as f:
            text = f.read().replace("edge.store=file0", "edge.store=liar0", 1)
        with open(self.conf, "w", encoding="ascii") as f:
            f.write(text + "\n[peer liar0]\nrole=blocker_liar\nedge.store=file0\n"
                    f"lie={lie}\nevery=40\n")

    # --- asking -------------------------------------------------------------------------------

    def ctl(self, *args, seconds=40, exits=(0,)):
        try:
            done = subprocess.run([os.path.join(self.build, "xsegctl"), "-s", self.name, *args],
                                  env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"xsegctl {' '.join(args)} takes longer than {seconds} s") from None
        check(exits is None or done.returncode in exits,
              f"xsegctl {' '.join(args)}: exit {done.returncode}: "
              + done.stderr.decode(errors="replace")[-800:])
        return done

    def json(self, *args, exits=(0,)):
        return json.loads(self.ctl(*args, "--json", exits=exits).stdout)

    def status(self):
        return self.json("status", exits=(0, 1))

    def pids(self):
        """Pids of peers that live."""
        found = {p["name"]: p.get("pid") or 0 for p in self.status()["peers"]}
        self.known.update(pid for pid in found.values() if pid)
        return {name: pid for name, pid in found.items() if pid and alive(pid)}

    def pid(self, peer):
        return until(20, lambda: self.pids().get(peer), f"'{peer}' lives")

    def keeper(self):
        try:
            with open(os.path.join(self.env["SKERRY_RUN_DIR"], self.name, "xsegd.pid"),
                      encoding="ascii") as f:
                pid = int(f.read())
        except (OSError, ValueError):
            return 0
        self.known.add(pid)
        return pid if alive(pid) else 0

    def healthy(self):
        return self.status().get("healthy") is True

    def wait_healthy(self, seconds=30):
        until(seconds, self.healthy, "everything serves again", pause=0.05)

    def usage(self):
        segment = self.json("segment", "dump")["segment"]
        pages, requests = segment["pages"], segment["requests"]
        return {"held": pages["held"], "stored": pages["stored"], "retired": pages["retired"],
                "slots": requests["total"] - requests["free"]}

    def fsck(self):
        """(count of findings, text); None: this build has no fsck."""
        done = self.ctl("segment", "fsck", "--json", exits=None)
        if done.returncode == 2:
            return None
        return done.returncode, done.stdout.decode(errors="replace")[-600:] + \
            done.stderr.decode(errors="replace")[-300:]

    # --- doing --------------------------------------------------------------------------------

    def up(self):
        self.ctl("up", "--unguarded", self.conf, seconds=60)
        self.ctl("volume", "create", "disk", "--size", self.size)
        self.keeper()
        self.pids()
        return self

    def revive_keeper(self):
        """It ends with the status, and that is 1 while one that was killed is not back yet."""
        if not self.keeper():
            self.ctl("up", "--unguarded", self.conf, seconds=60, exits=(0, 1))
        self.keeper()

    def set_plan(self, peer, text):
        path = os.path.join(self.plan, peer + ".sh")
        if text is None:
            if os.path.exists(path):
                os.unlink(path)
            return
        with open(path + ".new", "w", encoding="ascii") as f:
            f.write(text)
        os.rename(path + ".new", path)

    def kill(self, peer, sign=signal.SIGKILL):
        pid = self.pid(peer)
        os.kill(pid, sign)
        return pid

    def wait_successor(self, peer, old, seconds=30):
        def come():
            pid = self.pids().get(peer)
            return pid if pid and pid != old else 0
        return until(seconds, come, f"'{peer}' has a successor")

    def load(self, *args, seconds=3600):
        stamp = Stamp(self, "--seconds", str(seconds), *args, name=f"stamp{len(self.stamps)}")
        self.stamps.append(stamp)
        stamp.goes_on(what="the load begins")
        return stamp

    def conserved(self, seconds=10):
        """No slot, no more pages than lanes keep at hand; fsck, where there is one, is exact."""
        lanes = len(self.json("segment", "dump")["lanes"])
        before = {"held": lanes * MAGAZINE, "stored": 0, "retired": 0, "slots": 0}
        last = {}

        def same():
            last.update(self.usage())
            return all(last[key] <= before[key] for key in before)
        try:
            until(seconds, same, "")
        except Failed:
            raise Failed(f"leaked: at most {before}, but there are {last}") from None
        found = self.fsck()
        check(found is None or found[0] == 0, f"fsck: {found}")
        last["fsck"] = "none" if found is None else "clean"
        return last

    def close(self):
        for stamp in self.stamps:
            stamp.close()
        self.set_plan("xsegd", None)
        for peer in PEERS:
            self.set_plan(peer, None)
        try:
            self.pids()
        except (Failed, ValueError, KeyError):
            pass
        self.keeper()
        try:
            done = self.ctl("down", "--yes", "--timeout", "3s", exits=None)
            if done.returncode != 0:
                self.force_down()
        except Failed:
            self.force_down()
        if os.environ.get("CRASH_KEEP"):
            print(f"# kept: {self.dir}")
            return
        shutil.rmtree(self.dir, ignore_errors=True)
        if self.own_shm:
            shutil.rmtree(self.own_shm, ignore_errors=True)

    def ours(self):
        """Processes that were started for this rig: their environment says so."""
        mark = ("CRASH_PLAN=" + self.plan).encode()
        found = []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and int(entry) != os.getpid():
                    with open(f"/proc/{entry}/environ", "rb") as f:
                        if mark in f.read().split(b"\0"):
                            found.append(int(entry))
            except OSError:
                pass
        return found

    def force_down(self):
        for _ in range(50):
            left = self.ours()
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)
