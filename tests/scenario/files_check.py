#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One user of one file, in the manner of fsx: reads, writes, maps, punches and zeroes at random
places of any alignment, and after each step a look at what a copy in memory says.

    files_check.py run FILE SEED STEPS     so many steps, then all of it is compared
    files_check.py until FILE SEED STOP    until there is a file STOP
    files_check.py seek FILE               data and holes, as lseek(2) finds them: "data 0 4096" ...
    files_check.py open FILE STOP          opened, written to and closed until there is STOP
    files_check.py late FILE OFFSET GO     opened, and written to when there is a file GO
    files_check.py map FILE OFFSET TEXT    written through a shared mapping, msync(2), and left
    files_check.py both FILE STOP          mapped by two processes that count in the same pages
"""
import ctypes
import mmap
import os
import random
import struct
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
KEEP_SIZE, PUNCH, ZERO = 1, 2, 16
LONGEST = 300_000


class User:
    def __init__(self, path, seed):
        self.random = random.Random(seed)
        self.path = path
        self.file = os.open(path, os.O_RDWR)
        self.direct = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.size = os.fstat(self.file).st_size
        self.map = mmap.mmap(self.file, self.size)
        self.model = bytearray(self.read_all())
        self.counts = {}

    def read_all(self):
        parts, at = [], 0
        buffer = mmap.mmap(-1, 1 << 20)
        while at < self.size:
            got = os.preadv(self.direct, [memoryview(buffer)[: self.size - at]], at)
            parts.append(buffer[:got])
            at += got
        return b"".join(parts)

    def range(self):
        length = self.random.choice((1, 100, 511, 512, 513, 4096, 5000, 65536, LONGEST))
        length = self.random.randint(1, length)
        offset = self.random.randrange(self.size - length)
        if self.random.random() < 0.5:
            offset -= offset % 512
        return offset, length

    def compare(self, what, offset, got):
        want = self.model[offset : offset + len(got)]
        if got == want:
            return
        at = next(i for i in range(len(got)) if got[i] != want[i])
        raise SystemExit(
            f"{self.path}: {what} of {len(got)} bytes at {offset}: byte {offset + at} is "
            f"{got[at]}, not {want[at]}"
        )

    def read(self):
        offset, length = self.range()
        self.compare("read", offset, os.pread(self.file, length, offset))

    def read_direct(self):
        # what is dirty in the mapping must be seen by whoever goes past the cache
        offset, length = self.range()
        buffer = mmap.mmap(-1, LONGEST + 4096)
        begin, end = offset - offset % 512, -(-(offset + length) // 512) * 512
        view = memoryview(buffer)[: end - begin]
        got = os.preadv(self.direct, [view], begin)
        self.compare("O_DIRECT read", begin, bytes(view[:got]))

    def look_map(self):
        offset, length = self.range()
        self.compare("mapping", offset, self.map[offset : offset + length])

    def write(self):
        offset, length = self.range()
        data = self.random.randbytes(length)
        done = 0
        while done < length:
            done += os.pwrite(self.file, data[done:], offset + done)
        self.model[offset : offset + length] = data

    def write_direct(self):
        offset, length = self.range()
        begin, end = offset - offset % 512, -(-(offset + length) // 512) * 512
        buffer = mmap.mmap(-1, end - begin)
        buffer[:] = self.random.randbytes(end - begin)
        if os.pwrite(self.direct, buffer, begin) != end - begin:
            raise SystemExit("a short O_DIRECT write")
        self.model[begin:end] = buffer[:]

    def write_map(self):
        offset, length = self.range()
        data = self.random.randbytes(length)
        self.map[offset : offset + length] = data
        self.model[offset : offset + length] = data
        if self.random.random() < 0.3:
            page = offset - offset % mmap.PAGESIZE
            self.map.flush(page, min(length + mmap.PAGESIZE, self.size - page))

    def zero(self, mode):
        offset, length = self.range()
        if libc.fallocate(self.file, mode | KEEP_SIZE, offset, length):
            raise SystemExit(f"fallocate {mode}: {os.strerror(ctypes.get_errno())}")
        self.model[offset : offset + length] = bytes(length)

    def sync(self):
        os.fsync(self.file)

    def reopen(self):
        os.close(self.file)
        self.file = os.open(self.path, os.O_RDWR)

    def step(self):
        what = self.random.choices(
            (
                (self.read, ()),
                (self.read_direct, ()),
                (self.look_map, ()),
                (self.write, ()),
                (self.write_direct, ()),
                (self.write_map, ()),
                (self.zero, (PUNCH,)),
                (self.zero, (ZERO,)),
                (self.sync, ()),
                (self.reopen, ()),
            ),
            (4, 3, 3, 4, 3, 3, 1, 1, 1, 0.3),
        )[0]
        what[0](*what[1])
        self.counts[what[0].__name__] = self.counts.get(what[0].__name__, 0) + 1

    def end(self):
        self.map.flush()
        os.fsync(self.file)
        self.compare("all", 0, self.read_all())
        print(" ".join(f"{count} {name}" for name, count in sorted(self.counts.items())))


def seek(path):
    file = os.open(path, os.O_RDONLY)
    size, at = os.fstat(file).st_size, 0
    while at < size:
        try:
            data = os.lseek(file, at, os.SEEK_DATA)
        except OSError:
            return
        at = os.lseek(file, data, os.SEEK_HOLE)
        print("data", data, at - data)


def opens(path, stop):
    print("started", flush=True)
    count = 0
    while not os.path.exists(stop):
        file = os.open(path, os.O_RDWR)
        os.pwrite(file, b"%08d" % count, 0)
        if os.pread(file, 8, 0) != b"%08d" % count:
            raise SystemExit(f"{path}: not what was written")
        os.fsync(file)
        os.close(file)
        count += 1
    print(f"{count} times")


class Counter:
    """One of two; what each has counted in each page is in memory that they share."""

    def __init__(self, path, me, counted):
        self.file = os.open(path, os.O_RDWR)
        self.map, self.me, self.counted = mmap.mmap(self.file, 0), me, counted
        self.pages, self.random = len(self.map) // mmap.PAGESIZE, random.Random(me)

    def step(self):
        page = self.random.randrange(self.pages)
        at, mine = page * mmap.PAGESIZE + self.me * 8, self.me * self.pages + page
        if struct.unpack_from("<Q", self.map, at)[0] != self.counted[mine]:
            raise SystemExit(f"page {page}: a count was lost")
        self.counted[mine] += 1
        struct.pack_into("<Q", self.map, at, self.counted[mine])
        if self.random.random() < 0.02:
            self.map.flush(page * mmap.PAGESIZE, mmap.PAGESIZE)

    def until(self, stop):
        while not os.path.exists(stop):
            self.step()
        self.map.flush()


def both(path, stop):
    pages = os.stat(path).st_size // mmap.PAGESIZE
    counted = memoryview(mmap.mmap(-1, 2 * 8 * pages)).cast("Q")
    child = os.fork()
    counter = Counter(path, 0 if child else 1, counted)
    if not child:
        counter.until(stop)
        os._exit(0)
    print("started", flush=True)
    counter.until(stop)
    if os.waitpid(child, 0)[1]:
        raise SystemExit(f"{path}: a count of the other process was not there")
    direct, page = os.open(path, os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, mmap.PAGESIZE)
    for number in range(pages):
        os.preadv(direct, [page], number * mmap.PAGESIZE)
        if struct.unpack_from("<QQ", page) != (counted[number], counted[pages + number]):
            raise SystemExit(f"{path}: page {number} has not what both have counted")
    print(f"{sum(counted)} counts")


def late(path, offset, go, what="write"):
    file = os.open(path, os.O_PATH if what == "open" else os.O_RDWR)
    print("started", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    if what == "open":  # what has been looked up already
        file = os.open(f"/proc/self/fd/{file}", os.O_RDONLY)
    if what == "read":
        os.pread(file, 1, offset)
    if what == "write":
        os.pwrite(file, b"first words", offset)
    os.fsync(file)


def main(argv):
    verb, path = argv[1:3]
    if verb == "seek":
        seek(path)
        return
    if verb == "map":
        file = os.open(path, os.O_RDWR)
        mapping = mmap.mmap(file, 0)
        os.close(file)
        at, text = int(argv[3]), argv[4].encode()
        mapping[at : at + len(text)] = text
        mapping.flush()
        return
    if verb in ("open", "both"):
        (opens if verb == "open" else both)(path, argv[3])
        return
    if verb == "late":
        late(path, int(argv[3]), *argv[4:])
        return
    user = User(path, int(argv[3]))
    print("started", flush=True)
    if verb == "until":
        while not os.path.exists(argv[4]):
            user.step()
    else:
        for _ in range(int(argv[4])):
            user.step()
    user.end()


main(sys.argv)
