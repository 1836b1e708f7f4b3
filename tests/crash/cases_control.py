# SPDX-License-Identifier: Apache-2.0
"""Negative controls: what these cases look for is found when it is there."""

import os
import signal

from case import Scene, table
from rig import Failed, check, until

CASES, case = table()


def must_fail(context, words, run, tries=1):
    for _ in range(tries):
        try:
            run()
        except Failed as e:
            text = str(e)
            context.numbers.setdefault("caught", []).append(text.split("\n")[0][:120])
            check(any(word in text for word in words), f"failed for another reason: {text}")
            return
    raise Failed(f"nobody noticed; one of {words} was to be said")


def kill_over(context, **options):
    with Scene(context, **options) as scene:
        scene.stamp.goes_on(count=2000)
        scene.rig.wait_successor("vol0", scene.rig.kill("vol0"), seconds=3)
        scene.recover()


@case(ci=True)
def control_lies(context):
    """a store that loses writes, tears or swaps sectors, or answers EIO, is noticed"""
    lies = {"lose": ("'lost'", "'old'"), "tear": ("'torn'", "'mixed'"), "swap": ("'misplaced'",),
            "error": ("'EIO'",)}
    for lie, words in lies.items():
        # a lie that is overwritten before it is read is none: on a busy machine all may be
        must_fail(context, words, lambda lie=lie: kill_over(context, lie=lie), tries=4)


@case(ci=True)
def control_restart(context):
    """a peer that nobody starts again is noticed"""
    must_fail(context, ("has a successor",),
              lambda: kill_over(context, keep={"restart": "never"}))


@case(ci=True)
def control_leak(context):
    """request slots and pages that nobody gives back are noticed"""
    with Scene(context) as scene:
        rig = scene.rig
        pid = rig.pid("file0")
        os.kill(pid, signal.SIGSTOP)
        try:
            until(10, lambda: rig.usage()["slots"] >= 8, "requests wait for a store that stands")
            must_fail(context, ("leaked",), lambda: rig.conserved(seconds=1))
        finally:
            os.kill(pid, signal.SIGCONT)
        scene.recover()
