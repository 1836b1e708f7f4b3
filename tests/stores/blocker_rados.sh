# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Against a cluster of our own, in memory.
STORE_SHARED=timeout=60s
. "$(dirname "${BASH_SOURCE[0]}")/../scenario/ceph_lib.sh"
store_begin() {
    scene_has_module blocker_rados && ceph_have && ceph_start "$STORE_DIR"
}
store_variants() {
    echo "1 pool=skerry,namespace=one"
    echo "3 pool=skerry,namespace=three"
}
store_end() {
    scene_stop ceph-osd
    scene_stop ceph-mon
}
