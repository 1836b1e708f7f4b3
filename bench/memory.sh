#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What does memory cost? The share of a 1 GiB segment that is not data pages, and what each
# process of a pipeline holds for itself beside the segment (front, volume and store, each in a
# process of its own), idle and after some traffic.
#
#   bench/memory.sh [--quick] [--json FILE]
set -u -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
json=''
while [ $# -gt 0 ]; do
    case $1 in
    --quick) ;;
    --json) json=${2:?--json needs a file} && shift ;;
    *) sed -n '3,8s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
    shift
done

# the scenes start and stop pipelines, all in a folder of their own
. "$here/../tests/scenario/lib.sh"
rows=()

row() { # NAME VALUE UNIT REFERENCE WHAT LIMIT
    local ratio verdict=met
    ratio=$(awk -v a="$2" -v b="$4" 'BEGIN { printf "%.3f", a / b }')
    awk -v a="$2" -v b="$6" 'BEGIN { exit !(a > b) }' && verdict=MISSED
    printf '%-44s %10s %-5s %7s  %-22s at most %s: %s\n' \
        "$1" "$2" "$3" "$ratio" "$5" "$6" "$verdict"
    rows+=("{\"name\": \"$1\", \"value\": $2, \"unit\": \"$3\", \"reference\": $4, \
\"ratio\": $ratio, \"load1\": $(cut -d' ' -f1 /proc/loadavg)}")
}

# MiB that the process holds for itself: mapped by nobody else, and not the segment, whose pages
# count as private as long as one process alone has touched them.
private_rss() { # PID
    awk '$1 ~ /^[0-9a-f]+-[0-9a-f]+$/ { ours = $6 !~ /\/xseg\.[^\/]*$/ }
        ours && /^Private_/ { kib += $2 }
        END { printf "%.2f", kib / 1024 }' "/proc/$1/smaps"
}

processes() { # WHEN
    local name
    for name in front volume store; do
        row "private RSS, $name, $1" "$(private_rss "$(scene_pid $name)")" MiB 16 "limit 16 MiB" 16
    done
}

scene_begin memory
printf '%-44s %10s %-5s %7s  %-22s %s\n' what value unit ratio to goal
export SCENE_SEGMENT_SIZE=1G # read by lib.sh
scene_split "mem$$" || { echo "the pipeline did not start" >&2 && exit 1; }
overhead=$("$XSEGCTL" segment dump "mem$$" --json |
    python3 -c 'import json, sys
s = json.load(sys.stdin)["segment"]; print(s["overhead"], s["size"])') || exit 1
read -r bytes size <<<"$overhead"
row "segment overhead of 1 GiB" \
    "$(awk -v a="$bytes" -v b="$size" 'BEGIN { printf "%.3f", 100 * a / b }')" \
    % 100 "the whole segment" 5
processes idle
if scene_have nbdcopy; then
    head -c 64M /dev/urandom >"$SCENE_DIR/data"
    nbdcopy "$SCENE_DIR/data" "$SCENE_URI" && nbdcopy "$SCENE_URI" "$SCENE_DIR/back" || exit 1
    processes "after nbdcopy"
fi
if [ -n "$json" ]; then
    (IFS=, && printf '[%s]\n' "${rows[*]}") >"$json"
fi
