#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# How many instructions does a request take, stacked on one lane: a bare one, and a pinned hit of
# the cache with all that core and load do for it? Counted by callgrind, compared with the committed
# figures of bench/instructions.txt: a report that says when a hot path grew.
#
#   bench/instructions.sh [--quick] [--json FILE] [--update]
set -u -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=${SKERRY_BUILD:-$PWD}
figures=$here/instructions.txt
tolerance=10 # per cent
json='' update=no few=2000 many=12000

while [ $# -gt 0 ]; do
    case $1 in
    --quick) many=4000 ;;
    --json) json=${2:?--json needs a file} && shift ;;
    --update) update=yes ;;
    *) sed -n '3,7s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
    shift
done

command -v valgrind >/dev/null || { echo "valgrind is not installed" && exit 77; }
for program in bench_instructions xsegpeer xsegctl .libs/load.so .libs/cached.so; do
    [ -x "$build/$program" ] || { echo "$build/$program is not built" >&2 && exit 1; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/skerry-bench.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

export SKERRY_SHM_DIR=$work SKERRY_RUN_DIR=$work/run SKERRY_MODULE_DIR=$build/.libs
mkdir "$work/run"

# libtool's wrapper starts a shell first; only the program itself is counted
counted() { # COMMAND... -> instructions of that run
    rm -f "$work"/out.*
    valgrind --tool=callgrind --trace-children=yes --callgrind-out-file="$work/out.%p" \
        "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && return 1; }
    cat "$work"/out.* | sed -n 's/^summary: //p' | sort -n | tail -1
}

hits() { # COUNT
    "$build/xsegctl" segment create count --size 256M >"$work/log" &&
        counted "$build/xsegpeer" -s count mem0=blocker_memory,size=64M \
            cache0=cached,size=64M,edge.store=mem0 \
            "load0=load,edge.target=cache0,size=8M,prepare=write,count=$1,qd=64" &&
        "$build/xsegctl" segment destroy count --yes >"$work/log"
}

requests() { # KEY COUNT
    case $1 in
    hit) hits "$2" ;;
    *) counted "$build/bench_instructions" "$2" "$1" ;; # a depth
    esac
}

rows=() rc=0
printf '%-40s %12s %8s  %s\n' what value ratio 'to'
for key in 1 64 hit; do
    name="stacked request, QD$key"
    [ $key != hit ] || name="pinned hit of the cache, QD64"
    a=$(requests $key $few) && b=$(requests $key $many) || exit 1
    each=$(((b - a) / (many - few)))
    committed=$(sed -n "s/^$key //p" "$figures" 2>/dev/null)
    ratio=$(awk \
        -v a=$each -v b="${committed:-0}" 'BEGIN { print b ? sprintf("%.2f", a / b) : "null" }')
    load=$(cut -d' ' -f1 /proc/loadavg)
    note="committed ${committed:-none}"
    if [ -n "$committed" ] && [ $((each * 100)) -gt $((committed * (100 + tolerance))) ]; then
        note="$note: GREW by more than $tolerance %"
    fi
    printf '%-40s %12d %8s  %s\n' "$name (instructions)" "$each" "$ratio" "$note"
    rows+=("{\"name\": \"$name\", \"value\": $each, \"unit\": \"instructions\", \
\"reference\": ${committed:-null}, \"ratio\": $ratio, \"load1\": $load}")
    [ $update = no ] || { sed -i "/^$key /d" "$figures" && echo "$key $each" >>"$figures"; }
done

if [ -n "$json" ]; then
    (IFS=, && printf '[%s]\n' "${rows[*]}") >"$json" || rc=1
fi
exit $rc
