#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A volume of this host is mounted by one command: as a file, as a device, with its file system; as
# often as one likes, from wherever it has got to; and ended by any of its names. What is in use
# stays, what fails or is killed half way leaves nothing, and file systems outlive kills.

. "$(dirname "$0")/keeper_lib.sh"
scene_own_mounts "$@"
ctl_begin "a volume of this host, mounted"
ctl_need front_fuse front_nbd mapperd volume blocker_file
scene_need jq python3 qemu-io mountpoint losetup
[ "$(id -u)" -eq 0 ] || tap_skip_all "only root mounts"
[ -c /dev/fuse ] || tap_skip_all "there is no /dev/fuse"
CHECK=$(dirname "$0")/files_check.py
# of no other test: whoever takes down a segment ends what the kernel has mounted under its name
export SKERRY_SEGMENT=here
socket=$SCENE_DIR/here.sock conf=$SCENE_DIR/here.conf
events=$SKERRY_RUN_DIR/here/events.jsonl
run=$SKERRY_RUN_DIR/here dir=$SCENE_DIR/dir root=$SCENE_DIR/root
mkdir "$dir" "$root" "$SCENE_DIR/other"
# Devices are everybody's: those that lead into this test's folders are ours.
our_loops() { losetup --list --noheadings --output NAME,BACK-FILE | awk -v at="$SCENE_DIR/" \
    'index($2, at) == 1 { print $1 }'; }
our_mounts() { awk -v at="$SCENE_DIR/" 'index($2, at) == 1 { print $2 }' /proc/self/mounts |
    sort -r; }
# A device says no longer whose it is when its file's folder is gone.
scene_at_exit 'loops=$(our_loops)
for at in $(our_mounts); do umount -l "$at"; done
for at in $loops; do losetup -d "$at"; done'

# What umount has to have undone; the composer, the mapper, the store and the NBD front stay.
left() {
    our_loops
    our_mounts
    "$XSEGCTL" peer list --json | jq -r '.peers[].name | select(startswith("mount"))'
    ls -d "$run"/mount[0-9] 2>/dev/null
}
gone_all() { tap_is "$1" "$(left | xargs)" ""; }
nbd() { scene_io "nbd+unix:///$1?socket=$socket" "${@:2}"; } # VOLUME COMMAND...
listed() { "$XSEGCTL" mount --json | jq -c "[.mounts[] | $1]"; }

keeper_file "$conf" <<'END_FILE'
[host mount0]
restart-delay-max = 0
restart-limit = 0
END_FILE
sed -i '/^\[host/,$d; s/^size = 64M/size = 256M/' "$conf"
down_at_exit here
ctl_exits 0 "up" up --unguarded "$conf"
ctl_exits 0 "a volume" volume create disk --size 64M

# --- what is refused ------------------------------------------------------------------------------
ctl_exits 3 "a volume that is not there" mount nothing
ctl_exits 2 "a folder that is not there" mount disk "$SCENE_DIR/nowhere"
ctl_exits 2 "a file system without a folder" mount disk --fs
ctl_exits 2 "a device in a folder" mount disk "$dir" --device
ctl_exits 2 "options of no file system" mount disk --device --options noatime
ctl_exits 2 "what is for another host's" mount disk --near "$SCENE_DIR/near"
err_like "... which says what that is" 'skerry\+tls://'
ctl_exits 3 "nothing to end" umount disk
ctl_exits 3 "... at no path either" umount "$root"
ctl_exits 0 "what would be done" mount disk "$root" --fs --dry-run
gone_all "none of it leaves anything"

# --- a file ---------------------------------------------------------------------------------------
ctl_exits 0 "a file" mount disk --json
json_is "... somewhere" .file "$run/mount0/disk"
json_is "... without a device" .device ""
json_is "... now" .changed true
printf 'by hand' | dd of="$run/mount0/disk" conv=notrunc status=none
tap_run "it is the volume" nbd disk -c 'read -v 0 512' -c 'write -P 7 1M 64k'
tap_is "... both ways" "$(dd if="$run/mount0/disk" bs=1M skip=1 count=1 iflag=direct status=none |
    head -c 65536 | tr -d '\7' | wc -c)" 0
ctl_exits 0 "once more" mount disk --json
json_is "... changes nothing" .changed false
ctl_exits 4 "... but not elsewhere" mount disk "$dir"
ctl_exits 4 "... nor read-only" mount disk --read-only
tap_is "it is listed" "$(listed '[.volume, .segment, .peer]')" '[["disk","here","mount0"]]'
exec 7<"$run/mount0/disk"
ctl_exits 5 "a file that is open keeps it" umount disk
ctl_exits 0 "... unless one insists" umount disk --yes
exec 7<&-
gone_all "then all is gone"
ctl_exits 0 "in a folder of one's own" mount disk "$dir" --read-only
tap_run "... which one cannot write to" test ! -w "$dir/disk" -o "$(stat -c %A "$dir/disk")" = \
    -r--------
