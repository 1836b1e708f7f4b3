#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Any process may be killed: the keeper starts it again, and a client that writes and verifies all
# the while sees no error. The keeper itself may be killed, alone or with one of its processes.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "the keeper: kills"

conf=$SCENE_DIR/k.conf
# without back-off: what is looked at here is not how long it waits
keeper_file "$conf" <<'END'
[host nbd0]
restart-delay-max = 0
[host vol0]
restart-delay-max = 0
restart = on-failure
[host file0]
restart-delay-max = 0
END
down_at_exit k
ctl_exits 0 "up" up --unguarded "$conf"
ctl_exits 0 "a volume" volume create disk --size 16M

# --- each, under load -------------------------------------------------------------------------
load_start load
for peer in file0 vol0 file0 vol0; do
    old=$(pid_of "$peer")
    kill_peer "$peer"
    tap_run "$peer is back" back "$peer" "$old"
    sleep 0.2
done
store=$(pid_of file0) volume=$(pid_of vol0)
kill_peer vol0 file0
tap_run "two at once: the store is back" back file0 "$store"
tap_run "and the volume" back vol0 "$volume"
load_end load "the client saw nothing of it"

tap_is "each death is an event" "$(event_count peer_died file0),$(event_count peer_died vol0)" 3,3
tap_is "with its reason" "$(event_last peer_died file0 .reason)" "killed by SIGKILL"
tap_is "each restart, too" "$(event_count peer_restarting file0)" 3
tap_like "and what was reaped" "$(grep -c '"event":"reaped"' "$events")" '^[1-9]'
ctl_exits 0 "all is well" status --json
json_is "restarts are counted" '[.peers[] | select(.name == "file0").restarts] | @csv' 3
json_is "no request is left" '.segment.requests | .total - .free' 0

# --- the front --------------------------------------------------------------------------------
load_start load --reconnect
inode=$(stat -c %i "$socket") old=$(pid_of nbd0)
kill_peer nbd0
tap_run "the front is back" back nbd0 "$old"
tap_is "on the socket that was there" "$(stat -c %i "$socket")" "$inode"
load_end load "what was acknowledged is there"

# --- one that ends by itself --------------------------------------------------------------------
old=$(pid_of file0)
kill -s TERM "$old"
tap_run "it ends well, unasked: restart=always starts it again" back file0 "$old"
tap_is "the event says so" "$(event_last peer_died file0 .reason)" \
    "ended by itself, unasked (exit status 0)"
kill -s TERM "$(pid_of vol0)"
tap_run "restart=on-failure leaves it" scene_until 5 state_is vol0 stopped
ctl status --json
json_is "and says why" '.peers[] | select(.name == "vol0").reason' "ended by itself (exit status 0)"
ctl_exits 0 "peer start brings it back" peer start vol0

# --- the keeper -------------------------------------------------------------------------------
load_start load
keeper=$(keeper_pid k) store=$(pid_of file0) volume=$(pid_of vol0)
kill -s KILL "$keeper"
scene_until 5 gone "$keeper"
kill -s KILL "$store"
ctl_exits 0 "up after the keeper and a peer were killed" up --unguarded "$conf"
tap_run "the dead one is started again" back file0 "$store"
tap_is "the others run on" "$(pid_of vol0)" "$volume"
store=$(pid_of file0)
kill_peer vol0
tap_run "adopted ones are started again, too" back vol0 "$volume"
tap_is "the store is not touched" "$(pid_of file0)" "$store"

# what it had just forked may have its lock a moment longer
keeper=$(keeper_pid k)
kill -s KILL "$keeper"
scene_until 5 gone "$keeper"
scene_spawn holder flock "$SKERRY_RUN_DIR/k/xsegd.pid" sleep 0.7
held() { ! flock -n "$SKERRY_RUN_DIR/k/xsegd.pid" true; }
tap_run "a lock that a dead keeper has left is held" scene_until 5 held
ctl_exits 0 "up waits for it" up --unguarded "$conf"
wait "$(scene_pid holder)"

# all of it at once: pids first, then one kill
keeper=$(keeper_pid k) store=$(pid_of file0) volume=$(pid_of vol0)
kill -s KILL "$keeper" "$store" "$volume"
scene_until 5 gone "$keeper"
# the file is broken meanwhile: the pipeline goes on as it was
cp "$conf" "$SCENE_DIR/k.good"
echo 'nonsense' >>"$conf"
scene_spawn xsegd "$XSEGD" k "$conf"
tap_run "a service manager starts xsegd again: the store is back" back file0 "$store"
tap_run "the volume, too" back vol0 "$volume"
cp "$SCENE_DIR/k.good" "$conf"
load_end load "the client saw nothing of it"
tap_like "the keeper says that the file is not what runs" "$(<"$SCENE_DIR/xsegd.err")" \
    "goes on as it was"

# --- xsegctl in the middle of a command ----------------------------------------------------------
"$XSEGCTL" peer stop nbd0 >/dev/null 2>&1 &
sleep 0.01
kill -s KILL $! 2>/dev/null
wait $! 2>/dev/null
ctl_exits 0 "the next command is served" peer start nbd0
"$XSEGCTL" volume create other --size 4M >/dev/null 2>&1 &
sleep 0.01
kill -s KILL $! 2>/dev/null
wait $! 2>/dev/null
whole() { "$XSEGCTL" volume create other --size 4M && "$XSEGCTL" volume info other; }
tap_run "a volume that a killed one was making is made" whole
free() { "$XSEGCTL" status --json | jq -e '.segment.requests | .total == .free'; }
tap_run "and nothing of it is left" scene_until 10 free

# --- a store that dies while those above it drain -------------------------------------------------
load_start load
store=$(pid_of file0)
scene_freeze "$store"
sleep 0.1 # by now the client waits for it
scene_spawn down "$XSEGCTL" down --yes
stopping() { grep -q "'nbd0' (pid [0-9]*) is stopped" "$SCENE_DIR/xsegd.err"; }
tap_run "the front drains" scene_until 10 stopping
kill -s KILL "$store"
wait "$(scene_pid down)"
tap_is "down ends well: the store was started once more" "$?" 0
tap_is "nobody had to be killed" "$(event_last peer_died file0 .reason)" "killed by SIGKILL"
tap_end
