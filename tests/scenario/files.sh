#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Volumes as files in a folder: names and rights, a file that behaves as a disk, reads, writes and
# mappings of any alignment, a file system on a loop device, each process killed and the front
# restarted under them, and what is left when somebody unmounts it or dies.

. "$(dirname "$0")/keeper_lib.sh"
scene_own_mounts "$@"
ctl_begin "volumes as files"
ctl_need front_fuse front_nbd mapperd volume blocker_file cached
scene_need jq python3 qemu-io mountpoint
[ -c /dev/fuse ] || tap_skip_all "there is no /dev/fuse"
# What rights forbid, the kernel refuses to others than root before it asks the front.
refused="Operation not permitted" unwritable="Read-only file system"
group=1 mode=0640 # others may come in only where /etc/fuse.conf lets them
if [ "$(id -u)" -ne 0 ]; then
    scene_have fusermount3 || tap_skip_all "only root mounts without fusermount3"
    [ -r /dev/fuse ] && [ -w /dev/fuse ] || tap_skip_all "only root may use /dev/fuse"
    refused="Permission denied" unwritable="Permission denied" group=$(id -g) mode=0600
fi
CHECK=$(dirname "$0")/files_check.py
export SKERRY_SEGMENT=k
events=$SKERRY_RUN_DIR/k/events.jsonl
socket=$SCENE_DIR/k.sock folder=$SCENE_DIR/volumes conf=$SCENE_DIR/k.conf
disk=$folder/disk
mkdir "$folder" "$SCENE_DIR/other" "$SCENE_DIR/root"
# lazily: also what answers nobody any more
scene_at_exit 'for f in root other volumes; do
    ! mountpoint -q "$SCENE_DIR/$f" 2>/dev/null && stat "$SCENE_DIR/$f" >"$SCENE_DIR/null" 2>&1 ||
        umount -l "$SCENE_DIR/$f" 2>/dev/null
done
[ -z "${loop:-}" ] || losetup -d "$loop" 2>/dev/null'

keeper_file "$conf" <<END_FILE
[peer fuse0]
role = front_fuse
path = $folder
edge.volume = vol0

[host fuse0]
restart-delay-max = 0
restart-limit = 0
END_FILE
sed -i 's/^size = 64M/size = 256M/' "$conf"
down_at_exit k
ctl_exits 0 "up" up --unguarded "$conf"
tap_is "the folder is mounted" "$(findmnt -no SOURCE,FSTYPE "$folder")" "skerry:k/fuse0 fuse.skerry"
mountpoint -q "$folder" || tap_end # else it would try a folder that is none

check() { timeout 300 /usr/bin/python3 "$CHECK" "$@" 2>&1 </dev/null; }
said() { "$@" 2>&1 </dev/null | sed 's/.*: //'; }
free_of_clients() {
    ctl client list --json && [ "$(jq '.clients | length' "$SCENE_DIR/ctl.out")" = 0 ]
}

# --- names --------------------------------------------------------------------------------------
tap_is "no volume, no file" "$(ls -A "$folder")" .snapshots
ctl_exits 0 "a volume" volume create disk --size 64M
ctl_exits 0 "a snapshot of it" volume snapshot disk@then
for i in $(seq 100); do ctl volume create "many-$i" --size 8M; done
tap_is "each volume is a file" "$(ls "$folder" | sort -V | xargs)" \
    "disk $(seq -f 'many-%g' 100 | xargs)"
