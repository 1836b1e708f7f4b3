#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every blocker that stores objects keeps to the same laws, on one lane and on several; and the
# checker notices one that does not.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/blocker_lib.sh"
blocker_begin "the laws of blockers"

for lanes in 1 3; do
    blocker_peer "mem$lanes" "$lanes" "m$lanes=blocker_memory" &&
        laws "blocker_memory, $lanes lanes"
    tap_run "... and stops" scene_stop "mem$lanes"
done

for io in uring threads; do
    for spec in "1:" "2:,fds=16,depth=3"; do
        name=$io${spec%%:*}
        options=dir=$SCENE_DIR/$name,io=$io${spec#*:}
        if ! blocker_peer "$name" "${spec%%:*}" "$name=blocker_file,$options" 2>/dev/null; then
            if grep -q 'io_uring' "$SCENE_DIR/$name.err"; then
                tap_skip "blocker_file, $options" "$(tail -n 1 "$SCENE_DIR/$name.err")"
            else
                tap_not_ok "blocker_file, $options"
                sed 's/^/#   /' "$SCENE_DIR/$name.err"
            fi
            continue
        fi
        laws "blocker_file, $options"
        tap_run "... and stops" scene_stop "$name"
        tap_is "... and leaves no object" "$(find "$SCENE_DIR/$name/objects" -type f | wc -l)" 0
        tap_run "... and says that it left all durable" test -e "$SCENE_DIR/$name/clean"
    done
done

blocker_peer pattern 2 pat=blocker_pattern,object-size=1M &&
    tap_run "blocker_pattern" "$CHECK" pattern "$SEGMENT" pat $((1 << 20))
scene_stop pattern

# negative controls
blocker_peer null 1 null=blocker_null &&
    tap_exits 1 "the checker notices a blocker that stores nothing" \
        "$CHECK" all "$SEGMENT" null 200
scene_stop null
if [ -e "${SKERRY_MODULE_DIR:-}/blocker_lossy.so" ]; then
    blocker_peer lossy 1 lossy=blocker_lossy,every=500,edge.store=mem9 mem9=blocker_memory &&
        tap_exits 1 "and one that loses 0.2 % of writes" "$CHECK" all "$SEGMENT" lossy 6000
    scene_stop lossy
else
    tap_skip "and one that loses 0.2 % of writes" "blocker_lossy is not built"
fi
tap_end
