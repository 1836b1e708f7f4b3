#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Nobody is a single point: the keeper is killed and comes back by itself, and so does who brought
# it back; what dies next is started again, and clients that connect meanwhile wait instead of
# being refused.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "the keeper has a guard"
scene_need nbdinfo
conf=$SCENE_DIR/k.conf
keeper_file "$conf" </dev/null

guard_pid() {
    { "$XSEGCTL" status --json 2>/dev/null || true; } | jq -r '.keeper.guard_pid // 0'
}
# OLD_KEEPER: another one answers, and has a guard
kept_again() {
    local pid
    pid=$(keeper_pid k 2>/dev/null) && [ -n "$pid" ] && [ "$pid" != "$1" ] &&
        [ "$(guard_pid)" -gt 1 ]
}
guarded_again() { [ "$(guard_pid)" -gt 1 ] && [ "$(guard_pid)" != "$1" ]; }

ctl_exits 0 "up" up "$conf"
down_at_exit k
tap_run "it has a guard" guarded_again 0
ctl_exits 0 "a volume" volume create disk --size 4M
load_start load
for round in 1 2 3; do
    keeper=$(keeper_pid k)
    kill -s KILL "$keeper"
    tap_run "$round: the keeper is killed: it comes back" scene_until 20 kept_again "$keeper" || {
        tap_note "it was $keeper, its guard ${guard:-the first}; now $(keeper_pid k), $(guard_pid)"
        tap_note "$(tail -n 2 "$SKERRY_RUN_DIR/k/xsegd.log" | paste -sd '|')"
        tap_note "$(pgrep -af "xsegd.*$SCENE_DIR" | paste -sd '|')"
        tap_end
    }
    store=$(pid_of file0)
    kill_peer file0
    tap_run "$round: what is killed then comes back, too" back file0 "$store"
    guard=$(guard_pid)
    kill -s KILL "$guard"
    tap_run "$round: the guard is killed: it comes back" scene_until 20 guarded_again "$guard"
done
load_end load "no client saw any of it"

# The front is away for a while, and its keeper as well: the socket is still there.
keeper=$(keeper_pid k) guard=$(guard_pid) front=$(pid_of nbd0)
scene_freeze "$guard"
kill -s KILL "$keeper" "$front"
scene_until 5 gone "$keeper"
scene_spawn waits timeout 60 nbdinfo --size "nbd+unix:///disk?socket=$socket"
sleep 0.3
tap_run "nobody keeps anything: who connects waits" kill -0 "$(scene_pid waits)"
kill -s CONT "$guard"
rc=0
wait "$(scene_pid waits)" || rc=$?
unset "SCENE_PIDS[waits]"
tap_is "and is served when they are back" "$rc $(<"$SCENE_DIR/waits.out")" "0 4194304"

keeper=$(keeper_pid k) guard=$(guard_pid)
kill -s HUP "$keeper"
tap_run "the keeper becomes a new program: its guard stays" scene_until 10 guarded_again 0
tap_is "and is the same" "$(keeper_pid k) $(guard_pid)" "$keeper $guard"

guard=$(guard_pid)
ctl_exits 0 "down" down
tap_run "nobody is left: the keeper" scene_until 5 gone "$keeper"
tap_run "nor its guard" scene_until 5 gone "$guard"
tap_is "nor a socket" "$(find "$SKERRY_RUN_DIR/k" -type s)" ""

# Another keeper is there when the guard wants to start one.
ctl_exits 0 "up again" up "$conf"
guard=$(guard_pid) keeper=$(keeper_pid k)
scene_freeze "$guard"
kill -s KILL "$keeper"
scene_until 5 gone "$keeper"
ctl_exits 0 "somebody else starts it first" up "$conf"
keeper=$(keeper_pid k)
kill -s CONT "$guard"
tap_run "the guard of before leaves" scene_until 20 gone "$guard"
tap_is "and does not disturb" "$(keeper_pid k)" "$keeper"
tap_end
