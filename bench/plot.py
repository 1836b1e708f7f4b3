#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what benches have written with --json, as SVG: figures over depth, hits over cache size,
rates over distance.

    plot.py path FILE.json OUT.svg      rates and CPU over queue depth: bench/path.sh --depths ...
    plot.py policy FILE.json OUT.svg    hit ratio over cache size: bench/bench_policy
    plot.py bridge FILE.json OUT.svg    rates over the round trip: bench/bridge.sh
    plot.py rehome FILE.json OUT.svg    the pause of a move over the round trip: bench/rehome.sh
"""

import html
import json
import re
import sys

WIDTH, HEIGHT = 400, 260                # of one panel
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 30, 40
LEGEND = 18                             # of one row of names
COLOURS = ("#0b6bcb", "#d1495b", "#2e933c", "#8f5fbf", "#e08e0b", "#4a5560", "#00798c")
STYLE = ("text{font:12px sans-serif;fill:#333}.t{font-weight:bold}.n{fill:#666;font-size:11px}"
         "path{fill:none;stroke-width:2}.g{stroke:#ddd;stroke-width:1}")


class Panel:
    """One chart: lines of points by name; x is spread by rank, y begins at 0."""

    def __init__(self, title, across, lines):
        self.title, self.across, self.lines = title, across, lines
        self.places = sorted({x for points in lines.values() for x, _ in points})
        self.top = nice(max(y for points in lines.values() for _, y in points))

    def x(self, value):
        steps = max(len(self.places) - 1, 1)
        return LEFT + (WIDTH - LEFT - RIGHT) * self.places.index(value) / steps

    def y(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.top

    def draw(self, colours):
        yield text(LEFT, 18, self.title, "t")
        for step in range(5):
            value = self.top * step / 4
            yield (f'<path class="g" d="M{LEFT} {self.y(value):.1f}H{WIDTH - RIGHT}"/>')
            yield text(LEFT - 6, self.y(value) + 4, short(value), "n", "end")
        for place in self.places:
            yield text(self.x(place), HEIGHT - BOTTOM + 16, short(place), "n", "middle")
        yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, self.across, "n", "middle")
        for name, points in self.lines.items():
            way = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in sorted(points))
            yield f'<path stroke="{colours[name]}" d="M{way}"/>'


def nice(value):
    """The next round number above."""
    unit = 1.0
    while unit * 10 <= value:
        unit *= 10
    while unit > value:
        unit /= 10
    return next(unit * step for step in (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10)
                if unit * step >= value)


def short(value):
    if value >= 1000:
        return f"{value / 1000:g} k"
    return f"{value:g}"


def text(x, y, words, kind, anchor="start"):
    return (f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{html.escape(words)}</text>")


def picture(panels, note):
    """Two panels a row, then the names of the lines, then where the figures are from."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    below, wide = (len(panels) + 1) // 2 * HEIGHT, min(len(panels), 2)
    height = below + LEGEND * ((len(names) - 1) // (2 * wide) + 2) + 8
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide * WIDTH} {height}">'
           f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>')
    for i, panel in enumerate(panels):
        yield f'<g transform="translate({i % 2 * WIDTH} {i // 2 * HEIGHT})">'
        yield from panel.draw(colours)
        yield "</g>"
    for i, name in enumerate(names):
        x = LEFT + i % (2 * wide) * (WIDTH - LEFT / wide) / 2
        y = below + LEGEND * (i // (2 * wide) + 1) - 4
        yield f'<path stroke="{colours[name]}" d="M{x:.1f} {y - 4:.1f}h18"/>'
        yield text(x + 24, y, name, "l")
    yield text(LEFT, height - 8, note, "n")
    yield "</svg>"


# --- what is drawn -----------------------------------------------------------------------------

SERVERS = {"one": "Skerry, one process", "two": "Skerry, two", "three": "Skerry, three",
           "five": "Skerry, five", "stacked": "Skerry, one process"}


def path_panels(rows):
    lines = {}
    for row in rows:
        found = re.fullmatch(r"path\.(rand\w+)-4k-qd(\d+)\.(.+)\.(iops|cpu)", row["name"])
        if found:
            kind, depth, server, figure = found.groups()
            lines.setdefault((kind, figure), {}).setdefault(SERVERS.get(server, server), []).append(
                (int(depth), row["value"]))
    units = {"iops": "operations a second", "cpu": "server's CPU, us each"}
    words = {"randread": "reads", "randwrite": "writes"}
    return [Panel(f"4 KiB random {words[kind]}: {units[figure]}", "queue depth",
                  lines[kind, figure])
            for kind in words for figure in units if (kind, figure) in lines]


def policy_panels(rows):
    lines = {}
    for row in rows:
        trace, policy, share = row["name"].split(", ")
        lines.setdefault(trace, {}).setdefault(policy, []).append(
            (float(share) * 100, 100 * (1 - row["value"])))
    return [Panel(f"{trace}: hits, % of all accesses", "cache size, % of the footprint", found)
            for trace, found in lines.items()]


def bridge_panels(rows):
    lines = {}
    for row in rows:
        found = re.fullmatch(r"bridge\.(\w+), (.+), RTT (\d+)", row["name"])
        if found:
            who, what, rtt = found.groups()
            lines.setdefault(what, {}).setdefault(who, []).append((int(rtt), row["value"]))
    words = {"first": "one reader, 1 MiB after 1 MiB, nothing is near yet: GB/s",
             "read 1 MiB QD32": "reads of 1 MiB, 32 at once: GB/s",
             "read 4 KiB QD64": "reads of 4 KiB, 64 at once: a second"}
    return [Panel(words[what], "round trip, ms", lines[what]) for what in words if what in lines]


def rehome_panels(rows):
    who = {"volume": "the volume", "client, there": "a client that stays, there",
           "client, back": "a client that stays, back"}
    lines = {}
    for row in rows:
        found = re.fullmatch(r"rehome\.(.+), (alone|busy), RTT (\d+)", row["name"])
        if found and found.group(1) in who:
            name, kind, rtt = found.groups()
            points = lines.setdefault(kind, {}).setdefault(who[name], [])
            points.append((int(rtt), row["value"]))
    words = {"alone": "1000 writes a second: pause, ms",
             "busy": "and 64 KiB after 64 KiB: pause, ms"}
    return [Panel(words[kind], "round trip, ms", lines[kind]) for kind in words if kind in lines]


KINDS = {"path": path_panels, "policy": policy_panels, "bridge": bridge_panels,
         "rehome": rehome_panels}


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in KINDS:
        print(__doc__, file=sys.stderr)
        return 2
    kind, source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        rows = json.load(file)
    panels = KINDS[kind](rows)
    if not panels:
        print(f"plot: '{source}' has nothing for '{kind}'", file=sys.stderr)
        return 1
    loads = [row["load1"] for row in rows]
    note = f"medians; load average {min(loads):.1f} to {max(loads):.1f}; drawn by bench/plot.py"
    with open(target, "w", encoding="utf-8") as file:
        file.write("\n".join(picture(panels, note)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
