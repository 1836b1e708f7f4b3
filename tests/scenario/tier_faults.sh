#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A tier in front of a bridge: what is near is read there while the link is away, all of a volume
# comes by itself, and neither a kill, a full or broken near store, a damaged log nor another host's
# writes make it answer with what is old.

. "$(dirname "$0")/synapse_lib.sh"
scene_own_mounts "$@"
blocker_begin "a tier and its faults" 256M
reason=$(scene_has_module tier) || tap_skip_all "$reason"
synapse_far
NEAR=$SCENE_DIR/near LIFE_LANES=1
disk=disk=tier,edge.store=link,edge.store-near=near,interval=50ms

near_start() { scene_peer near -s "$SEGMENT" "near=blocker_file,dir=$NEAR"; }
link_start() { scene_peer link -s "$SEGMENT" "link=synapse_import,$REMOTE,timeout=0"; }
tier_start() { blocker_peer life 1 "$disk${1:+,$1}" || tap_not_ok "the tier starts"; }
stats() { counter disk "$1"; }
is() { test "$(stats "$1")" "$2" "$3"; }
away() { network refuse=1 cut=$((++CUTS)); }
back() { network refuse=0 cut=$((++CUTS)); }
CUTS=1000
near_start && link_start || tap_not_ok "the stores start"

# --- killed -------------------------------------------------------------------------------------
killed_under_load "the tier is killed" "$disk"
server_killed near near_start
link_is_new() {
    scene_kill KILL link
    scene_stop link
    far_start
    link_start
}
server_killed far link_is_new

# --- pulled -------------------------------------------------------------------------------------
# Objects of all sizes, which are written past the tier.
PEER="link"
for object in 0 1 2 3 4 5; do
    size=$((object * 700 * 1024 + 512))
    tap_is "an object of $size bytes" "$(op write 30 "$object" 0 "$size" "$((object + 1))")" ok
done
PEER=disk
all_there() {
    local object
    for object in 0 1 2 3 4 5; do
        [ "$(op read 30 "$object" 0 $((object * 700 * 1024 + 512)) "$((object + 1))")" = ok ] ||
            return
    done
}
errors=$(counter link errors)
tap_is "something of the volume is read" "$(op read 30 0 0 512 1)" ok
all_near() { is left -eq 0 && is present -gt $((15 * 700 * 1024)); }
tap_run "then all of it comes by itself" scene_until 120 all_near
tap_is "... and nothing that it asks for is refused" "$(counter link errors)" "$errors"
misses=$(stats misses)
away
tap_run "with the link away it is all there" all_there
tap_is "... from the near store" "$(stats misses)" "$misses"
scene_stop life
tier_start
tap_run "and in another life of the tier" all_there
scene_kill KILL life
scene_stop life
tier_start
tap_run "... and in one after a kill" all_there
scene_spawn patient "$CHECK" read "$SEGMENT" disk 31 0 0 4096
sleep 1
tap_run "what is not near is waited for" scene_alive patient
back
tap_run "... until the link is back" scene_until 120 grep -q . "$SCENE_DIR/patient.out"
scene_stop patient

# --- waiting ------------------------------------------------------------------------------------
scene_stop life
scene_stop near
NEAR=$SCENE_DIR/slow
near_start && tier_start rate=1M,parts=1
tap_is "with a limit to its rate it still answers" "$(op read 30 0 0 512 1)" ok
begins() { is left -gt $((1 << 20)) && is pulled -gt 0; }
tap_run "... and fetches" scene_until 60 begins
away
ticks() { awk '{ print $14 + $15 }' "/proc/$(scene_pid life)/stat"; }
# One that looks again and again takes what the CPU gives it, even on a busy machine.
rests() {
    local before
    sleep 2
    before=$(ticks)
    sleep 2
    test $(($(ticks) - before)) -lt 30
}
tap_run "it rests while the link is away" rests
back
scene_stop life
scene_stop near
NEAR=$SCENE_DIR/near
near_start && tier_start

