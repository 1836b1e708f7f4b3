#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NBD specification conformance, rule by rule, over raw sockets; prints TAP.

    nbd_conform.py URI SIZE [--read-only-uri URI] [--tls-uri URI --ca F --cert F --key F]

The contents of the export are destroyed. Exit status 1 when a rule is broken, 2 on usage.
With --must, a rule that the specification words as SHOULD is skipped when it is broken.
"""

import argparse
import fnmatch
import signal
import sys
import time

sys.dont_write_bytecode = True          # the source tree stays as it was
import nbd_rules_option  # each registers its rules, in this order
import nbd_rules_tls
import nbd_rules_command
import nbd_rules_data
from nbd_rule import RULES, Site, Skip
from nbd_wire import Broken, Closed


MODULES = (nbd_rules_option, nbd_rules_tls, nbd_rules_command, nbd_rules_data)


class Overrun(Exception):
    """A rule took longer than any answer may."""


def on_alarm(*_):
    raise Overrun("the rule did not end in time")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("uri")
    parser.add_argument("size", type=int, help="size of the export in bytes, 16 MiB at least")
    parser.add_argument("--read-only-uri", help="an export that must not be written")
    parser.add_argument("--tls-uri", help="an export behind STARTTLS (nbds://...)")
    parser.add_argument("--ca"), parser.add_argument("--cert"), parser.add_argument("--key")
    parser.add_argument("--hostname", help="name in the server's certificate")
    parser.add_argument("--tls-required", action="store_true",
                        help="that server must insist on TLS")
    parser.add_argument("--cert-required", action="store_true",
                        help="that server must refuse clients without a certificate")
    parser.add_argument("--only", default="*", help="rules to run, as a shell pattern")
    parser.add_argument("--data", action="store_true", help="only the rules about data")
    parser.add_argument("--must", action="store_true", help="SHOULD rules do not count")
    parser.add_argument("--seed", type=int, default=1, help="of the random data rules")
    parser.add_argument("--operations", type=int, default=4000, help="of the random data rules")
    parser.add_argument("--timeout", type=float, default=120, help="seconds to wait for an answer")
    parser.add_argument("--list", action="store_true", help="print the rules and exit")
    return parser.parse_args()


def judge(function, site):
    """(passed, remark) of one rule."""
    signal.alarm(120)
    try:
        function(site)
        return True, ""
    except Skip as skip:
        return True, f" # SKIP {skip}"
    except (Broken, Closed, Overrun, OSError, UnicodeDecodeError) as error:
        return False, f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def report(number, function, passed, remark, seconds, must_only):
    title = function.__name__.replace("_", " ")
    excused = not passed and must_only and function.level == "should"
    if passed:
        print(f"ok {number} - {title}{remark}")
    elif excused:
        print(f"ok {number} - {title} # SKIP broken, but only a SHOULD: {remark}")
    else:
        print(f"not ok {number} - {title}")
        print(f"#   {remark}\n#   {' '.join(function.__doc__.split())}")
    if seconds > 5:
        print(f"#   took {seconds:.1f} s")
    sys.stdout.flush()
    return passed or excused


def main():
    options = arguments()
    rules = [r for r in RULES if fnmatch.fnmatch(r.__name__, options.only)]
    rules.sort(key=lambda r: [m.__name__ for m in MODULES].index(r.__module__))
    if options.data:
        rules = [r for r in rules if r.__module__ == nbd_rules_data.__name__]
    if options.list:
        for function in rules:
            print(f"{function.level:6} {function.__name__}: {' '.join(function.__doc__.split())}")
        return 0
    if not rules or options.size < 16 << 20:
        print("nbd_conform.py: no such rule, or an export under 16 MiB", file=sys.stderr)
        return 2
    site = Site(options.uri, options.size, options.timeout)
    site.options = options
    signal.signal(signal.SIGALRM, on_alarm)
    failed = 0
    for number, function in enumerate(rules, 1):
        before = time.monotonic()
        passed, remark = judge(function, site)
        seconds = time.monotonic() - before
        failed += not report(number, function, passed, remark, seconds, options.must)
    print(f"1..{len(rules)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
