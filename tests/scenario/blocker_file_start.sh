#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Folders that the file blocker takes, tidies, or refuses with one sentence.

. "$(dirname "$0")/blocker_lib.sh"
scene_own_mounts "$@"
blocker_begin "the folder of blocker_file" 32M

refused() { tap_like "$1" "$(blocker_refusal "new=blocker_file,$2")" "$3"; }

touch "$SCENE_DIR/file"
mkdir "$SCENE_DIR/full" "$SCENE_DIR/foreign" "$SCENE_DIR/newer"
touch "$SCENE_DIR/full/holiday.jpg"
echo hello >"$SCENE_DIR/foreign/format"
echo 'skerry blocker_file 2' >"$SCENE_DIR/newer/format"
refused "no folder named" io=auto "dir"
refused "not a folder" "dir=$SCENE_DIR/file" "file' is not a folder"
refused "nothing above it" "dir=$SCENE_DIR/a/b" "the folder above it does not exist"
refused "somebody else's" "dir=$SCENE_DIR/full" "is not empty and holds no store"
refused "not a store's format" "dir=$SCENE_DIR/foreign" "not a store's"
refused "a newer format" "dir=$SCENE_DIR/newer" "has format version 2, this program knows 1"
refused "more files than allowed" "dir=$SCENE_DIR/x,fds=1048576" "fds"
tap_is "what was refused is as it was" \
    "$(ls "$SCENE_DIR/full" "$SCENE_DIR/foreign" "$SCENE_DIR/newer" | tr '\n' ' ')" \
    "$(printf '%s: format  %s: holiday.jpg  %s: format ' "$SCENE_DIR/foreign" "$SCENE_DIR/full" \
        "$SCENE_DIR/newer")"

# no permission: as somebody else
if [ "$(id -u)" -eq 0 ] && scene_have setpriv; then
    mkdir -m 0755 "$SCENE_DIR/root"
    chmod 0777 "$SCENE_DIR"
    chgrp -R 65534 "$SKERRY_SHM_DIR" "$SKERRY_RUN_DIR"
    chmod -R g+rwX "$SKERRY_SHM_DIR" "$SKERRY_RUN_DIR"
    out=$(setpriv --reuid 65534 --regid 65534 --clear-groups "$XSEGPEER" -s "$SEGMENT" \
        "f=blocker_file,dir=$SCENE_DIR/root" 2>&1 </dev/null | tail -n 1)
    if [[ $out == *"$SEGMENT"* ]]; then
        tap_skip "no permission" "nobody may not even join: $out"
    elif [[ $out == *"there is no role"* ]]; then
        tap_skip "no permission" "nobody may not read this build: $SCENE_BUILD"
    else
        tap_like "no permission" "$out" "cannot be written to: Permission denied"
    fi
else
    tap_skip "no permission" "needs root and setpriv"
fi
mkdir "$SCENE_DIR/ro"
if mount -t tmpfs -o ro,size=1M none "$SCENE_DIR/ro" 2>/dev/null; then
    scene_at_exit "umount '$SCENE_DIR/ro'"
    refused "a read-only file system" "dir=$SCENE_DIR/ro" "Read-only file system"
else
    tap_skip "a read-only file system" "cannot mount"
fi

# one process at a time
blocker_peer one 1 "f=blocker_file,dir=$SCENE_DIR/store" || tap_not_ok "it starts"
tap_is "a folder is made" "$(cat "$SCENE_DIR/store/format")" "skerry blocker_file 1"
refused "the folder of another process" "dir=$SCENE_DIR/store" \
    "is served by process $(scene_pid one) already"
tap_is "which goes on" "$(op write 1 1 0 4096 3)" ok
tap_is "with its records" "$(op put 5 0)" ok
scene_kill KILL one
scene_stop one

# what a killed process left half-made, and a mark that is not there
touch "$SCENE_DIR/store/tmp/record"
blocker_peer two 1 "g=blocker_file,dir=$SCENE_DIR/store" || tap_not_ok "it starts"
tap_is "a new process tidies up" "$(ls "$SCENE_DIR/store/tmp")" ""
tap_is "objects are there" "$(op read 1 1 0 4096 3)" ok
tap_is "records are there" "$(op get 5 1)" ok
tap_run "it stops" scene_stop two

# a damaged record is not served, and nothing else suffers
printf 'X' | dd of="$(echo "$SCENE_DIR"/store/records/*)" bs=1 seek=60 conv=notrunc 2>/dev/null
blocker_peer three 1 "h=blocker_file,dir=$SCENE_DIR/store" || tap_not_ok "it starts"
tap_is "a damaged record" "$(op get 5 1)" EILSEQ
tap_is "is not overwritten" "$(op put 5 0)" EILSEQ
tap_is "another one" "$(op put 6 0) $(op get 6 1)" "ok ok"

# the folder is taken away while it is served: nothing is promised any more
tap_is "a write before" "$(op write 1 1 0 4096 4)" ok
rm -rf "$SCENE_DIR/store"
tap_is "absent does not mean zeros now" "$(op read 1 99 0 4096 0)" EIO
tap_is "a new object" "$(op write 1 98 0 4096 4)" EIO
tap_is "a flush" "$(op flush 1 0)" EIO
tap_is "a record" "$(op put 7 0)" EIO
tap_run "it stops" scene_stop three
tap_run "and leaves nothing behind" test ! -e "$SCENE_DIR/store"
tap_end
