# SPDX-License-Identifier: Apache-2.0
"""What bench/cache.py measures with: a private segment, peers in processes of their own, the load.

Processes are ended by the pids that were started here; folders and segment go away with the rig.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from path_servers import MIB, Place, Unavailable

CPUS = sorted(os.sched_getaffinity(0))


def pinned(cpu):
    """What a new process does first; None: it goes where there is room."""
    if cpu is None or len(CPUS) < 2:
        return None
    return lambda: os.sched_setaffinity(0, {CPUS[cpu]})


def spec(name, role, **options):
    """PEER=ROLE,option=value... as xsegpeer takes it; edge_x stands for edge.x, a_b for a-b."""
    words = [f"{name}={role}"]
    for key, value in options.items():
        words.append(f"{key.replace('edge_', 'edge.').replace('_', '-')}={value}")
    return ",".join(words)


class Rig:
    """One segment; `with` ends all that was started in it."""
    numbers = itertools.count()

    def __init__(self, size, disk=None):
        self.folder = tempfile.mkdtemp(prefix="cache.", dir=disk)
        self.memory = tempfile.mkdtemp(prefix="cache.", dir="/dev/shm")
        self.place = Place(self.folder, self.memory, 64 * MIB)
        self.environment = self.place.environment
        self.name = f"cache{os.getpid()}-{next(self.numbers)}"
        self.size, self.processes = size, []

    def __enter__(self):
        try:
            self.control("segment", "create", self.name, "--size", str(self.size))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            for process in reversed(self.processes):
                self.end(process)
        finally:  # also when one does not end
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.rmtree(self.memory, ignore_errors=True)

    def control(self, *words, fine=(0,)):
        done = subprocess.run([self.place.program("xsegctl"), *words], capture_output=True,
                              text=True, env=self.environment, timeout=60, check=False)
        if done.returncode not in fine:
            raise Unavailable(f"xsegctl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def has_role(self, role):
        done = subprocess.run([self.place.program("xsegpeer"), "--help-role", role],
                              stdin=subprocess.DEVNULL, capture_output=True,
                              env=self.environment, timeout=60, check=False)
        return done.returncode == 0

    def command(self, lanes, specs):
        return [self.place.program("xsegpeer"), "-s", self.name, "-l", str(lanes), *specs]

    def start(self, *specs, lanes=1, cpu=None):
        """Peers in a process of their own, when they serve."""
        with open(f"{self.folder}/peers.log", "a", encoding="utf-8") as log:
            process = subprocess.Popen(
                self.command(lanes, specs), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=log, env=self.environment, preexec_fn=pinned(cpu))
        self.processes.append(process)
        line = process.stdout.readline().decode().strip()
        if line != "ready":
            raise Unavailable(f"xsegpeer {' '.join(specs)} said '{line}': {self.log_end()}")
        return process

    def log_end(self):
        with open(f"{self.folder}/peers.log", encoding="utf-8", errors="replace") as log:
            return log.read()[-400:].strip()

    def end(self, process):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout:
            process.stdout.close()
        if process in self.processes:
            self.processes.remove(process)

    def kill(self, process):
        process.kill()
        process.wait()
        self.end(process)

    def load(self, target, *below, lanes=1, cpu=None, seconds=1.0, server=None, **options):
        """The load against `target`, or stacked on `below`: its report; with server_cpu_us, of an
        operation, when the server's process is named."""
        report = f"{self.folder}/report.json"
        if os.path.exists(report):
            os.unlink(report)
        words = dict({"edge_target": target, "time": f"{int(seconds * 1e9)}ns", "fresh": "no"},
                     report=report, **options)
        before = cpu_ns(server.pid) if server else 0
        try:
            done = subprocess.run(
                self.command(lanes, [spec("load0", "load", **words), *below]),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, env=self.environment,
                preexec_fn=pinned(cpu), timeout=seconds + 30, check=False)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"load on {target} does not come to an end") from None
        if done.returncode or not os.path.exists(report):
            raise Unavailable(f"load on {target}: {done.stderr.strip()[-400:]}")
        with open(report, encoding="utf-8") as file:
            found = json.load(file)
        if server:
            used = cpu_ns(server.pid) - before
            found["server_cpu_us"] = used / 1e3 / max(found["ops"], 1)
        return found

    def ask(self, target, kind, depth, seconds, size):
        """A bare lane asks a port (bench_port.c), on the first CPU: its report."""
        done = subprocess.run(
            [self.place.program("bench_port"), self.name, target, kind, str(depth), str(seconds),
             str(size)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            env=self.environment, preexec_fn=pinned(0), timeout=seconds + 60, check=False)
        if done.returncode:
            raise Unavailable(f"bench_port {kind} on {target}: {done.stderr.strip()[-300:]}")
        return json.loads(done.stdout)

    def wait_idle(self, process, seconds=20):
        """Until what it does in the background takes less than a tenth of a CPU."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            before = cpu_ns(process.pid)
            time.sleep(0.1)
            if cpu_ns(process.pid) - before < 10_000_000:
                return


def cpu_ns(pid):
    return time.clock_gettime_ns((~pid << 3) | 2)


def references(place, quick=True):
    """{row: value} of bench_cache: a bare ring, a copy."""
    path = f"{place.memory}/references.json"
    done = subprocess.run([place.program("bench_cache"), *(["--quick"] if quick else []),
                           "--json", path], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, env=place.environment, timeout=120, check=False)
    if done.returncode:
        raise Unavailable(f"bench_cache: {(done.stderr or done.stdout).strip()[-300:]}")
    with open(path, encoding="utf-8") as file:
        return {row["name"]: row["value"] for row in json.load(file)}