# --- another life of the segment ----------------------------------------------------------------
# Changed, and not flushed: one store may have it and the other not.
tap_is "an object is changed" "$(op write 30 2 65536 65536 9)" ok
tap_is "... and one that is not near" "$(op write 32 0 0 4096 9)" ok
for name in life near link; do
    scene_kill KILL "$name"
    scene_stop "$name"
done
SEGMENT=$SEGMENT-new
blocker_segment 256M
near_start && link_start
tier_start
tap_is "in another life of the segment the change is there" "$(op read 30 2 65536 65536 9)" ok
tap_run "what was not changed is near" is present -gt $((10 * 700 * 1024))
for name in life near link; do scene_stop "$name"; done
# what the near store has of an object that was not stable must not count: here it is made wrong
near_start
PEER=near
tap_is "the near store is made to lie" "$(op write 30 2 65536 65536 77)" ok
scene_stop near
near_start && link_start && tier_start
tap_is "which shows: it is trusted after an orderly end" \
    "$(op read 30 2 65536 65536 9)" "wrong data"
tap_is "that is changed, not flushed" "$(op write 30 2 0 4096 5)" ok
for name in life near link; do
    scene_kill KILL "$name"
    scene_stop "$name"
done
SEGMENT=$SEGMENT-newer
blocker_segment 256M
near_start && link_start && tier_start
tap_is "... and not after another one" "$(op read 30 2 65536 65536 9)" ok

# --- another host -------------------------------------------------------------------------------
tap_is "this host has a volume" "$(op fence 40 5)" ok
tap_is "... writes" "$(op write 40 0 0 1048576 1)" ok
misses=$(stats misses)
tap_is "... reads" "$(op read 40 0 0 1048576 1)" ok
tap_is "... from the near store" "$(stats misses)" "$misses"
scene_stop life
tier_start
tap_is "... started anew, too" "$(op read 40 0 0 1048576 1)" ok
measured() { is listed -gt 0 && is left -eq 0; } # so it knows where the object ends
tap_run "... and knows that this is all" scene_until 60 measured
one=$SEGMENT SEGMENT=$SEGMENT-b
blocker_segment 32M
blocker_peer second 1 "second=synapse_import,$REMOTE" || tap_not_ok "the other host starts"
tap_is "another host takes it" "$(op fence 40 6)" ok
tap_is "... and writes" "$(op write 40 0 0 4096 2)" ok
tap_is "... beyond the end that it had, too" "$(op write 40 0 2097152 65536 2)" ok
SEGMENT=$one PEER=disk
tap_is "the late write is refused" "$(op write 40 0 8192 4096 3)" ESTALE
tap_is "this host takes it again" "$(op fence 40 7)" ok
unchanged() { is left -eq 0 && is unchanged -ge $((15 * 65536)); }
tap_run "... and finds unchanged what is" scene_until 60 unchanged
misses=$(stats misses)
tap_is "... and reads what the other one wrote" "$(op read 40 0 0 4096 2)" ok
tap_is "... in a large piece, too" "$(op read 40 0 8192 1040384 1)" ok
tap_run "... which the tier has counted" is dropped -gt 0
tap_is "... and what it wrote behind the end" "$(op read 40 0 2097152 65536 2)" ok
tap_is "... all from the near store" "$(stats misses)" "$misses"
tap_run "the laws of two hosts hold" "$CHECK" shared "$one" disk "$one-b" second
scene_stop second

# --- a near store that fails --------------------------------------------------------------------
scene_stop life
scene_stop near
damage() { # each file of the log, in its first block
    local file
    find "$NEAR" -type f -path '*ffffffffffffffff*' | while read -r file; do
        printf damage | dd of="$file" bs=1 seek=300 conv=notrunc status=none
    done
}
damage
near_start && tier_start
tap_run "with a damaged log" comes read 40 0 8192 1040384 1
tap_like "... which it has noticed" "$(cat "$SCENE_DIR/life.err")" 'log is damaged'
tap_run "... all is fetched anew" is pulled -gt 0
for name in life near; do scene_stop "$name"; done

