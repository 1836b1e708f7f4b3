#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Volumes as memory of programs: what the library promises, programs that mean no good, little
# memory, snapshots, a store that fails, and everybody killed: programs, the front, composer and
# store, the keeper, all of them, while counters and copies say whether a write was lost.

. "$(dirname "$0")/keeper_lib.sh"
ctl_begin "volumes as memory"
ctl_need front_region front_nbd mapperd volume blocker_file cached
scene_need jq qemu-img qemu-io
CHECK=$(dirname "$XSEGPEER")/region_check
[ -x "$CHECK" ] || tap_skip_all "region_check is not built"
export SKERRY_SEGMENT=k
[ "$(stat -f -c %T "$SKERRY_SHM_DIR")" = tmpfs ] || tap_skip_all "segments do not lie in a tmpfs"
events=$SKERRY_RUN_DIR/k/events.jsonl
socket=$SCENE_DIR/k.sock conf=$SCENE_DIR/k.conf door=$SKERRY_RUN_DIR/k/region
if ! scene_module blocker_meddle.c; then tap_skip_all "no compiler"; fi
: >"$SCENE_DIR/rules"

keeper_may_fail region0
keeper_file "$conf" <<END_FILE
[peer bad0]
role = blocker_meddle
rules = $SCENE_DIR/rules
edge.store = file0

[peer region0]
role = front_region
memory = 16M
edge.volume = vol0

[host region0]
restart-delay-max = 0
restart-limit = 0
END_FILE
sed -i 's/^size = 64M/size = 256M/; 0,/edge.store = file0/s//edge.store = bad0/' "$conf"
down_at_exit k
ctl_exits 0 "up" up --unguarded "$conf"
ctl_exits 0 "a volume" volume create disk --size 64M

check() { timeout 300 "$CHECK" "$@" 2>&1 </dev/null; }
nbd() { scene_io "nbd+unix:///${volume:-disk}?socket=$socket" "$@"; }
copied_sum() { # of the counters, over NBD
    qemu-img convert -f raw -O raw "nbd+unix:///disk?socket=$socket" "$SCENE_DIR/copy" &&
        check sumfile "$SCENE_DIR/copy"
}
files_left() { find "$SKERRY_SHM_DIR" -name 'region:*' | wc -l; }
nothing_left() { [ "$(files_left)" = 0 ]; }
laws() { # NAME WORD...
    local line
    "${@:2}" k "$volume" >"$SCENE_DIR/laws" 2>&1 </dev/null
    while IFS= read -r line; do
        case $line in
        'ok '*) tap_ok "$1: ${line#*- }" ;;
        'not ok '*) tap_not_ok "$1: ${line#*- }" ;;
        esac
    done <"$SCENE_DIR/laws"
    tap_like "$1: it came to its end" "$(tail -n 1 "$SCENE_DIR/laws")" '^1\.\.'
}
volume=disk
laws laws timeout 300 "$CHECK" laws
tap_run "nothing is left" scene_until 60 nothing_left
first=$(pid_of region0)

# --- who may not have the kernel's own faults ---------------------------------------------------
if unshare -m true 2>/dev/null && scene_have setpriv; then
    # shellcheck disable=SC2016  # the inner shell's
    laws "without rights" unshare -m sh -c '
        [ ! -e /dev/userfaultfd ] || mount --bind /dev/null /dev/userfaultfd || exit 1
        exec setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace "$@"' sh \
        timeout 300 "$CHECK" kernel
else
    tap_skip "a program without rights" "no name spaces here"
fi

# --- programs that mean no good -----------------------------------------------------------------
rude() { timeout 300 python3 "$(dirname "${BASH_SOURCE[0]}")/region_rude.py" "$door" disk 3 2>&1; }
tap_is "rude programs" "$(rude)" ""
tap_is "the front has outlived them" "$(pid_of region0)" "$first"
tap_is "a polite one writes" "$(check write k disk 4096 polite sync)" ""
tap_is "and another reads it" "$(check read k disk 4096 6)" polite

