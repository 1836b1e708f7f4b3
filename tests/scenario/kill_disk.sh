#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The file blocker's disk goes wrong under load: it answers nothing for a while, its blocker is
# killed meanwhile, it is unmounted, it is full, it becomes read-only. Errors go to the requests
# that met them; nobody else waits; nothing else is lost. The disk is an ext4 in a file.

. "$(dirname "$0")/kill_lib.sh"
scene_own_mounts "$@"

disk_mount() { mount -o loop,errors=remount-ro "$SCENE_DIR/image" "$SCENE_DIR/disk" 2>/dev/null; }
disk_free() { ! losetup -nO NAME -j "$SCENE_DIR/image" | grep -q .; }

# Called by kill_begin, when there is a place to work in.
kill_prepare() {
    scene_need mkfs.ext4 losetup fsfreeze findmnt
    mkdir "$SCENE_DIR/disk"
    truncate -s 200M "$SCENE_DIR/image"
    mkfs.ext4 -q "$SCENE_DIR/image" 2>/dev/null && disk_mount ||
        tap_skip_all "cannot mount an ext4 image"
    scene_at_exit "umount '$SCENE_DIR/disk'"
    scene_at_exit 'for n in "${!SCENE_PIDS[@]}"; do scene_stop "$n"; done'
    scene_at_exit "fsfreeze -u '$SCENE_DIR/disk'"
    KILL_STORE=blocker_file,dir=$SCENE_DIR/disk/store
}

kill_begin "the disk of the file blocker goes wrong"

# somebody else's pipeline in the same segment
scene_peer other -s "$SEGMENT" "nbd1=front_nbd,listen=unix:$SCENE_DIR/other.sock,edge.volume=vol1" \
    "vol1=volume,edge.store=mem1,edge.map=map1" "map1=mapperd,edge.store=mem1" \
    "mem1=blocker_memory" || tap_not_ok "another pipeline starts"
"$XSEGCTL" -s "$SEGMENT" volume create quiet --size 4M --via vol1 >"$SCENE_DIR/quiet.log" 2>&1 ||
    sed 's/^/# /' "$SCENE_DIR/quiet.log"
OTHER_URI="nbd+unix:///quiet?socket=$SCENE_DIR/other.sock"

# --- it does not answer ---------------------------------------------------------------------

kill_load slow
fsfreeze -f "$SCENE_DIR/disk" || tap_not_ok "the disk is frozen"
KILL_URI=$OTHER_URI kill_load beside
sleep 0.5
kill_enough beside "while a disk does not answer, others are served"
tap_run "who waits for it still waits" scene_alive slow
fsfreeze -u "$SCENE_DIR/disk"
sleep 0.2
kill_enough slow "when it answers again, nobody has met an error"

# --- its blocker is killed while it does not answer -----------------------------------------

kill_load stuck
fsfreeze -f "$SCENE_DIR/disk"
sleep 0.3
scene_kill KILL store
tap_fails "a write of the dead is still under way: no successor before it has ended" \
    "$XSEGPEER" -s "$SEGMENT" "$SCENE_BOTTOM"
fsfreeze -u "$SCENE_DIR/disk"
scene_stop store
kill_start store
sleep 0.2
kill_enough stuck "nobody has met an error, and no late write was found"

# --- the composer is killed while new objects wait to be made -------------------------------

# each block an object: most writes make one
"$XSEGCTL" -s "$SEGMENT" volume create fine --size 8M --object-size 4K --via vol0 \
    >"$SCENE_DIR/fine.log" 2>&1 || sed 's/^/# /' "$SCENE_DIR/fine.log"
# threads enough for all writes to be stuck and a look at the store not to be
KILL_WORKERS=64
kill_again store
KILL_URI="nbd+unix:///fine?socket=$SCENE_SOCKET" kill_load fresh --blocks 2048 --depth 32
fsfreeze -f "$SCENE_DIR/disk"
sleep 0.2
# what the dead had asked the disk must come to rest before a successor asks for anything
(sleep 1 && fsfreeze -u "$SCENE_DIR/disk") &
thaw=$!
kill_again volume
wait "$thaw"
tap_run "a composer comes and looks" "$XSEGCTL" -s "$SEGMENT" volume info fine --via vol0
sleep 0.2
kill_enough fresh "its successor knows of the objects that were being made"

