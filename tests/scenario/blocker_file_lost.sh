#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A sync that fails is not forgotten: Linux says yes the second time, the blocker does not, until
# the data has been written again.

. "$(dirname "$0")/blocker_lib.sh"
blocker_begin "blocker_file loses data" 32M

SHIM=$SCENE_BUILD/.libs/sync_fault.so
[ -e "$SHIM" ] || tap_skip_all "sync_fault.so is not built"
if [[ $(ldd "$XSEGPEER") =~ lib[atu]+san ]]; then
    tap_skip_all "a sanitizer wants to be loaded first"
fi
export SYNC_FAULT=$SCENE_DIR/fault
fail() { echo "$1" >"$SYNC_FAULT"; }
heal() { rm -f "$SYNC_FAULT"; }

start() {
    LD_PRELOAD=$SHIM blocker_peer "$1" 1 "$1=blocker_file,dir=$SCENE_DIR/store,io=auto$2" ||
        tap_not_ok "it starts"
}

start a ""
tap_is "two objects" "$(op write 1 0 0 65536 1) $(op write 1 1 0 8192 1)" "ok ok"
tap_is "another volume" "$(op write 2 0 0 8192 1)" ok
fail data
tap_is "a flush that fails" "$(op flush 1 0)" EIO
heal
tap_is "is not forgotten, though the kernel says yes now" "$(op flush 1 0)" EIO
tap_is "the other volume is well" "$(op flush 2 0)" ok
tap_is "reads go on" "$(op read 1 0 0 65536 1)" ok
tap_is "part of it is written again" "$(op write 1 0 0 32768 2) $(op write 1 1 0 8192 2)" "ok ok"
tap_is "which is not enough" "$(op flush 1 0)" EIO
tap_is "nor is one page more" "$(op write 1 0 32768 4096 2) $(op flush 1 0)" "ok EIO"
tap_is "the rest is written again" "$(op write 1 0 36864 28672 2)" ok
tap_is "now it is durable" "$(op flush 1 0)" ok

tap_is "part of a page" "$(op write 1 0 1024 512 2)" ok
fail data
tap_is "a flush that fails" "$(op flush 1 0)" EIO
heal
tap_is "what is beside it does not help" "$(op write 1 0 1536 512 2) $(op flush 1 0)" "ok EIO"
tap_is "the same part again is enough" "$(op write 1 0 1024 512 3) $(op flush 1 0)" "ok ok"

fail data
tap_is "a write that must be durable fails" "$(op fua 1 0 0 4096 3)" EIO
heal
tap_is "it was the only one to be unsynced: flushes are well" "$(op flush 1 0)" ok
tap_is "an unsynced one beside it" "$(op write 1 0 8192 4096 4)" ok
fail data
tap_is "its sync is the durable one's" "$(op fua 1 0 0 4096 5)" EIO
heal
tap_is "so it is lost with it" "$(op flush 1 0)" EIO
fail hold
op fua 1 0 0 4096 6 >"$SCENE_DIR/first" &
first=$!
is_held() { [ ! -e "$SYNC_FAULT" ]; }
tap_run "a durable one's sync takes its time" scene_until 60 is_held
op fua 1 0 65536 4096 6 >"$SCENE_DIR/second" &
second=$!
has_come() { [ -n "$(find "$SCENE_DIR/store" -size 68k)" ]; }
tap_run "another one comes meanwhile" scene_until 60 has_come
fail fail
wait "$first" "$second"
heal
tap_is "the error may be about both" "$(cat "$SCENE_DIR/first" "$SCENE_DIR/second")" "EIO
EIO"
tap_is "delete forgets what was lost" "$(op delete 1 0) $(op flush 1 0)" "ok ok"

tap_is "a new object" "$(op write 3 0 0 4096 1)" ok
fail folder
tap_is "a folder that fails" "$(op flush 3 0)" EIO
heal
tap_is "is synced again by the next flush" "$(op flush 3 0) $(op write 3 0 0 4096 2)" "ok ok"
tap_is "not for another" "$(op write 2 0 0 4096 2) $(op flush 2 0)" "ok ok"
fail folder
tap_is "a record" "$(op put 4 0)" EIO
tap_is "nobody knows what a crash leaves of it" "$(op get 4 1) $(op put 5 0)" "EIO EIO"
heal
tap_is "it is put once more, and all go on" "$(op get 4 1) $(op put 5 0) $(op get 5 1)" "ok ok ok"
fail folder
tap_is "one that is put over" "$(op put 4 1)" EIO
heal
tap_is "is as well" "$(op get 4 2) $(op get 5 1)" "ok ok"
fail folder
tap_is "a removal" "$(op remove 4 2)" EIO
tap_is "nobody knows what a crash leaves of it, either" "$(op get 5 1) $(op put 6 0)" "EIO EIO"
heal
tap_is "it is done once more, and all go on" "$(op get 4 2) $(op get 5 1)" "ENOENT ok"
tap_is "nothing is left of it" "$(ls "$SCENE_DIR/store/tmp")" ""
tap_is "it can be put anew, and removed" "$(op put 4 0) $(op put 4 1) $(op remove 4 2)" "ok ok ok"
tap_is "as its successor expects it" "$(op put 4 0) $(op put 4 1)" "ok ok"
fail folder
tap_is "one that nobody comes back to" "$(op put 5 1)" EIO
heal
tap_run "it stops" scene_stop a
tap_run "and does not say that all is durable" test ! -e "$SCENE_DIR/store/clean"

# few files open: unsynced ones are synced before they are closed, and losses stay in mind
start b ",fds=16"
tap_is "records are back" "$(op get 4 2) $(op get 5 2)" "ok ok"
fail data
tap_is "one write" "$(op write 6 0 0 4096 1)" ok
for ((i = 1; i < 40; i++)); do op write 6 $((i * 256)) 0 512 1; done | sort | uniq -c |
    sed 's/^/# /'
heal
tap_is "what was lost on the way is known" "$(op flush 6 0)" EIO
tap_is "and not taken back" "$(op flush 6 0)" EIO
tap_run "it stops" scene_stop b

# what a killed process left cannot be made durable: no flush may say so, whoever asks
start c ""
tap_is "written, not flushed" "$(op write 8 0 0 4096 1)" ok
scene_kill KILL c
scene_stop c
fail system
start d ""
tap_is "the next process serves it" "$(op read 8 0 0 4096 1)" ok
tap_is "but does not say that it is durable" "$(op flush 8 0)" EIO
heal
tap_is "not later, either" "$(op flush 8 0) $(op fua 9 0 0 4096 1)" "EIO EIO"
tap_is "it goes on" "$(op write 8 0 0 4096 2) $(op read 8 0 0 4096 2)" "ok ok"
tap_run "it stops" scene_stop d
tap_run "and leaves no mark" test ! -e "$SCENE_DIR/store/clean"
start e ""
tap_is "somebody has looked at the disk" "$(op flush 8 0)" ok
tap_run "it stops" scene_stop e
tap_run "and leaves its mark" test -e "$SCENE_DIR/store/clean"
tap_end
