# SPDX-License-Identifier: Apache-2.0
"""The NBD servers that bench/path.py compares: each is started, measured by its CPU clock, and
stopped by its own pid."""

import os
import shutil
import socket
import subprocess
import time

MIB = 1 << 20


class Unavailable(Exception):
    """This server cannot run here."""


def wait_socket(path, process, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(path)
                return
            except OSError:
                time.sleep(0.02)
    raise Unavailable(f"no server on {path}")


def cpu_ns(pid):
    """CPU time of a process and all its threads, ended ones too: its POSIX CPU clock."""
    return time.clock_gettime_ns((~pid << 3) | 2)


class Server:
    """One process or several, one UNIX socket."""
    ours = False

    def __init__(self, name, place):
        self.name, self.place = name, place
        self.socket, self.export = f"{place.folder}/{name}.sock", "disk"
        self.processes = []

    @property
    def uri(self):
        return f"nbd+unix:///{self.export}?socket={self.socket}"

    def spawn(self, *words):
        if not shutil.which(words[0]):
            raise Unavailable(f"{words[0]} is not installed")
        log = open(f"{self.place.folder}/{self.name}.log", "a", encoding="utf-8")
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=log, env=self.place.environment)
        log.close()
        self.processes.append(process)
        return process

    def cpu(self):
        return sum(cpu_ns(process.pid) for process in self.processes)

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes = []


class Nbdkit(Server):
    """nbdkit with one of its plugins, defaults otherwise."""

    def __init__(self, name, place, plugin):
        super().__init__(name, place)
        self.plugin = plugin

    def start(self):
        process = self.spawn("nbdkit", "-f", "-U", self.socket, self.plugin,
                             f"size={self.place.size}")
        wait_socket(self.socket, process)


class OnTmpfs(Server):
    """A server of files, on a file in memory."""

    def image(self):
        path = f"{self.place.memory}/{self.name}.raw"
        with open(path, "wb") as file:
            file.truncate(self.place.size)
        return path


class QemuNbd(OnTmpfs):
    def start(self):
        process = self.spawn("qemu-nbd", "-f", "raw", "-t", "-e", "64", "-x", self.export,
                             "-k", self.socket, self.image())
        wait_socket(self.socket, process)


class QemuStorageDaemon(OnTmpfs):
    def start(self):
        process = self.spawn(
            "qemu-storage-daemon",
            "--blockdev", f"driver=file,node-name=f0,filename={self.image()}",
            "--nbd-server", f"addr.type=unix,addr.path={self.socket}",
            "--export", f"type=nbd,id=e0,node-name=f0,name={self.export},writable=on")
        wait_socket(self.socket, process)


class Skerry(Server):
    """Front, volume and memory blocker: in one process, or one each."""
    ours = True

    def __init__(self, name, place, stacked):
        super().__init__(name, place)
        self.stacked, self.segment = stacked, f"path{os.getpid()}-{name}"
        self.created = False

    def control(self, *words):
        done = subprocess.run([self.place.program("xsegctl"), *words], capture_output=True,
                              text=True, env=self.place.environment, timeout=60, check=False)
        if done.returncode:
            raise Unavailable(f"xsegctl {' '.join(words)}: {done.stderr.strip()}")

    def peer(self, *parts):
        process = self.spawn(self.place.program("xsegpeer"), "-s", self.segment, *parts)
        line = process.stdout.readline().decode().strip()
        if line != "ready":
            raise Unavailable(f"xsegpeer {' '.join(parts)} said '{line}'; see {self.name}.log")

    def start(self):
        # the memory blocker's objects are pages of the segment
        self.control("segment", "create", self.segment, "--size", str(self.place.size + 768 * MIB))
        self.created = True
        front = f"nbd0=front_nbd,listen=unix:{self.socket},edge.volume=vol0"
        parts = (self.place.store, "map0=mapperd,edge.store=store0",
                 "vol0=volume,edge.store=store0,edge.map=map0", front)
        if self.stacked:
            self.peer(*reversed(parts))
        else:
            for part in parts:
                self.peer(part)
        self.control("-s", self.segment, "volume", "create", self.export,
                     "--size", str(self.place.size))
        wait_socket(self.socket, self.processes[-1])

    def stop(self):
        super().stop()
        if self.created:
            self.control("segment", "destroy", self.segment, "--yes")
            self.created = False


class Place:
    """Folders of our own, where the programs are, and how large the export is."""

    def __init__(self, folder, memory, size):
        self.folder, self.memory, self.size = folder, memory, size
        self.store = f"store0=blocker_memory,size={size + 16 * MIB}"
        self.environment = dict(os.environ, SKERRY_SHM_DIR=memory, SKERRY_RUN_DIR=f"{folder}/run")
        os.makedirs(f"{folder}/run", exist_ok=True)
        self.build = self.find_build()
        modules = self.find_modules()
        if modules and "SKERRY_MODULE_DIR" not in os.environ:
            self.environment["SKERRY_MODULE_DIR"] = modules

    @staticmethod
    def find_build():
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        for folder in (os.environ.get("SKERRY_BUILD"), os.environ.get("builddir"), os.getcwd(),
                       f"{here}/build", here):
            for sub in ("", "/tools", "/peers/core"):
                if folder and os.access(f"{folder}{sub}/xsegpeer", os.X_OK):
                    return os.path.abspath(folder)
        return None

    def find_modules(self):
        for folder in ("modules/.libs", "modules", ".libs"):
            if self.build and os.path.exists(f"{self.build}/{folder}/blocker_memory.so"):
                return f"{self.build}/{folder}"
        return None

    def program(self, name):
        for sub in ("", "/tools", "/peers/core"):
            if self.build and os.access(f"{self.build}{sub}/{name}", os.X_OK):
                return f"{self.build}{sub}/{name}"
        found = shutil.which(name)
        if not found:
            raise Unavailable(f"{name} is not built; say where with SKERRY_BUILD")
        return found


def servers(place):
    return [Skerry("stacked", place, True), Skerry("three", place, False),
            Nbdkit("nbdkit-memory", place, "memory"), Nbdkit("nbdkit-null", place, "null"),
            QemuNbd("qemu-nbd", place), QemuStorageDaemon("qemu-storage-daemon", place)]
