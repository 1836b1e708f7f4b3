#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A volume that is written to faster than its cache may write back is to move: what --on-stall says
# is done, and status says how it gets on.

. "$(dirname "$0")/rehome_lib.sh"
. "$(dirname "$0")/relay_lib.sh"
ctl_begin "re-homing a volume that is written to too fast"
rehome_need
scene_need fio

# a's store is behind a bridge that takes 16 MB a second
cat >"$SCENE_DIR/s.conf" <<END
[segment]
name=s
size=128M

[peer file0]
role=blocker_file
dir=$SCENE_DIR/store
shared=yes

[peer out0]
role=synapse_export
listen=unix:$SCENE_DIR/s.out
edge.store=file0
END
{
    host a home0 | sed -e '/^\[peer file0\]/,$d' -e 's/^edge.store=file0/edge.store=slow0/'
    printf '[peer slow0]\nrole=synapse_import\nremote=unix:%s/s.out\nrate=16M\n' "$SCENE_DIR"
    out a
} >"$SCENE_DIR/a.conf"
{ host b home0 && out b; } >"$SCENE_DIR/b.conf"
for segment in s a b; do
    down_at_exit "$segment"
    ctl_exits 0 "$segment comes up" up "$SCENE_DIR/$segment.conf"
done
ctl_exits 0 "a volume" volume create -s a disk --size 64M
ctl_exits 0 "a bridge to b" bridge add -s a far0 "unix:$SCENE_DIR/b.out"
ctl_exits 0 "and one to a" bridge add -s b back0 "unix:$SCENE_DIR/a.out"

moving() { # of 'disk', as a says
    "$XSEGCTL" rehome status -s a --json | jq -r ".volumes[] | select(.name == \"disk\") | $1"
}
moving_is() { [ "$(moving "$1")" = true ]; }
held() { "$XSEGCTL" stats -s a --json home0 | jq '[.peers[].counters.held] | add'; }
to_b() { # WHAT; no pause is as short as that
    "$XSEGCTL" rehome -s a disk --to far0 --downtime 1us --on-stall "$1" --json
}
back() { "$XSEGCTL" rehome -s b disk --to back0; }

scene_spawn writer fio --name=writer --ioengine=nbd \
    --uri="nbd+unix:///disk?socket=$SCENE_DIR/a.sock" --rw=randwrite --bs=64k --iodepth=8 \
    --offset=16M --size=32M --time_based --runtime=3600
tap_run "a client of a's" load client a

# --- left where it is ---------------------------------------------------------------------------
tap_like "it stays when that was asked for" "$(to_b cancel 2>&1)" \
    "'disk' stays here: it is written to faster than its cache writes back"
tap_is "it is a's" "$(owner a) $(state a)" "a home"

# --- how it gets on -----------------------------------------------------------------------------
to_b wait >"$SCENE_DIR/wait.out" 2>&1 &
tap_run "it goes on, round for round" scene_until 60 moving_is '.state == "export" and .rounds > 5'
tap_run "some is left to be written" scene_until 60 moving_is '.rest > 0'
tap_run "it is known how much comes anew" scene_until 60 moving_is '.dirty_rate > 0'
tap_run "and how fast it is written" scene_until 60 moving_is '.bandwidth > 0'
tap_run "and so, how long it would take" scene_until 60 moving_is \
    '.expected_ns > 0 and .expected_ns >= .rest * 1e9 / .bandwidth * 0.99'
tap_is "nobody is slowed down" "$(moving .limit) $(held)" "0 0"
ctl_exits 0 "people can read it, too" rehome status -s a
tap_like "a table" "$(cat "$SCENE_DIR/ctl.out")" "DIRTIED/S"
ctl_exits 0 "it is cancelled" rehome cancel -s a disk
wait $!
tap_is "which is told" "$? $(owner a) $(state a)" "1 a home"
tap_is "and nothing is under way" "$(moving '[.rest, .dirty_rate, .expected_ns] | add')" 0

# --- who writes is slowed down ------------------------------------------------------------------
slowed() { # the writer may get no CPU meanwhile: once more
    local i
    for ((i = 0; i < 10; i++)); do
        to_b throttle >"$SCENE_DIR/ctl.out" || return
        [ "$(held)" -eq 0 ] || return 0
        back || return
    done
    return 1
}
tap_run "it goes, and who writes was slowed down" slowed
tap_is "it is b's" "$(owner b) $(state a)" "b away"
tap_note "$(jq -c '{rounds, pause_ns, duration_ns}' "$SCENE_DIR/ctl.out"), $(held) writes held up"
tap_run "and back" back
to_b throttle >"$SCENE_DIR/ctl.out" 2>&1 &
tap_run "under way" scene_until 600 moving_is '.limit > 0 or .state == "away"'
tap_run "the re-homer is killed then" kill -s KILL "$(peer_pid a home0)"
wait $!
tap_is "it goes all the same" "$? $(owner b)" "0 b"
is_away() { [ "$(state a)" = away ]; }
tap_run "as its successor sees" scene_until 60 is_away
tap_run "and back" back
to_b throttle >"$SCENE_DIR/ctl.out" 2>&1 &
tap_run "under way" scene_until 600 moving_is '.limit > 0 or .state == "away"'
ctl_exits 0 "it is cancelled" rehome cancel -s a disk
wait $!
is_settled() { [[ $(state a) = home || $(state a) = away ]]; }
tap_run "it is here or there" scene_until 60 is_settled

# --- whoever is attached ------------------------------------------------------------------------
load_ends client "the client saw no error"
kill -s INT "$(scene_pid writer)"
wait "$(scene_pid writer)"
unset "SCENE_PIDS[writer]"
tap_like "nor did the writer" "$(cat "$SCENE_DIR/writer.out")" "err= 0"

# --- far away -------------------------------------------------------------------------------------
port=$(scene_free_port)
relay_start "$port"
network delay=50000
tap_run "b is to be reached by a way of 100 ms, too" "$XSEGCTL" peer start -s b \
    "out1=synapse_export,listen=tcp:127.0.0.1:$port,edge.volume=home0"
ctl_exits 0 "a has a bridge there" bridge add -s a far1 "tcp:127.0.0.1:$RELAY_PORT"
ctl_exits 0 "a volume that is not written to" volume create -s a calm --size 8M
tap_run "is used" scene_io "nbd+unix:///calm?socket=$SCENE_DIR/a.sock" -c 'write -P 3 0 1M'
calm() { "$XSEGCTL" rehome -s a calm --to far1 --on-stall wait --timeout 300s "$@"; }
calm --downtime 50ms >"$SCENE_DIR/calm" 2>&1 &
rounds() { # of it
    "$XSEGCTL" rehome status -s a --json |
        jq -e '.volumes[] | select(.name == "calm").rounds > 5' >"$SCENE_DIR/null"
}
tap_run "it cannot go there in 50 ms" scene_until 60 rounds
ctl_exits 0 "which is cancelled" rehome cancel -s a calm
wait $!
tap_run "but in the time that the way takes" calm
owner_is_b() { "$XSEGCTL" volume info -s b calm --json | jq -e '.home.host | endswith("/b")'; }
tap_run "it is there" owner_is_b
tap_end
