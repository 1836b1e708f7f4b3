# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the keeper scenarios share, on top of xsegctl_lib.sh.
#
#   keeper_begin LABEL       ctl_begin and what is needed
#   keeper_file FILE         writes a pipeline $SKERRY_SEGMENT (k): nbd0, vol0, map0 and file0 in a
#                            process each; further lines on stdin
#   keeper_may_fail PEER     its program does what $SCENE_DIR/fail says first, when there is one
#   meddle WORDS             for a blocker_meddle with rules = $SCENE_DIR/rules
#   restart PEER [--exec]    peer restart; what it says is in $SCENE_DIR/restart.out
#   event_count KIND PEER    how many so far;  event_last KIND PEER JQ
#   load_start NAME [ARGS]   a client that writes and verifies (keeper_load.py) in the background
#   load_end NAME WHAT       ends it: a test that it saw no error
#   pid_of PEER, kill_peer PEER...   SIGKILL all at once;  back PEER OLD_PID [S]   serves again

. "$(dirname "${BASH_SOURCE[0]}")/xsegctl_lib.sh"

keeper_begin() {
    ctl_begin "$1"
    scene_need jq
    if ! /usr/bin/python3 -c 'import nbd' 2>/dev/null; then
        tap_skip_all "libnbd's Python module is not installed"
    fi
    export SKERRY_SEGMENT=k
    events=$SKERRY_RUN_DIR/k/events.jsonl
    socket=$SCENE_DIR/k.sock
    LOAD=$(dirname "${BASH_SOURCE[0]}")/keeper_load.py
}

keeper_file() {
    mkdir -p "$SCENE_DIR/store"
    {
        printf "[segment]\nname = %s\nsize = 64M\n\n" "${SKERRY_SEGMENT:-k}"
        printf '[peer nbd0]\nrole = front_nbd\nlisten = unix:%s\nedge.volume = vol0\n\n' "$socket"
        printf '[peer vol0]\nrole = volume\nedge.store = file0\nedge.map = map0\n\n'
        printf '[peer map0]\nrole = mapperd\nedge.store = file0\n\n'
        printf '[peer file0]\n%s\n\n' "${KEEPER_STORE:-role = blocker_file
dir = $SCENE_DIR/store}"
        cat
    } >"$1"
}

keeper_may_fail() {
    cat >"$SCENE_DIR/xsegpeer" <<END
#!/bin/bash
if [ -e "$SCENE_DIR/fail" ] && [[ \$* == *$1=* ]]; then . "$SCENE_DIR/fail"; fi
exec "$XSEGPEER" "\$@"
END
    chmod +x "$SCENE_DIR/xsegpeer"
    export SKERRY_XSEGPEER=$SCENE_DIR/xsegpeer
}

restart() { "$XSEGCTL" peer restart "$@" >"$SCENE_DIR/restart.out" 2>&1; }

event_count() {
    jq -s "[.[] | select(.event == \"$1\" and .peer == \"$2\")] | length" "$events"
}

event_last() {
    jq -rs "[.[] | select(.event == \"$1\" and .peer == \"$2\")] | last | $3" "$events"
}

event_seen() { [ "$(event_count "$1" "$2")" -ge "${3:-1}" ]; }

load_start() {
    local name=$1
    shift
    rm -f "$SCENE_DIR/$name.stop"
    scene_spawn "$name" /usr/bin/python3 "$LOAD" "nbd+unix:///disk?socket=$socket" \
        "$SCENE_DIR/$name.stop" "$@"
    scene_wait_line "$name" started
}

load_end() {
    local rc=0
    : >"$SCENE_DIR/$1.stop"
    wait "$(scene_pid "$1")" || rc=$?
    unset "SCENE_PIDS[$1]"
    tap_is "$2" "$rc $(tail -n 1 "$SCENE_DIR/$1.err")" "0 "
    tap_note "$(tail -n 1 "$SCENE_DIR/$1.out")"
}

# As a new file: half a rule is never seen.
meddle() { echo "$1" >"$SCENE_DIR/rules.new" && mv "$SCENE_DIR/rules.new" "$SCENE_DIR/rules"; }

pid_of() { peer_pid "$SKERRY_SEGMENT" "$1"; }

kill_peer() {
    local peer pids=()
    for peer in "$@"; do pids+=("$(pid_of "$peer")"); done
    for peer in "${pids[@]}"; do [ "$peer" -gt 1 ] || return 1; done
    kill -s KILL "${pids[@]}"
}

peer_state() { peer_ask "$SKERRY_SEGMENT" "$1" .state; }
state_is() { [ "$(peer_state "$1")" = "$2" ]; }

other_serves() {
    [ "$(peer_ask "$SKERRY_SEGMENT" "$1" ".state == \"serving\" and .health == \"ok\" and
        .pid != $2")" = true ]
}

back() { scene_until "${3:-10}" other_serves "$1" "$2"; }
