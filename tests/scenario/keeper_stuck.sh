#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Who lives but does not move is seen: an event with the reason, and a restart where it is asked
# for; no data comes to harm.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "the keeper: who does not move"

conf=$SCENE_DIR/k.conf
keeper_file "$conf" <<'END'
[host file0]
watchdog = 2500ms
request-limit = 1s
[host vol0]
watchdog = 2500ms
watchdog-action = restart
END
down_at_exit k
ctl_exits 0 "up" up "$conf"
ctl_exits 0 "a volume" volume create disk --size 16M

# --- an event only --------------------------------------------------------------------------------
load_start load
store=$(pid_of file0)
scene_freeze "$store"
tap_run "a stopped peer is an event" scene_until 20 event_seen peer_stuck file0
tap_like "with the reason" "$(event_last peer_stuck file0 '.action + ": " + .reason')" \
    '^event: does not move: lane [0-9]+, for [0-9.]+ s; it is stopped by a signal$'
tap_run "so is the request that waits for it" scene_until 20 event_seen request_old file0
tap_like "with the reason" "$(event_last request_old file0 .reason)" \
    "of 'file0' older than 1.0 s; the oldest, a [a-z]+, (is with|waits for) it for"
ctl_exits 1 "status" status --json
json_is "says so" '.peers[] | select(.name == "file0") | .health + " " + .reason[0:13]' \
    'failed does not move'
kill -s CONT "$store"
tap_run "it moves again" scene_until 10 event_seen peer_moves file0
tap_is "it is the same process" "$(pid_of file0)" "$store"
load_end load "the client saw nothing of it"
ctl_exits 0 "all is well" status

# --- a restart ------------------------------------------------------------------------------------
load_start load
volume=$(pid_of vol0)
scene_freeze "$volume"
tap_run "with watchdog-action=restart another takes its place" back vol0 "$volume" 20
tap_run "the stopped one is gone" gone "$volume"
tap_is "before its successor was started" \
    "$(jq -r 'select(.peer == "vol0") | .event' "$events" | tail -n 5 | tr '\n' ' ')" \
    "peer_stuck peer_died peer_restarting peer_started peer_ready "
tap_like "the death says why" "$(event_last peer_died vol0 .reason)" \
    '^killed by its keeper: it does not move: lane'
load_end load "the client saw nothing of it"

# --- the keeper itself stands still: nobody else is to blame --------------------------------------
keeper=$(keeper_pid k)
stuck_count() { grep -c peer_stuck "$events"; }
before=$(stuck_count)
scene_freeze "$keeper"
sleep 4
kill -s CONT "$keeper"
sleep 1
tap_is "a keeper that stood still blames nobody" "$(stuck_count)" "$before"
ctl_exits 0 "down" down
tap_end
