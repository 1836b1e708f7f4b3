# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the scripts share that kill peers under load, on top of lib.sh. Peers are started again by
# hand, so that nothing but the peers themselves is tested; xsegd's part has its own scripts.
#
#   kill_begin LABEL [FRONT_OPTIONS]  a pipeline in three processes on a store of files
#   kill_load NAME [OPTION...]        checked load in the background (nbd_recover.py)
#   kill_enough NAME [TEXT]           ends it; passes when nothing was wrong
#   kill_again PEER...                SIGKILL of all of them at once, then each started again in
#                                     that order; one may not be ready before a later one is there
#   kill_pause                        a random moment
# kill_prepare, if the script has one, is called when there is a place to work in.
# Processes: store, volume (the composer and the mapper), front.
# KILL_STORE: what the store is (blocker_file on tmpfs).

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SEGMENT=kill$$ ROUNDS=${ROUNDS:-4}
KILL_HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

kill_prepare() { :; }

kill_begin() {
    scene_begin "$1"
    kill_prepare
    for KILL_PYTHON in python3 /usr/bin/python3 ""; do
        [ -z "$KILL_PYTHON" ] || ! "$KILL_PYTHON" -c 'import nbd' 2>/dev/null || break
    done
    [ -n "$KILL_PYTHON" ] || tap_skip_all "python3-libnbd is not installed"
    SCENE_STORE=${KILL_STORE:-blocker_file,dir=$SKERRY_SHM_DIR/store}
    SCENE_SIZE=${SCENE_SIZE:-64M} SCENE_SEGMENT_SIZE=${SCENE_SEGMENT_SIZE:-128M}
    scene_split "$SEGMENT" "${2:-}" || {
        tap_not_ok "the pipeline starts"
        tap_end
    }
}

kill_load() {
    local name=$1
    shift
    rm -f "$SCENE_DIR/enough.$name"
    scene_spawn "$name" "$KILL_PYTHON" "$KILL_HERE/nbd_recover.py" "${KILL_URI:-$SCENE_URI}" \
        --until "$SCENE_DIR/enough.$name" "$@"
    scene_wait_line "$name" "under way" || tap_not_ok "$name begins"
}

kill_ended() { ! scene_alive "$1"; }

kill_enough() {
    local rc
    : >"$SCENE_DIR/enough.$1"
    scene_until 60 kill_ended "$1"
    scene_stop "$1"
    rc=$?
    tap_is "${2:-$1: every answer was right, none an error}" "$rc" 0 ||
        tail -n 15 "$SCENE_DIR/$1.out" "$SCENE_DIR/$1.err" | sed 's/^/#   /'
    tap_note "$1: $(tail -n 1 "$SCENE_DIR/$1.out")"
}

# shellcheck disable=SC2086  # SCENE_BELOW is several words
kill_spawn() {
    case $1 in
    store) scene_spawn store "$XSEGPEER" -s "$SEGMENT" --workers "${KILL_WORKERS:-4}" \
        "$SCENE_BOTTOM" $SCENE_BELOW ;;
    volume) scene_spawn volume "$XSEGPEER" -s "$SEGMENT" "$SCENE_COMPOSER" "$SCENE_MAPPER" ;;
    front) scene_spawn front "$XSEGPEER" -s "$SEGMENT" "$SCENE_FRONT" ;;
    esac
}
kill_ready() { scene_wait_line "$1" ready 60 || tap_not_ok "$1 starts again"; }
kill_start() { kill_spawn "$1" && kill_ready "$1"; }

kill_again() {
    local peer
    for peer in "$@"; do scene_kill KILL "$peer"; done
    for peer in "$@"; do scene_stop "$peer"; done
    for peer in "$@"; do kill_spawn "$peer"; done
    for peer in "$@"; do kill_ready "$peer"; done
}

kill_pause() { sleep "0.$((RANDOM % 3))$((RANDOM % 10))$((RANDOM % 10))"; }
