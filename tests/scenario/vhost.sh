#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A volume as a vhost-user-blk disk: what virtio promises, guests and monitors that mean no good, a
# machine that moves, a disk that grows, and each process killed, and a cache put in and out, while
# a driver writes and reads back.

. "$(dirname "$0")/keeper_lib.sh"
ctl_begin "a vhost-user-blk disk"
ctl_need front_vhost front_nbd mapperd volume blocker_file cached
scene_need jq qemu-io
CHECK=$(dirname "$XSEGPEER")/vhost_check
[ -x "$CHECK" ] || tap_skip_all "vhost_check is not built"
export SKERRY_SEGMENT=k
events=$SKERRY_RUN_DIR/k/events.jsonl
socket=$SCENE_DIR/k.sock disk=$SCENE_DIR/disk.sock conf=$SCENE_DIR/k.conf

keeper_file "$conf" <<END
[peer vh0]
role = front_vhost
listen = unix:$disk
volume = disk
edge.volume = vol0

[peer vh1]
host = vh0
role = front_vhost
listen = unix:$SCENE_DIR/packed.sock
volume = packed
edge.volume = vol0

[host vh0]
restart-delay-max = 0
END
sed -i 's/^size = 64M/size = 256M/' "$conf"
down_at_exit k
ctl_exits 1 "up, without the volume that the disk shall be" up --unguarded "$conf"
out_like "which is said" "'disk' cannot be opened"
ctl_exits 0 "a volume" volume create disk --size 64M
ctl_exits 0 "and one for a machine with packed rings" volume create packed --size 64M
ctl_exits 0 "all is well" status

laws() { # NAME WORD...
    local line name=$1
    shift
    timeout 300 "$CHECK" "$@" "$disk" >"$SCENE_DIR/laws" 2>&1
    while IFS= read -r line; do
        case $line in
        'ok '*) tap_ok "$name: ${line#*- }" ;;
        'not ok '*) tap_not_ok "$name: ${line#*- }" ;;
        esac
    done <"$SCENE_DIR/laws"
    tap_like "$name: it came to its end" "$(tail -n 1 "$SCENE_DIR/laws")" '^1\.\.'
}
for word in laws rude moves; do
    laws "$word" "$word"
    laws "packed, $word" --packed "$word"
done

# --- its write cache -------------------------------------------------------------------------
syncs() { # how many files were synced for a hundred writes
    local before after
    before=$("$XSEGCTL" stats file0 --json | jq '[.peers[].counters.syncs] | add')
    "$CHECK" writes "$disk" 100 "$1" || return
    after=$("$XSEGCTL" stats file0 --json | jq '[.peers[].counters.syncs] | add')
    echo $((after - before))
}
many=$(syncs 0) few=$(syncs 1)
tap_run "turned off, each write is durable when it is answered" test "$many" -ge 100
tap_run "turned on, none of them need be" test "$few" -lt 100
tap_note "synced $many and $few times"

# --- one volume, several doors ---------------------------------------------------------------
tap_is "a write" "$("$CHECK" status "$disk" 1 64 65536)" 0
nbd() { scene_io "nbd+unix:///disk?socket=$socket" "$@"; }
tap_run "NBD reads what the disk has" nbd -c 'read -P 0 32768 65536'
tap_run "and writes what it reads" nbd -c 'write -P 7 0 4k' -c flush
scene_spawn guest "$CHECK" verify "$disk" 3600
ctl_attached() {
    ctl client list --json && [ "$(jq '.clients | length' "$SCENE_DIR/ctl.out")" = 1 ]
}
tap_run "who is attached" scene_until 60 ctl_attached
json_is "to what" '.clients[0] | [.volume, .front, .read_only] | map(tostring) | join(" ")' \
    "disk vh0 false"
ctl_exits 5 "a volume that is in use is not removed" volume rm disk --yes
kill "$(scene_pid guest)" && scene_stop guest

