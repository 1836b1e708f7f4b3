# SPDX-License-Identifier: Apache-2.0
"""The NBD servers that bench/path.py compares: each is started, measured by its CPU clock, and
stopped by its own pid."""

import os
import shutil
import socket
import subprocess
import time

MIB = 1 << 20
DEFAULT = "two"  # of servers_of_files(): what ./quickstart starts


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


    def image(self):
        """A file in memory, for servers of files."""
        path = f"{self.place.memory}/{self.name}.raw"
        with open(path, "wb") as file:
            file.truncate(self.place.size)
        return path


class Nbdkit(Server):
    """nbdkit with one of its plugins, defaults otherwise."""

    def __init__(self, name, place, plugin):
        super().__init__(name, place)
        self.plugin = plugin

    def start(self):
        what = self.image() if self.plugin == "file" else f"size={self.place.size}"
        process = self.spawn("nbdkit", "-f", "-U", self.socket, self.plugin, what)
        wait_socket(self.socket, process)


class QemuNbd(Server):
    def start(self):
        process = self.spawn("qemu-nbd", "-f", "raw", "-t", "-e", "64", "-x", self.export,
                             "-k", self.socket, self.image())
        wait_socket(self.socket, process)


class QemuStorageDaemon(Server):
    def start(self):
        process = self.spawn(
            "qemu-storage-daemon",
            "--blockdev", f"driver=file,node-name=f0,filename={self.image()}",
            "--nbd-server", f"addr.type=unix,addr.path={self.socket}",
            "--export", f"type=nbd,id=e0,node-name=f0,name={self.export},writable=on")
        wait_socket(self.socket, process)


class Skerry(Server):
    """A pipeline: `processes` of words for peers, those that others need first."""
    ours = True

    def __init__(self, name, place, processes, segment_size):
        super().__init__(name, place)
        self.segment, self.segment_size = f"path{os.getpid()}-{name}", segment_size
        front = f"nbd0=front_nbd,listen=unix:{self.socket},edge.volume=vol0"
        os.makedirs(f"{place.memory}/{name}.data", exist_ok=True)
        self.parts = [[part.format(front=front, data=f"{place.memory}/{name}.data")
                       for part in parts] for parts in processes]
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
        self.control("segment", "create", self.segment, "--size", str(self.segment_size))
        self.created = True
        for parts in self.parts:
            self.peer(*parts)
        self.control("-s", self.segment, "volume", "create", self.export,
                     "--size", str(self.place.size))
        self.wait()

    def wait(self):
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


def servers_in_memory(place):
    """Front, composer and memory blocker: what the way itself costs."""
    store = f"store0=blocker_memory,size={place.size + 16 * MIB}"
    mapper, volume = "map0=mapperd,edge.store=store0", "vol0=volume,edge.store=store0,edge.map=map0"
    size = place.size + 768 * MIB  # the memory blocker's objects are pages of the segment
    return [Skerry("stacked", place, [["{front}", volume, mapper, store]], size),
            Skerry("three", place, [[store], [mapper], [volume], ["{front}"]], size),
            Nbdkit("nbdkit-memory", place, "memory"), Nbdkit("nbdkit-null", place, "null"),
            QemuNbd("qemu-nbd", place), QemuStorageDaemon("qemu-storage-daemon", place)]


def servers_of_files(place):
    """What ./quickstart starts, in its processes and in other ones."""
    store, cache = "file0=blocker_file,dir={data}", "cache0=cached,edge.store=file0"
    mapper, volume = "map0=mapperd,edge.store=file0", "vol0=volume,edge.store=cache0,edge.map=map0"
    return [Skerry("one", place, [["{front}", volume, cache, mapper, store]], 256 * MIB),
            Skerry("two", place, [[volume, cache, mapper, store], ["{front}"]], 256 * MIB),
            Skerry("three", place, [[mapper, store], [volume, cache], ["{front}"]], 256 * MIB),
            Skerry("five", place, [[store], [cache], [mapper], [volume], ["{front}"]], 256 * MIB),
            Nbdkit("nbdkit-file", place, "file"),
            QemuNbd("qemu-nbd", place), QemuStorageDaemon("qemu-storage-daemon", place)]
