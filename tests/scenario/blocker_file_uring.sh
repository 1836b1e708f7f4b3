#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A kernel that refuses io_uring: io=auto goes on with threads, io=uring says so and ends.

. "$(dirname "$0")/blocker_lib.sh"
blocker_begin "blocker_file without io_uring" 64M

DENY=$(dirname "$0")/../lib/deny_uring.py
python3 "$DENY" true || tap_skip_all "system calls cannot be filtered here"

PEER=f PEER_PROCESS=f
scene_spawn f python3 "$DENY" "$XSEGPEER" -s "$SEGMENT" "f=blocker_file,dir=$SCENE_DIR/store"
if scene_wait_line f ready; then tap_ok "io=auto starts"; else tap_not_ok "io=auto starts"; fi
tap_run "and says how" grep -q 'worker threads move the bytes' "$SCENE_DIR/f.err"
laws "and all laws hold" 500
tap_run "it stops" scene_stop f
out=$(python3 "$DENY" "$XSEGPEER" -s "$SEGMENT" \
    "g=blocker_file,dir=$SCENE_DIR/store,io=uring" 2>&1 </dev/null | tail -n 1)
tap_like "io=uring refuses" "$out" "io=threads"
tap_end