# --- what attaches it -----------------------------------------------------------------------------
ctl_exits 0 "attach, where NBD has it, too" volume attach disk --print qemu
out_like "NBD comes first" "^-blockdev"
ctl_exits 0 "attach --over vhost-user" volume attach disk --print qemu --over vhost-user \
    --memory 64M
if scene_have qemu-system-x86_64; then
    echo "qemu-system-x86_64 -S -M pc -nodefaults -display none -monitor stdio $OUT" \
        >"$SCENE_DIR/machine"
    tap_like "is what a machine takes" \
        "$(printf 'info qtree\nquit\n' | timeout 60 bash "$SCENE_DIR/machine" 2>&1)" \
        'dev: vhost-user-blk-pci'
else
    tap_skip "a machine" "there is no qemu-system-x86_64"
fi
ctl_exits 0 "attach --print libvirt" volume attach disk --print libvirt --over vhost-user
tap_is "is XML" "$(python3 -c '
import sys, xml.etree.ElementTree as tree
disk = tree.fromstring("<devices>" + open(sys.argv[1]).read() + "</devices>").find("disk")
print(disk.get("type"), disk.find("source").get("path"), disk.find("target").get("bus"))
' "$SCENE_DIR/ctl.out")" "vhostuser $disk virtio"
ctl_exits 0 "attach --print cloud-hypervisor" volume attach disk --print cloud-hypervisor
out_like "says how" "--disk 'vhost_user=on,socket=$disk'"
ctl_exits 2 "which has no other way" volume attach disk --print cloud-hypervisor --over nbd
ctl_exits 2 "as nbd-client has none" volume attach disk --print nbd-client --over vhost-user
ctl_exits 0 "volume uri" volume uri disk
tap_is "is of NBD alone" "$OUT" "nbd+unix:///disk?socket=$socket"
ctl_exits 0 "a volume that no disk is made of" volume create other --size 8M
ctl_exits 3 "cannot be attached so" volume attach other --print qemu --over vhost-user
err_like "which says why" "no front offers volume 'other' to machines over vhost-user"
ctl_exits 0 "it goes" volume rm other --yes

# --- what is in flight ----------------------------------------------------------------------------
scene_spawn noted "$CHECK" noted "$disk"
tap_run "a machine" scene_wait_line noted open 60
stopped=$(pid_of file0)
scene_at_exit '[ -z "$stopped" ] || kill -s CONT "$stopped" 2>/dev/null'
scene_freeze "$stopped"
kill -s USR1 "$(scene_pid noted)"
tap_run "its read is noted, while the store stands still" scene_wait_line noted taken 60
kill -s CONT "$stopped"
stopped=''
rc=0
wait "$(scene_pid noted)" || rc=$?
unset 'SCENE_PIDS[noted]'
tap_is "and no more when it is done" "$rc" 0

# --- a disk that grows --------------------------------------------------------------------------
scene_spawn grows "$CHECK" resized "$disk" 134217728
tap_run "a machine sees 64 MiB" scene_wait_line grows open 60
ctl_exits 0 "the volume grows" volume resize disk 128M
rc=0
wait "$(scene_pid grows)" || rc=$?
unset 'SCENE_PIDS[grows]'
tap_is "the machine is told, and reads its end" "$rc" 0

