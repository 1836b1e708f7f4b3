# SPDX-License-Identifier: Apache-2.0
"""A pipeline with a cache in it, and between the cache and the store peers that meddle and record.

  nbd0 -> vol0 -> cache0 -> meddle0 -> record0 -> file0
            vol0 -> map0 -> file0

Each is a process of its own. SKERRY_NO_CACHE=1 leaves the cache out: what the laws say of a store
alone.
"""

import os
import signal
import sys
import time

from case import judge
from rig import Failed, MAGAZINE, TOP, Rig, Stamp, Unfit, check, until

sys.path.insert(0, os.path.join(TOP, "tests", "scenario"))
import nbd_wire  # noqa: E402  pylint: disable=wrong-import-position,wrong-import-order

CHAIN = ("nbd0", "vol0", "cache0", "meddle0", "record0", "file0")
LANES = 2


class CacheRig(Rig):
    def __init__(self, cache=None, object_size="256K", meddle=True, record=True, plugged=True,
                 lanes=LANES, mover=False, **options):
        self.cache_options, self.object_size, self.lanes = cache or {}, object_size, lanes
        left_out = set()
        if os.environ.get("SKERRY_NO_CACHE") or not plugged:
            left_out.add("cache0")
        left_out.update(set() if meddle else {"meddle0"}, set() if record else {"record0"})
        self.chain = [peer for peer in CHAIN if peer not in left_out]
        self.peers = [*self.chain, "map0"]
        if mover:  # in front of two stores
            self.chain.insert(-1, "mover0")
            self.peers = [*self.chain, "map0", "new0"]
        options.setdefault("size", "48M")
        options.setdefault("segment_size", "192M")
        super().__init__("split", **options)
        modules = self.env["SKERRY_MODULE_DIR"]
        for need in ("blocker_meddle", "blocker_record") + \
                (() if "cache0" in left_out else ("cached",)):
            if not os.path.exists(os.path.join(modules, need + ".so")):
                raise Unfit(f"{need}.so is not built")

    def below(self, peer):
        at = self.chain.index(peer) + 1 if peer in self.chain else len(self.chain)
        return self.chain[at] if at < len(self.chain) else None

    def write_conf(self, file_options, peer_options, keep):
        keep = {"restart-limit": "0", "restart-delay-max": "0s", "lanes": str(self.lanes), **keep}
        self.rules_path = os.path.join(self.dir, "rules")
        self.log_path = os.path.join(self.dir, "record")
        self.journal_path = os.path.join(self.dir, "cache.journal")
        role = {"nbd0": "front_nbd", "vol0": "volume", "map0": "mapperd", "cache0": "cached",
                "meddle0": "blocker_meddle", "record0": "blocker_record", "file0": "blocker_file",
                "mover0": "mover", "new0": "blocker_file"}
        options = {
            "nbd0": {"listen": "unix:" + self.socket},
            "vol0": {"edge.map": "map0"}, "map0": {"edge.store": "file0", "lease": "2s"},
            "cache0": dict(self.cache_options),
            "meddle0": {"rules": self.rules_path}, "record0": {"log": self.log_path},
            "file0": {"dir": self.store, **file_options},
            "new0": {"dir": self.store + ".new", **file_options},
            "mover0": {"edge.store-to": "new0", "batch": "2"},
        }
        if "mover0" in self.chain:
            options["map0"]["edge.store"] = "mover0"
        if options["cache0"].pop("with_journal", False):
            options["cache0"].update({"journal": self.journal_path})
            options["cache0"].setdefault("journal-size", "16M")
        with open(self.conf, "w", encoding="ascii") as f:
            f.write(f"[segment]\nname={self.name}\nsize={self.segment_size}\n")
            for peer in self.peers:
                keep["lanes"] = str(1 if peer == "mover0" else self.lanes)
                f.write(f"\n[host {peer}]\n" + "".join(f"{k}={v}\n" for k, v in keep.items()))
            for peer in self.peers:
                f.write(f"\n[peer {peer}]\nhost={peer}\nrole={role[peer]}\n")
                if self.below(peer):
                    f.write(f"edge.{'volume' if peer == 'nbd0' else 'store'}={self.below(peer)}\n")
                for key, value in {**options[peer], **peer_options.get(peer, {})}.items():
                    f.write(f"{key}={value}\n")

    def up(self):
        self.ctl("up", "--unguarded", self.conf, seconds=60)
        self.ctl("volume", "create", "disk", "--size", self.size,
                 "--object-size", self.object_size)
        self.keeper()
        self.pids()
        return self

    def pids(self):
        """Without a cache, whatever is done to it happens to who stands in its place."""
        found = super().pids()
        if os.environ.get("SKERRY_NO_CACHE") and "meddle0" in found:
            found.setdefault("cache0", found["meddle0"])
        return found

    # --- steering -------------------------------------------------------------------------------

    def counters(self, peer):
        for found in self.json("stats")["peers"]:
            if found["name"] == peer:
                return found["counters"]
        return {}

    def meddle(self, rules=""):
        """From its return on the store does what the rules say."""
        before = self.counters("meddle0").get("rules", 0)
        with open(self.rules_path + ".new", "w", encoding="ascii") as f:
            f.write(rules + "\n")
        os.rename(self.rules_path + ".new", self.rules_path)
        until(20, lambda: self.counters("meddle0").get("rules", 0) >= before + self.lanes,
              "the rules are taken")

    def conserved(self, seconds=20, pins=0):
        """No slot and no page is lost; what the cache keeps is the cache's. Who died in the one
        instant that docs/decisions/0005 leaves open has left a pin: so many at most."""
        lanes = len(self.json("segment", "dump")["lanes"])
        last = {}

        def same():
            last.update(self.usage())
            return last["held"] <= lanes * MAGAZINE and last["slots"] == 0 \
                and last["retired"] <= pins
        try:
            until(seconds, same, "")
        except Failed:
            raise Failed(f"leaked: {last} with {lanes} lanes") from None
        kinds = self.json("segment", "fsck", exits=(0, 1))["kinds"]
        last["pins"] = kinds.pop("page-pins", 0)
        check(not kinds and last["pins"] <= pins, f"fsck: {kinds}, {last['pins']} pins left, and "
                                                  f"at most {pins} may be: {self.fsck()}")
        return last

    def connect(self, volume="disk"):
        """A connection for requests by hand."""
        place = nbd_wire.Place(self.uri.replace("/disk?", f"/{volume}?"))
        wire = nbd_wire.Wire(place, timeout=60)
        wire.greet()
        wire.ask_structured()
        wire.go()
        return wire

    def host_crash(self):
        """All dies at once, and the segment with it; files stay. Ends the stamps, too."""
        for stamp in self.stamps:
            if stamp.process.poll() is None:
                stamp.process.kill()
        self.force_down()
        for stamp in self.stamps:
            stamp.process.wait()
        for name in os.listdir(self.shm):
            os.unlink(os.path.join(self.shm, name))
        run = os.path.join(self.env["SKERRY_RUN_DIR"], self.name)
        for name in os.listdir(run) if os.path.isdir(run) else ():
            if not name.endswith(".log"):
                path = os.path.join(run, name)
                if not os.path.isdir(path):
                    os.unlink(path)

    def up_again(self):
        # 1: what a journal has brought back waits until the volume is acquired (decision 0010)
        self.ctl("up", "--unguarded", self.conf, seconds=60, exits=(0, 1))
        self.keeper()
        self.pids()

    def read_all(self, name="map"):
        """Which version each sector has, by the checker; it must end well."""
        path = os.path.join(self.dir, name)
        stamp = Stamp(self, "--verify-only", "--map", path, name=name + ".stamp")
        self.stamps.append(stamp)
        status = stamp.process.wait(120)
        check(status == 0, f"reading all: exit {status}: {stamp.tail()}")
        return path

    def close(self):
        for peer in self.peers:
            self.set_plan(peer, None)
        try:
            if "meddle0" in self.pids():
                self.meddle()
        except Exception:  # pylint: disable=broad-except
            pass
        super().close()


