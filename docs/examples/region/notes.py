#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same as notes.c, in Python: the memory is a buffer like any other.

    notes.py SEGMENT VOLUME [TEXT]
"""

import ctypes
import os
import struct
import sys

READ_ONLY = 1


class Region:
    """A volume as memory: `memory` is a memoryview. See <xseg/region.h>."""

    library = ctypes.CDLL("libxseg-region.so.0", use_errno=True)
    library.region_open.restype = ctypes.c_void_p
    library.region_open.argtypes = (
        ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint)
    library.region_why.restype = ctypes.c_char_p
    library.region_memory.restype = ctypes.c_void_p
    library.region_memory.argtypes = (ctypes.c_void_p,)
    library.region_size.restype = ctypes.c_uint64
    library.region_size.argtypes = (ctypes.c_void_p,)
    library.region_sync.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
    library.region_close.argtypes = (ctypes.c_void_p,)

    def __init__(self, segment, volume, flags=0):
        self.region = self.library.region_open(segment.encode(), volume.encode(), 0, 0, flags)
        if not self.region:
            raise OSError(ctypes.get_errno(), self.library.region_why().decode())
        size = self.library.region_size(self.region)
        whole = (ctypes.c_char * size).from_address(self.library.region_memory(self.region))
        self.memory = memoryview(whole).cast("B")

    def sync(self, offset=0, size=0):
        error = self.library.region_sync(self.region, offset, size)
        if error:
            raise OSError(-error, os.strerror(-error))

    def close(self):
        self.memory.release()
        self.library.region_close(self.region)


def main():
    segment, volume, *text = sys.argv[1:]
    region = Region(segment, volume, 0 if text else READ_ONLY)
    used = struct.unpack_from("=Q", region.memory)[0]
    if text:
        note = text[0].encode() + b"\n"
        if 8 + used + len(note) > len(region.memory):
            sys.exit("notes.py: no space left")
        region.memory[8 + used:8 + used + len(note)] = note
        region.sync()
        struct.pack_into("=Q", region.memory, 0, used + len(note))
        region.sync(0, 8)
    else:
        sys.stdout.buffer.write(region.memory[8:8 + used])
        sys.stdout.flush()
    region.close()


if __name__ == "__main__":
    main()