# --- other doors --------------------------------------------------------------------------------
tap_run "what was synced is at the volume" nbd -c 'read -P 0x70 4096 1'
ctl_exits 0 "a snapshot" volume snapshot disk@then
tap_is "and written after it" "$(check write k disk 4096 later! close)" ""
tap_is "what was closed comes there" "$(check read k disk 4096 6)" later!
tap_is "the snapshot has what was" "$(check read k disk@then 4096 6)" polite
tap_like "it cannot be written to" "$(check write k disk@then 4096 x close)" 'Read-only file system'
scene_spawn held "$CHECK" write k disk 64 x wait
tap_run "a program has it" scene_wait_line held started 60
ctl client list --json
json_is "who is seen" '.clients[0] | [.volume, .front, .read_only] | map(tostring) | join(" ")' \
    "disk region0 false"
ctl_exits 5 "and it is not removed" volume rm disk --yes
ctl_exits 0 "the volume grows" volume resize disk 65M
tap_is "and the end is there for who comes now" \
    "$(check write k disk 68000000 far sync)" ""
tap_is "read by another" "$(check read k disk 68000000 3)" far
kill -s USR1 "$(scene_pid held)" && scene_stop held
ctl_exits 0 "one that ends inside a page" volume create odd --size 1049088
tap_is "is written to its last byte" "$(check write k odd 1049085 end sync)" ""
tap_is "and read" "$(check read k odd 1049085 3)" end
volume=odd
tap_run "which is at the volume" nbd -c 'read -P 0x64 1049087 1'
volume=disk
one_only() { "$XSEGPEER" -s k "no=front_region,edge.volume=vol0,$1" 2>&1 </dev/null; }
tap_like "one front has the door" "$(one_only memory=8M)" 'another server listens there'
another() { # NAME SOCKET OPTIONS
    scene_peer "$1" -s k "$1=front_region,edge.volume=vol0,listen=unix:$SCENE_DIR/$2,$3" ||
        tap_not_ok "another has one of its own"
}
another reader r volume=odd,read-only=yes
tap_is "which serves what it may" "$(check read "unix:$SCENE_DIR/r" odd 1049085 3)" end
tap_like "not to be written to" "$(check write "unix:$SCENE_DIR/r" odd 0 x close)" \
    'this front is read-only'
tap_like "nor what it may not" "$(check read "unix:$SCENE_DIR/r" disk 0 1)" 'does not serve it'
scene_stop reader

# --- in the order of before ---------------------------------------------------------------------
mkdir "$SCENE_DIR/orders"
another again o "orders=$SCENE_DIR/orders"
for at in 8192000 40960000 20480000; do
    check read "unix:$SCENE_DIR/o" disk "$at" 1 >"$SCENE_DIR/null"
done
kept() { [ "$(stat -c %s "$SCENE_DIR"/orders/*.order 2>/dev/null)" = "$1" ]; }
tap_run "three touches are kept" scene_until 60 kept $((24 + 3 * 16))
tap_run "they are fetched for who comes next" check come "unix:$SCENE_DIR/o" disk $((3 * 4096))
tap_run "... who leaves" scene_until 60 nothing_left # else it is not read again
echo nonsense >"$(echo "$SCENE_DIR"/orders/*.order)"
tap_is "a file that makes no sense" "$(check read "unix:$SCENE_DIR/o" disk 4096 6)" later!
tap_run "is replaced by another" scene_until 60 kept $((24 + 16))
tap_like "and left aside" "$(cat "$SCENE_DIR/again.err")" 'order. is left aside'
scene_stop again
tap_like "a folder that is not there" "$(one_only "listen=unix:$SCENE_DIR/o,orders=/nowhere")" \
    'orders=/nowhere: No such file'

# --- a store that fails -------------------------------------------------------------------------
scene_spawn held "$CHECK" write k disk 64 x wait
scene_wait_line held started 60
meddle 'fail=EIO ops=read first=8388608 last=8400000'
tap_like "a page that cannot be read is a SIGBUS" "$(check touch k disk)" 'SIGBUS at [0-9]'
meddle ''
tap_like "and can be, later" "$(check touch k disk)" '^all$'
meddle 'fail=EIO ops=write'
tap_is "sync says what it could not" "$(check write k disk 9000000 failing sync; echo $?)" 1
meddle ''
tap_is "and it is still there" "$(check read k disk 9000000 7)" failing
wrote() { nbd -c 'read -P 0x66 9000000 1'; }
kill -s USR1 "$(scene_pid held)" && scene_stop held
tap_run "and it is written when that can be" scene_until 60 wrote

