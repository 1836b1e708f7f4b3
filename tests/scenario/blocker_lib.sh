# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the blockers' scripts share, on top of lib.sh:
#   blocker_begin LABEL [SIZE]   a segment $SEGMENT of our own, $CHECK; or all is skipped
#   blocker_peer NAME LANES SPEC...  xsegpeer with these peers; the first is $PEER
#   op VERB ARGS...              one request to $PEER; prints what blocker_check says
#   laws NAME [STEPS]            all laws hold for $PEER

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SEGMENT=blk$$ PEER=

blocker_begin() {
    scene_begin "$1"
    CHECK=$(scene_find blocker_check)
    [ -n "$XSEGPEER" ] && [ -n "$CHECK" ] ||
        tap_skip_all "xsegpeer and blocker_check are not built; say where with SKERRY_BUILD"
    blocker_segment "${2:-256M}"
}

blocker_segment() {
    "$CHECK" create "$SEGMENT" "$1" || tap_skip_all "no segment of $1"
    scene_at_exit "for n in \"\${!SCENE_PIDS[@]}\"; do scene_stop \"\$n\"; done
        '$CHECK' destroy '$SEGMENT'"
}

blocker_peer() {
    local name=$1 lanes=$2
    shift 2
    PEER=${1%%=*}
    scene_peer "$name" -s "$SEGMENT" -l "$lanes" "$@"
}

# The sentence with which xsegpeer refuses to start.
blocker_refusal() {
    "$XSEGPEER" -s "$SEGMENT" "$@" 2>&1 </dev/null | tail -n 1
}

op() {
    local verb=$1
    shift
    timeout 60 "$CHECK" "$verb" "$SEGMENT" "$PEER" "$@" 2>&1
}

laws() { tap_run "$1" "$CHECK" all "$SEGMENT" "$PEER" "${2:-2000}"; }
