# SPDX-License-Identifier: Apache-2.0
"""Shows a Skerry segment in gdb: of a living process, or of a core file.

    gdb -p PID -x skerry-gdb.py          gdb xsegpeer CORE -x skerry-gdb.py
    (gdb) skerry                         the segment and how full it is
    (gdb) skerry peers | lanes | ports
    (gdb) skerry peer NAME
    (gdb) skerry requests [STATE]        all that are not free, oldest first
    (gdb) skerry request SLOT            one, with its hops and pages
    (gdb) skerry ring FROM TO            what lane FROM has told lane TO, and TO not taken
    (gdb) skerry page NUMBER

Nothing in the process is called, so it may be stopped anywhere, or dead. Offsets come from the
debug information of the program, so they are those it was built with.
"""

import struct

import gdb

NONE = 0xFFFFFFFF
PIECE = 1 << 20


class Problem(gdb.GdbError):
    pass


# --- memory and types ----------------------------------------------------------------------


def memory(address, size):
    parts = []
    while size:
        step = min(size, PIECE)
        try:
            parts.append(bytes(gdb.selected_inferior().read_memory(address, step)))
        except gdb.MemoryError:
            raise Problem("the segment's tables are not in this core file: the process had "
                          "another coredump_filter than Skerry's programs set") from None
        address += step
        size -= step
    return b"".join(parts)


class Record:
    """A struct of the segment: fields by the names that the C has."""

    FORMATS = {(1, False): "B", (2, False): "H", (4, False): "I", (8, False): "Q",
               (1, True): "b", (2, True): "h", (4, True): "i", (8, True): "q"}
    known = {}

    def __init__(self, name):
        try:
            self.type = gdb.lookup_type(f"struct {name}").strip_typedefs()
        except gdb.error:
            raise Problem(f"no debug information about struct {name}: use a program built with "
                          "-g, or install its debug symbols") from None
        self.size = self.type.sizeof
        self.fields = {}
        self.collect(self.type, 0)

    def collect(self, kind, base):
        for field in kind.fields():
            offset = base + field.bitpos // 8
            if field.name:
                self.fields[field.name] = (offset, field.type.strip_typedefs())
            else:
                self.collect(field.type.strip_typedefs(), offset)

    @classmethod
    def of(cls, name):
        if name not in cls.known:
            cls.known[name] = cls(name)
        return cls.known[name]

    def offset(self, field):
        return self.fields[field][0]

    def get(self, data, field, at=0):
        offset, kind = self.fields[field]
        kind = kind.unqualified().strip_typedefs()
        if kind.code == gdb.TYPE_CODE_ARRAY and kind.target().unqualified().sizeof == 1:
            raw = data[at + offset:at + offset + kind.sizeof].split(b"\0")[0]
            return raw.decode("utf-8", "replace")
        signed = kind.code == gdb.TYPE_CODE_INT and kind.name is not None and \
            not kind.name.startswith("unsigned") and not kind.name.startswith("_Bool")
        return struct.unpack_from("<" + self.FORMATS[kind.sizeof, signed], data, at + offset)[0]

    def list_of(self, data, field, at=0):
        """An array of whole numbers."""
        offset, kind = self.fields[field]
        size = kind.target().sizeof
        form = self.FORMATS[size, False]
        return struct.unpack_from(f"<{kind.sizeof // size}{form}", data, at + offset)


def names_of(enum, prefix):
    """{number: word} of an enum of the program."""
    try:
        fields = gdb.lookup_type(f"enum {enum}").fields()
    except gdb.error:
        return {}
    return {f.enumval: f.name[len(prefix):].lower() for f in fields if f.name.startswith(prefix)}


# --- the segment ---------------------------------------------------------------------------


class Segment:
    def __init__(self):
        self.base, self.path = self.find()
        superblock = Record.of("xseg_superblock")
        data = memory(self.base, superblock.size)
        self.name = superblock.get(data, "name")
        self.size = superblock.get(data, "size")
        self.lane_count = superblock.get(data, "lane_count")
        self.version = superblock.get(data, "layout_version")
        self.tables = self.places(data, superblock)
        self.peers = self.all_peers()
        self.life = names_of("xseg_life", "XSEG_LIFE_")
        self.ops = names_of("xseg_op", "XSEG_OP_")
        self.states = names_of("xseg_request_state", "XSEG_REQUEST_")

    @staticmethod
    def find():
        for line in gdb.execute("info proc mappings", to_string=True).splitlines():
            words = line.split()
            if words and "/xseg." in words[-1] and words[0].startswith("0x"):
                return int(words[0], 16), words[-1]
        raise Problem("no segment is mapped in this process")

    @staticmethod
    def places(data, superblock):
        place = Record.of("xseg_table_place")
        tables, names = {}, names_of("xseg_table", "XSEG_TABLE_")
        for number, name in names.items():
            at = superblock.offset("tables") + number * place.size
            if name != "count":
                tables[name] = {field: place.get(data, field, at)
                                for field in ("offset", "count", "item_size")}
        return tables

    def address(self, table, index=0):
        place = self.tables[table]
        if index >= place["count"]:
            raise Problem(f"there are {place['count']} {table}")
        return self.base + place["offset"] + index * place["item_size"]

    def read(self, table, index=None):
        """One item, or the whole table."""
        place = self.tables[table]
        count = place["count"] if index is None else 1
        return memory(self.address(table, index or 0), count * place["item_size"])

    def items(self, table, name):
        record, data = Record.of(name), self.read(table)
        for index in range(self.tables[table]["count"]):
            yield index, record, data, index * record.size

    def all_peers(self):
        peers = []
        for index, record, data, at in self.items("peers", "xseg_peer_record"):
            word = record.get(data, "word", at)
            if word & 0xFF:
                peers.append({"index": index, "life": word & 0xFF, "epoch": word >> 8 & 0xFFFF,
                              "pid": word >> 32, "lanes": record.get(data, "lanes", at),
                              "name": record.get(data, "name", at),
                              "role": record.get(data, "role", at)})
        return peers

    def lane_name(self, lane):
        names = [peer["name"] for peer in self.peers if peer["lanes"] >> lane & 1]
        return ",".join(names) or f"lane {lane}"

    def port_name(self, port):
        if port >= self.tables["ports"]["count"]:
            return f"?{port}"
        record = Record.of("xseg_port_record")
        return record.get(self.read("ports", port), "name") or f"?{port}"


