#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A pipeline over tapes: each test has a library of its own, behind a target.

. "$(dirname "$0")/pipeline_lib.sh"
. "$(dirname "$0")/tape_lib.sh"
scene_begin "a pipeline over tapes"
{ scene_has_module blocker_tape && tape_have; } >"$SCENE_DIR/reason" ||
    tap_skip_all "$(tail -n 1 "$SCENE_DIR/reason")"
for part in kill move; do
    scene_stop tgtd
    tape_start "$SCENE_DIR/$part" 4 1024 >"$SCENE_DIR/reason" || tap_not_ok "a library: $part"
    IFS=, read -ra options <<<"$TAPE_OPTIONS"
    pipeline_over_one "$part" blocker_tape "${options[@]}" "index=$SCENE_DIR/index-$part"
done
tap_end
