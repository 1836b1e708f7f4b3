#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Snapshots and clones of a volume that is being written to, through a composer with several lanes
# and a cache, each hold a prefix of what was written; also while everything below the front is
# killed.

. "$(dirname "$0")/kill_lib.sh"
scene_begin "copies of what is being written hold a prefix"
for KILL_PYTHON in python3 /usr/bin/python3 ""; do
    [ -z "$KILL_PYTHON" ] || ! "$KILL_PYTHON" -c 'import nbd' 2>/dev/null || break
done
[ -n "$KILL_PYTHON" ] || tap_skip_all "python3-libnbd is not installed"
for module in mapperd volume cached front_nbd blocker_file; do
    [ -e "${SKERRY_MODULE_DIR:-/nowhere}/$module.so" ] || tap_skip_all "$module is not built"
done

export SKERRY_SEGMENT=$SEGMENT

# Writes to one volume are on several lanes, each time on another number of them.
LANES=1
kill_start() {
    LANES=$((LANES % 3 + 1))
    case $1 in
    store) set -- "$1" "$SCENE_BOTTOM" "$SCENE_BELOW" ;;
    volume) set -- "$1" "$SCENE_COMPOSER" "$SCENE_MAPPER" ;;
    front) set -- "$1" "$SCENE_FRONT" ;;
    esac
    scene_peer "$1" -s "$SEGMENT" -l "$LANES" "${@:2}" || tap_not_ok "$1 starts"
}
start() {
    SCENE_STORE=cached,edge.store=file0,size=24M
    SCENE_BELOW=file0=blocker_file,dir=$SKERRY_SHM_DIR/store
    scene_parts "$SEGMENT"
    scene_segment "$SEGMENT" 128M || { tap_not_ok "a segment"; tap_end; }
    kill_start store
    kill_start volume
    kill_start front
    scene_wait_socket "$SCENE_SOCKET"
}
prefix() { "$KILL_PYTHON" "$KILL_HERE/volume_prefix_write.py" "$SCENE_SOCKET" "$XSEGCTL" "$@"; }
v() { tap_run "volume $*" "$XSEGCTL" volume "$@"; }
prefix_ended() { ! scene_alive "$1"; }

# NAME [OPTION...] in the background, on a clone of its own
begin() {
    v clone golden "$1"
    rm -f "$SCENE_DIR/enough"
    scene_spawn "$1" "$KILL_PYTHON" "$KILL_HERE/volume_prefix_write.py" "$SCENE_SOCKET" \
        "$XSEGCTL" "$@"
    scene_wait_line "$1" "under way" || tap_not_ok "$1 begins"
}
end() {
    : >"$SCENE_DIR/enough"
    scene_until 100 prefix_ended "$1" || tap_not_ok "$1 ends"
    scene_stop "$1"
    tap_is "$1: each copy is a prefix, and stays so" "$?" 0 ||
        tail -n 15 "$SCENE_DIR/$1.out" "$SCENE_DIR/$1.err" | sed 's/^/#   /'
    tap_note "$1: $(tail -n 1 "$SCENE_DIR/$1.out")"
}

start
v create golden --size 2M --object-size 64K
tap_run "a golden image" prefix golden --prepare

begin calm --copies 12
end calm

begin killed --torn --copies 6 --until "$SCENE_DIR/enough"
for peers in volume store "volume store" volume; do
    kill_pause
    # shellcheck disable=SC2086
    kill_again $peers
done
end killed

v fsck
tap_end
