# SPDX-License-Identifier: Apache-2.0
"""A life of volumes, told to a model: created, written, kept, cloned, cut, rolled back, removed.

  nbd0 -> vol0 -> cache0 -> file0, and vol0 -> map0 -> file0: each is a process of its own.

Whoever runs it may do something to the processes before each of its steps. Every step must be
answered as if nothing had been done; should the host die, what was under way has happened or has
not, what was flushed is there, and each sector written since is as before or after.
"""

import json
import os
import re
import time

from cache_rig import CacheRig, nbd_wire
from rig import Failed, check, until

KIB, MIB, SECTOR, OBJECT = 1 << 10, 1 << 20, 512, 64 << 10
PATIENCE = ("--timeout", "60s")


class Volume:
    """What it reads as (now), what a host's death leaves of it (sure, or what `maybe` has)."""

    def __init__(self, rig, name, data, snapshot=False):
        self.rig, self.name, self.snapshot = rig, name, snapshot
        self.now, self.sure, self.maybe, self.wire = bytearray(data), bytearray(data), {}, None

    def __repr__(self):
        return f"'{self.name}'"

    def close(self):
        if self.wire:
            self.wire.close()
        self.wire = None

    def ask(self, command, offset, length, flags=0, payload=b""):
        """Said again on another connection when one is lost."""
        end = time.monotonic() + 60
        while True:
            try:
                if not self.wire:
                    self.wire = self.rig.connect(self.name)
                answer = self.wire.call(command, offset, length, flags, payload)
                check(answer.error == 0, f"'{self.name}': command {command} at {offset}, "
                                         f"{length} bytes: error {answer.error}")
                return answer.data
            except (nbd_wire.Closed, OSError, nbd_wire.Broken) as e:
                refused = str(e).startswith("GO refused") and self.rig.refuses
                if isinstance(e, nbd_wire.Broken) and not refused:
                    raise
                self.close()
                check(time.monotonic() < end and not self.rig.dead,
                      f"'{self.name}' is not reached any more: {e}")
                time.sleep(0.02)

    def change(self, command, offset, length, flags=0):
        data = os.urandom(length) if command == nbd_wire.WRITE else bytes(length)
        for at in range(offset, offset + length, SECTOR):
            self.maybe.setdefault(at, []).append(data[at - offset:at - offset + SECTOR])
        self.ask(command, offset, length, flags, data if command == nbd_wire.WRITE else b"")
        self.now[offset:offset + length] = data
        if flags & nbd_wire.FUA:
            self.sure[offset:offset + length] = data
            for at in range(offset, offset + length, SECTOR):
                del self.maybe[at]

    def keep(self):
        self.sure, self.maybe = bytearray(self.now), {}

    def flush(self):
        self.ask(nbd_wire.FLUSH, 0, 0)
        self.keep()

    def read(self):
        step, size = 256 * KIB, len(self.now)
        return b"".join(self.ask(nbd_wire.READ, at, min(step, size - at))
                        for at in range(0, size, step))

    def verify(self):
        found = self.read()
        if found != self.now:
            at = next(i for i in range(0, len(found), SECTOR)
                      if found[i:i + SECTOR] != self.now[i:i + SECTOR])
            raise Failed(f"'{self.name}' reads at {at} of {len(found)} as "
                         f"{found[at:at + 8].hex()} instead of {self.now[at:at + 8].hex()}")

    def verify_after_death(self):
        """What is found is what there is from now on."""
        found = self.read()
        for at in range(0, len(found), SECTOR):
            sector = found[at:at + SECTOR]
            if sector != self.sure[at:at + SECTOR] and sector not in self.maybe.get(at, ()):
                raise Failed(f"'{self.name}' reads at {at} as {sector[:8].hex()} after the host's "
                             f"death; {self.sure[at:at + 8].hex()} was flushed")
        self.now = bytearray(found)
        self.keep()


