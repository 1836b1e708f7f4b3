#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Rude clients against Skerry: stacked, then as three processes, all of which must stay flat.

. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
SCENE_SIZE=64M SCENE_SEGMENT_SIZE=512M TAP_LIMIT=300 TAP_LINES=100

# The numbers are worth seeing when all is well, too.
rude() {
    local shape=$1 name pids=()
    shift
    for name in "$@"; do pids+=(--pid "$(scene_pid "$name")"); done
    tap_run "$shape: serves the polite and stays flat" \
        python3 "$HERE/nbd_rude.py" "$SCENE_URI" "${pids[@]}" \
        --slack-mib "$SLACK" && tap_show
    for name in "$@"; do
        scene_alive "$name" && scene_stop "$name"
        tap_is "$shape: $name runs and stops cleanly" "$?" 0
    done
}

scene_begin
scene_need_skerry
# The address sanitizer keeps what was freed for a while, 256 MiB of it.
SLACK=8
if ldd "$XSEGPEER" 2>/dev/null | grep -q libasan; then SLACK=512; fi
if scene_stacked "rude$$"; then rude stacked front; else tap_not_ok "a stacked pipeline starts"; fi
if scene_split "rude$$-three"; then
    rude three front volume store
else
    tap_not_ok "three processes start"
fi
tap_end
