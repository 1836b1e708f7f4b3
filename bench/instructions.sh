#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# How many instructions does a request take, stacked on one lane? Counted by callgrind, compared
# with the committed figures of bench/instructions.txt: a report that says when a hot path grew.
#
#   bench/instructions.sh [--quick] [--json FILE] [--update]
set -u -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
program=${SKERRY_BUILD:-$PWD}/bench_instructions
figures=$here/instructions.txt
tolerance=10 # per cent
json='' update=no few=2000 many=12000

while [ $# -gt 0 ]; do
    case $1 in
    --quick) many=4000 ;;
    --json) json=${2:?--json needs a file} && shift ;;
    --update) update=yes ;;
    *) sed -n '3,6s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
    shift
done

command -v valgrind >/dev/null || { echo "valgrind is not installed" && exit 77; }
[ -x "$program" ] || { echo "$program is not built" >&2 && exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/skerry-bench.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

# libtool's wrapper starts a shell first; only the program itself is counted
counted() { # COUNT DEPTH -> instructions of that run
    rm -f "$work"/out.*
    valgrind --tool=callgrind --trace-children=yes --callgrind-out-file="$work/out.%p" \
        "$program" "$1" "$2" >"$work/log" 2>&1 || { cat "$work/log" >&2 && return 1; }
    cat "$work"/out.* | sed -n 's/^summary: //p' | sort -n | tail -1
}

rows=() rc=0
printf '%-40s %12s %8s  %s\n' what value ratio 'to'
for depth in 1 64; do
    a=$(counted $few $depth) && b=$(counted $many $depth) || exit 1
    each=$(((b - a) / (many - few)))
    name="stacked request, QD$depth"
    committed=$(sed -n "s/^$depth //p" "$figures" 2>/dev/null)
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
    [ $update = no ] || { sed -i "/^$depth /d" "$figures" && echo "$depth $each" >>"$figures"; }
done

if [ -n "$json" ]; then
    (IFS=, && printf '[%s]\n' "${rows[*]}") >"$json" || rc=1
fi
exit $rc
