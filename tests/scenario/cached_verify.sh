#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A cache much smaller than what is read and written: every byte is checked, while the cache is
# killed and started again, each time with another number of lanes.

. "$(dirname "$0")/blocker_lib.sh"
blocker_begin "a cache under load, killed" 256M
for module in cached load; do
    [ -e "${SKERRY_MODULE_DIR:-/nowhere}/$module.so" ] || tap_skip_all "$module is not built"
done

CACHE=

# LANES, and the options of the cache
verify_cache() { scene_peer "$CACHE" -s "$SEGMENT" -l "$1" "$CACHE=cached,edge.store=m$CACHE,$2"; }

# NAME CACHE_OPTIONS LOAD_OPTIONS: while the load runs, the cache is killed again and again
verify() {
    CACHE=$1
    scene_peer "m$CACHE" -s "$SEGMENT" -l 1 "m$CACHE=blocker_memory,size=80M" ||
        tap_not_ok "the store starts"
    verify_cache 1 "$2" || tap_not_ok "cached,$2 starts"
    "$XSEGPEER" -s "$SEGMENT" -l 1 "l$CACHE=load,edge.target=$CACHE,size=72M,verify=full,$3" \
        >"$SCENE_DIR/$CACHE.load" 2>&1 &
    local load=$! lanes
    for lanes in 2 1 3 1; do
        sleep 0.4
        kill -9 "${SCENE_PIDS[$CACHE]}"
        wait "${SCENE_PIDS[$CACHE]}" 2>/dev/null
        verify_cache "$lanes" "$2" || tap_not_ok "cached,$2 starts again on $lanes lanes"
    done
    wait "$load"
    tap_is "$3 through cached,$2: nothing is lost" "$?" 0
    tap_like "... and all was checked" "$(cat "$SCENE_DIR/$CACHE.load")" \
        ' 0 errors, 0 verify errors'
    tap_run "... and stops" scene_stop "$CACHE"
    scene_stop "m$CACHE"
}

verify a size=24M,epoch=20ms prepare=write,mix=50,qd=64,time=2s
verify b size=24M,epoch=5ms,dirty-soft=5,dirty-hard=10 prepare=write,mix=40,qd=32,bs=512,time=2s
verify c size=24M,mode=writethrough prepare=write,mix=50,qd=32,bs=8K,time=2s
verify d size=24M,pins=16,read-ahead=1M prepare=write,mix=50,qd=8,bs=128K,time=2s
# handed on as they are: all of them; most of them
verify e size=24M,mode=writearound prepare=write,mix=60,qd=32,time=2s
verify f size=96M,mode=writethrough prepare=write,mix=10,qd=32,time=2s
tap_end
