# SPDX-License-Identifier: Apache-2.0
"""fio's nbd engine, at random or sequential places for some seconds: what all benches ask with."""

import json
import shutil
import subprocess

from path_servers import Unavailable


def need():
    if not shutil.which("fio"):
        raise Unavailable("fio is not installed")


def jobs(folder, clients, rw, depth, seconds, size, *words, block="4k"):
    """One client a (name, URI): fio's report of each, the part for reads or that for writes."""
    words = ["fio", "--ioengine=nbd", f"--rw={rw}", f"--bs={block}", f"--iodepth={depth}",
             f"--size={size}", "--thread", "--time_based", f"--runtime={seconds}",
             "--randrepeat=0", "--norandommap", "--output-format=json", *words]
    for name, uri in clients:
        words += [f"--name={name}", f"--uri={uri}"]
    done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=seconds + 120, check=False)
    if done.returncode:
        raise Unavailable(f"fio: {(done.stderr.strip() or done.stdout)[-400:]}")
    report = json.loads(done.stdout[done.stdout.index("{"):])["jobs"]
    for job in report:
        if job["error"]:
            raise Unavailable(f"fio: error {job['error']} of {job['jobname']}")
    return [job["read" if "read" in rw else "write"] for job in report]
