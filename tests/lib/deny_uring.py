#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deny_uring.py COMMAND...: runs it where io_uring_setup() answers EPERM, as containers do."""
import ctypes
import os
import struct
import sys

IO_URING_SETUP = 425  # on every architecture
EPERM = 1
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD_WORD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


def main():
    program = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (LOAD_WORD, 0, 0, 0),  # the number of the call
            (JUMP_EQUAL, 0, 1, IO_URING_SETUP),
            (RETURN, 0, 0, ERRNO | EPERM),
            (RETURN, 0, 0, ALLOW),
        )
    )
    buffer = ctypes.create_string_buffer(program)
    filter_ = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(filter_), 0, 0
    ):
        sys.exit(f"deny_uring.py: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


main()
