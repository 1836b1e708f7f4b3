# SPDX-License-Identifier: Apache-2.0
"""What a store may hold at any instant, given what a guest has done and been told.

A Story is the stamp checker's journal: its writes and flushes in the order in which it saw them
begin and end. A Log is what blocker_record has noted. Laws, by sector, where a version is too old
when another one was begun after its end, and that other one has to be there:

  flushed   what was acknowledged before a FLUSH began is at the store, flushed, when it is answered
  prefix    when a write that began after the end of a FLUSH has come to the store, what was
            acknowledged before that FLUSH began is there already, and flushed

A store may lose all that it has not flushed, in any choice; so a cut of the log is judged by the
worst of them: what is flushed, and beside it whatever came last.
"""

import bisect
import struct

BEGIN, END, FLUSH_BEGIN, FLUSH_END = 3, 4, 5, 6
EVENT = struct.Struct("<IHHIIQQQ")
NOTE = struct.Struct("<IIQQQQQQQIIIiBBBBI")
NOTE_MAGIC = 0x4E4F5445
STAMP = struct.Struct("<QQQQII")
STAMP_MAGIC = 0x53544D5059524B53
HEAD = 48
OP_WRITE, OP_FLUSH = 2, 5
FUA = 1
NEVER = 1 << 62
MOST = 5  # violations of each law that are told


class Write:
    __slots__ = ("sequence", "sector", "count", "begin", "end", "end_ns", "fua")

    def __init__(self, sequence, sector, count, begin, fua):
        self.sequence, self.sector, self.count = sequence, sector, count
        self.begin, self.end, self.end_ns, self.fua = begin, NEVER, NEVER, fua


class Flush:
    __slots__ = ("begin", "end", "end_ns")

    def __init__(self, begin):
        self.begin, self.end, self.end_ns = begin, NEVER, NEVER


