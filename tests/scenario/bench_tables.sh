#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The benches of the cache and of volumes come to their end and write their figures as all benches
# do. Which ones they get is not looked at: this machine may be busy. And what is drawn of figures.

. "$(dirname "$0")/lib.sh"
scene_begin "benches of the cache and of volumes"
[ -n "$XSEGPEER" ] || tap_skip_all "xsegpeer is not built; say where with SKERRY_BUILD"
[ -e "$SKERRY_MODULE_DIR/load.so" ] || tap_skip_all "load is not built"
folder=$(cd "$(dirname "$0")/../../bench" && pwd)
bench=$folder/cache.py volumes=$folder/volumes.py
export SKERRY_BUILD=$SCENE_BUILD TMPDIR=$SCENE_DIR/tmp
mkdir "$TMPDIR"

shape() {
    python3 - "$1" <<'PY'
import json, math, sys
rows = json.load(open(sys.argv[1]))
assert rows, "no rows"
for row in rows:
    assert set(row) == {"name", "value", "unit", "reference", "ratio", "load1"}, row
    assert row["name"].startswith(("cache.", "volumes.")) and row["unit"], row
    assert math.isfinite(row["value"]) and row["load1"] >= 0, row
    assert (row["reference"] is None) == (row["ratio"] is None), row
    if row["ratio"] is not None:
        assert math.isclose(row["ratio"], row["value"] / row["reference"], rel_tol=1e-6), row
names = [row["name"] for row in rows]
assert len(names) == len(set(names)), "a name twice"
PY
}

tap_exits 2 "a table that there is not" python3 -B "$bench" --only nonsense
tap_exits 2 "no rounds" python3 -B "$bench" --rounds 0
tap_run "its own parts, with a memory blocker in the cache's place" python3 -B "$bench" --quick \
    --seconds 0.02 --stand-in --only lanes --json "$SCENE_DIR/one.json"
tap_like "goals are said" "$(cat "$TAP_OUT")" 'goals: '
tap_run "its figures have the shape of all benches" shape "$SCENE_DIR/one.json"
if [ -e "$SKERRY_MODULE_DIR/cached.so" ]; then
    tap_run "the cache" python3 -B "$bench" --quick --seconds 0.02 --only lanes \
        --json "$SCENE_DIR/two.json"
    tap_run "its figures" shape "$SCENE_DIR/two.json"
else
    tap_skip "the cache" "cached is not built"
fi

# --- volumes -----------------------------------------------------------------------------------
tap_exits 2 "a table that there is not" python3 -B "$volumes" --only nonsense
if [ -x "$SCENE_BUILD/bench_volume" ]; then
    tap_run "volumes, what needs no disk" python3 -B "$volumes" --quick --seconds 0.02 \
        --only cold,share --json "$SCENE_DIR/three.json"
    tap_is "no table is missing" "$(grep -c 'not measured' "$TAP_OUT")" 0
    tap_run "its figures" shape "$SCENE_DIR/three.json"
else
    tap_skip "volumes" "bench_volume is not built"
fi

# --- plots -------------------------------------------------------------------------------------
plot() { python3 -B "$folder/plot.py" "$@"; }
cat >"$SCENE_DIR/path.json" <<'END'
[{"name": "path.randread-4k-qd1.a.iops", "value": 900, "load1": 1},
 {"name": "path.randread-4k-qd16.a.iops", "value": 1000, "load1": 2},
 {"name": "path.randread-4k-qd16.b<c.iops", "value": 500, "load1": 2},
 {"name": "path.nbdcopy-read.a.mb", "value": 7, "load1": 2}]
END
tap_run "a plot of rates" plot path "$SCENE_DIR/path.json" "$SCENE_DIR/path.svg"
tap_is "has a line for each server, from the first depth to the last, as high as it is" \
    "$(python3 - "$SCENE_DIR/path.svg" <<'PY'
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
lines = [p.get("d") for p in root.iter("{http://www.w3.org/2000/svg}path") if p.get("stroke")]
print(lines[0], "|", sum(t.text == "b<c" for t in root.iter("{http://www.w3.org/2000/svg}text")))
PY
)" "M52.0 49.0L384.0 30.0 | 1"
tap_exits 1 "a plot of nothing" plot policy <(echo '[]') "$SCENE_DIR/none.svg"
tap_exits 2 "a kind that there is not" plot nonsense "$SCENE_DIR/path.json" "$SCENE_DIR/none.svg"
tap_is "nothing is left" "$(ls "$TMPDIR")" ""
tap_end