# --- programs die -------------------------------------------------------------------------------
tap_is "a program is killed that has not synced" "$(check write k disk 100 killed die; echo $?)" 137
killed() { nbd -c 'read -P 0x6b 100 1'; }
tap_run "what it wrote comes to the volume" scene_until 60 killed
tap_run "and then nothing is left" scene_until 60 nothing_left
meddle 'away ops=write'
check write k disk 200 killed die >"$SCENE_DIR/null"
kill_peer region0
meddle ''
also() { nbd -c 'read -P 0x6b 200 1'; }
tap_run "the front is killed at the same time" scene_until 60 also
tap_run "the same, and nothing is left" scene_until 60 nothing_left

scene_spawn changed "$CHECK" write k disk 300 exec exec
execs() { nbd -c 'read -P 0x65 300 1'; }
tap_run "a program that becomes another: what it wrote comes to the volume" scene_until 60 execs
tap_run "and it is not waited for" scene_until 60 nothing_left
tap_run "while its process lives" scene_alive changed
scene_stop changed

meddle "away ops=read first=$((48 << 20)) last=$((52 << 20))"
scene_spawn waiter "$CHECK" write k disk $((50 << 20)) x wait
waits() { [ "$("$XSEGCTL" stats region0 --json | jq '[.peers[].counters.calls_out] | add')" = 1 ]; }
tap_run "a program waits for a page" scene_until 60 waits
kill_peer region0
tap_run "the front is killed, and another one waits, too" scene_until 60 state_is region0 starting
meddle ''
tap_run "the page comes" scene_wait_line waiter started 60
attached() {
    ctl client list --json && [ "$(jq '.clients | length' "$SCENE_DIR/ctl.out")" = 1 ]
}
tap_run "the program is there again" scene_until 60 attached
kill -s USR1 "$(scene_pid waiter)" && scene_stop waiter
scene_spawn held "$CHECK" write k disk 400 stopped wait
scene_wait_line held started 60
ctl_exits 0 "the front is stopped under a program" peer stop region0 --yes
tap_run "what it had not synced is at the volume" nbd -c 'read -P 0x73 400 1'
ctl_exits 0 "it is started again" peer start region0
kill -s USR1 "$(scene_pid held)" && scene_stop held
tap_run "and lets it go" scene_until 60 nothing_left
meddle 'delay=400000 ops=write'
scene_spawn twice "$CHECK" twice k disk 500
tap_run "a sync while the page is under way" scene_wait_line twice started 60
tap_run "has what was written before it" nbd -c 'read -P 0x32 500 1'
meddle ''
kill -s USR1 "$(scene_pid twice)" && scene_stop twice

# --- everybody dies -----------------------------------------------------------------------------
count_start() { # NAME INDEX
    scene_spawn "$1" "$CHECK" count k disk "$SCENE_DIR/ledger" "$2"
    scene_wait_line "$1" started 60
}
count_end() { # NAME
    local rc=0
    kill -s USR1 "$(scene_pid "$1")"
    wait "$(scene_pid "$1")" || rc=$?
    unset "SCENE_PIDS[$1]"
    [ "$rc" = 0 ]
}
ledger() { check ledger "$SCENE_DIR/ledger"; }
ctl volume rm disk@then --yes
tap_is "all counters begin at" "$(check zero k disk)$(copied_sum)" 0
for i in 1 2 3; do tap_run "program $i counts" count_start "count$i" "$i"; done
for peer in region0 region0 vol0 region0 file0 map0 region0; do
    old=$(pid_of "$peer")
    sleep 0.4
    kill_peer "$peer"
    tap_run "$peer is killed, and back" back "$peer" "$old" 60
