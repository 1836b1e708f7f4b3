#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A pipeline over a pool of a Ceph cluster.

. "$(dirname "$0")/pipeline_lib.sh"
. "$(dirname "$0")/ceph_lib.sh"
scene_begin "a pipeline over a pool of a Ceph cluster"
{
    scene_has_module blocker_rados && ceph_have && ceph_start "$SCENE_DIR/ceph"
} >"$SCENE_DIR/reason" ||
    tap_skip_all "$(tail -n 1 "$SCENE_DIR/reason")"
pipeline_over blocker_rados pool=skerry namespace=%
tap_end