for i in $(seq 100); do ctl volume rm "many-$i" --yes; done
tap_is "and no more when it is removed" "$(ls "$folder")" disk
tap_is "a snapshot lies apart" "$(ls "$folder/.snapshots")" disk@then
tap_is "size, mode, owner" "$(stat -c '%s %A %u' "$disk")" "67108864 -rw------- $(id -u)"
tap_is "of a snapshot" "$(stat -c '%s %A' "$folder/.snapshots/disk@then")" "67108864 -r--------"
tap_is "what was never written takes no space" "$(du "$disk" | cut -f1)" 0
tap_is "a name that is none" "$(said cat "$folder/nothing")" "No such file or directory"
tap_is "files are not made here" "$(said touch "$folder/new")" "$refused"
tap_is "nor removed" "$(said rm -f "$disk")" "$refused"
tap_is "nor renamed" "$(said mv "$disk" "$folder/other")" "$refused"
tap_is "nor made into folders" "$(said mkdir "$folder/new")" "$refused"
tap_is "nor given other rights" "$(said chmod 0666 "$disk")" "Operation not supported"
xattr() { /usr/bin/python3 -c 'import os, sys; print(os.getxattr(*sys.argv[1:]).decode())' "$@"; }
ctl volume info disk@then --json
tap_is "an attribute says what it was made of" \
    "$(xattr "$folder/.snapshots/disk@then" user.skerry.parent)" "$(xattr "$disk" user.skerry.id)"
tap_like "one that is not there" "$(xattr "$disk" user.other 2>&1)" 'No data available'

# --- where it is ----------------------------------------------------------------------------------
ctl_exits 0 "attach --print file" volume attach disk@then --print file
tap_is "says where it is" "$OUT" "$folder/.snapshots/disk@then"
ctl_exits 0 "attach --print losetup" volume attach disk --print losetup
tap_is "says what makes it a device" "$OUT" "losetup --find --show --direct-io=on '$disk'"
ctl_exits 2 "which has no other way" volume attach disk --print file --over nbd
ctl_exits 0 "volume uri" volume uri disk
tap_is "is of NBD alone" "$OUT" "nbd+unix:///disk?socket=$socket"

# --- as a disk does -----------------------------------------------------------------------------
printf 'first words' >"$SCENE_DIR/words"
dd if=/dev/urandom of="$disk" bs=64k seek=31 count=7 conv=notrunc status=none
tap_run "cp writes over it" cp "$SCENE_DIR/words" "$disk"
tap_is "and does not cut it off" "$(stat -c %s "$disk") $(head -c 11 "$disk")" \
    "67108864 first words"
nbd() { scene_io "nbd+unix:///disk?socket=$socket" "$@"; }
tap_is "and leaves nothing else of what was there" "$(tr -d '\0' <"$disk")" "first words"
tap_run "NBD reads the same" nbd -c 'read -P 0x66 0 1'
tap_is "it does not grow when it is written to" \
    "$(said dd if=/dev/zero of="$disk" bs=1M seek=64 count=1 conv=notrunc status=none)" \
    "No space left on device"
dd if=/dev/zero of="$disk" bs=4096 seek=67106816 count=1 oflag=seek_bytes conv=notrunc \
    2>"$SCENE_DIR/dd" || true
tap_like "as much as fits is written" "$(xargs <"$SCENE_DIR/dd")" ' 2048 bytes'
tap_run "truncate makes it larger" truncate -s 96M "$disk"
ctl volume info disk --json
json_is "the volume, that is" .size 100663296
tap_is "not to part of a sector" "$(said truncate -s 100663297 "$disk")" "Invalid argument"
tap_is "nor smaller" "$(said truncate -s 64M "$disk")" "Operation not permitted"
scene_spawn late /usr/bin/python3 "$CHECK" late "$disk" 130000000 "$SCENE_DIR/late.go"
tap_run "somebody has it open" scene_wait_line late started 60
ctl_exits 0 "resized elsewhere" volume resize disk 128M
: >"$SCENE_DIR/late.go"
late_end() { # WHAT
    local rc=0
    wait "$(scene_pid late)" || rc=$?
    unset 'SCENE_PIDS[late]'
    rm -f "$SCENE_DIR/late.go"
    tap_is "$1" "$rc $(cat "$SCENE_DIR/late.err")" "0 "
}
late_end "he writes beyond what was the end"
seen() { [ "$(stat -c %s "$disk")" = 134217728 ]; }
tap_run "it is seen here" scene_until 60 seen
tap_run "and can be written to its end" dd if=/dev/urandom of="$disk" bs=1M seek=127 count=1 \
    conv=notrunc status=none
