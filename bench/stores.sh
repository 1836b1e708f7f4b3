#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What does a store cost more than its client library alone? See stores.sh --help. It starts
# servers of its own, as the tests do: a cluster in memory, Redis, an S3 server, a tape drive. A
# store whose server is not installed has no table.

. "$(dirname "$0")/../tests/scenario/lib.sh"
. "$(dirname "$0")/../tests/scenario/redis_lib.sh"
. "$(dirname "$0")/../tests/scenario/s3_lib.sh"
. "$(dirname "$0")/../tests/scenario/tape_lib.sh"
[ "${1:-}" != --help ] || exec /usr/bin/python3 -B "$(dirname "$0")/stores.py" --help
scene_begin ''
redis_have && redis_start "$SCENE_DIR/redis" --appendonly no && export REDIS_SOCKET
s3_have && s3_start "$SCENE_DIR/s3" && export S3_OPTIONS
if [ -n "$CEPH_DIR" ]; then # the S3 server has made a cluster
    ceph_ask osd pool create skerry 8
else
    ceph_have && ceph_start "$SCENE_DIR/ceph"
fi || unset CEPH_CONF
if tape_have && tape_start "$SCENE_DIR/tape" 4 2048; then
    export TAPE_DRIVE=$TAPE_URL/1 TAPE_CHANGER=$TAPE_URL/2
fi
env -u SKERRY_SHM_DIR -u SKERRY_RUN_DIR /usr/bin/python3 -B "$(dirname "$0")/stores.py" "$@"
