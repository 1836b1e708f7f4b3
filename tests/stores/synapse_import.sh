# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A memory blocker in another segment, over a bridge.
STORE_SHARED=timeout=60s
store_begin() {
    local one=$SEGMENT
    scene_has_module synapse_import || return
    SEGMENT=$one-far
    blocker_segment 128M
    STORE_PORT=$(scene_free_port)
    scene_peer far -s "$SEGMENT" -l 1 mem=blocker_memory \
        "unix=synapse_export,listen=unix:$STORE_DIR/s,edge.store=mem" \
        "tcp=synapse_export,listen=tcp:127.0.0.1:$STORE_PORT,edge.store=mem"
    SEGMENT=$one
}
store_variants() {
    echo "1 remote=unix:$STORE_DIR/s,port=unix"
    echo "3 remote=tcp:127.0.0.1:$STORE_PORT,port=tcp"
}
store_end() { scene_stop far; }
