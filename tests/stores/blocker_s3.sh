# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Against a server of our own. Two segments may not write to one prefix, so they are not tried.
. "$(dirname "${BASH_SOURCE[0]}")/../scenario/s3_lib.sh"
STORE_STEPS=500 # a server of Ceph's takes its time
store_begin() {
    scene_has_module blocker_s3 && s3_have && s3_start "$STORE_DIR"
}
store_variants() {
    echo "1 $S3_OPTIONS,prefix=one"
    echo "3 $S3_OPTIONS,prefix=parts/three,memory=1M"
}
store_end() {
    local process
    for process in s3 ceph-osd ceph-mon; do scene_stop "$process"; done
}