done
old=$(pid_of region0) other=$(pid_of file0)
kill_peer region0 vol0 map0 file0
tap_run "all at once: the front is back" back region0 "$old" 60
tap_run "and the store" back file0 "$other" 60
kill_keeper k
kill_peer region0
ctl_exits 0 "the keeper and the front are killed: up again" up --unguarded "$conf"
for _ in 1 2 3; do ctl_exits 0 "the front is restarted" peer restart region0; done
ctl_exits 0 "a cache is plugged in" plug cached --at vol0:store size=16M
old=$(pid_of cache0)
sleep 0.3
kill_peer cache0
tap_run "it is killed, and back" back cache0 "$old" 60
ctl_exits 0 "and unplugged" unplug cache0
ctl_exits 0 "down, under three programs" down k --yes
ctl_exits 0 "and up again" up --unguarded "$conf"
sleep 0.5
for i in 1 2 3; do tap_run "program $i has seen no error" count_end "count$i"; done
tap_is "each count is there" "$(check sum k disk)" "$(ledger)"
tap_run "and nothing is left" scene_until 60 nothing_left
tap_is "it is at the volume" "$(copied_sum)" "$(ledger)"

# who is killed has counted at most once what it did not note
scene_spawn steady "$CHECK" count k disk "$SCENE_DIR/ledger" 1
for _ in $(seq 8); do
    count_start victim 2
    sleep 0.2
    scene_kill KILL victim
    wait "$(scene_pid victim)"
    unset 'SCENE_PIDS[victim]'
done
old=$(pid_of region0)
count_start victim 2
kill_peer region0
scene_kill KILL victim
wait "$(scene_pid victim)"
unset 'SCENE_PIDS[victim]'
tap_run "the front and a program are killed" back region0 "$old" 60
tap_run "a program beside nine that were killed" count_end steady
more=$(($(check sum k disk) - $(ledger)))
tap_is "lost nothing of theirs" "$((more >= 0 && more <= 9))" 1
tap_note "$more of 9 were killed between the counter and their note"
tap_run "and nothing is left" scene_until 60 nothing_left
tap_is "at the volume, too" "$(($(copied_sum) - $(ledger)))" "$more"

# --- all of a copy, with little memory ------------------------------------------------------------
scene_spawn copy "$CHECK" verify k disk "$RANDOM"
tap_run "a program that knows what it wrote" scene_wait_line copy started 60
for _ in 1 2 3 4; do
    old=$(pid_of region0)
    sleep 0.3
    kill_peer region0
    tap_run "the front is killed, and back" back region0 "$old" 60
done
taken() { stat -c %b "$SKERRY_SHM_DIR"/region:k:region0:*.memory; } # of 512 bytes
tap_is "it takes as much memory as it may" "$(($(taken) * 512 <= 16 << 20))" 1
kill -s USR1 "$(scene_pid copy)"
rc=0
wait "$(scene_pid copy)" || rc=$?
unset 'SCENE_PIDS[copy]'
tap_is "all is as it was written" "$rc" 0
tap_like "over each restart" "$(tail -n 1 "$SCENE_DIR/copy.out")" 'reconnects [1-9]'
tap_note "$(tail -n 1 "$SCENE_DIR/copy.out")"

# --- each place where a death hurts  -----------------------------------------------------------
points=$("$XSEGPEER" --crash-points 2>/dev/null | grep '^front_region\.')
[ -n "$points" ] || tap_skip "killed at each place" "built without --enable-crash-points"
for point in $points; do
    tap_is "all counters begin at" "$(check zero k disk)$(copied_sum)" 0
    rm "$SCENE_DIR/ledger"
    # one in so many, so that it gets on in between
    echo "export SKERRY_CRASH=$point:\$((RANDOM % 300 + 1))" >"$SCENE_DIR/fail"
    kill_peer region0
    for i in 1 2 3; do tap_run "$point: program $i counts" count_start "count$i" "$i"; done
    sleep 2
    rm "$SCENE_DIR/fail"
    kill_peer region0
    for i in 1 2 3; do tap_run "$point: program $i has seen no error" count_end "count$i"; done
    tap_run "$point: nothing is left" scene_until 60 nothing_left
    tap_is "$point: each count is there" "$(copied_sum)" "$(ledger)"
done

# --- what stays --------------------------------------------------------------------------------
scene_spawn held "$CHECK" write k disk 64 x wait
scene_wait_line held started 60
ctl_exits 0 "down" down k --yes
tap_is "what a program has mapped stays" "$(files_left)" 2
scene_kill KILL held
wait "$(scene_pid held)" || :
unset 'SCENE_PIDS[held]'
ctl_exits 0 "up again" up --unguarded "$conf"
tap_run "and goes when nobody needs it" scene_until 60 nothing_left
tap_end
