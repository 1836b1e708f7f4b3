#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every blocker that stores objects keeps to the same laws, on one lane and on several; and the
# checker notices one that does not.

. "$(dirname "$0")/blocker_lib.sh"
blocker_begin "the laws of blockers"

stores=$(dirname "$0")/../stores
for store in "$stores"/*.sh; do laws_of "$store"; done
# S3 again, with each other server that is installed
tried=$(s3_kind)
for server in versitygw minio radosgw; do
    if [ "$server" != "$tried" ] && scene_have "$server"; then
        tap_note "$server"
        SKERRY_S3=$server laws_of "$stores/blocker_s3.sh"
    fi
done

blocker_peer pattern 2 pat=blocker_pattern,object-size=1M &&
    tap_run "blocker_pattern" "$CHECK" pattern "$SEGMENT" pat $((1 << 20))
scene_stop pattern

# negative controls
blocker_peer null 1 null=blocker_null &&
    tap_exits 1 "the checker notices a blocker that stores nothing" \
        "$CHECK" all "$SEGMENT" null 200
scene_stop null
one="blocker_file,dir=$SCENE_DIR/one,io=threads,shared=yes"
blocker_peer alike 1 "alike=$one" && blocker_peer another 1 "another=$one" &&
    tap_exits 1 "and two that do not keep each other from writing" \
        "$CHECK" shared "$SEGMENT" alike "$SEGMENT" another
scene_stop alike
scene_stop another
if [ -e "${SKERRY_MODULE_DIR:-}/blocker_lossy.so" ]; then
    blocker_peer lossy 1 lossy=blocker_lossy,every=500,edge.store=mem9 mem9=blocker_memory &&
        tap_exits 1 "and one that loses 0.2 % of writes" "$CHECK" all "$SEGMENT" lossy 6000
    scene_stop lossy
else
    tap_skip "and one that loses 0.2 % of writes" "blocker_lossy is not built"
fi
tap_end