class CacheScene:
    """A cache rig with checked load on it; leaving it well judges the load and what is held."""

    def __init__(self, context, load=(), allowed=(), conserve=True, journal=True, **options):
        self.context, self.allowed, self.conserve = context, allowed, conserve
        self.load_args, self.options, self.journal = load, options, journal
        self.left_pins = 0

    def __enter__(self):
        self.rig = CacheRig(**self.options)
        try:
            self.rig.up()
            self.story_path = os.path.join(self.rig.dir, "story")
            self.stamp = self.begin(*self.load_args)
        except BaseException:
            self.rig.close()
            raise
        return self

    def begin(self, *args):
        journal = ("--journal", self.story_path) if self.journal else ()
        return self.rig.load("--connections", "3", "--depth", "6", "--replays", *journal,
                             "--seed", str(self.context.random.randrange(1 << 31)), *args)

    def __exit__(self, kind, value, trace):
        try:
            if kind is None and self.stamp:
                self.finish()
        finally:
            self.rig.close()

    def finish(self):
        stamp, self.stamp = self.stamp, None
        judge(self.context, stamp.finish(), self.allowed, stamp.complaints())
        if self.conserve:
            self.context.numbers["held"] = self.rig.conserved(pins=self.left_pins)

    def recover(self, seconds=30):
        self.stamp.goes_on(seconds)
        self.rig.wait_healthy(seconds)

    def kill(self, *peers):
        """All at once; then each has a successor."""
        pids = self.rig.pids()
        for peer in peers:
            os.kill(pids[peer], signal.SIGKILL)
        for peer in peers:
            self.rig.wait_successor(peer, pids[peer])

    def stay(self, seconds):
        """That long; the load goes on by then."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.02)
            check(self.stamp.process.poll() is None, "the checker ended: " + self.stamp.tail())
