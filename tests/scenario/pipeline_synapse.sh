#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A pipeline whose store is in another segment.

. "$(dirname "$0")/pipeline_lib.sh"
scene_begin "a pipeline over a bridge"
scene_has_module synapse_import >"$SCENE_DIR/reason" || tap_skip_all "$(cat "$SCENE_DIR/reason")"
far=far$$
scene_segment "$far" 512M >/dev/null || tap_skip_all "no segment"
peers=()
for part in kill plug move; do
    peers+=("$part=synapse_export,listen=unix:$SCENE_DIR/$part,edge.store=$part.store"
        "$part.store=blocker_file,dir=$SCENE_DIR/$part.files")
done
scene_peer far -s "$far" "${peers[@]}" || tap_skip_all "the far end does not start"
pipeline_over synapse_import "remote=unix:$SCENE_DIR/%" port=%
tap_end
