#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A volume of another host is mounted by one command, used while the link is away, written to until
# the limit, and ended: then all is at the other host. What is near is not fetched a second time.

. "$(dirname "$0")/xsegctl_lib.sh"
. "$(dirname "$0")/relay_lib.sh"
scene_own_mounts "$@"
ctl_begin "a volume of another host, mounted"
ctl_need mapperd volume front_nbd cached synapse_import synapse_export blocker_file tier
scene_need qemu-io nbdinfo jq
port=$(scene_free_port)
cat >"$SCENE_DIR/far.conf" <<EOF
[segment]
name=far$$
size=256M

[peer file0]
role=blocker_file
dir=$SCENE_DIR/far

[peer out0]
role=synapse_export
listen=tcp:127.0.0.1:$port
edge.store=file0
EOF
near=near$$ far=far$$ other=other$$
for name in "$near" "$other" "$far"; do down_at_exit "$name"; done
ctl_exits 0 "the far host" up "$SCENE_DIR/far.conf"
relay_start "$port"

uri=skerry+tcp://127.0.0.1:$RELAY_PORT/disk
uri_of() { echo "nbd+unix:///disk?socket=$SKERRY_RUN_DIR/$1/nbd.sock"; } # SEGMENT
io() { scene_io "$(uri_of "$1")" "${@:2}"; } # SEGMENT COMMAND...
counter() { # SEGMENT NAME [PEER]
    "$XSEGCTL" stats -s "$1" --json "${3:-tier0}" | jq "[.peers[].counters.$2] | add"
}
# Also what was written: what is in parts of chunks has to be fetched.
all_near() { [ "$(counter "$near" dirty cache0)" = 0 ] && [ "$(counter "$near" left)" = 0 ]; }
mount_near() { # OPTION...
    ctl mount "$uri" --name "$near" --near "$SCENE_DIR/near" --memory 192M --json "$@"
}

# --- what is refused --------------------------------------------------------------------------
ctl_exits 2 "no URI" mount "nbd://127.0.0.1/disk"
err_like "... which says what one is" 'skerry\+tls://HOST'
ctl_exits 2 "a volume without a name" mount "skerry+tcp://127.0.0.1/"
ctl_exits 2 "--wait in memory" mount "$uri" --wait
ctl_exits 2 "no memory" mount "$uri" --memory 1M
ctl_exits 3 "nothing of that name to end" umount "$near"
mount_near
tap_is "a volume that is not there" "$RC" 3
err_like "... which says so" "'disk'"
tap_is "... and leaves nothing running" "$("$XSEGCTL" segment list --json |
    jq "[.segments[] | select(.name == \"$near\")] | length")" 0
ctl_exits 0 "what would be done" mount "$uri" --dry-run
out_like "... is a pipeline" 'role=tier'

# --- used ---------------------------------------------------------------------------------------
mount_near --create 256M
tap_is "it is mounted" "$RC" 0
json_is "... and says where" .uri "nbd+unix:///disk?socket=$SKERRY_RUN_DIR/$near/nbd.sock"
mount_near
tap_is "... once more is fine" "$RC" 0
ctl_exits 4 "... but not in another way" mount "$uri" --name "$near" --memory 64M
tap_run "data goes in" io "$near" -c 'write -P 7 3M 20M' -c 'write -P 8 100M 4k' -c flush
ctl_exits 0 "it ends" umount "$near"
ctl mount "$uri" --name "$other" --memory 64M
tap_is "another host, in memory" "$RC" 0
tap_run "... reads it" io "$other" -c 'read -P 7 3M 20M' -c 'read -P 8 100M 4k' -c 'read -P 0 0 1M'
tap_run "... and writes" io "$other" -c 'write -P 9 4M 64k' -c flush
ctl_exits 0 "... and ends it" umount "$other"
if [ "$(id -u)" -eq 0 ] && [ -c /dev/fuse ] && scene_have losetup &&
    [ -e "$SKERRY_MODULE_DIR/front_fuse.so" ] && losetup -f >"$SCENE_DIR/free" 2>&1; then
    ctl mount "$uri" --name "$other" --memory 64M --device --json
    tap_is "it can be a device, too" "$RC" 0
    device=$(jq -r .device "$SCENE_DIR/ctl.out")
    scene_at_exit 'losetup -d "$device" 2>/dev/null'
    tap_is "... with the same in it" "$(dd if="$device" bs=1M skip=3 count=1 iflag=direct \
        status=none | tr -d '\7' | wc -c)" 0
    tap_run "... can be written to" dd if=/dev/zero of="$device" bs=64k seek=3200 count=1 \
        oflag=direct status=none
    ctl_exits 0 "... and all of it ends" umount "$other"
    tap_is "... the device as well" "$(losetup --noheadings --output BACK-FILE "$device" \
        2>/dev/null)" ""