tap_is "a snapshot cannot be written" "$(said dd if=/dev/zero of="$folder/.snapshots/disk@then" \
    count=1 conv=notrunc status=none)" "$unwritable"
tap_is "it has what was there" "$(head -c 4096 "$folder/.snapshots/disk@then" | tr -d '\0')" ""
tap_is "where there are data" "$(check seek "$disk")" "data 0 4096
data 67104768 4096
data 129998848 1536
data 133169152 1048576"
tap_is "space is not set aside" "$(said fallocate -l 1M "$disk")" "Operation not supported"

# --- bytes --------------------------------------------------------------------------------------
tap_run "a user" check run "$disk" 1 2000
if scene_have fio; then # writes in flight at once, that share sectors: none may undo another
    tap_run "neighbours in a sector" env -C "$SCENE_DIR" fio --name=x --filename="$disk" \
        --direct=1 --ioengine=libaio --iodepth=16 --bs=700 --size=700000 --rw=write \
        --verify=crc32c --verify_fatal=1
else
    tap_skip "neighbours in a sector" "there is no fio"
fi
tap_run "one process writes through a mapping" check map "$disk" 12345 "by another"
tap_is "another reads it" "$(dd if="$disk" bs=1 skip=12345 count=10 status=none)" "by another"
tap_run "as does NBD" nbd -c 'read -P 0x62 12345 1'
counter() { "$XSEGCTL" stats "$1" --json | jq ".peers[0].counters.$2 // 0"; }
before=$(counter fuse0 fuse_others)
dd if=/dev/zero of="$disk" bs=4096 seek=10k count=100 oflag=direct conv=notrunc status=none
tap_run "a write asks for nothing but itself" \
    test "$(counter fuse0 fuse_others)" -lt $((before + 50))
before=$(counter file0 flushes)
tap_run "sync(1) opens it to read" sync "$disk"
tap_run "and flushes what was written" test "$(counter file0 flushes)" -gt "$before"
tap_run "a snapshot has nothing to be flushed" sync "$folder/.snapshots/disk@then"
ctl_exits 0 "a volume for who opens and closes" volume create spare --size 8M
scene_spawn opens /usr/bin/python3 "$CHECK" open "$folder/spare" "$SCENE_DIR/user.stop"
ctl_exits 0 "one that two processes have mapped" volume create both --size 4M
scene_spawn both /usr/bin/python3 "$CHECK" both "$folder/both" "$SCENE_DIR/user.stop"
tap_run "they are there" scene_wait_line both started 60
scene_spawn user /usr/bin/python3 "$CHECK" until "$disk" 2 "$SCENE_DIR/user.stop"
tap_run "a user that stays" scene_wait_line user started 60
ctl_exits 0 "who is attached" client list --json
json_is "to what" '[.clients[] | select(.volume == "disk") | .front] | unique | join(", ")' fuse0
ctl_exits 5 "a volume that is in use is not removed" volume rm disk --yes

# --- kills --------------------------------------------------------------------------------------
user_end() { # WHAT
    local rc=0
    : >"$SCENE_DIR/user.stop"
    wait "$(scene_pid user)" || rc=$?
    unset 'SCENE_PIDS[user]'
    tap_is "$1" "$rc $(cat "$SCENE_DIR/user.err")" "0 "
    tap_note "$(tail -n 1 "$SCENE_DIR/user.out")"
    if [ -n "${SCENE_PIDS[opens]:-}" ]; then
        wait "$(scene_pid opens)" || rc=$?
        unset 'SCENE_PIDS[opens]'
        tap_is "nor of who opened and closed" "$rc $(cat "$SCENE_DIR/opens.err")" "0 "
        tap_note "$(tail -n 1 "$SCENE_DIR/opens.out")"
        wait "$(scene_pid both)" || rc=$?
        unset 'SCENE_PIDS[both]'
        tap_is "nor in who had mapped the same" "$rc $(cat "$SCENE_DIR/both.err")" "0 "
        tap_note "$(tail -n 1 "$SCENE_DIR/both.out")"
    fi
    rm -f "$SCENE_DIR/user.stop"
}
for peer in fuse0 vol0 fuse0 file0 fuse0 map0 fuse0; do
    old=$(pid_of "$peer")
    sleep 0.3
    kill_peer "$peer"
    tap_run "$peer is killed, and back" back "$peer" "$old" 60