# --- it is unmounted ------------------------------------------------------------------------

kill_load away
umount -l "$SCENE_DIR/disk"
sleep 0.2
tap_run "what is open stays open" scene_alive away
scene_kill KILL store
scene_stop store
scene_until 10 disk_free || tap_note "the disk is still in use"
tap_fails "its successor does not take an empty folder for the store" \
    "$XSEGPEER" -s "$SEGMENT" "$SCENE_BOTTOM"
tap_like "and says so" "$(cat "$TAP_OUT")" "is not the store that this peer has served"
tap_is "nor does it leave anything there" "$(ls -A "$SCENE_DIR/disk")" ""
disk_mount
kill_start store
sleep 0.2
kill_enough away "mounted again: nobody has met an error"

# --- it is full -----------------------------------------------------------------------------

# Down to the last block.
fill() {
    local size
    for size in 1M 64k 4k; do
        dd if=/dev/zero of="$SCENE_DIR/disk/ballast.$size" bs=$size 2>/dev/null
    done
    sync -f "$SCENE_DIR/disk"
}
at() { "$KILL_PYTHON" - "${KILL_URI:-$SCENE_URI}" "$@" <<'PY'
import errno, sys
import nbd
handle = nbd.NBD()
handle.connect_uri(sys.argv[1])
for verb in sys.argv[2:]:
    what, offset = verb.split(":")
    offset = int(offset) << 20
    try:
        if what == "write":
            handle.pwrite(b"\x77" * 4096, offset)
        elif what == "cover":
            handle.pwrite(bytes(2 << 20), offset)
        elif what == "read":
            handle.pread(4096, offset)
        elif what == "trim":
            handle.trim(1 << 20, offset)
        else:
            handle.flush()
        print("ok", end=" ")
    except nbd.Error as error:
        print(error.errno, end=" ")
handle.shutdown()
PY
}
# what the load writes to has its space then
tap_is "before" "$(at cover:0 write:3 flush:0)" "ok ok ok "
fill
tap_is "full: who needs space is told; others are not" \
    "$(at write:3 write:40 read:3 read:40 write:3 flush:0)" "ok ENOSPC ok ok ok ok "
# each at() opens the volume and gives it back: records are put anew without space
tap_is "who comes later may open it" "$(at write:3 read:3 flush:0)" "ok ok ok "
"$XSEGCTL" -s "$SEGMENT" volume create none --size 8M --via vol0 >"$SCENE_DIR/none.log" 2>&1
tap_like "a volume more has no space" "$(cat "$SCENE_DIR/none.log")" "No space left"
kill_load full
kill_again store
sleep 0.2
kill_enough full "what has its space is written, also by a successor"
rm "$SCENE_DIR"/disk/ballast.*
tap_is "space again" "$(at write:40 read:40 flush:0)" "ok ok ok "

# --- it becomes read-only -------------------------------------------------------------------

# open since before that: no record is being put when it happens
scene_spawn holder "$KILL_PYTHON" -c "
import nbd, signal
handle = nbd.NBD()
handle.connect_uri('$SCENE_URI')
handle.flush()
print('open', flush=True)
signal.pause()"
scene_wait_line holder open || tap_not_ok "somebody has it open"
loop=$(basename "$(findmnt -no SOURCE "$SCENE_DIR/disk")")
if echo 1 >"/sys/fs/ext4/$loop/trigger_fs_error" 2>/dev/null; then
    tap_like "read-only: writes fail, reads go on" "$(at write:3 read:3 write:48 read:40)" \
        '^E[A-Z]+ ok E[A-Z]+ ok $'
    tap_like "what nobody has open can be opened to be read" \
        "$(KILL_URI="nbd+unix:///fine?socket=$SCENE_SOCKET" at read:3 write:3)" '^ok E[A-Z]+ $'
    scene_kill KILL store
    scene_stop store
    tap_fails "a successor does not start on it" "$XSEGPEER" -s "$SEGMENT" "$SCENE_BOTTOM"
    umount "$SCENE_DIR/disk"
    fsck.ext4 -fy "$SCENE_DIR/image" >/dev/null 2>&1
    disk_mount
    kill_start store
    tap_is "repaired: all goes on" "$(at write:3 read:40 write:48 flush:0)" "ok ok ok ok "
else
    tap_skip "read-only" "the kernel has no trigger_fs_error"
fi
tap_end
