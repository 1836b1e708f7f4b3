#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A volume that programs have as memory becomes another host's, and comes back: what they wrote is
# there with it, synced or not, and they go on; also when the command, or the front, is killed
# meanwhile.

. "$(dirname "$0")/rehome_lib.sh"
ctl_begin "re-homing memory"
rehome_need
ctl_need front_region
scene_need qemu-img
CHECK=$(dirname "$XSEGPEER")/region_check
[ -x "$CHECK" ] || tap_skip_all "region_check is not built"
[ "$(stat -f -c %T "$SKERRY_SHM_DIR")" = tmpfs ] || tap_skip_all "segments do not lie in a tmpfs"

region() { # VOLUME_EDGE
    printf '\n[peer region0]\nrole=front_region\nmemory=16M\nedge.volume=%s\n' "$1"
    printf '\n[host region0]\nrestart-delay-max = 0\nrestart-limit = 0\n'
}
{ host a home0 && out a && region home0; } >"$SCENE_DIR/a.conf"
{ host b home0 && out b && region home0; } >"$SCENE_DIR/b.conf"
for segment in a b; do
    down_at_exit "$segment"
    ctl_exits 0 "$segment comes up" up --unguarded "$SCENE_DIR/$segment.conf"
done
ctl_exits 0 "a volume" volume create -s a disk --size 32M
ctl_exits 0 "a bridge" bridge add -s a far0 "unix:$SCENE_DIR/b.out"
ctl_exits 0 "and back" bridge add -s b back0 "unix:$SCENE_DIR/a.out"

check() { timeout 300 "$CHECK" "$@" 2>&1 </dev/null; }
program() { # NAME WORD...
    scene_spawn "$1" "$CHECK" "${@:2}"
    tap_run "a program of a's: $2" scene_wait_line "$1" started 60
}
program_ends() { # NAME WHAT
    local rc=0
    kill -s USR1 "$(scene_pid "$1")"
    wait "$(scene_pid "$1")" || rc=$?
    unset "SCENE_PIDS[$1]"
    tap_is "$2" "$rc" 0
}
ledger() { check ledger "$SCENE_DIR/ledger"; }
ledger_grows() { [ "$(ledger)" -gt "$1" ]; }

# --- all that was written until it went ---------------------------------------------------
program paused pauses a disk "$SCENE_DIR/pauses"
ctl_exits 0 "it goes to b" rehome -s a disk --to far0
at_b() {
    qemu-img convert -f raw -O raw "nbd+unix:///disk?socket=$SCENE_DIR/b.sock" "$SCENE_DIR/copy"
}
at_b
program_ends paused "the program went on"
tap_run "b had all that it wrote before it was made to wait" \
    grep -qx "$(check value "$SCENE_DIR/copy")" "$SCENE_DIR/pauses"
ctl_exits 0 "it comes back" rehome -s b disk --to back0

# --- there --------------------------------------------------------------------------------------
program writer write a disk 100 unsynced wait
program count count a disk "$SCENE_DIR/ledger" 1
before=$(ledger)
tap_run "it counts" scene_until 60 ledger_grows "$before"
ctl_exits 0 "it goes to b" rehome -s a disk --to far0 --json
tap_note "requests waited $(jq .pause_ns "$SCENE_DIR/ctl.out") ns"
tap_is "b has it" "$(owner b)" b
tap_run "with what nobody has synced" io b -c 'read -P 0x75 100 1'
tap_is "b's programs see it" "$(check read b disk 100 8)" unsynced
before=$(ledger)
tap_run "a's program goes on" scene_until 60 ledger_grows "$before"

# --- while everybody dies -------------------------------------------------------------------------
pid_a() { peer_pid a "$1"; }
for peer in region0 far0 vol0; do
    old=$(pid_a "$peer")
    kill -s KILL "$old"
    before=$(ledger)
    scene_until 60 ledger_grows "$before"
