#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Eight clones of one image are written to and verified by fio while a hundred snapshots of them
# are made and half of those removed. Snapshots never change; the golden image does not either;
# another host finds the clones as they were; and the sweep gives back all that was removed.

. "$(dirname "$0")/xsegctl_lib.sh"
CLONES=8 SNAPSHOTS=${SNAPSHOTS:-100} SIZE=8M
ctl_begin "fio on $CLONES clones during $SNAPSHOTS snapshots"
scene_need fio nbdcopy
fio --enghelp=nbd >/dev/null 2>&1 || tap_skip_all "fio has no nbd engine"
ctl_need mapperd volume cached front_nbd blocker_file

store=$SKERRY_SHM_DIR/store
uri() { echo "nbd+unix:///$1?socket=$SCENE_DIR/$SKERRY_SEGMENT.sock"; }
sum() { nbdcopy "$(uri "$1")" - | sha256sum; }
v() { ctl_exits 0 "volume $*" volume "$@"; }

host() { # SEGMENT: a host on the store
    export SKERRY_SEGMENT=$1
    scene_segment "$1" 192M &&
        scene_peer "$1.store" -s "$1" cache0=cached,edge.store=file0,size=48M \
            "file0=blocker_file,dir=$store" &&
        scene_peer "$1" -s "$1" -l 2 map0=mapperd,edge.store=file0,settle=0 \
            vol0=volume,edge.store=cache0,edge.map=map0 \
            "nbd0=front_nbd,listen=unix:$SCENE_DIR/$1.sock,edge.volume=vol0" &&
        scene_wait_socket "$SCENE_DIR/$1.sock" && return
    tap_not_ok "the host '$1' starts"
    tap_end
}

# SEED OPTION...: one pass over all clones; each block is written once and read back
pass() {
    local seed=$1 i jobs=()
    shift
    for ((i = 0; i < CLONES; i++)); do jobs+=("--name=vm$i" "--uri=$(uri "vm$i")"); done
    (cd "$SCENE_DIR" && fio --ioengine=nbd --rw=randwrite --bsrange=4k-32k --iodepth=4 \
        "--size=$SIZE" --io_size=2M --verify=crc32c --verify_fatal=1 --fsync=40 --thread \
        "--randseed=$seed" --eta=never "$@" "${jobs[@]}")
}

# Pass after pass, each with another seed, and one more when there is enough.
load() {
    local seed=1 last=no
    until [ $last = yes ]; do
        [ ! -e "$SCENE_DIR/enough" ] || last=yes
        pass $((++seed)) || return
        echo "PASS $seed"
    done
}
load_begun() { [ -s "$SCENE_DIR/load.out" ]; }
load_ended() { ! scene_alive load; }

# Of every tenth the sum is kept; of each two the first is removed again.
declare -A SUMS=()
snapshots() {
    local i name before=''
    for ((i = 0; i < SNAPSHOTS; i++)); do
        name=vm$((i / 2 % CLONES))@s$i
        "$XSEGCTL" volume snapshot "$name" || return
        if [ $((i % 10)) -eq 9 ]; then SUMS[$name]=$(sum "$name"); fi
        if [ $((i % 2)) -eq 1 ]; then "$XSEGCTL" volume rm "$before" --yes || return; fi
        before=$name
    done
}

# What the store's objects take; records are not counted.
taken() { du -s -B1 "$store/objects" | cut -f1; }
objects() { find "$store/objects" -type f | wc -l; }

host here
head -c "${SIZE%M}MB" /dev/urandom >"$SCENE_DIR/golden.raw"
truncate -s "$SIZE" "$SCENE_DIR/golden.raw"
v import "$SCENE_DIR/golden.raw" golden --object-size 256K --progress=none
golden=$(sha256sum <"$SCENE_DIR/golden.raw")
for ((i = 0; i < CLONES; i++)); do v clone golden "vm$i"; done

scene_spawn load load
scene_until 60 load_begun || tap_not_ok "the load begins"
tap_run "$SNAPSHOTS snapshots, half of them removed, under load" snapshots
: >"$SCENE_DIR/enough"
scene_until 120 load_ended || tap_not_ok "the load ends"
scene_stop load
tap_is "fio has read what it had written" "$?" 0 || tail -n 30 "$SCENE_DIR"/load.{out,err}
seed=$(grep '^PASS' "$SCENE_DIR/load.out" | tail -n 1 | cut -d' ' -f2)
tap_note "$((seed - 1)) passes"
tap_run "the last pass of all clones is there" pass "$seed" --verify_only

# --- another host, without anything remembered -------------------------------------------------
scene_stop here
scene_stop here.store
host there
tap_run "it is there for another host" pass "$seed" --verify_only
for name in "${!SUMS[@]}"; do
    tap_is "snapshot $name is as it was when it was made" "$(sum "$name")" "${SUMS[$name]}"
done
tap_is "so is the golden image" "$(sum golden)" "$golden"

# --- all that was removed is given back --------------------------------------------------------
removes() { # NAME...
    local name
    for name in "$@"; do "$XSEGCTL" volume rm "$name" --yes || return; done
}
snapshots_left() {
    "$XSEGCTL" volume list --json | jq -r '.. | objects | select(.type == "snapshot").name'
}

# Overwritten whole, a clone needs nothing of what was there before.
tap_run "every clone is written anew" pass 1 --rw=write --bs=256k --io_size="$SIZE"
v fsck
before=$(taken)
# shellcheck disable=SC2046  # one word each
tap_run "the other snapshots are removed" removes $(snapshots_left)
v gc --wait
tap_note "$before bytes in objects before the sweep, $(taken) after it"
tap_is "the sweep gives back all but the clones and the image" \
    "$(($(taken) < (CLONES + 2) * ${SIZE%M} << 20))" 1
v fsck --json
json_is "nothing is wrong, nothing is left over" '[.findings, .unreachable] | @csv' 0,0
tap_run "the clones are as they were" pass 1 --rw=write --bs=256k --io_size="$SIZE" --verify_only
clones=()
for ((i = 0; i < CLONES; i++)); do clones+=("vm$i"); done
tap_run "the clones and the image are removed" removes "${clones[@]}" golden
v gc --wait
tap_is "no object is left" "$(objects)" 0
tap_end
