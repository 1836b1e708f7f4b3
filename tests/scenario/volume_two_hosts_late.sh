#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A host that has lost a volume, with dirty data in its cache, takes it back: the store lets it
# write again before its cache has heard of that, and it is killed just there. What its cache still
# has from before does not go over what the other host has flushed meanwhile.

. "$(dirname "$0")/two_hosts_lib.sh"
hosts_begin "a cache that is late" mode=writeback,ack=blocker,size=8M,age=1h
host a
host b
on a 0 "a makes a volume" create disk --size 16M
reads "it is written" a disk 'write -P 1 0 1M' flush
GUEST_CACHE=writeback guest ga a disk
tell ga 'write -P 2 256k 4k'
says ga 'wrote 4096' "a has dirty data in its cache"
ctl_exits 0 "which is" -s a cache list --json
json_is "4 KiB" '.caches[0].dirty' 4096
scene_freeze "$(scene_pid a)"
taken() { io b disk 'write -P 3 0 1M' flush 2>&1 | grep -q 'wrote 1048576'; }
tap_run "b takes the volume when a's lease has ended, and flushes" scene_until 60 taken
scene_kill KILL a
{ wait "$(scene_pid a)"; } 2>/dev/null

# a takes it, and dies when the store knows, and its cache, which stands still, does not
specs=("${cache[@]}") cache=()
scene_peer a-cache -s a "${specs[@]//%h/a}" || exit 99
scene_freeze "$(scene_pid a-cache)"
host_starts a
io_when_free a disk 'write -P 4 8M 4k' >/dev/null 2>&1 &
opens=$!
# nothing is under way but the question of the client and that to the cache
acquired() {
    "$XSEGCTL" -s a trace --json | jq -e '[.requests[].owner] | sort == ["cache0", "vol0"]'
}
tap_run "a has it again, as far as its store knows" scene_until 60 acquired
for process in a a-cache; do
    scene_kill KILL "$process"
    { wait "$(scene_pid "$process")"; } 2>/dev/null
done
wait "$opens"
# its cache tries at once to write back what it has
cache=("${specs[0]/age=1h/age=1ms}")
host_starts a
refused() { grep -q 'the store fails for volume' "$SCENE_DIR/a.err"; }
tap_run "its cache writes back at once, and is refused" scene_until 10 refused
reads "what b has flushed is there" a disk 'read -P 3 0 1M'
tap_like "a says what was dropped" "$(cat "$SCENE_DIR/a.err")" \
    'taken over by another host: 4096 bytes that were not written back .* are dropped'
reads "b sees it, too" b disk 'read -P 3 0 1M'
on a 0 "the store is whole" fsck --json
json_is "nothing is wrong" '[.findings[]? | select(.finding != "unreachable")] | length' 0
tap_end
