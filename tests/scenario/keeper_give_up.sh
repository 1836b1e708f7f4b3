#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A peer that cannot be brought back is given up: its requests go the second way where there is
# one, else they end with EIO; and it can be brought back by hand.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "the keeper: giving up"

conf=$SCENE_DIR/k.conf
down_at_exit k

keeper_may_fail file0

limits='restart-delay = 10ms
restart-delay-max = 50ms
restart-limit = 3
restart-window = 1h'

given_up() { state_is file0 given-up; }

# --- without a second way -----------------------------------------------------------------------
keeper_file "$conf" <<END
[host file0]
$limits
END
ctl_exits 0 "up" up --unguarded "$conf" --timeout 2s
ctl_exits 0 "a volume" volume create disk --size 16M
load_start load --errors
echo 'echo "no luck today" >&2; exit 3' >"$SCENE_DIR/fail"
kill_peer file0
tap_run "who exits at once, for ever, is given up" scene_until 10 given_up
tap_is "after so many restarts" \
    "$(event_count peer_started file0),$(event_count peer_died file0)" 4,4
tap_like "the event says why" "$(event_last peer_given_up file0 .reason)" \
    'started again 3 times within 3600 s; at last: exit status 3: no luck today'
ctl_exits 1 "status" status --json
json_is "says it, too" '.peers[] | select(.name == "file0") | .health + " " + .reason[0:23]' \
    'failed started again 3 times w'
rm "$SCENE_DIR/fail"
ctl_exits 0 "peer start brings it back" peer start file0
load_end load "what was acknowledged before and after is there"
tap_like "the client was told of it" "$(tail -n 1 "$SCENE_DIR/load.out")" ' [1-9][0-9]* errors EIO$'
ctl_exits 0 "all is well" status

# a keeper that comes back keeps to it
load_start load --errors
echo 'exit 3' >"$SCENE_DIR/fail"
kill_peer file0
scene_until 10 given_up
rm "$SCENE_DIR/fail"
keeper=$(keeper_pid k)
kill -s KILL "$keeper"
scene_until 5 gone "$keeper"
ctl up --unguarded "$conf" --timeout 2s
tap_run "the next keeper does not start it either" given_up
sleep 0.5
echo 'exit 3' >"$SCENE_DIR/fail"
ctl_exits 1 "a start by hand that fails is told at once" peer start file0
err_like "with the reason" "'file0' does not start: exit status 3"
tap_run "it is given up again" given_up
echo 'exit 0' >"$SCENE_DIR/fail"
ctl_exits 1 "one that ends well, but is never ready" peer start file0
rm "$SCENE_DIR/fail"
ctl_exits 0 "peer stop: it is not wanted" peer stop file0

# one that never says ready
echo 'exec sleep 1000' >"$SCENE_DIR/fail"
ctl_exits 7 "a start by hand that hangs" peer start file0 --timeout 1s
rm "$SCENE_DIR/fail"
ctl_exits 0 "and one that does not" peer start file0
load_end load "what was acknowledged is there"
tap_like "requests were refused meanwhile" "$(tail -n 1 "$SCENE_DIR/load.out")" 'errors EIO$'
echo 'exec sleep 1000' >"$SCENE_DIR/fail"
kill_peer file0
late() { [ "$(event_count peer_died file0)" -gt "$1" ]; }
count=$(event_count peer_died file0)
tap_run "one that is never ready is killed in time" scene_until 40 late "$count"
tap_is "and that is the reason" "$(event_last peer_died file0 .reason)" \
    "it was not ready within its time limit"
rm "$SCENE_DIR/fail"
serving() { state_is file0 serving; }
tap_run "then it is ready" scene_until 10 serving
ctl_exits 0 "down" down

# --- with a second way ----------------------------------------------------------------------------
# A volume without a map: what one composer has noted about a map the other one does not know.
keeper_file "$conf" <<END
[host vol0]
$limits
[peer vol1]
role = volume
edge.store = file0
edge.map = map0
fixed = disk:32M
END
sed -i 's/^edge.volume = vol0/&\nfallback.volume = vol1/' "$conf"
sed -i '/^\[peer vol0\]/,/^$/s/^role = volume/&\nfixed = disk:32M/' "$conf"
keeper_may_fail vol0
ctl_exits 0 "up with a second composer" up --unguarded "$conf" --timeout 2s
load_start load
echo 'exit 3' >"$SCENE_DIR/fail"
kill_peer vol0
given_up() { state_is vol0 given-up; }
tap_run "the first one is given up" scene_until 10 given_up
tap_run "the edge is switched" scene_until 5 event_seen edge_switched nbd0
tap_is "to the second one" "$(event_last edge_switched nbd0 '[.edge, .from, .to] | join(" ")')" \
    "volume vol0 vol1"
sleep 0.5
load_end load "the client saw nothing of it"
rm "$SCENE_DIR/fail"
ctl_exits 0 "the first one is brought back by hand" peer start vol0
ctl edge list -o csv
out_like "the edge stays where it is" "nbd0:volume,vol1"
load_start load
ctl_exits 0 "until it is set back" edge set nbd0:volume vol0
load_end load "the client saw nothing of it"
ctl_exits 0 "all is well" status

# --- keys with mistakes -------------------------------------------------------------------------
ctl_exits 0 "down" down
wrong() { # NAME REGEX, further lines on stdin
    keeper_file "$conf"
    ctl_exits 2 "$1" up --unguarded "$conf"
    err_like "$1: says so" "$2"
}
wrong "an unknown policy" "k.conf:[0-9]+: restart=often: write always, on-failure or never" <<'END'
[host file0]
restart = often
END
wrong "a watchdog that is too fast" "watchdog=1s: write a time from 2500ms" <<'END'
[host file0]
watchdog = 1s
END
wrong "two sections that do not agree" "the same process is given restart=never too" <<'END'
[host file0]
restart = never
[peer file0]
restart = always
END
wrong "a second way to nobody" "fallback.store leads to 'nix', but there is no such peer" <<'END'
[peer vol0]
fallback.store = nix
END
wrong "a second way that there is not" "role volume has no edge 'fallback.volume'" <<'END'
[peer vol0]
fallback.volume = file0
END
wrong "a second way in a circle" "closes a circle" <<'END'
[peer vol0]
fallback.store = nbd0
END
tap_end