done
old=$(pid_of fuse0) other=$(pid_of vol0)
kill_peer fuse0 vol0
tap_run "two at once: the front is back" back fuse0 "$old" 60
tap_run "and the composer" back vol0 "$other" 60
for _ in 1 2 3; do ctl_exits 0 "the front is restarted" peer restart fuse0; done
ctl_exits 0 "a cache is plugged in" plug cached --at vol0:store size=16M
sleep 0.3
old=$(pid_of fuse0)
kill_peer fuse0
tap_run "the front is killed above it" back fuse0 "$old" 60
ctl_exits 0 "and it is unplugged" unplug cache0
user_end "no call failed, nothing was lost"
tap_run "nobody is attached any more" scene_until 60 free_of_clients

# What is in flight is done by the successor, not forgotten: the store stands still meanwhile.
stopped=$(pid_of file0) old=$(pid_of fuse0)
scene_at_exit '[ -z "$stopped" ] || kill -s CONT "$stopped" 2>/dev/null'
scene_spawn late /usr/bin/python3 "$CHECK" late "$disk" 50688 "$SCENE_DIR/late.go"
tap_run "a writer" scene_wait_line late started 60
scene_freeze "$stopped"
before=$(counter fuse0 fuse_writes)
taken() { [ "$(counter fuse0 fuse_writes)" -gt "$before" ]; }
: >"$SCENE_DIR/late.go"
tap_run "whose write the front has taken" scene_until 60 taken
kill_peer fuse0
kill -s CONT "$stopped"
stopped=''
tap_run "its front is killed, and back" back fuse0 "$old" 60
late_end "it is done all the same"
tap_is "and is there" "$(dd if="$disk" bs=512 skip=99 count=1 status=none |
    head -c 11)" "first words"
tap_run "by the successor" test "$(counter fuse0 fuse_again)" -gt 0

# --- who is ended while he waits ------------------------------------------------------------------
attribute='import os, sys; os.getxattr(sys.argv[1], "user.skerry.id")'
waits_to() { # WHAT VOLUME
    scene_spawn "$1" /usr/bin/python3 "$CHECK" late "$folder/$2" 524288 "$SCENE_DIR/late.go" "$1"
    tap_run "somebody who is about to $1" scene_wait_line "$1" started 60
}
waits_to open spare
waits_to read disk
waits_to flush disk
waits_to write both # it locks its file
before=$(counter fuse0 fuse_left)
flushes=$(counter fuse0 fuse_flushes) writes=$(counter fuse0 fuse_writes)
stopped=$(pid_of vol0)
scene_freeze "$stopped"
scene_spawn list ls "$folder"
scene_spawn xattr /usr/bin/python3 -c "$attribute" "$disk"
: >"$SCENE_DIR/late.go"
# where that cannot be seen he may be ended before he waits
waits_for_fuse() {
    ! cat /proc/self/stack >"$SCENE_DIR/stack" 2>&1 ||
        grep -qsE 'request_wait_answer|folio_wait' "/proc/$(scene_pid "$1")/stack"
}
taken() {
    [ "$(counter fuse0 fuse_flushes)" -gt "$flushes" ] &&
        [ "$(counter fuse0 fuse_writes)" -gt "$writes" ]
}
tap_run "the front has taken the flush and the write" scene_until 60 taken
for who in list open xattr read flush write; do
    tap_run "$who waits for the composer, which stands still" scene_until 60 waits_for_fuse "$who"
    kill -s TERM "$(scene_pid "$who")"