else
    tap_skip "a device" "no FUSE, or no loop devices"
fi
mount_near --wait
tap_is "the first one again, until all of it is near" "$RC" 0
tap_run "... fetched what that has changed" test "$(counter "$near" pulled)" -gt 0
tap_run "... and no more" test "$(counter "$near" pulled)" -le $((4 << 20))
tap_run "... as the rest is unchanged" test "$(counter "$near" unchanged)" -gt $((19 << 20))
tap_run "... has what the other one wrote" io "$near" -c 'read -P 7 3M 1M' -c 'read -P 9 4M 64k'
ctl_exits 0 "it ends" umount "$near"
mount_near --wait
tap_is "and again" "$RC" 0
tap_is "... fetches nothing" "$(counter "$near" pulled)" 0

# --- without the link -----------------------------------------------------------------------------
is_told() { # EVENT...: of links, to whoever wanted to know
    [ "$(grep '^link' "$SCENE_DIR/told" | tr '\n' ' ')" = "$* " ]
}
has_event() { "$XSEGCTL" events -s "$near" --event "$1" --json | jq -e '.events[0]'; }
tap_run "that all is near is an event" scene_until 20 has_event all_near
# shellcheck disable=SC2016 # it is that command's
scene_spawn told "$XSEGCTL" events -s "$near" --follow \
    --run "echo \"\$SKERRY_EVENT \$SKERRY_PEER\" >>$SCENE_DIR/told"
client_attach "$(uri_of "$near")"
tap_run "a client is attached" say 'read -P 7 3M 1M'
network refuse=1 cut=1
tap_run "without the link it reads all there is" say 'read -P 7 5M 18M' 'read -P 9 4M 64k' \
    'read -P 8 100M 4k'
# It says nothing but to prompt for the next one: once at the beginning, once behind each.
prompts() { grep -o 'qemu-io> ' "$SCENE_DIR/client.out" | wc -l; }
has_flushed() { [ "$(prompts)" -ge $((SAID + 2)) ]; }
echo flush >&7
tap_run "... and flushes" scene_until 120 has_flushed
tap_run "... while who wanted to know is told" scene_until 20 is_told 'link_down far0'
tap_run "... and writes, and what it wrote is durable" say 'write -f -P 11 10M 8M' \
    'read -P 11 10M 8M'
tap_run "another client is let in" io "$near" -c 'read -P 11 10M 8M' -c 'write -P 15 12M 64k'
tap_run "... and seen by the first" say 'read -P 15 12M 64k' 'write -f -P 11 12M 64k'
tap_run "... one that asks before it comes, too" nbdinfo --size "$(uri_of "$near")"
mount_near
tap_is "to mount it again is fine" "$RC" 0
tap_run "... and does it no harm" say 'read -P 11 10M 8M'
sleep 12 # longer than the lease that nobody can renew now
tap_run "... also after a while" say 'write -f -P 12 20M 1M' 'read -P 12 20M 1M' 'read -P 7 5M 5M'
SAID=$((SAID + 1))
echo 'write -P 13 40M 100M' >&7
sleep 3
tap_exits 1 "beyond the limit of dirty data a write waits" has_answered
network refuse=0 cut=2
tap_run "... until the link is back" scene_until 240 has_answered
tap_run "... when the volume's map gets to know it" say 'write -f -P 13 139M 1M'
tap_run "... and all is near" scene_until 240 all_near
tap_run "... which is told, too" scene_until 20 is_told 'link_down far0' 'link_up far0'
network refuse=1 cut=3
tap_run "... and away again, it writes" say 'write -f -P 14 19M 1M' 'read -P 13 40M 100M'
client_leave
sleep 2 # longer than the composer waits to give back what nobody has open
tap_run "when the last client has gone another one is let in" io "$near" -c 'read -P 14 19M 1M'
ctl umount "$near" --timeout 2s
tap_run "it does not end before that is at the other host" test "$RC" -ne 0
network refuse=0 cut=4
mount_near
tap_is "with the link back it goes on" "$RC" 0
tap_run "... with all" io "$near" -c 'read -P 11 10M 8M' -c 'read -P 12 20M 1M'
ctl_exits 0 "... and ends" umount "$near"
ctl mount "$uri" --name "$other" --memory 64M
tap_run "another host reads what was written without the link" io "$other" -c 'read -P 11 10M 8M' \
    -c 'read -P 12 20M 1M' -c 'read -P 9 4M 64k' -c 'read -P 13 40M 100M' -c 'read -P 14 19M 1M'
ctl_exits 0 "it ends" umount "$other"
ctl_exits 0 "so does the far host" down "$far"
tap_end