class Story:
    """What the guest did; positions are those in its journal."""

    def __init__(self, path):
        self.writes, self.flushes = {}, {}
        with open(path, "rb") as f:
            data = f.read()
        for at in range(len(data) // EVENT.size):
            self.take(at, EVENT.unpack_from(data, at * EVENT.size))
        self.acked = sorted((w for w in self.writes.values() if w.end < NEVER),
                            key=lambda w: w.end)
        ended = sorted((f for f in self.flushes.values() if f.end < NEVER), key=lambda f: f.end)
        self.flush_ends = [f.end for f in ended]
        self.flush_cuts = []  # what all that have ended by then cover
        for f in ended:
            self.flush_cuts.append(max(f.begin, self.flush_cuts[-1] if self.flush_cuts else 0))
        self.ended = ended

    def take(self, at, event):
        _, kind, _, count, flags, sector, sequence, time_ns = event
        if kind == BEGIN:
            self.writes[sequence] = Write(sequence, sector, count, at, flags & FUA)
        elif kind == END:
            self.writes[sequence].end, self.writes[sequence].end_ns = at, time_ns
        elif kind == FLUSH_BEGIN:
            self.flushes[sequence] = Flush(at)
        elif kind == FLUSH_END:
            self.flushes[sequence].end, self.flushes[sequence].end_ns = at, time_ns

    def cut_before(self, position):
        """All acknowledged before this must be there if what began at `position` is."""
        i = bisect.bisect_left(self.flush_ends, position)
        return self.flush_cuts[i - 1] if i else 0

    def end_of(self, sequence):
        """Where a version ended; blank was there before all others."""
        return self.writes[sequence].end if sequence else -1


class Floor:
    """By sector, where the newest version that must be there began; grows with the cut."""

    def __init__(self, story):
        self.story, self.sectors, self.next, self.cut = story, {}, 0, 0

    def demand(self, write):
        """That one, or a later one, must be there; which sectors ask for more now."""
        more = []
        for sector in range(write.sector, write.sector + write.count):
            if self.sectors.get(sector, -1) < write.begin:
                self.sectors[sector] = write.begin
                more.append(sector)
        return more

    def rise(self, cut):
        more, acked = [], self.story.acked
        while self.next < len(acked) and acked[self.next].end < cut:
            more += self.demand(acked[self.next])
            self.next += 1
        self.cut = max(cut, self.cut)
        return more

    def too_old(self, sector, sequence):
        floor = self.sectors.get(sector)
        return floor is not None and self.story.end_of(sequence) < floor


def judge_map(story, found, durable=True):
    """What is wrong with the versions found after a crash: a list of sentences. durable: what was
    flushed must be there; else only the order counts."""
    wrong, newest = [], -1
    for sector, sequence in enumerate(found):
        if sequence and sequence not in story.writes:
            wrong.append(f"sector {sector}: nobody wrote {sequence:x}")
        elif sequence:
            newest = max(newest, story.writes[sequence].begin)
    if wrong:
        return wrong
    laws = [("prefix", story.cut_before(newest), False)]
    if durable:
        laws.append(("flushed", story.flush_cuts[-1] if story.flush_cuts else 0, True))
    for law, cut, fua in laws:
        floor = Floor(story)
        floor.rise(cut)
        if fua:
            for write in story.acked:
                if write.fua:
                    floor.demand(write)
        bad = [s for s, sequence in enumerate(found) if floor.too_old(s, sequence)]
        wrong += [f"{law}: sector {s} is at {found[s]:x}, too old" for s in bad]
    return wrong


def read_map(path):
    with open(path, "rb") as f:
        data = f.read()
    return struct.unpack(f"<{len(data) // 8}Q", data)


class Note:
    __slots__ = ("number", "begin", "time_ns", "op", "kind", "flags", "error", "versions")


def read_log(path):
    """The records, up to the last whole one. Versions: [(sector, sequence)] of a stamped write."""
    with open(path, "rb") as f:
        data = f.read()
    notes, at = [], 0
    while at + NOTE.size <= len(data):
        (magic, carried, number, begin, time_ns, _, _, _, _, _, _, _, error, op, kind, _, flags,
         _) = NOTE.unpack_from(data, at)
        at += NOTE.size
        if magic != NOTE_MAGIC:
            raise ValueError(f"{path}: damaged at {at}")
        if at + carried > len(data):
            break
        note = Note()
        note.number, note.begin, note.time_ns = number, begin, time_ns
        note.op, note.kind, note.flags, note.error = op, kind, flags, error
        note.versions = [STAMP.unpack_from(data, place)[:4]
                         for place in range(at, at + carried, HEAD)]
        note.versions = [v[2:] for v in note.versions if v[0] == STAMP_MAGIC]
        at += carried
        notes.append(note)
    return notes


class Store:
    """The store below blocker_record as it is after each record, judged on the way."""

    def __init__(self, story, durable=True):
        self.story = story
        self.durable, self.settled, self.done, self.applied = {}, {}, [], 0
        self.begun, self.flush_marks = {}, {}
        self.prefix, self.flushed = Floor(story), Floor(story)
        self.newest, self.cuts, self.wrong, self.told = -1, 0, [], {}
        self.due = sorted([(f.end_ns, f.begin, None) for f in story.ended]
                          + [(w.end_ns, 0, w) for w in story.acked if w.fua],
                          key=lambda d: d[0]) if durable else []
        self.due_next = 0

    def complain(self, law, note, text):
        self.told[law] = self.told.get(law, 0) + 1
        if self.told[law] <= MOST:
            self.wrong.append(f"{law}: cut at record {note.number}: {text}")

    def look(self, law, floor, sectors, note):
        for sector in sectors:
            if floor.too_old(sector, self.durable.get(sector, 0)):
                self.complain(law, note, f"sector {sector} has only "
                              f"{self.durable.get(sector, 0):x}")

    def answered_by(self, time_ns, note):
        """FLUSHes and FUA writes whose answer the guest had by then."""
        while self.due_next < len(self.due) and self.due[self.due_next][0] < time_ns:
            _, cut, write = self.due[self.due_next]
            self.due_next += 1
            more = self.flushed.demand(write) if write else self.flushed.rise(cut)
            self.look("flushed", self.flushed, more, note)

    def arrive(self, note):
        self.begun[note.number] = note
        for sector, sequence in note.versions:
            if self.prefix.too_old(sector, sequence):
                self.complain("older", note, f"it brings {sequence:x} to sector {sector} "
                              "after a newer one was flushed")
            self.newest = max(self.newest, self.story.writes[sequence].begin)
        cut = self.story.cut_before(self.newest)
        if cut > self.prefix.cut:
            self.cuts += 1
            self.look("prefix", self.prefix, self.prefix.rise(cut), note)

    def settle(self, number, versions, note):
        """A write that the store had answered at record `number` is flushed now."""
        for sector, sequence in versions:
            if self.settled.get(sector, 0) > number:
                continue
            self.settled[sector] = number
            self.durable[sector] = sequence
            for law, floor in (("prefix", self.prefix), ("flushed", self.flushed)):
                self.look(law, floor, (sector,), note)

    def take(self, note):
        self.answered_by(note.time_ns, note)
        if note.op == OP_WRITE and note.kind == 0:
            self.arrive(note)
        elif note.op == OP_WRITE and note.error == 0:
            versions = self.begun.pop(note.begin).versions
            if note.flags & FUA:
                self.settle(note.number, versions, note)
            else:
                self.done.append((note.number, versions))
        elif note.op == OP_FLUSH and note.kind == 0:
            self.flush_marks[note.number] = len(self.done)
        elif note.op == OP_FLUSH and note.error == 0:
            mark = self.flush_marks.pop(note.begin)
            for number, versions in self.done[self.applied:mark]:
                self.settle(number, versions, note)
            self.applied = max(self.applied, mark)


def judge_log(story, notes, durable=True):
    """The log cut at every record. Returns (what is wrong, how often a FLUSH lay between)."""
    store = Store(story, durable)
    for note in notes:
        store.take(note)
    if notes:
        store.answered_by(NEVER, notes[-1])
    return store.wrong, store.cuts
