# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A tier between two stores of files; with room for little, objects come and go.
store_begin() {
    scene_peer tier-stores -s "$SEGMENT" -l 2 "tier-far=blocker_file,dir=$STORE_DIR/far" \
        "tier-near=blocker_file,dir=$STORE_DIR/near"
}
store_variants() {
    echo "1 edge.store=tier-far,edge.store-near=tier-near,interval=20ms"
    echo "1 edge.store=tier-far,edge.store-near=tier-near,pull=no,interval=1s"
    echo "1 edge.store=tier-far,edge.store-near=tier-near,size=1M,interval=10ms"
}
store_end() { scene_stop tier-stores; }
