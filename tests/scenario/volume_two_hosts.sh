#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two hosts on one store: two segments, each with a front, a composer, a mapper and a blocker of its
# own on the same folder. Both want the same volume; one gets it, the other is told whose it is.
# What the loser writes afterwards is not in the store.
#
#   TWO_HOSTS_CACHE=OPTIONS   each with a cache of these options between composer and blocker

. "$(dirname "$0")/two_hosts_lib.sh"
hosts_begin "two hosts on one store" "${TWO_HOSTS_CACHE:-}"

host a
host b

# --- one of them has it ------------------------------------------------------------------------
on a 0 "a makes a volume" create disk --size 16M
on b 0 "b sees it" info disk
guest ga a disk
tell ga 'write -f -P 1 0 64k'
says ga 'wrote 65536' "a writes"
on b 0 "b sees who has it" info disk --json
json_is "it is a" '.home.host' host-a
tap_fails "b cannot open it to write" io b disk 'write -P 2 0 4k'
on b 5 "b cannot take a snapshot of it" snapshot disk@snap
err_like "it is told who has it" 'host-a'
err_like "and since when" '20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]|since'
on b 5 "b cannot remove it" rm disk --yes
err_like "it is told who has it" 'host-a'
on b 5 "b cannot resize it" resize disk 32M
tap_run "a's write is there for a reader of b's" qemu-io -r -f raw -c 'read -P 1 0 64k' \
    "$(uri b disk/ro)"

# --- the lock is broken while a writes -----------------------------------------------------------
on b 0 "the lock is broken" break-lock disk --yes
tell ga 'write -f -P 3 128k 64k'
says ga 'write failed' "a's writes are refused at once"
reads "b has it now" b disk 'write -P 4 64k 64k' 'flush'
tell ga 'write -P 3 0 64k'
reads "nothing of a's came after that" b disk 'read -P 1 0 64k' 'read -P 4 64k 64k' \
    'read -P 0 128k 64k'
leaves ga
reads "a may have it again" a disk 'read -P 1 0 64k' 'read -P 4 64k 64k' 'write -P 5 128k 4k'
reads "and b sees what a has written" b disk 'read -P 5 128k 4k' 'write -P 6 0 4k'
reads "a sees what b has written to what a had in use" a disk 'read -P 6 0 4k'

# --- a race, many times: one wins, and the volume is whole ----------------------------------------
race() { # WHAT_A.. -- WHAT_B..: both at once; how each ended is in RC_A and RC_B
    local a=() b=()
    while [ "$1" != -- ]; do a+=("$1") && shift; done
    shift
    b=("$@")
    "$XSEGCTL" -s a volume "${a[@]}" >"$SCENE_DIR/race.a" 2>&1 &
    local pid=$!
    RC_B=0
    "$XSEGCTL" -s b volume "${b[@]}" >"$SCENE_DIR/race.b" 2>&1 || RC_B=$?
    RC_A=0
    wait "$pid" || RC_A=$?
}
wrong=
for i in 1 2 3 4 5; do
    race snapshot "disk@s$i" -- snapshot "disk@s$i"
    case $RC_A$RC_B in
    04 | 05 | 40 | 50 | 00) ;;
    *) wrong="snapshot $i: $RC_A and $RC_B; $(cat "$SCENE_DIR/race.a" "$SCENE_DIR/race.b")" ;;
    esac
done
tap_is "one name, two snapshots: one is made" "$wrong" ""
on a 0 "they are all there" list --json
json_is "once each" '[.volumes[] | select(.name | startswith("disk@s"))] | length' 5
wrong=
for i in 1 2 3; do
    on a 0 "a volume for both" create "gone$i" --size 4M
    race rm "gone$i" --yes -- rm "gone$i" --yes
    case $RC_A$RC_B in
    00 | 03 | 30 | 05 | 50 | 04 | 40) ;;
    *) wrong="rm $i: $RC_A and $RC_B; $(cat "$SCENE_DIR/race.a" "$SCENE_DIR/race.b")" ;;
    esac
done
tap_is "both remove it: it is removed" "$wrong" ""

# --- the lease of a dead host ends ----------------------------------------------------------------
guest gd a disk
tell gd 'write -f -P 7 256k 64k'
says gd 'wrote 65536' "a has it open"
scene_freeze "$(scene_pid a)"
taken() { io b disk 'write -P 8 320k 4k' 2>&1 | grep -q 'wrote 4096'; }
if scene_until 60 taken; then
    tap_ok "a does nothing any more: b has it when its lease has ended"
else
    tap_not_ok "a does nothing any more: b has it when its lease has ended"
fi
tell gd 'write -f -P 9 0 1M'
scene_kill CONT a
says gd 'write failed' "a wakes up, and is refused"
reads "nothing of that is in the store" b disk 'read -P 7 256k 64k' 'read -P 8 320k 4k' \
    'read -P 6 0 4k'
leaves gd

# --- a killed process takes nothing with it -------------------------------------------------------
scene_kill KILL a
wait "$(scene_pid a)" 2>/dev/null
reads "b goes on when a is killed" b disk 'write -P 10 384k 64k' 'flush' 'read -P 10 384k 64k'
host_starts a
reads "a is back" a disk 'read -P 10 384k 64k' 'read -P 8 320k 4k'
on a 0 "the store is whole" fsck --json
json_is "nothing is wrong" '[.findings[]? | select(.finding != "unreachable")] | length' 0

[ -z "${TWO_HOSTS_STORE:-}" ] || tap_end

# --- who does not share it ------------------------------------------------------------------------
scene_segment c 16M || exit 99
tap_fails "a folder that is shared is not served by one who does not share it" \
    "$XSEGPEER" -s c "file0=blocker_file,dir=$SCENE_DIR/store"
tap_like "it is told so" "$(<"$TAP_OUT")" 'already'
tap_end
