# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
#
# Against a cluster of our own, in memory.
STORE_SHARED=timeout=60s
# shellcheck source-path=SCRIPTDIR/../scenario
. "$(dirname "${BASH_SOURCE[0]}")/../scenario/ceph_lib.sh"
store_begin() {
    [ -n "$(find "${SKERRY_MODULE_DIR:-/nowhere}" -name 'blocker_rados.so' 2>/dev/null)" ] ||
        { echo "blocker_rados is not built: librados-dev was missing" && return 1; }
    ceph_have && ceph_start "$STORE_DIR"
}
store_variants() {
    echo "1 pool=skerry,namespace=one"
    echo "3 pool=skerry,namespace=three"
}
store_end() {
    scene_stop ceph-osd
    scene_stop ceph-mon
}
