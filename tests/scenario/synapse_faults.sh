#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A bridge under a network that cuts, stalls, corrupts and refuses, with both of its ends killed: no
# client sees an error, nothing that was flushed is lost, and no request is done twice.

. "$(dirname "$0")/synapse_lib.sh"
blocker_begin "a bridge and its faults" 128M
synapse_far
disk=disk=synapse_import,$REMOTE,silence=2s,checksums=yes

lines() { wc -l <"$SCENE_DIR/hammer.out"; }
# The load is under way before and after what is done to the network.
through() { # LABEL COMMAND...
    local before
    hammer_begins "$NEXT"
    scene_until 120 more_than "$SCENE_DIR/hammer.out" 2
    "${@:2}"
    before=$(lines)
    tap_run "$1: the load goes on, without an error" \
        scene_until 240 more_than "$SCENE_DIR/hammer.out" $((before + 2))
    hammer_ends
    tap_is "$1: nothing is lost" "$(op verify 9 $((NEXT - 1)))" ok
}

# --- the ends are killed ------------------------------------------------------------------------
killed_under_load "the importing end is killed" "$disk"
server_killed far far_start
# Another exporting end takes its place, which has not heard whose volumes are.
elsewhere_start() {
    FAR_OPTIONS=("state=$SCENE_DIR/state$((++elsewhere))")
    far_start
}
elsewhere=0
tap_is "the load's volume is this segment's" "$(op fence 9 1)" ok
server_killed far elsewhere_start
both_start() {
    scene_kill KILL life
    scene_stop life
    far_start
    scene_peer life -s "$SEGMENT" -l 1 "$disk"
}
server_killed far both_start
store_start() { scene_peer store -s "$FAR" "store=blocker_file,dir=$SCENE_DIR/files"; }
server_killed store store_start

# Its successor has another number of lanes, so what one had may come over another.
lanes_start() { # LANES
    scene_kill KILL life
    scene_stop life
    scene_peer life -s "$SEGMENT" -l "$1" "$disk"
}
for lanes in 3 1 2; do through "another life with $lanes lanes" lanes_start "$lanes"; done

# --- the network --------------------------------------------------------------------------------
cuts() {
    local i
    for ((i = 1; i <= 20; i++)); do
        network "cut=$i"
        sleep "0.0$((RANDOM % 10))"
    done
}
cut_count=$(counter disk cuts)
through "cut twenty times" cuts
tap_run "... which the peer has counted" test "$(counter disk cuts)" -gt "$cut_count"
stall() {
    local cuts
    cuts=$(counter disk cuts)
    network stall=1
    has_cut() { [ "$(counter disk cuts)" -gt "$cuts" ]; }
    scene_until 60 has_cut
    network cut=99
}
through "stalled" stall
corrupts() {
    network corrupt=300000
    scene_until 120 grep -q 'wrong checksum' "$SCENE_DIR/life.err" "$SCENE_DIR/far.err"
    network corrupt=0
}
through "corrupted" corrupts
refuses() {
    network refuse=1 cut=5
    sleep 1
    network refuse=0 cut=5
}
through "refused for a second" refuses

# What is no copy of itself when it is done twice, sixteen requests in flight.
scene_spawn model "$CHECK" all "$SEGMENT" disk 20000
i=100
while scene_alive model && ((i < 400)); do
    network "cut=$((i++))"
    sleep "0.1$((RANDOM % 10))"
done
scene_running() { scene_alive model; }
scene_until 600 eval '! scene_running'
tap_run "all laws hold while the link is cut again and again" scene_stop model
tap_run "... which has come to replays" test "$(counter disk replays)" -gt 0
tap_run "... that were not done again" test "$(counter far replays "$FAR")" -gt 0

# --- a link that is away for longer -------------------------------------------------------------
scene_stop life
blocker_peer brief 1 "brief=synapse_import,$REMOTE,timeout=1s" || tap_not_ok "it starts"
tap_run "it is reached" comes write 20 0 0 4096 1
network refuse=1 cut=1000
tap_like "away for longer than timeout: EIO" "$(op write 20 0 0 4096 2)" '^(EIO|error 5)'
tap_like "which the log says" "$(cat "$SCENE_DIR/brief.err")" "away for longer than 'timeout'"
scene_peer waits -s "$SEGMENT" "waits=synapse_import,$REMOTE,timeout=0"
scene_spawn patient "$CHECK" read "$SEGMENT" waits 20 0 0 4096 1
sleep 2
tap_run "with timeout=0 it is waited for" scene_alive patient
network refuse=0 cut=1000
tap_run "... until it is back" scene_until 120 grep -q . "$SCENE_DIR/patient.out"
tap_like "... and answered" "$(cat "$SCENE_DIR/patient.out")" '^(ok|wrong)'
tap_run "the other one is back, too" comes write 20 0 0 4096 3
tap_is "and reads what it has written" "$(op read 20 0 0 4096 3)" ok
scene_stop waits
scene_stop brief

