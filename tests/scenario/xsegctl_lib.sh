# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the xsegctl scenarios share, on top of lib.sh.
#
#   ctl ARGS...              runs xsegctl; RC, OUT (stdout), ERR (stderr)
#   ctl_exits N NAME ARGS... the same as a test of the exit status
#   ctl_need MODULE...       tap_skip_all where one is not built
#   err_like NAME REGEX, out_like NAME REGEX, json_is NAME JQ WANT   look at the last one
#   ctl_begin                scene_begin and what is needed
#   pipeline FILE SEGMENT [STORE_LINES]   writes a pipeline: front nbd0, vol0 and map0 in one
#                            process, mem0 in another; nbd on $SCENE_DIR/SEGMENT.sock
#   ctl_host SEGMENT FOLDER  a host of its own in one process, on a store of files in FOLDER: front,
#                            composer and mapper; nbd on $SCENE_DIR/SEGMENT.sock
#   keeper_pid SEGMENT, peer_pid SEGMENT PEER
#   client_attach URI        a qemu-io that stays attached until client_leave
#   say COMMAND...           its reads and writes, one after the other; true: all went well
#   down_at_exit SEGMENT     whatever happens, nothing of it runs on

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

RC=0 OUT='' ERR=''

ctl_begin() {
    scene_begin "$1"
    scene_need jq python3
    [ -n "$XSEGCTL" ] && [ -n "$XSEGD" ] && [ -n "$XSEGPEER" ] ||
        tap_skip_all "xsegctl, xsegd and xsegpeer are not built; say where with SKERRY_BUILD"
    export SKERRY_XSEGD=$XSEGD SKERRY_XSEGPEER=$XSEGPEER
    unset SKERRY_SEGMENT
}

# Modules that a test cannot do without.
ctl_need() {
    local module
    for module in "$@"; do
        [ -e "${SKERRY_MODULE_DIR:-/nowhere}/$module.so" ] || tap_skip_all "$module is not built"
    done
}

ctl_host() {
    local socket=$SCENE_DIR/$1.sock
    ctl_need mapperd volume front_nbd blocker_file
    scene_segment "$1" "${SCENE_SEGMENT_SIZE:-256M}" &&
        scene_peer "$1" -s "$1" "file0=blocker_file,dir=$2" map0=mapperd,edge.store=file0,settle=0 \
            vol0=volume,edge.store=file0,edge.map=map0 \
            "nbd0=front_nbd,listen=unix:$socket,edge.volume=vol0" &&
        scene_wait_socket "$socket" && return
    tap_not_ok "the host '$1' starts"
    tap_end
}

ctl() {
    RC=0
    timeout -k 5 "${TAP_LIMIT:-120}" "$XSEGCTL" "$@" \
        >"$SCENE_DIR/ctl.out" 2>"$SCENE_DIR/ctl.err" </dev/null || RC=$?
    OUT=$(<"$SCENE_DIR/ctl.out") ERR=$(<"$SCENE_DIR/ctl.err")
}

ctl_exits() {
    local want=$1 name=$2
    shift 2
    ctl "$@"
    if [ "$RC" -eq "$want" ]; then tap_ok "$name"; return 0; fi
    tap_not_ok "$name"
    tap_note "exit $RC, expected $want: xsegctl $*"
    sed 's/^/#   /' "$SCENE_DIR/ctl.out" "$SCENE_DIR/ctl.err"
    return 1
}

err_like() { tap_like "$1" "$ERR" "$2"; }
out_like() { tap_like "$1" "$OUT" "$2"; }
json_is() { tap_is "$1" "$(jq -r "$2" "$SCENE_DIR/ctl.out" 2>&1)" "$3"; }

pipeline() {
    local file=$1 segment=$2
    shift 2
    {
        printf '[segment]\nname = %s\nsize = 64M\n\n' "$segment"
        printf '[peer nbd0]\nrole = front_nbd\nhost = front\n'
        printf 'listen = unix:%s/%s.sock\nedge.volume = vol0\n\n' "$SCENE_DIR" "$segment"
        printf '[peer vol0]\nrole = volume\nhost = front\nedge.store = mem0\nedge.map = map0\n\n'
        printf '[peer map0]\nrole = mapperd\nhost = front\nedge.store = mem0\n\n'
        printf '[peer mem0]\n'
        if [ $# -eq 0 ]; then printf 'role = blocker_memory\n'; else printf '%s\n' "$@"; fi
    } >"$file"
}

keeper_pid() { cat "$SKERRY_RUN_DIR/$1/xsegd.pid"; }

# SEGMENT PEER FILTER, whatever the exit status says of others.
peer_ask() {
    { "$XSEGCTL" -s "$1" status --json || true; } |
        jq -r ".peers[] | select(.name == \"$2\") | $3"
}
peer_pid() { peer_ask "$1" "$2" .pid; }

# A zombie has let go of all that it had.
gone() { ! grep -qE '^State:[[:space:]]+[^ZX]' "/proc/$1/status" 2>/dev/null; }

# It has its lock until it is gone, which takes a while on a busy machine.
kill_keeper() { # SEGMENT
    local pid
    pid=$(keeper_pid "$1")
    kill -s KILL "$pid"
    scene_until 30 gone "$pid"
}

# Processes of this segment by the pids that it knows, none by name.
force_down() {
    local pid
    "$XSEGCTL" down "$1" --yes --timeout 5s && return
    for pid in $("$XSEGCTL" -s "$1" status --json |
        jq -r '.keeper.guard_pid, .keeper.pid, .peers[].pid | select(. > 0)'); do
        kill -s KILL "$pid"
    done
    "$XSEGCTL" segment destroy "$1" --yes
}

down_at_exit() { scene_at_exit "force_down '$1'"; }

SAID=0
client_attach() {
    mkfifo "$SCENE_DIR/words"
    scene_spawn client sh -c 'exec qemu-io -f raw "$1" <"$0"' "$SCENE_DIR/words" "$1"
    exec 7>"$SCENE_DIR/words"
    SAID=0
}
client_leave() {
    exec 7>&-
    scene_stop client
    rm "$SCENE_DIR/words"
}
has_answered() { [ "$(grep -cE 'ops;|rror|ailed' "$SCENE_DIR/client.out")" -ge "$SAID" ]; }
say() {
    local command
    for command; do
        SAID=$((SAID + 1))
        echo "$command" >&7
        scene_until 120 has_answered || return
    done
    ! grep -qE 'rror|ailed' "$SCENE_DIR/client.out"
}