# --- read-only ----------------------------------------------------------------------------------
ctl_exits 0 "a snapshot" volume snapshot disk@then
other() { # NAME OPTION...
    scene_peer "$1" -s k "$1=front_vhost,listen=unix:$SCENE_DIR/$1.sock,edge.volume=vol0,$2"
}
other old volume=disk@then || tap_not_ok "it starts"
tap_is "it can be read" "$("$CHECK" status "$SCENE_DIR/old.sock" 0 0 4096)" 0
tap_is "it cannot be written" "$("$CHECK" status "$SCENE_DIR/old.sock" 1 0 4096)" 1
tap_is "nor discarded" "$("$CHECK" status "$SCENE_DIR/old.sock" 11 0 16)" 1
scene_stop old
other calm volume=disk,read-only=yes,devices=1,socket-mode=0600 || tap_not_ok "it starts"
tap_is "nor can a disk that is read-only" "$("$CHECK" status "$SCENE_DIR/calm.sock" 1 0 4096)" 1
tap_is "the socket's mode" "$(stat -c %a "$SCENE_DIR/calm.sock")" 600
first() { # the front may not have seen yet that the one before has gone
    scene_spawn first "$CHECK" resized "$SCENE_DIR/calm.sock" 1
    scene_wait_line first open 60
}
scene_until 60 first
tap_run "one machine is as many as may be" grep -qx open "$SCENE_DIR/first.out"
tap_fails "one more is turned away" "$CHECK" status "$SCENE_DIR/calm.sock" 0 0 4096
tap_like "which is said" "$(cat "$SCENE_DIR/calm.err")" 'is turned away: 1 machines use the disk'
kill "$(scene_pid first)" && scene_stop first
scene_stop calm
tap_run "and leaves no socket" test ! -e "$SCENE_DIR/calm.sock"

refusal() {
    timeout 120 "$XSEGPEER" -s k "no=front_vhost,edge.volume=vol0,$1" 2>&1 </dev/null
}
tap_like "TCP is refused" "$(refusal volume=disk,listen=tcp:localhost:1)" \
    'listen=tcp:localhost:1: a machine shares its memory'
tap_like "so is no address" "$(refusal volume=disk)" 'nothing to listen on'
tap_like "and no volume" "$(refusal "listen=unix:$SCENE_DIR/no.sock")" "option 'volume' is missing"
other lost volume=nowhere || tap_not_ok "it starts"
tap_fails "a volume that is not there" "$CHECK" status "$SCENE_DIR/lost.sock" 0 0 4096
tap_like "which is said" "$(cat "$SCENE_DIR/lost.err")" "volume 'nowhere' cannot be opened: No such"
scene_stop lost

# --- kills --------------------------------------------------------------------------------------
# Two machines at once, one of them with packed rings.
verify_start() { # [SOCKET [SOCKET]]
    local name
    scene_spawn guest "$CHECK" verify "${1:-$disk}" 3600
    scene_spawn packed "$CHECK" --packed verify "${2:-$SCENE_DIR/packed.sock}" 3600
    for name in guest packed; do
        scene_wait_line "$name" started 60 || tap_not_ok "the driver starts"
    done
}
# Ends when what is in flight has come back.
verify_end() { # WHAT
    local name rc
    for name in guest packed; do
        rc=0
        kill -s USR1 "$(scene_pid "$name")"
        wait "$(scene_pid "$name")" || rc=$?
        unset "SCENE_PIDS[$name]"
        tap_is "$1 ($name)" \
            "$rc $(sed -n 's/.* \([0-9]* wrong\),.*/\1/p' "$SCENE_DIR/$name.out")" "0 0 wrong"
        tap_note "$(tail -n 1 "$SCENE_DIR/$name.out")"
    done
}
verify_start
for peer in vh0 vol0 vh0 file0 vh0 map0; do
    old=$(pid_of "$peer")
    sleep 0.3
    kill_peer "$peer"
    tap_run "$peer is killed, and back" back "$peer" "$old" 60
done
old=$(pid_of vh0) other=$(pid_of file0)
kill_peer vh0 file0
tap_run "two at once: the front is back" back vh0 "$old" 60
tap_run "and the store" back file0 "$other" 60
old=$(pid_of vh0)
kill_keeper k
kill_peer vh0
is_up() { "$XSEGCTL" up --unguarded "$conf"; } # says no as long as one is starting
tap_run "the keeper and the front are killed: up again" scene_until 60 is_up
tap_run "the front is back" back vh0 "$old" 60
verify_end "no request failed, nothing was lost"
for name in guest packed; do
    tap_like "the driver had to connect again ($name)" "$(cat "$SCENE_DIR/$name.out")" \
        ' [1-9][0-9]* reconnects'
done

