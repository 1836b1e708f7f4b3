#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A pipeline over a Redis server.

. "$(dirname "$0")/pipeline_lib.sh"
. "$(dirname "$0")/redis_lib.sh"
scene_begin "a pipeline over a Redis server"
{
    scene_has_module blocker_redis && redis_have && redis_start "$SCENE_DIR/redis"
} >"$SCENE_DIR/reason" ||
    tap_skip_all "$(tail -n 1 "$SCENE_DIR/reason")"
PIPELINE_PARTS='kill move'
pipeline_over blocker_redis "socket=$REDIS_SOCKET" prefix=%
tap_end
