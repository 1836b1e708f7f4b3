#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The store's disk becomes full in the middle of what volumes do: copying up, snapshots, clones,
# imports. Whatever block it is that cannot be had, each has been done or has not, fsck finds
# nothing, and all goes on when there is space. The disk is a tmpfs, filled to the last page.

. "$(dirname "$0")/lib.sh"
scene_own_mounts "$@"
scene_begin "volumes on a full disk"
scene_need mount qemu-img jq
scene_need_skerry
for PYTHON in python3 /usr/bin/python3 ""; do
    [ -z "$PYTHON" ] || ! "$PYTHON" -c 'import nbd' 2>/dev/null || break
done
[ -n "$PYTHON" ] || tap_skip_all "python3-libnbd is not installed"

DISK=$SCENE_DIR/disk
mkdir "$DISK"
mount -t tmpfs -o size=32M,mode=0700 skerry-test "$DISK" 2>/dev/null ||
    tap_skip_all "cannot mount a tmpfs"
scene_at_exit "umount '$DISK'"
# shellcheck disable=SC2016  # expanded on exit
scene_at_exit 'for n in "${!SCENE_PIDS[@]}"; do scene_stop "$n"; done'

export SKERRY_SEGMENT=full
scene_segment full 128M || exit 99
scene_peer host -s full "nbd0=front_nbd,listen=unix:$SCENE_DIR/nbd.sock,edge.volume=vol0" \
    "vol0=volume,edge.store=file0,edge.map=map0" "map0=mapperd,edge.store=file0,settle=0" \
    "file0=blocker_file,dir=$DISK/store" || exit 99
v() { "$XSEGCTL" volume "$@" --via vol0 >"$SCENE_DIR/v.out" 2>&1; }
must() { "$@" || { sed 's/^/# /' "$SCENE_DIR/v.out" && tap_not_ok "$*"; }; }

# Offsets in KiB; each verb's outcome is one word.
io() { timeout 60 "$PYTHON" - "nbd+unix:///$1?socket=$SCENE_DIR/nbd.sock" "${@:2}" <<'PY'
import hashlib, sys
import nbd
handle = nbd.NBD()
handle.connect_uri(sys.argv[1])
for verb in sys.argv[2:]:
    what, offset, size = (verb.split(":") + ["0", "4"])[:3]
    offset, size = int(offset) << 10, int(float(size) * 1024)
    try:
        if what == "write":
            handle.pwrite(b"\x77" * size, offset)
        elif what == "fua":
            handle.pwrite(b"\x78" * size, offset, nbd.CMD_FLAG_FUA)
        elif what == "pattern":
            handle.pwrite(b"".join(n.to_bytes(8, "big") for n in range(size // 8)), offset)
        elif what == "trim":
            handle.trim(size, offset)
        elif what == "hash":
            print(hashlib.sha256(handle.pread(size, offset)).hexdigest()[:16], end=" ")
            continue
        else:
            handle.flush()
        print("ok", end=" ")
    except nbd.Error as error:
        print(error.errno, end=" ")
handle.shutdown()
PY
}

# All but so many KiB are taken.
leave() {
    dd if=/dev/zero of="$DISK/ballast" bs=64k 2>/dev/null
    dd if=/dev/zero of="$DISK/ballast" bs=4k oflag=append conv=notrunc 2>/dev/null
    [ "$1" = 0 ] || truncate -s "-$1K" "$DISK/ballast"
}
space() { rm -f "$DISK/ballast"; }
clean() { v fsck --json && [ "$(jq .clean "$SCENE_DIR/v.out")" = true ]; }
names() {
    v list --json &&
        jq -r '[.volumes[] | select(.state != "importing").name] | sort | join(" ")' \
            "$SCENE_DIR/v.out"
}

# An operation is tried with one page more each time until it can be done. Each time before it has
# left nothing (an import: what it goes on from), and said why.
until_done() { # NAME OF_THE_NEW WORDS...
    local name=$1 new=$2 left failed=0 before wrong=""
    shift 2
    before=$(names)
    for left in $(seq 0 "$STEP" 96); do
        leave "$left"
        v "$@" && break
        failed=$((failed + 1))
        grep -q "store is full\|No space left" "$SCENE_DIR/v.out" ||
            wrong+="$left: $(head -c 300 "$SCENE_DIR/v.out"); "
        [ "$(names)" = "$before" ] || wrong+="$left: there are $(names); "
        clean || wrong+="$left: $(head -c 300 "$SCENE_DIR/v.out"); "
    done
    tap_is "$name: done or not, and said so" "$wrong" ""
    tap_run "$name: it failed at first" [ "$failed" -gt 0 ]
    tap_run "$name: it is there in the end" v info "$new"
    tap_note "$name failed $failed times"
    space
}

must v create base --size 64M --object-size 64K
tap_is "a volume with something in it" "$(io base pattern:0:2048 flush)" "ok ok "
want=$(io base hash:0:2048)
tap_like "it can be read" "$want" '^[0-9a-f]{16} $'
must v snapshot base@gold
must v clone base@gold vm

# --- copying up ------------------------------------------------------------------------------

# the first who opens a volume needs space for a record
tap_is "a clone is its parent" "$(io vm hash:0:2048)" "$want"
leave 0
tap_is "copying up: whole clusters, parts of one, objects that are not there" \
    "$(io vm write:0:4 write:64:0.5 write:4096:4 flush fua:128:4 trim:192:64 flush)" \
    "ENOSPC ENOSPC ENOSPC ok ENOSPC ok ENOSPC "
tap_is "what was there is still there" "$(io vm hash:0:192)" "$(io base hash:0:192)"
tap_run "fsck finds nothing" clean
for left in $(seq 4 4 64); do
    leave "$left"
    io vm write:0:8 write:64:0.5 write:4096:4 flush fua:128:4 flush >"$SCENE_DIR/io.$left"
    clean || tap_not_ok "fsck finds nothing with $left KiB left"
    [ "$(cat "$SCENE_DIR/io.$left")" != "ok ok ok ok ok ok " ] || break
done
tap_is "with more and more space it can be done" "$(cat "$SCENE_DIR/io.$left")" \
    "ok ok ok ok ok ok "
space
tap_is "the rest is its parent's" "$(io vm hash:256:1792)" "$(io base hash:256:1792)"
tap_is "part of a shared object is emptied" "$(io vm trim:324:8 flush)" "ok ok "
tap_run "nothing is lost by that" clean
tap_is "which nobody has changed" "$(io base hash:0:2048)" "$want"

# --- snapshot, clone, import -----------------------------------------------------------------

STEP=4
until_done "snapshot" base@tuesday snapshot base@tuesday
until_done "clone" vm2 clone base@gold vm2
STEP=24
dd if=/dev/urandom of="$SCENE_DIR/image" bs=64k count=1 status=none
until_done "import" image import "$SCENE_DIR/image" image
tap_is "snapshots are what they were" "$(io base@gold hash:0:2048)$(io base@tuesday hash:0:2048)" \
    "$want$want"
tap_is "so is what was imported" "$(io image hash:0:64)" \
    "$(sha256sum <"$SCENE_DIR/image" | cut -c 1-16) "

# --- what makes space --------------------------------------------------------------------------

leave 0
tap_run "full: a volume is removed" v rm vm --yes
tap_run "and renamed" v rename vm2 vm3
tap_run "what nobody needs is swept" v gc --wait
tap_run "fsck finds nothing in the end" clean
tap_end