verify_start
inode=$(stat -c %i "$disk")
for _ in 1 2 3; do ctl_exits 0 "the fronts are restarted" peer restart vh0 --host; done
tap_is "on the socket that was there" "$(stat -c %i "$disk")" "$inode"
ctl_exits 0 "a cache is plugged in" plug cached --at vol0:store size=16M
old=$(pid_of cache0)
sleep 0.3
kill_peer cache0
tap_run "it is killed, and back" back cache0 "$old" 60
old=$(pid_of vh0)
kill_peer vh0
tap_run "so is the front" back vh0 "$old" 60
ctl_exits 0 "and unplugged" unplug cache0
verify_end "nothing of that was seen either"
ctl_exits 0 "nothing is amiss" volume fsck --json
json_is "... in the store" '.findings | length' 0
nothing_left() {
    ctl status --json &&
        [ "$(jq '.segment.requests | .total - .free' "$SCENE_DIR/ctl.out")" = 0 ]
}
tap_run "no request is left" scene_until 60 nothing_left
ctl_exits 0 "down" down

# --- machines on two lanes ------------------------------------------------------------------------
export SKERRY_SEGMENT=l
scene_segment l 256M
scene_peer lanes -s l -l 2 mem0=blocker_memory map0=mapperd,edge.store=mem0,settle=0 \
    vol0=volume,edge.store=mem0,edge.map=map0 \
    "va=front_vhost,listen=unix:$SCENE_DIR/va.sock,volume=a,edge.volume=vol0" \
    "vb=front_vhost,listen=unix:$SCENE_DIR/vb.sock,volume=b,edge.volume=vol0" ||
    tap_not_ok "two lanes start"
for name in a b; do ctl_exits 0 "volume $name" volume create "$name" --size 16M; done
for name in a b; do
    scene_spawn "guest-$name" "$CHECK" verify "$SCENE_DIR/v$name.sock" 3
done
for _ in 1 2 3 4; do # more machines on the same disks: they read
    for name in a b; do "$CHECK" status "$SCENE_DIR/v$name.sock" 0 8 4096; done
done >"$SCENE_DIR/readers"
tap_is "machines that come and go" "$(sort "$SCENE_DIR/readers" | uniq -c | xargs)" "8 0"
for name in a b; do
    rc=0
    wait "$(scene_pid "guest-$name")" || rc=$?
    unset "SCENE_PIDS[guest-$name]"
    tap_is "the machine on $name saw no error" "$rc" 0
done
scene_stop lanes

# --- killed at each place -----------------------------------------------------------------------
points=$("$XSEGPEER" --crash-points 2>/dev/null | grep '^front_vhost\.')
if [ -z "$points" ]; then
    tap_skip "killed at each place" "built without --enable-crash-points"
    tap_end
fi
export SKERRY_SEGMENT=c
scene_segment c 128M
scene_peer below -s c mem0=blocker_memory map0=mapperd,edge.store=mem0,settle=0 \
    vol0=volume,edge.store=mem0,edge.map=map0 || tap_not_ok "what is below starts"
for name in disk packed; do ctl_exits 0 "volume $name" volume create "$name" --size 32M; done
front() {
    scene_peer front -s c \
        "vh0=front_vhost,listen=unix:$SCENE_DIR/c.sock,volume=disk,edge.volume=vol0" \
        "vh1=front_vhost,listen=unix:$SCENE_DIR/d.sock,volume=packed,edge.volume=vol0"
}
front || tap_not_ok "the front starts"
verify_start "$SCENE_DIR/c.sock" "$SCENE_DIR/d.sock"
for point in $points; do
    hits='1 2 5'
    [ "$point" != front_vhost.device.accepted ] || hits=1 # each connects once
    for hit in $hits; do
        scene_kill KILL front
        scene_stop front
        SKERRY_CRASH=$point:$hit front
        tap_run "$point:$hit kills it" scene_until 60 scene_gone front
        scene_stop front
        front || tap_not_ok "it starts again"
    done
done
verify_end "no request failed, nothing was lost, wherever it was killed"
tap_end
