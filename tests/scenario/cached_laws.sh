#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A cache keeps to all laws of a blocker: in every mode, on one lane and on several, and with so
# little room that all of it is evicted, written back and fetched again all the time.

. "$(dirname "$0")/blocker_lib.sh"
blocker_begin "the laws of blockers, through a cache"
[ -e "${SKERRY_MODULE_DIR:-/nowhere}/cached.so" ] || tap_skip_all "cached is not built"

number=0
cached_laws() { # LANES OPTIONS STEPS
    number=$((number + 1))
    local c=c$number m=m$number
    blocker_peer "$c" "$1" "$c=cached,edge.store=$m,$2" "$m=blocker_memory,size=64M" ||
        tap_not_ok "cached,$2 on $1 lanes starts"
    laws "cached,$2, $1 lanes" "$3"
    tap_run "... and stops" scene_stop "$c"
}

cached_laws 1 mode=writeback,size=32M 3000
cached_laws 3 mode=writeback,size=24M,epoch=20ms 3000
cached_laws 1 mode=writeback,size=8M,policy=lru,read-ahead=256K 3000
cached_laws 2 mode=writethrough,size=16M,policy=s3fifo 2000
cached_laws 1 mode=writearound,size=8M,read-ahead=128K,bypass=1M 2000
tap_end