done
for who in list open xattr read flush; do
    tap_run "$who can be ended" scene_until 60 gone "$(scene_pid "$who")"
done
tap_fails "write not before it is done" gone "$(scene_pid write)"
kill -s CONT "$stopped"
stopped=''
tap_run "... which is then" scene_until 60 gone "$(scene_pid write)"
for who in list open xattr read flush write; do scene_stop "$who"; done
rm "$SCENE_DIR/late.go"
tap_is "it has been written" "$(dd if="$folder/both" bs=512 skip=1024 count=1 status=none |
    head -c 11)" "first words"
# the kernel gives up a read by itself, and what the front has not taken
tap_run "those that were ended are counted" test "$(counter fuse0 fuse_left)" -gt "$before"
tap_run "what was opened for nobody is closed" scene_until 60 free_of_clients
unopened() { ctl volume info spare --json && [ "$(jq .opens "$SCENE_DIR/ctl.out")" = 0 ]; }
tap_run "... as the composer knows" scene_until 60 unopened
tap_is "the folder is as it was" "$(cd "$folder" && echo ./*)" "./both ./disk ./spare"

# --- a file system --------------------------------------------------------------------------------
loop=''
if scene_have losetup && scene_have mkfs.ext4 && losetup -f >"$SCENE_DIR/free" 2>&1 &&
    loop=$(losetup -f --show --direct-io=on "$disk" 2>"$SCENE_DIR/losetup"); then
    tap_run "mkfs" mkfs.ext4 -q -F "$loop"
    tap_run "mount" mount "$loop" "$SCENE_DIR/root"
    truncate -s 8M "$SCENE_DIR/root/file"
    scene_spawn user /usr/bin/python3 "$CHECK" until "$SCENE_DIR/root/file" 3 \
        "$SCENE_DIR/user.stop"
    tap_run "a user on it" scene_wait_line user started 60
    for peer in fuse0 file0 fuse0; do
        old=$(pid_of "$peer")
        sleep 0.5
        kill_peer "$peer"
        tap_run "$peer is killed under it" back "$peer" "$old" 60
    done
    user_end "the file system saw nothing of it"
    rm "$SCENE_DIR/root/file"
    tap_run "what is free is given back" fstrim "$SCENE_DIR/root"
    tap_run "umount" umount "$SCENE_DIR/root"
    tap_run "fsck" fsck.ext4 -fn "$loop"
    losetup -d "$loop"
    loop=''
    tap_run "the loop device lets go" scene_until 60 free_of_clients
else
    loop=''
    tap_skip "a file system on a loop device" "no loop devices: $(cat "$SCENE_DIR/losetup" \
        "$SCENE_DIR/free" 2>/dev/null | head -n 1)"
fi

# --- unmounted ------------------------------------------------------------------------------------
tap_run "somebody unmounts it" umount "$folder"
amiss() { ctl status; grep -q 'fuse0.*degraded' "$SCENE_DIR/ctl.out"; }
tap_run "which is seen" scene_until 60 amiss
ctl_exits 0 "a restart" peer restart fuse0
tap_is "mounts it again" "$(head -c 1 "$disk" | wc -c)" 1
exec 7<"$disk"
number=$(stat -c %d "$folder")
if mount -t fusectl fusectl "$SCENE_DIR/root" && [ -w "$SCENE_DIR/root/$number/abort" ]; then
    echo 1 >"$SCENE_DIR/root/$number/abort"
    umount "$SCENE_DIR/root"
    tap_run "one that was cut off lets go of its volumes" scene_until 60 free_of_clients
    closed() { ctl volume info disk --json && [ "$(jq .opens "$SCENE_DIR/ctl.out")" = 0 ]; }
    tap_run "as the composer has heard" scene_until 60 closed
    ctl_exits 0 "a restart clears it away" peer restart fuse0
    tap_is "and mounts again" "$(head -c 1 "$disk" | wc -c)" 1
else
    tap_skip "a connection that is cut off" "no fusectl file system"
