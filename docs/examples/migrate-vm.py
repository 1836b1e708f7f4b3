#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Moves a QEMU machine to another host, and the volume that is its disk with it.

    migrate-vm.py QMP_SOCKET MIGRATION_URI VOLUME PEER [OPTION]...

QMP_SOCKET is the machine's (-qmp unix:PATH,server=on,wait=off), MIGRATION_URI where the machine on
the other host waits (-incoming ...), with the volume from that host's front as its disk. Options
go to 'xsegctl rehome VOLUME --to PEER'.

Memory goes first, while the machine runs; when it stands still, its disk is given to the other
host, and then it goes on there. If the disk stays, the machine does. Exit status: 0 both are there,
1 both are here.
"""

import json
import os
import socket
import subprocess
import sys
import time


class Qmp:
    def __init__(self, path):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        self.lines = sock.makefile("rw", encoding="utf-8")
        self.lines.readline()  # who it is
        self.do("qmp_capabilities")

    def do(self, command, **arguments):
        json.dump({"execute": command, "arguments": arguments}, self.lines)
        self.lines.write("\n")
        self.lines.flush()
        while True:
            line = self.lines.readline()
            if not line:
                sys.exit("migrate-vm: the machine is gone")
            answer = json.loads(line)
            if "error" in answer:
                sys.exit(f"migrate-vm: {command}: {answer['error']['desc']}")
            if "return" in answer:  # else an event
                return answer["return"]

    def wait(self, *states):
        while True:
            found = self.do("query-migrate")
            if found.get("status") in states:
                return found
            time.sleep(0.01)


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    qmp, (uri, volume, peer) = Qmp(sys.argv[1]), sys.argv[2:5]
    ends = ("completed", "failed", "cancelled")
    qmp.do("migrate-set-capabilities",
           capabilities=[{"capability": "pause-before-switchover", "state": True}])
    qmp.do("migrate", uri=uri)
    found = qmp.wait("pre-switchover", *ends)
    if found["status"] == "pre-switchover":
        xsegctl = os.environ.get("XSEGCTL", "xsegctl")
        rehome = [xsegctl, "rehome", volume, "--to", peer, *sys.argv[5:]]
        if subprocess.run(rehome, stdout=subprocess.DEVNULL, check=False).returncode == 0:
            qmp.do("migrate-continue", state="pre-switchover")
        else:
            qmp.do("migrate_cancel")
        found = qmp.wait(*ends)
    if found["status"] == "completed":
        print(f"{volume}: there, after {found['downtime']} ms")
        return
    if not qmp.do("query-status")["running"]:
        qmp.do("cont")
    sys.exit(f"migrate-vm: the machine stays here: {found.get('error-desc', found['status'])}")


if __name__ == "__main__":
    main()