done
ctl_exits 0 "it comes back" rehome -s b disk --to back0
tap_is "a has it" "$(owner a)" a
settled() {
    "$XSEGCTL" rehome -s b disk --to back0 >"$SCENE_DIR/null" 2>&1 || [ "$(owner a)" = a ]
}
for delay in 0.01 0.03 0.06 0.1 0.2; do
    scene_spawn rehome "$XSEGCTL" rehome -s a disk --to far0
    sleep "$delay"
    scene_kill KILL rehome
    wait "$(scene_pid rehome)"
    unset 'SCENE_PIDS[rehome]'
    [ "$delay" != 0.06 ] || kill -s KILL "$(pid_a region0)"
    before=$(ledger)
    tap_run "the command is killed after $delay s: the program goes on" \
        scene_until 60 ledger_grows "$before"
    tap_run "and the volume is a's again" scene_until 60 settled
done
ctl_exits 0 "once more to b" rehome -s a disk --to far0
program_ends writer "who did not sync has seen no error"
program_ends count "nor who counts"
tap_is "each count is there" "$(check sum b disk)" "$(ledger)"
at_b
tap_is "at the volume" "$(check sumfile "$SCENE_DIR/copy")" "$(ledger)"

# --- where it is cannot be reached when the last program leaves -----------------------------------
ctl_exits 0 "it comes back" rehome -s b disk --to back0
program last pauses a disk "$SCENE_DIR/pauses"
ctl_exits 0 "it goes to b" rehome -s a disk --to far0
ctl_exits 0 "a bridge that waits for nothing" bridge add -s a far1 "unix:$SCENE_DIR/b.out" \
    timeout=100ms
ctl_exits 0 "is a's way now" edge set -s a home0:volume-to far1
away() { [ "$(state a)" = away ]; }
tap_run "and leads to where it is" scene_until 60 away
ctl_exits 0 "b cannot be reached" peer stop -s b out0
kill -s KILL "$(scene_pid last)"
wait "$(scene_pid last)"
unset 'SCENE_PIDS[last]'
sleep 3 # so long that its front fails to write, and asks whose the volume is
ctl_exits 0 "b can be reached again" peer start -s b out0
not() { ! "$@"; }
kept() { ls "$SKERRY_SHM_DIR/region:a:$1:"* >"$SCENE_DIR/null" 2>&1; }
kept_not() { ! kept "$1"; }
tap_run "what it wrote goes there" scene_until 60 kept_not region0
tap_run "and nothing is lost" not grep 'are lost' "$SKERRY_RUN_DIR/a/region0.log"
ctl_exits 0 "the first bridge again" edge set -s a home0:volume-to far0
reached() { "$XSEGCTL" bridge status far0 -s a --json | jq -e '.bridges[0].state == "up"'; }
tap_run "which is there" scene_until 60 reached

# --- past the re-homer: what comes too late -------------------------------------------------------
ctl_exits 0 "it comes back" rehome -s b disk --to back0
past=$SCENE_DIR/past
ctl_exits 0 "another front" peer start -s a \
    "past0=front_region,listen=unix:$past,edge.volume=vol0"
program late pauses "unix:$past" disk "$SCENE_DIR/pauses"
ctl_exits 0 "it goes to b" rehome -s a disk --to far0
ctl_exits 0 "and the front past the re-homer" edge set -s a past0:volume vol0
at_b
sum=$(check sumfile "$SCENE_DIR/copy") value=$(check value "$SCENE_DIR/copy")

sleep 0.2 # it writes on
scene_kill KILL late
wait "$(scene_pid late)"
unset 'SCENE_PIDS[late]'
is_lost() { grep -q 'are lost: another host has had it since' "$SKERRY_RUN_DIR/a/past0.log"; }
tap_run "what a program writes there is lost, and that is said" scene_until 60 is_lost
tap_run "and is not kept" scene_until 60 kept_not past0
at_b
tap_is "b has what it had" "$(check sumfile "$SCENE_DIR/copy") $(check value "$SCENE_DIR/copy")" \
    "$sum $value"
tap_end
