#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A volume is backed up, whole and then snapshot by snapshot, and comes back on another store: as
# images one above the other, and as stretches that have changed. Each time it has the sum of the
# snapshot, and holes are holes.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "incremental backups, replayed elsewhere"
scene_need qemu-img qemu-nbd qemu-io nbdcopy nbdinfo
PYTHON=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import nbd' 2>/dev/null && PYTHON=$candidate && break
done
[ -n "$PYTHON" ] || tap_skip_all "python3-libnbd is not installed"

SCENE_SEGMENT_SIZE=128M
host() { ctl_host "$1" "$SKERRY_SHM_DIR/$1"; } # SEGMENT: with a store of its own
on() { # SEGMENT VERB ARGS...
    ctl_exits 0 "$1: volume ${*:2}" -s "$1" volume "${@:2}"
}
uri() { echo "nbd+unix:///$2?socket=$SCENE_DIR/$1.sock"; }
sum() { nbdcopy "$(uri "$1" "$2")" - | sha256sum; }
f() { echo "$SCENE_DIR/$1"; }
# Where data are, and where nothing is: "OFFSET LENGTH" of what is no hole.
data_of() { nbdinfo --map --json "$(uri "$1" "$2")" |
    jq -r '.[] | select(.type == 0 or .type == 2) | "\(.offset) \(.length)"'; }
data_bytes() { data_of "$1" "$2" | awk '{ sum += $2 } END { print sum + 0 }'; }
within() { # SEGMENT NAME MOST: that many bytes are no hole
    local bytes
    bytes=$(data_bytes "$1" "$2")
    tap_is "$1: $2 has holes where nothing was written" "$((bytes > 0 && bytes <= $3))" 1 ||
        tap_note "$bytes bytes are data, $3 at most were expected"
}

# Each day something else: data in the middle of objects and over their edges, zeros, what is given
# back, and a larger size.
day() { # COMMAND...
    local args=() command
    for command in "$@"; do args+=(-c "$command"); done
    tap_run "a day's work" qemu-io -f raw -d unmap "${args[@]}" "$(uri here disk)"
}

host here
host there
head -c 3000000 /dev/urandom >"$(f base.raw)"
truncate -s 24M "$(f base.raw)"
on here import "$(f base.raw)" disk --object-size 256K --progress=none
within here disk 3145728
on here snapshot disk@day0
day 'write -P 1 100k 7k' 'write -P 2 1022k 8k' 'write -z 512k 256k' 'write -P 3 20M 300k'
on here snapshot disk@day1
day 'discard 1536k 512k' 'write -P 4 20600k 1536' 'write -z -u 100k 2k'
on here resize disk 30000640
day 'write -P 5 29280k 8k'
on here snapshot disk@day2
day 'discard 20M 512k' 'discard 0 256k' 'write -P 6 8M 1M' 'write -P 0 8200k 64k'
on here snapshot disk@day3
day 'write -P 9 0 4M'

# --- images, each above the one before -----------------------------------------------------------
on here export disk@day0 "$(f disk@day0.qcow2)" --format qcow2 --progress=none
for day in 1 2 3; do
    on here export "disk@day$day" "$(f "disk@day$day.qcow2")" \
        --since "disk@day$((day - 1))" --progress=none
done
for day in 0 1 2 3; do
    tap_run "day$day: the image is the snapshot" \
        qemu-img compare -F raw "$(f "disk@day$day.qcow2")" "$(uri here "disk@day$day")"
    on there import "$(f "disk@day$day.qcow2")" "image$day" --format qcow2 --allow-backing \
        --object-size 256K --progress=none
    tap_is "day$day: elsewhere it has the same sum" "$(sum there "image$day")" \
        "$(sum here "disk@day$day")"
done
within here disk@day3 $((3145728 + (1536 + 256) * 1024))
within there image3 $((3145728 + (1536 + 256) * 1024))
on there export image3 "$(f back.raw)" --progress=none
tap_run "and back again" qemu-img compare -f raw -F raw "$(f back.raw)" "$(uri here disk@day3)"
tap_is "a sparse file" "$(($(du -k "$(f back.raw)" | cut -f1) <= 5000))" 1

# --- only what has changed -----------------------------------------------------------------------
cat >"$(f replay.py)" <<'EOF'
"""replay.py FROM TO <diff.json: what may differ is read from one export and written to another."""
import json, sys, nbd
source, target = nbd.NBD(), nbd.NBD()
source.connect_uri(sys.argv[1])
target.connect_uri(sys.argv[2])
copied = 0
for one in json.load(sys.stdin)["stretches"]:
    at, end = one["offset"], min(one["offset"] + one["length"], source.get_size())
    while at < end:
        length = min(end - at, 1 << 20)
        if one["zero"]:
            target.zero(length, at)
        else:
            target.pwrite(source.pread(length, at), at)
            copied += length
        at += length
target.flush()
print(copied)
EOF
on there import "$(f disk@day0.qcow2)" copy --format qcow2 --object-size 256K --progress=none
for day in 1 2 3; do
    on here info "disk@day$day" --json
    on there resize copy "$(jq .size "$SCENE_DIR/ctl.out")"
    on here diff "disk@day$((day - 1))" "disk@day$day" --json
    cp "$SCENE_DIR/ctl.out" "$(f diff.json)"
    copied=$("$PYTHON" "$(f replay.py)" "$(uri here "disk@day$day")" "$(uri there copy)" \
        <"$(f diff.json)")
    tap_is "day$day: little was copied" "$((copied > 0 && copied <= 2 << 20))" 1
    on there snapshot "copy@$day"
    tap_is "day$day: it has the sum of the snapshot" "$(sum there "copy@$day")" \
        "$(sum here "disk@day$day")"
done
for day in 1 2 3; do
    tap_is "day$day: later ones have not changed it" "$(sum there "copy@$day")" \
        "$(sum here "disk@day$day")"
done
within there copy@3 $((3145728 + (1536 + 256) * 1024))
for segment in here there; do
    on "$segment" gc --wait
    on "$segment" fsck
done
tap_end
