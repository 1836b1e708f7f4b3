# SPDX-License-Identifier: Apache-2.0
"""What the cases share: a table of them, and what must hold at the end of each."""

import time

from rig import Rig, check


class Case:
    def __init__(self, function, ci):
        self.run, self.ci = function, ci
        self.summary = (function.__doc__ or "").split("\n")[0]


def table():
    """Returns an empty table and the decorator that fills it: @case(ci=True)."""
    cases = {}

    def case(ci=False):
        def add(function):
            cases[function.__name__] = Case(function, ci)
            return function
        return add
    return cases, case


COUNTED = ("reads", "writes", "reconnects", "repeated", "twice", "errors")
KEPT = ("guest_errors", "old", "lost", "torn", "misplaced", "mixed", "alien", "hung")


def judge(context, result, allowed=(), complaints=""):
    """No guest error but those allowed, every read linearizable, nothing acknowledged lost."""
    numbers = {key: result[key] for key in KEPT + COUNTED}
    numbers["pause_max_ms"] = round(result["pause_max_ns"] / 1e6, 1)
    context.numbers.update(numbers)
    wrong = {k: result[k] for k in KEPT[1:] if result[k]}
    check(not wrong, f"the checker found: {wrong}\n{complaints}")
    bad = {k: v for k, v in result["errors"].items() if k not in allowed}
    check(not bad, f"guest errors: {bad}")
    check(not result["given_up"], "a connection did not come back")


class Scene:
    """A rig with load on it; leaving it well judges the load and what the segment holds."""

    def __init__(self, context, shape="split", allowed=(), load=(), conserve=True, **options):
        self.context, self.allowed, self.conserve = context, allowed, conserve
        self.load_args = load
        self.rig = Rig(shape, **options)

    def __enter__(self):
        try:
            self.rig.up()
            self.stamp = self.rig.load("--connections", "2", "--depth", "8", "--replays",
                                       "--seed", str(self.context.random.randrange(1 << 31)),
                                       *self.load_args)
        except BaseException:
            self.rig.close()
            raise
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.finish()
        finally:
            self.rig.close()

    def finish(self):
        result = self.stamp.finish()
        judge(self.context, result, self.allowed, self.stamp.complaints())
        if self.conserve:
            self.context.numbers["held"] = self.rig.conserved()

    def recover(self, seconds=30):
        """Everything serves and the load goes on."""
        begin = time.monotonic()
        self.stamp.goes_on(seconds)
        self.rig.wait_healthy(seconds)
        return time.monotonic() - begin
