#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The machine crashes: what lies on the disk at the moment when a flush, a FUA write or a record
# is answered. The disk is a file behind a loop device, the crash a copy of that file.

. "$(dirname "$0")/blocker_lib.sh"
scene_own_mounts "$@"
blocker_begin "blocker_file and a crash" 64M
scene_need mkfs.ext4 losetup

mkdir "$SCENE_DIR/disk" "$SCENE_DIR/after"
truncate -s 96M "$SCENE_DIR/disk.img"
# commits far apart: nothing becomes durable by itself meanwhile
mkfs.ext4 -q "$SCENE_DIR/disk.img" &&
    mount -o loop,commit=300 "$SCENE_DIR/disk.img" "$SCENE_DIR/disk" 2>/dev/null ||
    tap_skip_all "cannot mount an ext4 image"
scene_at_exit "umount '$SCENE_DIR/disk'"
scene_at_exit "umount '$SCENE_DIR/after'"

crashes=0
# Serves what a crash now would leave; op then asks there.
crash() {
    crashes=$((crashes + 1))
    cp --sparse=always "$SCENE_DIR/disk.img" "$SCENE_DIR/after.img"
    mount -o loop "$SCENE_DIR/after.img" "$SCENE_DIR/after" &&
        blocker_peer "after$crashes" 1 "a$crashes=blocker_file,dir=$SCENE_DIR/after/store"
}
back() {
    scene_stop "after$crashes"
    umount "$SCENE_DIR/after"
    PEER=$before
}

for io in threads auto; do
    before=s$io
    blocker_peer "$io" 2 "$before=blocker_file,dir=$SCENE_DIR/disk/store,io=$io" ||
        tap_not_ok "it starts"
    for i in 1 2 300 70000; do tap_is "$io: object $i" "$(op write 1 $i 0 65536 1)" ok; done
    tap_is "$io: without a flush" "$(op write 2 1 0 65536 1)" ok
    tap_is "$io: flush" "$(op flush 1 0)" ok
    crash || tap_not_ok "the disk is served after a crash"
    for i in 1 2 300 70000; do
        tap_is "$io: after a crash $i is there" "$(op read 1 $i 0 65536 1)" ok
    done
    tap_is "$io: what was not flushed is not (or this proves nothing)" \
        "$(op read 2 1 0 65536 1)" "wrong data"
    back

    tap_is "$io: durable as it completes" "$(op fua 3 5 4096 8192 7)" ok
    tap_is "$io: a record" "$(op put 11 0) $(op put 11 1)" "ok ok"
    crash || tap_not_ok "the disk is served after a crash"
    tap_is "$io: a FUA write is there, with its name" "$(op read 3 5 4096 8192 7)" ok
    tap_is "$io: the record is there" "$(op get 11 2)" ok
    back

    tap_is "$io: overwrite, discard, delete" \
        "$(op write 1 1 0 65536 2) $(op discard 1 2 0 65536) $(op delete 1 300)" "ok ok ok"
    tap_is "$io: flush" "$(op flush 1 0)" ok
    crash || tap_not_ok "the disk is served after a crash"
    tap_is "$io: the new data" "$(op read 1 1 0 65536 2)" ok
    tap_is "$io: the hole" "$(op read 1 2 0 65536 0)" ok
    tap_is "$io: the deleted is gone" "$(op read 1 300 0 65536 0)" ok
    tap_is "$io: the untouched" "$(op read 1 70000 0 65536 1)" ok
    back

    tap_is "$io: unflushed when it is killed" "$(op write 4 1 0 65536 3)" ok
    scene_kill KILL "$io"
    scene_stop "$io"
    before=t$io
    blocker_peer "again-$io" 1 "$before=blocker_file,dir=$SCENE_DIR/disk/store,io=$io" ||
        tap_not_ok "it starts again"
    tap_is "$io: a flush by the next process, of what it has not seen" "$(op flush 4 0)" ok
    crash || tap_not_ok "the disk is served after a crash"
    tap_is "$io: covers what the killed one had written" "$(op read 4 1 0 65536 3)" ok
    back
    tap_run "$io: it stops" scene_stop "again-$io"
    rm -rf "$SCENE_DIR/disk/store"
done
tap_end
