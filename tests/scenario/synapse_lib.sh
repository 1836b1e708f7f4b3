# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A far segment with files, and a bad network to it, on top of blocker_lib.sh:
#   synapse_far [EXPORT_OPTION...]  segment $FAR with the scene's processes `store` (blocker_file)
#                            and `far` (synapse_export, at $FAR_PORT), behind the process `relay`;
#                            $REMOTE are the options of a synapse_import that reaches it by that
#   far_start                the process `far`, again
#   counter PEER NAME [SEGMENT]  that counter of a peer

. "$(dirname "${BASH_SOURCE[0]}")/blocker_lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/relay_lib.sh"

FAR='' FAR_PORT='' REMOTE='' FAR_OPTIONS=()

far_start() {
    local spec=far=synapse_export,listen=tcp:127.0.0.1:$FAR_PORT,edge.store=store option
    for option in "${FAR_OPTIONS[@]}"; do spec+=,$option; done
    scene_peer far -s "$FAR" "$spec"
}

synapse_far() {
    local one=$SEGMENT
    FAR_OPTIONS=("$@")
    scene_has_module synapse_import >"$SCENE_DIR/reason" ||
        tap_skip_all "synapse_import is not built"
    FAR_PORT=$(scene_free_port) FAR=$one-far
    SEGMENT=$FAR
    blocker_segment 128M
    SEGMENT=$one
    scene_peer store -s "$FAR" "store=blocker_file,dir=$SCENE_DIR/files" || tap_skip_all "no store"
    far_start || tap_skip_all "no exporting end"
    relay_start "$FAR_PORT"
    REMOTE=remote=tcp:127.0.0.1:$RELAY_PORT,port=far
}

counter() {
    "$XSEGCTL" stats -s "${3:-$SEGMENT}" --json "$1" 2>/dev/null |
        jq "[.peers[].counters.$2] | add"
}