# --- a near store that is full, or too small by its options ---------------------------------------
PEER="link"
for object in 0 1 2 3 4 5 6 7; do op write 60 "$object" 0 1048576 "$((object + 1))"; done >/dev/null
PEER=disk
eight() {
    local object
    for object in 0 1 2 3 4 5 6 7; do
        [ "$(op read 60 "$object" 0 1048576 "$((object + 1))")" = ok ] || return
    done
}
NEAR=$SCENE_DIR/little
near_start
tier_start size=3M,pull=no
tap_run "more is read than it may keep" eight
scene_little() { is evicted -gt 3 && is present -le $((3 << 20)); }
tap_run "... so objects go" scene_until 60 scene_little
tap_run "... and are read again" eight
tap_is "... and changed" "$(op write 60 7 65536 65536 11)" ok
tap_is "... and read" "$(op read 60 7 65536 65536 11)" ok
tap_is "... and put back" "$(op write 60 7 65536 65536 8)" ok
for object in 10 11 12 13 14 15 16 17; do op write 60 "$object" 0 1048576 1; done >/dev/null
tap_run "what is only written takes no more than it may" scene_until 60 scene_little
for name in life near; do scene_stop "$name"; done

NEAR=$SCENE_DIR/full
mkdir "$NEAR"
if mount -t tmpfs -o size=3M none "$NEAR" 2>/dev/null; then
    scene_at_exit "umount -l '$NEAR'"
    near_start && tier_start
    tap_run "a near store that is full: all is read" eight
    tap_run "... and again" eight
    tap_is "... and written" "$(op write 60 3 0 1048576 12)" ok
    tap_is "... and read" "$(op read 60 3 0 1048576 12)" ok
    tap_is "... and put back" "$(op write 60 3 0 1048576 4)" ok
    tap_run "... which the tier has counted" is near_errors -gt 0
    tap_run "... and nothing is wrong after a kill" eval 'scene_kill KILL life; scene_stop life
        tier_start; eight'
    for name in life near; do scene_stop "$name"; done
else
    tap_skip "a near store that is full" "mount does not work here"
fi

NEAR=$SCENE_DIR/other
near_start && tier_start
tap_run "a near store that is killed while it is read" eight
scene_kill KILL near
scene_stop near
scene_spawn patient "$CHECK" read "$SEGMENT" disk 60 0 0 1048576 1
near_start
tap_run "... answers when it is back" scene_until 120 grep -qx ok "$SCENE_DIR/patient.out"

# --- a near store whose disk fails ----------------------------------------------------------------
shim=$SCENE_BUILD/.libs/sync_fault.so
if [ -e "$shim" ] && ! [[ $(ldd "$XSEGPEER") =~ lib[atu]+san ]]; then
    for name in life near; do scene_stop "$name"; done
    export SYNC_FAULT=$SCENE_DIR/fault
    NEAR=$SCENE_DIR/broken
    LD_PRELOAD=$shim near_start && tier_start
    tap_run "a near store that works" eight
    health() {
        "$XSEGCTL" status -s "$SEGMENT" --json |
            jq -r '.peers[] | select(.name == "disk") | .reason'
    }
    tap_is "... is well" "$(health)" ""
    echo data >"$SYNC_FAULT"
    tap_is "it fails: what is written" "$(op write 60 3 0 1048576 12)" ok
    tap_is "... is read" "$(op read 60 3 0 1048576 12)" ok
    failed() { is off -eq 1; }
    tap_run "... and the near store is left" scene_until 60 failed
    tap_like "... which status says" "$(health)" 'near store has failed'
    rm "$SYNC_FAULT"
    # The near store, too: it goes on to fail for what it has lost.
    for name in life near; do scene_stop "$name"; done
    LD_PRELOAD=$shim near_start && tier_start
    tap_is "started anew, it has what was written" "$(op read 60 3 0 1048576 12)" ok
    tap_is "... and uses the near store again" "$(stats off)" 0
else
    tap_skip "a near store whose disk fails" "sync_fault.so cannot be loaded first here"
fi
tap_end