tap_is "... is there" "$(head -c 7 "$dir/disk")" "by hand"
tap_is "... and says whose it is" "$(findmnt -no SOURCE "$dir")" "skerry:here/mount0/disk"
ctl_exits 0 "it ends by its file's name" umount "$dir/disk"
gone_all "... with all"
tap_run "the folder stays" test -d "$dir"

# Names with what options and tables write in another way.
odd='a, b\c=%41'
ctl_exits 0 "a volume with an odd name" volume create "$odd" --size 8M
ctl_exits 0 "... is mounted" mount "$odd" --json
tap_is "... as a file of that name" "$(stat -c %s "$(jq -r .file "$SCENE_DIR/ctl.out")")" 8388608
tap_is "... and listed as that" "$(listed .volume)" "[$(jq -Rn --arg n "$odd" '$n')]"
ctl_exits 0 "... and ended" umount "$odd"

# --- several at once ------------------------------------------------------------------------------
for i in 1 2 3 4; do ctl volume create "many-$i" --size 8M; done
for i in 1 2 3 4; do scene_spawn "many-$i" "$XSEGCTL" mount "many-$i"; done
all_many() { [ "$(listed .volume | jq -c sort)" = '["many-1","many-2","many-3","many-4"]' ]; }
tap_run "four at once" scene_until 60 all_many
tap_is "... have a peer each" "$(listed .peer | jq 'unique | length')" 4
for i in 1 2 3 4; do scene_stop "many-$i"; done
for i in 1 2 3 4; do scene_spawn "many-$i" "$XSEGCTL" umount "many-$i"; done
none_left() { [ -z "$(left)" ]; }
tap_run "... and are ended at once" scene_until 60 none_left
for i in 1 2 3 4; do scene_stop "many-$i"; done

for i in 1 2 3; do scene_spawn "same-$i" "$XSEGCTL" mount many-1; done
rcs=''
for i in 1 2 3; do
    rc=0
    wait "$(scene_pid "same-$i")" || rc=$?
    unset "SCENE_PIDS[same-$i]"
    rcs+=$rc
done
tap_is "one by three at once" "$rcs $(listed .volume)" '000 ["many-1"]'
ctl_exits 0 "... is ended by one" umount many-1
gone_all "... with all"

# --- somebody else unmounts it --------------------------------------------------------------------
ctl_exits 0 "a file" mount disk "$dir"
umount "$dir"
ctl_exits 0 "that somebody has unmounted is mounted again" mount disk "$dir" --json
tap_run "... is there" test -s "$dir/disk"
tap_is "... and has one peer" "$("$XSEGCTL" peer list --json |
    jq '[.peers[].name | select(startswith("mount"))] | length')" 1
umount "$dir"
ctl umount disk
gone_all "and what is left of one goes with umount"

# --- a device -------------------------------------------------------------------------------------
if ! losetup -f >"$SCENE_DIR/free" 2>&1 || ! scene_have mkfs.ext4; then
    tap_skip "devices and file systems" "no loop devices: $(head -n 1 "$SCENE_DIR/free")"
    tap_end
fi
ctl_exits 0 "a device" mount disk --device --json
device=$(jq -r .device "$SCENE_DIR/ctl.out")
tap_is "... as large as the volume" "$(blockdev --getsize64 "$device")" 67108864
tap_is "... with direct I/O" "$(losetup --noheadings --output DIO "$device" | xargs)" 1
ctl_exits 0 "once more" mount disk --device --json
json_is "... changes nothing" '[.changed, .device] | map(tostring) | join(" ")' "false $device"
exec 7<"$device"
ctl_exits 5 "a device that is open keeps it" umount "$device"
ctl_exits 5 "... whoever insists" umount disk --yes
exec 7<&-
ctl_exits 0 "... until it is closed" umount disk
gone_all "then all is gone"
tap_run "a volume without a file system" nbd disk -c 'write -z 0 64M'
ctl mount disk "$root" --fs
tap_is "cannot be mounted" "$RC" 1
err_like "... which says what makes one" 'mkfs'
gone_all "... and leaves nothing"
ctl_exits 0 "a device again" mount disk --device --json
tap_run "gets a file system" mkfs.ext4 -q "$(jq -r .device "$SCENE_DIR/ctl.out")"

# --- a file system --------------------------------------------------------------------------------
ctl_exits 0 "which is mounted from where it is" mount disk "$root" --fs --options noatime --json
json_is "... and there" .root "$root"
tap_like "... as was said" "$(findmnt -no OPTIONS "$root")" 'noatime'
ctl_exits 0 "once more" mount disk "$root" --fs --json
json_is "... changes nothing" .changed false
ctl_exits 4 "... but not elsewhere" mount disk "$SCENE_DIR/other" --fs
echo words >"$root/words"
truncate -s 8M "$root/file"
exec 7<"$root/words"
ctl_exits 5 "a file that is open in it keeps it" umount "$root"
err_like "... which says how to see whose" 'fuser'
exec 7<&-
tap_is "... whole" "$(cat "$root/words")" words

