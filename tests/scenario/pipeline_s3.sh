#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A pipeline over an S3 bucket.

. "$(dirname "$0")/pipeline_lib.sh"
. "$(dirname "$0")/s3_lib.sh"
scene_begin "a pipeline over an S3 bucket"
{
    scene_has_module blocker_s3 && s3_have && s3_start "$SCENE_DIR/s3"
} >"$SCENE_DIR/reason" ||
    tap_skip_all "$(tail -n 1 "$SCENE_DIR/reason")"
IFS=, read -ra options <<<"$S3_OPTIONS"
PIPELINE_PARTS='kill move'
pipeline_over blocker_s3 "${options[@]}" prefix=%
tap_end
