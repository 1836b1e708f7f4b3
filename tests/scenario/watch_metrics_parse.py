#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads OpenMetrics text as strictly as the specification (1.0.0) has it.

watch_metrics_parse.py FILE
    exits 0 and prints JSON: {"FAMILY": {"type", "unit", "help",
                                         "samples": [[NAME, {LABEL: VALUE}, NUMBER], ...]}}
watch_metrics_parse.py --self-test FILE
    damages a good page in every way it knows of; all must be refused
"""

import json
import math
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)(?: (\S+))?$")
PAIR = re.compile(rf'({LABEL})="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SUFFIXES = {
    "counter": ("_total", "_created"),
    "gauge": ("",),
    "histogram": ("_bucket", "_count", "_sum", "_created"),
    "info": ("_info",),
    "unknown": ("",),
}
LABELS = {"segment", "peer", "volume", "op", "le"}  # conventions of this project: no others


class Refused(Exception):
    pass


def number(text):
    if not re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|NaN|[+-]?Inf", text):
        raise Refused(f"not a number: {text}")
    return float(text)


def labels(text):
    found, at = {}, 0
    while text is not None and at < len(text):
        match = PAIR.match(text, at)
        if not match or (match[3] == "," and match.end() == len(text)):
            raise Refused(f"labels: {text}")
        if match[1] in found:
            raise Refused(f"label {match[1]} twice: {text}")
        if match[1] not in LABELS:
            raise Refused(f"label {match[1]} is none of ours")
        found[match[1]] = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], match[2])
        at = match.end()
    return found


class Page:
    def __init__(self, text):
        self.families, self.current, self.seen = {}, None, set()
        lines = text.split("\n")
        if lines[-2:] != ["# EOF", ""]:
            raise Refused("it does not end with '# EOF' and a newline")
        for line in lines[:-2]:
            self.line(line)
        for name, family in self.families.items():
            if family["type"] == "histogram":
                self.histogram(name, family)

    def line(self, line):
        if line.startswith("# "):
            self.comment(line)
        elif not line or line.startswith("#"):
            raise Refused(f"neither comment nor sample: '{line}'")
        else:
            self.sample(line)

    def comment(self, line):
        words = line.split(" ", 3)
        if len(words) < 4 or words[1] not in ("TYPE", "UNIT", "HELP"):
            raise Refused(f"comment: {line}")
        kind, name, value = words[1:]
        if not re.fullmatch(NAME, name):
            raise Refused(f"name of a family: {name}")
        if name != self.current:
            if name in self.families:
                raise Refused(f"family {name} is torn apart")
            self.families[name] = {"type": "unknown", "unit": "", "help": "", "samples": []}
            self.current = name
        family = self.families[name]
        key = kind.lower()
        if (name, key) in self.seen or family["samples"]:
            raise Refused(f"{kind} of {name} twice, or after its samples")
        self.seen.add((name, key))
        family[key] = value
        if kind == "TYPE" and value not in SUFFIXES:
            raise Refused(f"type {value}")
        if kind == "UNIT" and not name.endswith("_" + value):
            raise Refused(f"{name} does not end with its unit, {value}")
        if kind == "HELP" and re.search(r'(?<!\\)(\\\\)*\\[^\\n"]', value):
            raise Refused(f"escape in the help of {name}")

    def sample(self, line):
        match = SAMPLE.match(line)
        if not match:
            raise Refused(f"sample: {line}")
        name, found, value = match[1], labels(match[2]), number(match[3])
        family = self.families.get(self.current)
        if family is None:
            raise Refused(f"sample before any family: {line}")
        if name not in {self.current + suffix for suffix in SUFFIXES[family["type"]]}:
            raise Refused(f"{name} is no sample of the {family['type']} {self.current}")
        key = (name, tuple(sorted(found.items())))
        if key in self.seen:
            raise Refused(f"the same sample twice: {line}")
        self.seen.add(key)
        if family["type"] == "counter" and (value < 0 or math.isnan(value)):
            raise Refused(f"a counter below zero: {line}")
        if ("le" in found) != name.endswith("_bucket"):
            raise Refused(f"'le' belongs to buckets alone: {line}")
        family["samples"].append([name, found, value])

    @staticmethod
    def histogram(name, family):
        groups = {}
        for sample, found, value in family["samples"]:
            rest = tuple(sorted((k, v) for k, v in found.items() if k != "le"))
            group = groups.setdefault(rest, {"buckets": []})
            if sample.endswith("_bucket"):
                group["buckets"].append((number(found["le"]), value))
            else:
                group[sample[len(name):]] = value
        for rest, group in groups.items():
            bounds = [le for le, _ in group["buckets"]]
            counts = [count for _, count in group["buckets"]]
            if not bounds or bounds[-1] != math.inf or bounds != sorted(set(bounds)):
                raise Refused(f"buckets of {name}{rest} are not in order up to +Inf")
            if counts != sorted(counts):
                raise Refused(f"buckets of {name}{rest} do not grow")
            if "_count" not in group or "_sum" not in group or group["_count"] != counts[-1]:
                raise Refused(f"count or sum of {name}{rest}")


def damages(text):
    """What must be refused: name -> page."""
    first = re.search(r'\w+_bucket\{.*,le="([^"+]*)"\} (\d+)', text)
    yield "no EOF", text.replace("# EOF\n", "")
    yield "EOF without newline", text.rstrip("\n")
    yield "something after EOF", text + "x 1\n"
    yield "an empty line", text.replace("# EOF", "\n# EOF")
    yield "a counter without _total", text.replace("skerry_errors_total{", "skerry_errors{", 1)
    yield "a negative counter", re.sub(r"(skerry_errors_total\{[^}]*\}) \d+", r"\1 -1", text, 1)
    yield "a family twice", text.replace("# EOF", "# TYPE skerry_pages gauge\n# EOF")
    yield "a sample twice", re.sub(r"(skerry_pages_free\{[^}]*\} \d+\n)", r"\1\1", text, 1)
    yield "a sample elsewhere", text.replace("# EOF", "skerry_pages_free{segment=\"m\"} 1\n# EOF")
    yield "an unknown type", text.replace("skerry_pages gauge", "skerry_pages gage", 1)
    yield "a unit not in the name", text.replace("# UNIT skerry_segment_bytes bytes",
                                                 "# UNIT skerry_segment_bytes pages", 1)
    yield "an open quote", re.sub(r'peer="(\w+)"', r'peer="\1', text, 1)
    yield "a foreign label", re.sub(r',peer="', ',pid="', text, 1)
    yield "a label twice", re.sub(r'peer="(\w+)"', r'peer="\1",peer="\1"', text, 1)
    yield "no number", re.sub(r"(skerry_pages_free\{[^}]*\}) \d+", r"\1 many", text, 1)
    yield "buckets that shrink", text.replace(first[0], first[0][:-len(first[2])] + "9" * 15, 1)
    yield "no +Inf", re.sub(r'\w+_bucket\{[^}]*le="\+Inf"\} \d+\n', "", text, 1)
    yield "another count", re.sub(r"(duration_seconds_count\{[^}]*\}) (\d+)", r"\1 1\2", text, 1)


def self_test(text):
    Page(text)
    failed = 0
    for name, page in damages(text):
        if page == text:
            print(f"not damaged: {name}")
            failed += 1
            continue
        try:
            Page(page)
        except Refused:
            continue
        print(f"accepted: {name}")
        failed += 1
    return 1 if failed else 0


def main():
    with open(sys.argv[-1], encoding="utf-8", newline="") as file:
        text = file.read()
    if sys.argv[1] == "--self-test":
        return self_test(text)
    try:
        print(json.dumps(Page(text).families))
    except Refused as why:
        print(why)
        return 1
    return 0


sys.exit(main())