fi
exec 7<&-
ctl_exits 0 "nothing is amiss" volume fsck --json
json_is "... in the store" '.findings | length' 0
nothing_left() {
    ctl status --json &&
        [ "$(jq '.segment.requests | .total - .free' "$SCENE_DIR/ctl.out")" = 0 ]
}
tap_run "no request is left" scene_until 60 nothing_left

# --- others ---------------------------------------------------------------------------------------
other() { # OPTION...
    scene_peer other -s k "other=front_fuse,path=$SCENE_DIR/other,edge.volume=vol0,$1"
}
other volume=disk,allow-shrink=yes,file-mode=$mode,file-group=$group || tap_not_ok "it starts"
tap_is "one volume alone" "$(cd "$SCENE_DIR/other" && echo ./* .snapshots/*)" \
    "./disk .snapshots/disk@then"
tap_is "the others are not there" "$(said cat "$SCENE_DIR/other/spare")" \
    "No such file or directory"
tap_is "rights" "$(stat -c '0%a %g' "$SCENE_DIR/other/disk")" "$mode $group"
tap_run "it may become smaller" truncate -s 64M "$SCENE_DIR/other/disk"
ctl volume info disk --json
json_is "and does" .size 67108864
exec 7<"$SCENE_DIR/other/disk"
scene_kill KILL other
scene_stop other
exec 7<&-
tap_is "killed without a keeper" "$(said ls "$SCENE_DIR/other")" \
    "Transport endpoint is not connected"
other read-only=yes || tap_not_ok "it starts"
tap_is "the next one clears it away" "$(cd "$SCENE_DIR/other" && echo ./*)" "./both ./disk ./spare"
tap_is "read-only" "$(said dd if=/dev/zero of="$SCENE_DIR/other/disk" count=1 conv=notrunc \
    status=none)" "$unwritable"
scene_stop other
tap_fails "stopped, it is unmounted" mountpoint -q "$SCENE_DIR/other"
refusal() {
    timeout 120 "$XSEGPEER" -s k "no=front_fuse,edge.volume=vol0,$1" 2>&1 </dev/null
}
tap_like "no folder" "$(refusal "path=$SCENE_DIR/nowhere")" "path=.*/nowhere: No such file"
tap_like "a file" "$(refusal "path=$conf")" "path=.*k.conf: Not a directory"
tap_like "one that is taken" "$(refusal "path=$folder")" "something is mounted there already"
tap_like "no mode" "$(refusal "path=$SCENE_DIR/other,file-mode=9")" "file-mode=9: write three"
tap_like "no path" "$(refusal "read-only=yes")" "option 'path' is missing"
ctl_exits 0 "down" down --yes
tap_fails "nothing is mounted" mountpoint -q "$folder"

# --- killed at each place -------------------------------------------------------------------------
points=$("$XSEGPEER" --crash-points 2>/dev/null | grep '^front_fuse\.')
if [ -z "$points" ]; then
    tap_skip "killed at each place" "built without --enable-crash-points"
    tap_end
fi
keeper_may_fail fuse0
ctl_exits 0 "up" up --unguarded "$conf"
scene_spawn user /usr/bin/python3 "$CHECK" until "$disk" 4 "$SCENE_DIR/user.stop"
tap_run "a user" scene_wait_line user started 60
for point in $points; do
    [[ $point != *.mount.* ]] || continue # a successor does not mount
    for hit in 1 2 5; do
        deaths=$(event_count peer_died fuse0)
        printf 'rm -f "%s"\nexport SKERRY_CRASH=%s\n' "$SCENE_DIR/fail" "$point:$hit" \
            >"$SCENE_DIR/fail"
        kill_peer fuse0
        tap_run "$point:$hit kills it" scene_until 60 event_seen peer_died fuse0 $((deaths + 2))
        tap_run "and it is back" scene_until 60 state_is fuse0 serving
    done
done
user_end "no call failed, nothing was lost, wherever it was killed"
tap_end
