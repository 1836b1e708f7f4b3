#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A service manager in small, as sd_notify(3) and sd_listen_fds(3) have it, around xsegd.

keeper_service_run.py FOLDER XSEGD CONF: starts xsegd for segment k, kills it, starts it again with
what it had stored, and says of each check whether it held: "ok NAME", "not ok NAME: why"."""

import array
import json
import os
import signal
import socket
import subprocess
import sys
import time

folder, xsegd, conf = sys.argv[1:4]
ctl = os.environ["XSEGCTL"]


class Manager:
    def __init__(self):
        self.path = os.path.join(folder, "manager.sock")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(0.05)
        self.stored, self.said, self.process = {}, [], None

    def start(self, activated):
        """Hands over what was stored, and sockets of activation, as systemd does."""
        fds = list(activated.items()) + list(self.stored.items())
        names = ":".join(name for name, _ in fds)
        environment = dict(os.environ, NOTIFY_SOCKET=self.path, WATCHDOG_USEC="1000000",
                           LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES=names)

        def prepare():
            high = [os.dup2(fd, 200 + i) for i, (_, fd) in enumerate(fds)]
            for i, fd in enumerate(high):
                os.dup2(fd, 3 + i, inheritable=True)
                os.close(fd)

        # the shell puts its own pid, which xsegd then has, where both look for it
        script = 'export LISTEN_PID=$$ WATCHDOG_PID=$$; exec "$@"'
        with open(os.path.join(folder, "xsegd.log"), "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", script, "sh", xsegd, "k", conf], env=environment,
                preexec_fn=prepare, close_fds=False, stderr=log)

    def read(self):
        """One message, if there is one."""
        ints = array.array("i")
        try:
            text, control, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(16))
        except TimeoutError:
            return
        for _, kind, data in control:
            if kind == socket.SCM_RIGHTS:
                ints.frombytes(data[:len(data) - len(data) % ints.itemsize])
        fields = dict(line.split("=", 1) for line in text.decode().splitlines())
        self.said.append(fields)
        name = fields.get("FDNAME")
        if "FDSTOREREMOVE" in fields and name in self.stored:
            os.close(self.stored.pop(name))
        if "FDSTORE" in fields:
            self.stored[name] = ints[0]

    def wait(self, condition, seconds=15):
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            self.read()
        return bool(condition())

    def heard(self, key, value="1"):
        return any(fields.get(key) == value for fields in self.said)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.said.clear()


def check(name, held, seen=""):
    print(f"ok {name}" if held else f"not ok {name}: {seen}", flush=True)


def pid_of(peer):
    out = subprocess.run([ctl, "-s", "k", "status", "--json"], stdout=subprocess.PIPE, check=False)
    for row in json.loads(out.stdout)["peers"]:
        if row["name"] == peer and row["state"] == "serving":
            return row["pid"]
    return 0


def greets(path):
    """An NBD server says so first."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(120)
    client.connect(path)
    return client.recv(8, socket.MSG_WAITALL) == b"NBDMAGIC"


def killed_and_back(manager, peer):
    """SIGKILL: its clients, who connect at once, wait until it is back."""
    old = pid_of(peer)
    os.kill(old, signal.SIGKILL)
    return manager.wait(lambda: pid_of(peer) not in (0, old))


def main():
    own, unit = os.path.join(folder, "k.sock"), os.path.join(folder, "unit.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(unit)
    listener.listen(16)
    activated = {"nbd": listener.fileno()}
    manager = Manager()

    manager.start(activated)
    check("it says that it is ready", manager.wait(lambda: manager.heard("READY")), manager.said)
    check("it stores the front's socket",
          manager.wait(lambda: any(name.startswith("nbd0/") for name in manager.stored)),
          list(manager.stored))
    check("it gives signs of life", manager.wait(lambda: manager.heard("WATCHDOG")), manager.said)
    check("the front's own socket is served", greets(own))
    check("so is the one of the unit", greets(unit))

    inode = os.stat(own).st_ino
    fronts = pid_of("nbd0"), pid_of("nbd1")
    manager.kill()
    check("while it is away, fronts serve", greets(own) and greets(unit))
    manager.start(activated)
    check("killed and started again it is ready", manager.wait(lambda: manager.heard("READY")))
    check("with the same fronts", (pid_of("nbd0"), pid_of("nbd1")) == fronts)
    for peer, path in (("nbd0", own), ("nbd1", unit)):
        check(f"{peer} is killed and comes back", killed_and_back(manager, peer))
        check(f"{peer} has its socket again", greets(path))
    check("it is the one that was stored", os.stat(own).st_ino == inode)

    manager.process.terminate()
    check("it says that it stops", manager.wait(lambda: manager.heard("STOPPING")))
    check("and ends well", manager.wait(lambda: manager.process.poll() is not None) and
          manager.process.returncode == 0, manager.process.returncode)
    check("nothing is stored any more", manager.wait(lambda: not manager.stored),
          list(manager.stored))
    check("its socket is gone", not os.path.exists(own))
    check("the unit's is not", os.path.exists(unit))


main()
