#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Negative control: the checkers pass on a store that keeps all writes and fail on one that loses
# 0.2 % of them. A checker that cannot fail proves nothing.
#
#   nbd_negative.sh [GOOD_URI LOSSY_URI]     without: Skerry on tests/lib/blocker_lossy.c

. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)

conformance() {
    python3 "$HERE/nbd_conform.py" "$1" "$((64 << 20))" --only random_operations_match_model
}

clients() {
    CLIENTS=$2 bash "$HERE/nbd_clients.sh" "$1"
}

# A checker that is not installed skips everything (77), which is neither.
judge() {
    local name=$1 good=$2 lossy=$3
    shift 3
    tap_exec "$1" "$good" "${@:2}"
    case $? in
    0) tap_ok "$name passes on a store that keeps its writes" ;;
    77) tap_skip "$name" "not installed"; return ;;
    *) tap_not_ok "$name passes on a store that keeps its writes"; tap_show; return ;;
    esac
    tap_exits 1 "$name fails on a store that loses writes" "$1" "$lossy" "${@:2}"
}

# nbdkit's memory plugin serves every name, which the rules about unknown exports must notice.
conformance_notices() {
    if ! scene_have nbdkit; then
        tap_skip "the conformance test notices a broken rule" "nbdkit is not installed"
        return
    fi
    scene_spawn kit nbdkit -f -U "$SCENE_DIR/kit.sock" memory 64M
    scene_wait_socket "$SCENE_DIR/kit.sock"
    for rule in unknown_export_refused export_name_unknown_closes; do
        tap_exits 1 "the conformance test notices a server that breaks '$rule'" \
            python3 "$HERE/nbd_conform.py" "nbd+unix:///disk?socket=$SCENE_DIR/kit.sock" \
            "$((64 << 20))" --only "$rule"
    done
}

all_checkers() {
    judge "the conformance test's model" "$1" "$2" conformance
    judge "fio --verify" "$1" "$2" clients fio
    judge "nbdcopy and cmp" "$1" "$2" clients copy
}

# Writes on the lossy side until the role's own counter must have moved.
start() {
    SCENE_STORE="blocker_lossy,every=$2,edge.store=mem0" SCENE_BELOW="mem0=blocker_memory" \
        SCENE_SIZE=64M SCENE_SEGMENT_SIZE=512M
    scene_stacked "neg$$-$1"
}

scene_begin
if [ $# -eq 2 ]; then
    all_checkers "$1" "$2"
    conformance_notices
    tap_end
fi
scene_need_skerry
tap_run "the lossy blocker compiles" scene_module blocker_lossy.c || tap_end
start good 0 || { tap_not_ok "a pipeline that keeps its writes starts"; tap_end; }
GOOD=$SCENE_URI SCENE_PIDS[good]=${SCENE_PIDS[front]}
unset "SCENE_PIDS[front]"
start lossy 500 || { tap_not_ok "a pipeline that loses writes starts"; tap_end; }
all_checkers "$GOOD" "$SCENE_URI"
conformance_notices
tap_end