# --- requests ------------------------------------------------------------------------------


class Request:
    def __init__(self, segment, slot, data, at=0):
        self.segment, self.slot, self.data, self.at = segment, slot, data, at
        self.record, self.frame_record = Record.of("xseg_request"), Record.of("xseg_frame")
        word = self.get("word")
        self.state, self.frame = word & 0xF, word >> 4 & 0xF
        self.owner, self.epoch = word >> 8 & 0xFFFF, word >> 24 & 0xFFFF
        self.generation = word >> 40

    def get(self, field):
        return self.record.get(self.data, field, self.at)

    def hop(self, number, field):
        at = self.at + self.record.offset("frame") + number * self.frame_record.size
        return self.frame_record.get(self.data, field, at)

    def key(self, number):
        at = self.at + self.record.offset("frame") + number * self.frame_record.size
        return struct.unpack_from("<QII", self.data, at + self.frame_record.offset("key"))

    def state_name(self):
        return self.segment.states.get(self.state, f"state {self.state}")

    def with_whom(self):
        if self.state_name() == "submitted":
            return self.segment.port_name(self.owner)
        if self.state_name() == "taken" and self.frame < 8:
            return self.segment.port_name(self.hop(self.frame, "port"))
        return self.segment.lane_name(self.owner)

    def op(self, number=0):
        op = self.hop(number, "op")
        return self.segment.ops.get(op, str(op))

    def line(self):
        return (f"{self.slot}.{self.generation:<8} {self.state_name():<10} "
                f"{self.with_whom():<16} {self.op():<8} volume {self.key(0)[0]:016x} "
                f"offset {self.hop(0, 'offset')} length {self.hop(0, 'length')} "
                f"hop {self.frame}")

    def details(self):
        yield (f"request {self.slot}, generation {self.generation}: {self.state_name()}, "
               f"with {self.with_whom()}, epoch {self.epoch}")
        yield (f"client {self.segment.lane_name(self.get('client'))} "
               f"(lane {self.get('client')}, epoch {self.get('client_epoch')}), "
               f"sequence {self.get('sequence')}, cookie {self.get('cookie'):#x}")
        yield (f"result {self.get('result')}, length {self.get('length')}, "
               f"value {self.get('value')}, flags {self.get('flags'):#x}")
        first = self.hop(0, "time_ns")
        for number in range(min(self.frame + 1, 8)):
            volume, _, thing = self.key(number)
            yield (f"hop {number}: lane {self.hop(number, 'from')} -> "
                   f"{self.segment.port_name(self.hop(number, 'port'))}: {self.op(number)} "
                   f"volume {volume:016x} object {thing} offset {self.hop(number, 'offset')} "
                   f"length {self.hop(number, 'length')} "
                   f"flags {self.hop(number, 'flags'):#x} "
                   f"+{self.hop(number, 'time_ns') - first} ns")
        yield from self.pages("extents", self.get("extent_count"))
        yield from self.pages("answer", self.get("answer_count"))

    def pages(self, field, count):
        runs = struct.unpack_from("<32I", self.data, self.at + self.record.offset(field))
        for run in range(min(count, 16)):
            yield f"{field} {run}: {runs[2 * run + 1]} pages from {runs[2 * run]}"


def requests(segment):
    for slot, _, data, at in segment.items("requests", "xseg_request"):
        yield Request(segment, slot, data, at)


# --- commands ------------------------------------------------------------------------------


