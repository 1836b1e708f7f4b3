# SPDX-License-Identifier: Apache-2.0
"""A virtual machine whose program writes to each page of its memory, over and over, and QEMU's own
migration of it: what re-homing is compared with."""

import json
import os
import socket
import subprocess
import time

from path_servers import Unavailable, wait_socket

# A boot sector, by GNU as from:
#   cli; in $0x92, %al; or $2, %al; out %al, $0x92      # all address lines
#   xor %ax, %ax; mov %ax, %ds; lgdtl table
#   mov %cr0, %eax; inc %ax; mov %eax, %cr0; ljmp $8, $wide
#   wide: mov $16, %al; mov %eax, %ds; mov $0x3f8, %edx
#   again: mov $0x100000, %edi
#   page: add $0x9e3779b9, %ebx; mov %ebx, (%edi); mov %ebx, 2048(%edi)
#         add $4096, %edi; cmp $END, %edi; jb page
#         mov $'.', %al; out %al, %dx; jmp again        # to the serial line, once around
#   gdt: .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff; table: .word 23; .long gdt
CODE = ("fae4920c02e69231c08ed8660f0116687c0f20c0400f22c0ea1d7c0800b0108ed8baf8030000bf00001000"
        "81c3b979379e891f899f0008000081c70010000081ff{end}72e4b02eeeebda8d7426000000000000000000"
        "ffff0000009acf00ffff00000092cf001700507c0000")
HIGH = 65536  # bytes at the end that firmware has


class Qmp:
    """The monitor of a QEMU program."""

    def __init__(self, path):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            self.lines = sock.makefile("rw", encoding="utf-8")
        self.lines.readline()  # who it is
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        json.dump({"execute": command, "arguments": arguments}, self.lines)
        self.lines.write("\n")
        self.lines.flush()
        for line in self.lines:
            answer = json.loads(line)
            if "error" in answer:
                raise Unavailable(f"{command}: {answer['error']['desc']}")
            if "return" in answer:  # else an event
                return answer["return"]
        raise Unavailable("QEMU is gone")


class Machine:
    """Of so many bytes of memory; `with` ends it."""

    def __init__(self, folder, name, memory, *more):
        self.path = f"{folder}/{name}"
        end = (memory - HIGH) & ~4095
        with open(f"{self.path}.boot", "wb") as file:
            file.write(bytes.fromhex(CODE.format(end=end.to_bytes(4, "little").hex()))
                       .ljust(510, b"\0") + b"\x55\xaa")
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-accel", "tcg", "-machine", "pc", "-m", f"{memory >> 20}M",
             "-display", "none", "-nodefaults",
             "-drive", f"file={self.path}.boot,format=raw,if=ide,snapshot=on",
             "-serial", f"file:{self.path}.serial",
             "-qmp", f"unix:{self.path}.qmp,server=on,wait=off", *more],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_socket(f"{self.path}.qmp", self.process)
        self.ask = Qmp(f"{self.path}.qmp").ask

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def around(self):
        """How often it has written to all of its memory."""
        try:
            return os.path.getsize(f"{self.path}.serial")
        except OSError:
            return 0

    def wait_around(self, count, patience=30):
        end = time.monotonic() + patience
        while self.around() < count:
            if self.process.poll() is not None or time.monotonic() > end:
                raise Unavailable("the machine does not write")
            time.sleep(0.02)


def migrate(folder, memory, port, relay, late, patience):
    """To another one that listens on `port`, through a relay. late: it goes over after the second
    round, and its memory after it. What QEMU says in the end: status, total-time and downtime in
    ms (late: its processor waited for its memory for postcopy-blocktime ms besides); status active:
    it was not done within `patience` seconds."""
    with Machine(folder, "here", memory) as here, \
            Machine(folder, "there", memory, "-incoming", "defer") as there:
        here.wait_around(2)
        for each in (here, there):
            each.ask("migrate-set-capabilities", capabilities=[
                {"capability": f"postcopy-{what}", "state": late} for what in ("ram", "blocktime")])
        here.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 40, "downtime-limit": 300})
        there.ask("migrate-incoming", uri=f"tcp:127.0.0.1:{port}")
        here.ask("migrate", uri=f"tcp:127.0.0.1:{relay}")
        end, over = time.monotonic() + patience, False
        while True:
            said = here.ask("query-migrate")
            rounds = said.get("ram", {}).get("dirty-sync-count", 0)
            if late and not over and said["status"] == "active" and rounds >= 2:
                here.ask("migrate-start-postcopy")
                over = True
            if said["status"] in ("completed", "failed") or time.monotonic() > end:
                waited = there.ask("query-migrate").get("postcopy-blocktime", 0)
                return {**said, "postcopy-blocktime": waited}
            time.sleep(0.02)