scene_spawn user /usr/bin/python3 "$CHECK" until "$root/file" 3 "$SCENE_DIR/user.stop"
tap_run "a user on it" scene_wait_line user started 60
for peer in mount0 file0 vol0 mount0; do
    old=$(pid_of "$peer")
    sleep 0.3
    kill_peer "$peer"
    tap_run "$peer is killed under it" back "$peer" "$old" 60
done
: >"$SCENE_DIR/user.stop"
rc=0
wait "$(scene_pid user)" || rc=$?
unset 'SCENE_PIDS[user]'
tap_is "the user saw nothing of it" "$rc $(cat "$SCENE_DIR/user.err")" "0 "
old=$(keeper_pid here)
kill -s KILL "$old"
tap_run "the keeper is killed" scene_until 60 gone "$old"
tap_is "it goes on" "$(cat "$root/words")" words
ctl_exits 6 "it cannot be ended without one" umount disk --timeout 5s
ctl_exits 0 "a keeper again" up --unguarded "$conf"
ctl_exits 0 "mounts what that had undone" mount disk "$root" --fs
echo more >"$root/more"
ctl_exits 0 "it ends by where it is mounted" umount "$root/"
gone_all "... with all"
ctl_exits 0 "a snapshot" volume snapshot disk@then
ctl_exits 0 "... is mounted as well" mount disk@then "$SCENE_DIR/other" --fs
tap_is "... with what was not synced" "$(cat "$SCENE_DIR/other/more")" more
device=$(findmnt -no SOURCE "$SCENE_DIR/other")
tap_is "... on a device that cannot be written to" "$(blockdev --getro "$device")" 1
tap_like "... read-only" "$(touch "$SCENE_DIR/other/new" 2>&1)" 'Read-only file system'
ctl_exits 0 "... beside its volume" mount disk "$root" --fs
tap_is "both are listed" "$(listed .volume | jq -c sort)" '["disk","disk@then"]'
ctl_exits 0 "... and ended apart" umount disk@then
tap_is "... leaving the other" "$(cat "$root/more")" more
ctl_exits 0 "... which ends too" umount disk
gone_all "... with all"

# --- killed while it mounts -----------------------------------------------------------------------
# Wherever it has got to: the next one goes on from there, and all can be ended.
killed_after() { # MS ARGS...
    (timeout -s KILL "$(printf 0.%03d "$1")" "$XSEGCTL" "${@:2}" >"$SCENE_DIR/killed" 2>&1
        true) 2>/dev/null
}
for ms in 1 3 6 10 15 20 30 40 60 90 130; do
    killed_after "$ms" mount disk "$root" --fs
    "$XSEGCTL" mount disk "$root" --fs >>"$SCENE_DIR/killed" 2>&1 ||
        { tap_not_ok "mount after $ms ms"; sed 's/^/#   /' "$SCENE_DIR/killed"; }
    [ "$(cat "$root/more")" = more ] || tap_not_ok "the file system after $ms ms"
    killed_after "$ms" umount disk
    "$XSEGCTL" umount disk >"$SCENE_DIR/killed" 2>&1
done
ctl mount disk "$root" --fs
ctl_exits 0 "mount and umount killed anywhere" umount disk
gone_all "... leave nothing in the end"

# --- everything ends ------------------------------------------------------------------------------
ctl_exits 0 "a file system" mount disk "$root" --fs
echo last >"$root/last"
ctl_exits 5 "a segment that is in use stays" down here
ctl_exits 0 "... unless one insists" down here --yes
tap_is "... and leaves nothing mounted" "$(our_loops; our_mounts)" ""
ctl_exits 0 "up again" up --unguarded "$conf"
ctl_exits 0 "a file system" mount disk "$root" --fs
tap_is "has what was not synced" "$(cat "$root/last")" last
sync -f "$root"
every=$("$XSEGCTL" status --json | jq -r '.keeper.pid, .peers[].pid | select(. > 0)')
# shellcheck disable=SC2086  # several
kill -s KILL $every
none_alive() { local pid; for pid in $every; do gone "$pid" || return 1; done; }
tap_run "everything is killed" scene_until 60 none_alive
ctl_exits 0 "what is left can be ended" umount "$root"
tap_is "... and is gone" "$(our_loops; our_mounts)" ""
ctl_exits 0 "up again" up --unguarded "$conf"
ctl_exits 0 "and mounted again" mount disk "$root" --fs
tap_is "all is there" "$(cat "$root/words" "$root/more" "$root/last" | xargs)" "words more last"
ctl_exits 0 "it ends" umount disk
tap_end