def show_summary(segment):
    print(f"segment {segment.name}: {segment.path}, {segment.size} bytes, layout version "
          f"{segment.version}, {segment.lane_count} lanes at most")
    counts = {}
    for request in requests(segment):
        counts[request.state_name()] = counts.get(request.state_name(), 0) + 1
    print("requests: " + ", ".join(f"{counts[name]} {name}" for name in sorted(counts)))
    record, data = Record.of("xseg_page_descriptor"), segment.read("page_descriptors")
    states, pages = names_of("xseg_page_state", "XSEG_PAGE_"), {}
    for (word,) in struct.iter_unpack(f"<Q{record.size - 8}x", data):
        name = states.get(word & 0xF, f"state {word & 0xF}")
        pages[name] = pages.get(name, 0) + 1
    print("pages: " + ", ".join(f"{pages[name]} {name}" for name in sorted(pages)))
    show_peers(segment)


def show_peers(segment, only=None):
    for peer in segment.peers:
        if only in (None, peer["name"]):
            lanes = [str(i) for i in range(64) if peer["lanes"] >> i & 1]
            print(f"peer {peer['name']} ({peer['role']}): {segment.life.get(peer['life'])}, "
                  f"pid {peer['pid']}, epoch {peer['epoch']}, lanes {','.join(lanes)}")


def show_peer(segment, name):
    if name not in [peer["name"] for peer in segment.peers]:
        raise Problem(f"there is no peer '{name}'")
    show_peers(segment, name)
    for request in requests(segment):
        if request.state and request.with_whom() == name:
            print(request.line())


def show_lanes(segment):
    bell = Record.of("xseg_bell")
    for index, record, data, at in segment.items("lanes", "xseg_lane_record"):
        word = record.get(data, "word", at)
        if word & 0xFF == 0:
            continue
        asleep = bell.get(data, "asleep", at + record.offset("bell"))
        print(f"lane {index}: {segment.life.get(word & 0xFF)}, pid {word >> 32}, "
              f"epoch {word >> 8 & 0xFFFF}, turn {record.get(data, 'heartbeat', at)}, "
              f"{'asleep' if asleep else 'awake'}, {segment.lane_name(index)}")


def show_ports(segment):
    for index, record, data, at in segment.items("ports", "xseg_port_record"):
        word, name = record.get(data, "word", at), record.get(data, "name", at)
        if word & 0xFF and name:
            lanes = record.list_of(data, "lane", at)[:record.get(data, "lane_count", at)]
            print(f"port {index}: {name}, {segment.life.get(word & 0xFF)}, lanes "
                  f"{','.join(map(str, lanes))}")


def show_requests(segment, state=None):
    found = [r for r in requests(segment)
             if r.state and state in (None, r.state_name())]
    for request in sorted(found, key=lambda r: r.get("sequence")):
        print(request.line())
    print(f"{len(found)} requests")


def show_request(segment, slot):
    slot = int(slot.split(".")[0])
    for line in Request(segment, slot, segment.read("requests", slot)).details():
        print(line)


def show_ring(segment, producer, consumer):
    producer, consumer = int(producer), int(consumer)
    if max(producer, consumer) >= segment.lane_count:
        raise Problem(f"there are {segment.lane_count} lanes")
    data = segment.read("rings", consumer * segment.lane_count + producer)
    ring, slot = Record.of("xseg_ring"), Record.of("xseg_slot")
    kinds, head, entries = names_of("xseg_hint", "XSEG_HINT_"), ring.get(data, "head"), []
    for at in range(ring.offset("slots"), ring.size, slot.size):
        sequence = slot.get(data, "sequence", at)
        if sequence > head:
            entries.append((sequence, slot.get(data, "request", at), slot.get(data, "kind", at)))
    print(f"ring from lane {producer} to lane {consumer}: taken up to {head} or a little more, "
          f"{len(entries)} after that")
    for sequence, request, kind in sorted(entries):
        print(f"{sequence}: {kinds.get(kind, kind)} of request {request}")


def show_page(segment, number):
    number = int(number)
    record, data = Record.of("xseg_page_descriptor"), segment.read("page_descriptors", number)
    word = record.get(data, "word")
    state = names_of("xseg_page_state", "XSEG_PAGE_").get(word & 0xF, f"state {word & 0xF}")
    print(f"page {number}: {state}, {word >> 4 & 0xFFFFFFF} pins, lane {word >> 32 & 0xFFFF} "
          f"epoch {word >> 48}")


COMMANDS = {"": (show_summary, 0, 0), "peers": (show_peers, 0, 0), "peer": (show_peer, 1, 1),
            "lanes": (show_lanes, 0, 0), "ports": (show_ports, 0, 0),
            "requests": (show_requests, 0, 1), "request": (show_request, 1, 1),
            "ring": (show_ring, 2, 2), "page": (show_page, 1, 1)}


class Skerry(gdb.Command):
    """Shows a Skerry segment: skerry [peers|lanes|ports|peer NAME|requests [STATE]|request SLOT|
ring FROM TO|page NUMBER]"""

    def __init__(self):
        super().__init__("skerry", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        command = words.pop(0) if words else ""
        if command not in COMMANDS:
            raise Problem(f"skerry {command}: there is " + ", ".join(filter(None, COMMANDS)))
        function, least, most = COMMANDS[command]
        if not least <= len(words) <= most:
            raise Problem(f"skerry {command}: takes {least} to {most} words")
        try:
            function(Segment(), *words)
        except ValueError as why:
            raise Problem(str(why)) from None


Skerry()
