#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A thousand rude clients at once, against three processes; everything stays flat.

. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
SCENE_SIZE=64M SCENE_SEGMENT_SIZE=512M TAP_LIMIT=300 TAP_LINES=100
LIMIT=1200

scene_begin
scene_need_skerry
ulimit -n 8192 2>/dev/null || tap_skip_all "no more than $(ulimit -n) descriptors"
# The address sanitizer keeps what was freed for a while, 256 MiB of it.
SLACK=8
if ldd "$XSEGPEER" 2>/dev/null | grep -q libasan; then SLACK=512; fi
if scene_split "crowd$$" "connections=$LIMIT"; then
    pids=()
    for name in front volume store; do pids+=(--pid "$(scene_pid "$name")"); done
    XSEGCTL=$XSEGCTL tap_run "a thousand at once" python3 "$HERE/rude_crowd_load.py" "$SCENE_URI" \
        --segment "crowd$$" "${pids[@]}" --limit "$LIMIT" --slack-mib "$SLACK" && tap_show
    for name in front volume store; do
        scene_alive "$name" && scene_stop "$name"
        tap_is "$name runs and stops cleanly" "$?" 0
    done
else
    tap_not_ok "three processes start"
fi
tap_end
