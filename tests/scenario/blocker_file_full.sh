#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A full disk: ENOSPC goes to the request that met it; what fits goes on, and all does when there
# is space again. On tmpfs, and on ext4 and btrfs in a file.

. "$(dirname "$0")/blocker_lib.sh"
scene_own_mounts "$@"
blocker_begin "blocker_file on a full disk" 64M

# NAME IO DIR
full() {
    local name=$1 io=$2 dir=$3 filled
    blocker_peer "$name" 1 "$name=blocker_file,dir=$dir,io=$io" || tap_not_ok "$name: it starts"
    tap_is "$name: an object before" "$(op write 7 0 0 65536 1)" ok
    filled=$(op fill 1 100)
    tap_like "$name: the disk fills up" "$filled" '^[1-9][0-9]* ENOSPC$'
    tap_like "$name: and nearly nothing is free" "$(op space 0 0)" '^[0-9]{8,9} [0-9]{1,7}$'
    filled=${filled%% *}
    tap_is "$name: a new object" "$(op write 3 0 0 4194304 3)" ENOSPC
    tap_is "$name: durable at once" "$(op fua 3 1 0 4194304 3)" ENOSPC
    tap_is "$name: space kept" "$(op zero-keep 3 2 0 4194304)" ENOSPC
    tap_is "$name: what has its space is written" "$(op write 7 0 0 65536 2)" ok
    tap_is "$name: and read" "$(op read 7 0 0 65536 2)" ok
    tap_is "$name: flushes do not fail for those that were refused" \
        "$(op flush 7 0) $(op flush 1 0) $(op flush 3 0)" "ok ok ok"
    tap_is "$name: what came before the end is whole" \
        "$(op read 1 $((filled - 1)) 0 4194304 1)" ok
    tap_is "$name: discard gives space back" "$(op discard 1 0 0 4194304)" ok
    tap_is "$name: delete, too" "$(op delete 3 0) $(op delete 3 1) $(op delete 3 2)" "ok ok ok"
    tap_is "$name: writes go on" "$(op write 4 0 0 2097152 9) $(op flush 4 0)" "ok ok"
    tap_is "$name: and are read" "$(op read 4 0 0 2097152 9)" ok
    tap_is "$name: in place of what was discarded are zeros" "$(op read 1 0 0 4194304 0)" ok
    tap_run "$name: it stops" scene_stop "$name"
}

# NAME DIR: each write takes new space here, also where there was some. The peer goes on, says who
# has which volume, and comes back after it was killed.
full_copying() {
    local name=$1 dir=$2 fenced i
    blocker_peer "$name" 1 "$name=blocker_file,dir=$dir,shared=yes" ||
        tap_not_ok "$name: it starts"
    tap_is "$name: an object before" "$(op write 7 0 0 65536 1) $(op flush 7 0)" "ok ok"
    tap_is "$name: it has its owner" "$(op fence 7 1)" ok
    tap_like "$name: the disk fills up" "$(op fill 1 200)" '^[1-9][0-9]* ENOSPC$'
    dd if=/dev/zero of="$dir/fill" bs=4k 2>/dev/null
    sync -f "$dir"
    dd if=/dev/zero of="$dir/fill.2" bs=4k 2>/dev/null
    tap_is "$name: so it is for everybody" "$(stat -c %s "$dir/fill.2")" 0
    fenced=
    for ((i = 2; i < 200; i++)); do fenced+=" $(op fence $((i * 37)) 1)"; done
    tap_like "$name: whose a volume is it says, or that there is no space" "$fenced" \
        '^( ok| ENOSPC)+$'
    tap_is "$name: what is there is read" "$(op read 7 0 0 65536 1)" ok
    scene_kill KILL "$name"
    wait "$(scene_pid "$name")" 2>/dev/null
    if blocker_peer "$name" 1 "$name=blocker_file,dir=$dir,shared=yes"; then
        tap_ok "$name: killed, it comes back"
    else
        tap_not_ok "$name: killed, it comes back"
    fi
    tap_is "$name: with what it had" "$(op read 7 0 0 65536 1)" ok
    rm "$dir/fill" "$dir/fill.2"
    tap_is "$name: delete gives space back" "$(op delete 1 0) $(op delete 1 1)" "ok ok"
    sync -f "$dir"
    tap_is "$name: with space again all goes on" \
        "$(op fence 7 2) $(op write 7 0 0 65536 2) $(op flush 7 0) $(op read 7 0 0 65536 2)" \
        "ok ok ok ok"
    tap_run "$name: it stops" scene_stop "$name"
}

mkdir "$SCENE_DIR/tmpfs" "$SCENE_DIR/ext4" "$SCENE_DIR/btrfs"
if mount -t tmpfs -o size=14M none "$SCENE_DIR/tmpfs" 2>/dev/null; then
    scene_at_exit "umount '$SCENE_DIR/tmpfs'"
    full tmpfs-threads threads "$SCENE_DIR/tmpfs/a"
    rm -rf "$SCENE_DIR/tmpfs/a"
    full tmpfs-auto auto "$SCENE_DIR/tmpfs/b"
else
    tap_skip "tmpfs" "cannot mount"
fi

truncate -s 32M "$SCENE_DIR/disk.img"
if scene_have mkfs.ext4 && mkfs.ext4 -q "$SCENE_DIR/disk.img" 2>/dev/null &&
    mount -o loop "$SCENE_DIR/disk.img" "$SCENE_DIR/ext4" 2>/dev/null; then
    scene_at_exit "umount '$SCENE_DIR/ext4'"
    full ext4-threads threads "$SCENE_DIR/ext4/a"
    rm -rf "$SCENE_DIR/ext4/a"
    full ext4-auto auto "$SCENE_DIR/ext4/b"
else
    tap_skip "ext4" "cannot make or mount one"
fi

truncate -s 128M "$SCENE_DIR/copying.img"
if scene_have mkfs.btrfs && mkfs.btrfs -q "$SCENE_DIR/copying.img" >/dev/null 2>&1 &&
    mount -o loop "$SCENE_DIR/copying.img" "$SCENE_DIR/btrfs" 2>/dev/null; then
    scene_at_exit "umount '$SCENE_DIR/btrfs'"
    full_copying btrfs "$SCENE_DIR/btrfs/a"
else
    tap_skip "btrfs" "cannot make or mount one"
fi
tap_end
