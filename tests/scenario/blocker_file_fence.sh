#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A volume is taken away from a segment whose process is stopped in the middle of a write to it. The
# change waits for that write, and nothing else waits for the change.

. "$(dirname "$0")/blocker_lib.sh"
blocker_begin "blocker_file changes hands" 64M

SHIM=$SCENE_BUILD/.libs/sync_fault.so
[ -e "$SHIM" ] || tap_skip_all "sync_fault.so is not built"
if [[ $(ldd "$XSEGPEER") =~ lib[atu]+san ]]; then
    tap_skip_all "a sanitizer wants to be loaded first"
fi
export SYNC_FAULT=$SCENE_DIR/fault
TAP_LIMIT=120
store="dir=$SCENE_DIR/store,shared=yes,io=threads"
declare -A segments=([new]=$SEGMENT)
blocker_peer new 1 "new=blocker_file,$store" || tap_not_ok "one starts"
SEGMENT=blk$$-old
blocker_segment 64M
segments[old]=$SEGMENT
LD_PRELOAD=$SHIM blocker_peer old 1 "old=blocker_file,$store" ||
    tap_not_ok "another starts on the same folder, in a segment of its own"

at() { # PEER VERB ARGS...
    local PEER=$1 SEGMENT=${segments[$1]}
    op "${@:2}"
}
ask() { # NAME PEER VERB ARGS...: in the background; what it says is in $SCENE_DIR/NAME.out
    scene_spawn "$1" timeout 120 "$CHECK" "$3" "${segments[$2]}" "$2" "${@:4}"
}
says() { # NAME WHAT LABEL: when it has ended
    wait "$(scene_pid "$1")"
    tap_is "$3" "$(cat "$SCENE_DIR/$1.out" "$SCENE_DIR/$1.err")" "$2"
}
insist() { # PEER VERB ARGS...: a machine so busy that the change was given up costs another try
    until at "$@" | grep -v ETIMEDOUT; do :; done
}
is_stopped() { grep -q '^State:.T' "/proc/$(scene_pid old)/status"; }
stop_in_a_write() { # SEED
    echo stop >"$SYNC_FAULT"
    ask write old write 1 0 0 65536 "$1"
    tap_run "the first is stopped in a write" scene_until 60 is_stopped
}

tap_is "the first has two volumes" "$(at old fence 1 5) $(at old fence 2 5)" "ok ok"
tap_is "and writes to them" "$(at old write 1 0 0 65536 1) $(at old write 2 0 0 4096 1)" "ok ok"

stop_in_a_write 2
scene_spawn fence insist new fence 1 6
tap_is "others change hands meanwhile" "$(at new fence 2 6) $(at new write 2 0 0 4096 2)" "ok ok"
tap_is "as often as they like" "$(at new fence 2 7) $(at new fence 3 1) $(at new leave 2 7)" \
    "ok ok ok"
tap_run "that one waits" scene_alive fence
scene_kill CONT old
says write ok "the write ends"
says fence ok "then the volume is taken"
tap_is "the new owner reads what was written" "$(at new read 1 0 0 65536 2)" ok
tap_like "the old one is refused" "$(at old write 1 0 0 65536 3)" '^E'
tap_is "nothing of that is in the store" "$(at new read 1 0 0 65536 2)" ok

# one that never goes on: the change is given up, and leaves all as it was
tap_is "the first has it again" "$(at new leave 1 6) $(at old fence 1 8)" "ok ok"
stop_in_a_write 4
ask fence new fence 1 9
says fence ETIMEDOUT "the change is given up"
tap_like "the log names who has it" "$(cat "$SCENE_DIR/new.err")" \
    "process $(scene_pid old): it has had writes under way"
tap_is "others go on" "$(at new write 2 0 0 4096 3)" ok
scene_kill CONT old
says write ok "the write ends"
tap_is "now it is taken" "$(at new fence 1 9) $(at new read 1 0 0 65536 4)" "ok ok"

# what the one before wrote is made durable, unless he said that it is, and meant this term
fails() { # TERM: the first claims it where nothing can be made durable
    echo system >"$SYNC_FAULT"
    at old fence 1 "$1"
    rm "$SYNC_FAULT"
}
tap_is "who has left has left nothing to be done" "$(at new leave 1 9) $(fails 10)" "ok ok"
tap_is "a word from a term before" "$(at new fence 1 11) $(at new leave 1 10)" "ok ok"
tap_is "does not count" "$(fails 12) $(at old fence 1 12)" "EIO ok"

# one that is killed there is gone
stop_in_a_write 5
ask fence new fence 1 13
scene_kill KILL old
scene_stop old
says fence ok "a killed one is not waited for"
tap_is "the new owner writes" "$(at new write 1 0 0 65536 6) $(at new read 1 0 0 65536 6)" "ok ok"
tap_run "it stops" scene_stop new
tap_end
