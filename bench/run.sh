#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs all benches one after the other and writes one JSON file: an array of
# {bench, name, value, unit, reference, ratio, load1}.
#
#   bench/run.sh [--quick] [--json FILE] [--only NAME,...]
#
# The build is looked for in $SKERRY_BUILD, then in the current folder. Figures are reports: only
# a bench that cannot run to its end is a failure.
set -u -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=${SKERRY_BUILD:-$PWD}
quick=() json=bench.json only=

usage() {
    sed -n '3,11s/^# \{0,1\}//p' "$0"
    exit "$1"
}

while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=(--quick) ;;
    --json) json=${2:?--json needs a file} && shift ;;
    --only) only=${2:?--only needs names} && shift ;;
    --help) usage 0 ;;
    *) usage 2 >&2 ;;
    esac
    shift
done

work=$(mktemp -d "${TMPDIR:-/tmp}/skerry-bench.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
export SKERRY_BUILD=$build
failed=0

bench() { # NAME COMMAND...
    local name=$1
    shift
    case ,$only, in ,, | *,"$name",*) ;; *) return ;; esac
    echo "== $name"
    "$@" "${quick[@]}" --json "$work/$name.json"
    case $? in
    0) ;;
    77) echo "$name: cannot be done here" ;;
    *) echo "$name: failed" && failed=1 ;;
    esac
    echo
}

bench ring "$build/bench_ring"
bench hop "$build/bench_hop"
bench instructions bash "$here/instructions.sh"
bench memory bash "$here/memory.sh"
bench path bash "$here/path.sh"
bench reap "$build/bench_reap"
bench policy "$build/bench_policy"
bench xcache "$build/bench_xcache"
bench cache sh "$here/cache.sh"
bench stores bash "$here/stores.sh"
bench bridge bash "$here/bridge.sh"
bench rehome bash "$here/rehome.sh"
bench vhost bash "$here/vhost.sh"
bench fuse bash "$here/fuse.sh"
bench volumes sh "$here/volumes.sh"
bench many sh "$here/many.sh"
bench recovery bash "$here/recovery.sh"

python3 - "$json" "$work"/*.json <<'END' || failed=1
import json, os, sys
rows = []
for path in sys.argv[2:]:
    if os.path.exists(path):
        name = os.path.basename(path)[:-len(".json")]
        rows += [{"bench": name, **row} for row in json.load(open(path))]
with open(sys.argv[1], "w") as out:
    json.dump(rows, out, indent=1)
print(f"{len(rows)} figures in {sys.argv[1]}")
END
exit $failed