# --- a limit ------------------------------------------------------------------------------------
blocker_peer limited 1 "limited=synapse_import,$REMOTE,rate=4M" || tap_not_ok "it starts"
begun=$(date +%s%N)
for object in 0 1 2; do op write 22 "$object" 0 4194304 1; done >"$SCENE_DIR/limited.said"
tap_is "with a limit data go in" "$(sort -u "$SCENE_DIR/limited.said")" ok
# the first goes at once, the third when both before it are paid for
tap_run "... not faster than that" test $(($(date +%s%N) - begun)) -gt 1800000000
scene_stop limited

# --- another segment takes the volume -----------------------------------------------------------
blocker_peer life 1 "$disk" || tap_not_ok "it starts"
tap_is "one segment claims a volume" "$(op fence 51 5)" ok
tap_is "... and writes" "$(op write 51 0 0 4096 1)" ok
scene_freeze "$(scene_pid life)"
scene_spawn late "$CHECK" write "$SEGMENT" disk 51 0 0 4096 3
one=$SEGMENT SEGMENT=$SEGMENT-b
blocker_segment 32M
blocker_peer second 1 "second=synapse_import,$REMOTE" || tap_not_ok "it starts"
tap_is "another takes it" "$(op fence 51 6)" ok
tap_is "... and writes" "$(op write 51 0 0 4096 4)" ok
SEGMENT=$one PEER=disk
scene_kill CONT life
tap_run "the late write is answered" scene_until 60 grep -q . "$SCENE_DIR/late.out"
tap_is "... and refused" "$(cat "$SCENE_DIR/late.out")" ESTALE
tap_is "... and nothing of it arrived" "$(op read 51 0 0 4096 4)" ok
scene_kill KILL far
scene_stop far
far_start
tap_like "as one is by an exporting end that was killed meanwhile" \
    "$(op write 51 0 0 4096 5)" ESTALE
by_second() { SEGMENT=$one-b PEER=second op "$@"; }
tap_is "... which lets the other one write" "$(by_second write 51 0 0 4096 6)" ok
scene_kill KILL far
scene_stop far
elsewhere_start
tap_is "as does one elsewhere, that has not heard of it" "$(by_second write 51 0 0 4096 7)" ok
tap_like "... where the first one is refused, too" "$(op write 51 0 0 4096 8)" ESTALE
tap_is "... and nothing of it arrived" "$(by_second read 51 0 0 4096 7)" ok
scene_stop life

# --- a slow link --------------------------------------------------------------------------------
if reason=$(scene_has_module volume && scene_has_module front_nbd) && command -v qemu-io >/dev/null
then
    network rate=10000000
    nbd=$SCENE_DIR/slow.nbd
    blocker_peer slow 1 "slow=synapse_import,$REMOTE,compress=yes" \
        "slow.volume=volume,edge.store=slow,fixed=v:64M" \
        "slow.nbd=front_nbd,listen=unix:$nbd,edge.volume=slow.volume"
    io() { scene_io "nbd+unix:///v?socket=$nbd" "$@"; }
    tap_run "over a slow link data go in" io -c 'write -P 5 0 24M' -c 'write -P 6 5M 777k'
    tap_run "... and come back" io -c 'read -P 5 0 5M' -c 'read -P 6 5M 777k' -c 'read -P 5 6M 18M'
    tap_run "... compressed there" test "$(counter slow saved)" -gt 1000000
    tap_run "... and back" test "$(counter far saved "$FAR")" -gt 1000000
    PEER=slow
    tap_is "what cannot be compressed goes in, too" "$(op write 21 0 0 4194304 5)" ok
    tap_is "... and comes back" "$(op read 21 0 0 4194304 5)" ok
    network corrupt=20000000 rate=40000000
    tap_run "also while bytes are changed on the way" "$CHECK" some "$SEGMENT" slow 300
    scene_stop slow
    # A volume that three read all the time, 16 MiB at once each, and one read now and then.
    scene_stop far
    FAR_OPTIONS=(bytes=64M)
    far_start
    network rate=5000000
    blocker_peer slow 1 "slow=synapse_import,$REMOTE" \
        "slow.volume=volume,edge.store=slow,fixed=v:64M,fixed=w:64M" \
        "slow.nbd=front_nbd,listen=unix:$nbd,edge.volume=slow.volume"
    for i in 1 2 3; do
        scene_spawn "greedy$i" qemu-img bench -f raw -c 1000000 -d 16 -s 1M \
            "nbd+unix:///v?socket=$nbd"
    done
    goes() { test "$(counter slow received)" -gt 8000000; }
    tap_run "a volume that reads all the time" scene_until 120 goes
    before=$(counter slow received)
    words=()
    for at in 0 4 8 12; do words+=(-c "read -P 0 ${at}M 1M"); done
    tap_run "... and another one" scene_io "nbd+unix:///w?socket=$nbd" -r "${words[@]}"
    share=$((($(counter slow received) - before) / 4000000))
    tap_note "for each byte of its own $share went over the link"
    tap_run "... which gets its share of the link" test "$share" -le 30
    scene_stop slow
    for i in 1 2 3; do scene_stop "greedy$i"; done
    network rate=0
else
    tap_skip "a slow link" "${reason:-there is no qemu-io}"
fi
tap_end