class World:
    """All volumes of a rig but `disk`, which has a load on it that judges itself."""

    def __init__(self, rig, dice, turn=None):
        self.rig, self.dice, self.turn = rig, dice, turn or (lambda step: None)
        self.volumes, self.steps, self.doing, self.died = {}, 0, (), None

    def begin(self, *what):
        """Before each step: what it will change."""
        self.doing = what
        self.turn(self.steps)
        self.steps += 1

    def ctl(self, *args, exits=(0,)):
        """Said again when nobody could be asked."""
        end = time.monotonic() + 60
        while True:
            done = self.rig.ctl("volume", *args, *PATIENCE, seconds=120, exits=None)
            said = done.stderr.decode(errors="replace")
            unasked = done.returncode != 0 and " is dead" in said and "start it again" in said
            if exits is None or (done.returncode in exits and not unasked):
                return done
            check(unasked and time.monotonic() < end and not self.rig.dead,
                  f"volume {' '.join(args)}: exit {done.returncode}: {said[-800:]}")
            time.sleep(0.02)

    def add(self, name, data, snapshot=False):
        self.volumes[name] = volume = Volume(self.rig, name, data, snapshot)
        return volume

    def names(self):
        return {v["name"]: v for v in self.rig.json("volume", "list")["volumes"]}

    def when_closed(self, *args):
        """The front takes its time to see that a client has gone."""
        until(60, lambda: self.ctl(*args, exits=(0, 5)).returncode == 0,
              f"'{' '.join(args)}' is done", pause=0.05)

    def said(self):
        """What it was at last, for people."""
        words = [str(w) for w in self.doing if not isinstance(w, (bytes, bool))]
        return f"step {self.steps}: {' '.join(words)}"

    # --- steps -----------------------------------------------------------------------------------

    def create(self, name, size):
        self.begin("make", name, bytes(size), False)
        self.ctl("create", name, "--size", str(size), "--object-size", str(OBJECT))
        return self.add(name, bytes(size))

    def image(self, name, size):
        data = os.urandom(size // 2) + bytes(size - size // 2)
        path = os.path.join(self.rig.dir, "image")
        with open(path, "wb") as f:
            f.write(data)
        self.begin("make", name, data, False)
        self.ctl("import", path, name, "--format", "raw", "--object-size", str(OBJECT),
                 "--progress=none")
        return self.add(name, data)

    def scribble(self, volume, count):
        size = len(volume.now) // SECTOR
        for _ in range(count):
            self.begin("write", volume)
            command = self.dice.choices((nbd_wire.WRITE, nbd_wire.TRIM, nbd_wire.WRITE_ZEROES),
                                        (8, 1, 1))[0]
            length = self.dice.choice((1, 3, 8, 8, 16, OBJECT // SECTOR, 200))
            first = self.dice.randrange(size - length)
            if self.dice.random() < 0.3:
                first -= first % (OBJECT // SECTOR)
            flags = nbd_wire.FUA if self.dice.random() < 0.1 else 0
            volume.change(command, first * SECTOR, length * SECTOR, flags)

    def flush(self, volume):
        self.begin("write", volume)
        volume.flush()

    def snapshot(self, volume, name):
        self.begin("make", name, bytes(volume.now), True)
        self.ctl("snapshot", name)
        volume.keep()
        return self.add(name, volume.now, True)

    def snapshot_of_load(self, name):
        """Of `disk`, while it is written: whatever it is, it never changes."""
        self.begin("make", name, None, True)
        self.ctl("snapshot", name)
        size = self.names()[name]["size"]
        volume = self.add(name, bytes(size), True)
        self.begin("read", volume)
        volume.now[:] = volume.read()
        volume.keep()
        return volume

    def clone(self, volume, name):
        self.begin("make", name, bytes(volume.now), False)
        self.ctl("clone", volume.name, name)
        volume.keep()
        return self.add(name, volume.now)

    def resize(self, volume, size):
        self.begin("become", volume, (bytes(volume.now) + bytes(size))[:size])
        self.ctl("resize", volume.name, str(size), "--allow-shrink", "--yes")
        volume.close()  # a connection keeps the size that it was told
        volume.now = bytearray((bytes(volume.now) + bytes(size))[:size])
        volume.sure = bytearray((bytes(volume.sure) + bytes(size))[:size])
        volume.maybe = {at: d for at, d in volume.maybe.items() if at < size}

    def rollback(self, volume, snapshot):
        volume.close()
        self.begin("become", volume, bytes(snapshot.now))
        self.when_closed("rollback", snapshot.name, "--yes")
        volume.now = bytearray(snapshot.now)
        volume.keep()

    def same(self, volume, *args, exits=(0,)):
        """What changes nothing that can be read."""
        self.begin("write", volume)
        return self.ctl(*args, exits=exits)

    def break_lock(self, volume):
        """Who has it open is not believed any more, and opens it again."""
        volume.flush()
        self.begin("write", volume)
        self.ctl("break-lock", volume.name, "--yes")
        volume.close()

    def rename(self, volume, name):
        volume.close()
        self.begin("rename", volume, name)
        self.ctl("rename", volume.name, name)
        del self.volumes[volume.name]
        volume.name = name
        self.volumes[name] = volume

    def remove(self, volume):
        volume.close()
        self.begin("remove", volume)
        self.when_closed("rm", volume.name, "--yes")
        del self.volumes[volume.name]

    def mover_in_file(self):
        """What a host's death leaves is had by a mover that leads the same way (docs/moving.md):
        if none is there, one will lead from where all is."""
        try:
            edges = {e["name"]: e["to"] for e in self.rig.json("edge", "list")["edges"]}
        except (Failed, ValueError):
            return  # just now
        old = edges.get("map0:store")
        if old not in ("file0", "new0"):
            return
        with open(self.rig.conf, encoding="ascii") as f:
            text = f.read()
        part = f"edge.store={old}\nedge.store-to={'new0' if old == 'file0' else 'file0'}\n"
        with open(self.rig.conf + ".new", "w", encoding="ascii") as f:
            f.write(re.sub(r"edge\.store=\w+\nedge\.store-to=\w+\n", part, text))
        os.replace(self.rig.conf + ".new", self.rig.conf)

    def hop(self, name=None):
        """To the other store, or to the one where it is, with all that share objects with it."""
        if "mover0" not in self.rig.peers:
            return
        name = name or self.dice.choice([*self.volumes, "disk"])
        store = self.dice.choice(("file0", "new0"))
        self.begin("hop", name, store)
        self.mover_in_file()

        def moved():
            done = self.ctl("move", name, "--to", store, "--progress=none", exits=None)
            check(not self.rig.dead, f"'{name}' cannot be moved: the host is dead")
            return done.returncode == 0
        until(60, moved, f"'{name}' is moved", pause=0.05)

    def verify(self):
        for volume in self.volumes.values():
            self.begin("read", volume)
            volume.verify()

    def faults(self):
        done = self.ctl("fsck", "--json", "--progress=none", exits=(0, 1))
        return [{key: f[key] for key in ("finding", "volume", "key", "object")}
                for f in json.loads(done.stdout)["list"]
                if f["finding"] != "unreachable"]

    def fsck(self):
        """The mapper sees the store. What it was told of at a FLUSH may be in a cache's journal and
        not there yet: that is no fault as long as it comes."""
        self.begin("fsck")
        found = self.faults()
        if found and self.rig.cache_options.get("ack") == "journal":
            until(60, lambda: self.rig.ctl("cache", "flush", "cache0", exits=None).returncode == 0,
                  "all is written back")
            again = self.faults()
            found = [fault for fault in found if fault in again]
        check(not found, f"fsck: {found[:4]}; said once more: {self.faults()[:4] if found else 0}")

    def gc(self):
        self.begin("gc")
        self.ctl("gc", "--wait", "--progress=none")

    def close(self):
        for volume in self.volumes.values():
            volume.close()

    # --- the host has died -----------------------------------------------------------------------

    def settle(self):
        """What was under way has happened or has not; nothing else has. Then all is as it was."""
        doing, found = self.doing, self.names()
        kind, self.died = doing[0], self.said()
        if kind == "make" and doing[1] in found and found[doing[1]]["state"] == "ready":
            self.add(doing[1], doing[2] or bytes(found[doing[1]]["size"]), doing[3])
            if doing[2] is None:
                self.volumes[doing[1]].now[:] = self.volumes[doing[1]].read()
                self.volumes[doing[1]].keep()
        elif kind == "make" and doing[1] in found:  # an import that is not whole
            self.when_closed("rm", doing[1], "--yes")
        elif kind == "rename" and doing[2] in found:
            self.volumes[doing[2]] = self.volumes.pop(doing[1].name)
            doing[1].name = doing[2]
        elif kind == "remove" and doing[1].name in self.volumes:
            if found.get(doing[1].name, {}).get("state") == "removing":
                self.when_closed("rm", doing[1].name, "--yes")
            elif doing[1].name in found:
                self.volumes[doing[1].name].verify_after_death()
            if doing[1].name not in self.names():
                del self.volumes[doing[1].name]
        listed, known = sorted(self.names()), sorted([*self.volumes, "disk"])
        check(listed == known, f"there are {listed}, not {known}, after {doing}")
        for volume in self.volumes.values():
            if kind == "become" and volume is doing[1]:
                self.settle_one(volume, doing[2], found[volume.name]["size"])
            else:
                volume.verify_after_death()

    def settle_one(self, volume, new, size):
        """Rolled back or resized, or not."""
        if size == len(volume.now):
            try:
                volume.verify_after_death()
                return
            except Failed as e:
                check(len(new) == size, f"'{volume.name}' was to become {len(new)} bytes long: {e}")
        volume.now, volume.sure, volume.maybe = bytearray(new), bytearray(new), volume.maybe
        volume.verify_after_death()


def live(world):
    """Two minutes of a lab in a second: everything that can be done to volumes."""
    base = world.create("base", 1 * MIB + 3 * SECTOR)
    world.scribble(base, 10)
    world.flush(base)
    world.scribble(base, 4)
    world.hop()
    base_s = world.snapshot(base, "base@s")
    clone = world.clone(base_s, "c")
    world.scribble(clone, 12)
    world.flush(clone)
    world.scribble(clone, 4)
    world.hop()
    disk_s = world.snapshot_of_load("disk@s")
    world.hop()
    world.resize(clone, 2 * MIB)
    world.scribble(clone, 3)
    world.resize(clone, 700 * KIB + SECTOR)
    clone_s = world.snapshot(clone, "c@s")
    world.scribble(clone, 4)
    world.hop()
    second = world.clone(clone, "c2")
    world.hop()
    world.rollback(clone, clone_s)
    load = world.clone(disk_s, "e")
    world.scribble(load, 4)
    world.same(load, "limit", "e", "--iops", "100000")
    world.same(load, "protect", "e")
    world.same(load, "unprotect", "e")
    world.scribble(second, 4)
    world.hop()
    world.same(second, "flatten", "c2", "--progress=none")  # by the composer, which has it open
    closed = world.clone(base_s, "f")
    world.same(closed, "flatten", "f", "--progress=none")  # by the mapper
    world.gc()
    world.hop()
    world.rename(second, "d")
    world.break_lock(base)
    world.image("i", 300 * KIB)
    world.verify()
    world.hop()
    world.fsck()
    world.remove(clone_s)
    world.remove(clone)
    end(world)


def end(world):
    """All that is left of it is removed, children first."""
    for _ in range(len(world.volumes) + 1):
        for volume in list(world.volumes.values()):
            volume.close()
            world.begin("remove", volume)
            until(60, lambda v=volume: left_or_gone(world, v), f"'{volume.name}' is removed or "
                  "has children", pause=0.05)
        if not world.volumes:
            break
    listed = sorted(world.names())
    check(listed == ["disk"], f"in the end there are volumes {listed}")


def left_or_gone(world, volume):
    """It is gone, or has children; busy as long as the front has it open."""
    done = world.ctl("rm", volume.name, "--yes", exits=(0, 5))
    if done.returncode == 0:
        del world.volumes[volume.name]
        return True
    if b"it is protected" in done.stderr:
        world.ctl("unprotect", volume.name)
    return b"has children" in done.stderr


class LifeRig(CacheRig):
    """A mapper that does not wait between the passes of a sweep, and small leases."""

    dead = False     # with its host
    refuses = False  # volumes may be somebody else's for a while

    def __init__(self, **options):
        peer_options = options.pop("peer_options", {})
        peer_options.setdefault("map0", {"settle": "0", "lease": "2s"})
        super().__init__(cache=options.pop("cache", {"mode": "writeback", "size": "8M"}),
                         object_size="64K", size="8M", meddle=False, record=False,
                         peer_options=peer_options, **options)
