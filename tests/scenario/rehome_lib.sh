# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Two hosts over one folder, on top of xsegctl_lib.sh.
#
#   rehome_need               tap_skip_all where something is not built
#   host SEGMENT VOLUME_EDGE [DIR]
#                             a pipeline file: front, composer, mapper, cache, store
#   out SEGMENT [LINE]        the same, its second part: a re-homer (LINE: of its section), and
#                             an exporting end of a bridge that leads to it
#   store_out SEGMENT         the same, its third part: what offers its store to the other host
#   bridge FROM TO NAME WHAT  TAP: FROM's NAME leads to TO's 'out' or 'store'
#   objects SEGMENT           how many files are in its store, DIR 'SEGMENT.d'
#   on SEGMENT COMMAND...     on the host that has it; here there is but one
#   disturbed SIGNAL SEGMENT PEER
#                             TAP: 'disk' goes $from $to by the scenario's `goes`, and that peer is
#                             killed, or stopped for 3 s, at some moment meanwhile; said again,
#                             it goes, and `is_there`; then the way back is next
#   owner SEGMENT, state SEGMENT
#                             the home of 'disk', as that host knows it; 'home', 'away', ...
#   load NAME SEGMENT [OPTION]...
#                             a client of 'disk' (VOLUME) there, which writes all the while
#   load_ends NAME WHAT       TAP: it has read what it has written
#   io SEGMENT OPTION...      qemu-io on 'disk'

. "$(dirname "${BASH_SOURCE[0]}")/xsegctl_lib.sh"

rehome_need() {
    ctl_need mapperd volume front_nbd cached synapse_import synapse_export blocker_file rehome
}

host() { # SEGMENT VOLUME_EDGE [DIR]
    cat <<END
[segment]
name=$1
size=512M

[peer nbd0]
role=front_nbd
listen=unix:$SCENE_DIR/$1.sock
edge.volume=$2

[peer vol0]
role=volume
edge.store=cache0
edge.map=map0

[peer map0]
role=mapperd
edge.store=file0

[peer cache0]
role=cached
edge.store=file0
size=16M

[peer file0]
role=blocker_file
dir=${3-$SCENE_DIR/store}
shared=yes
END
}
out() { # SEGMENT [LINE]
    cat <<END

[peer home0]
role=rehome
edge.volume=vol0
commit-timeout=2s
${2-}

[peer out0]
role=synapse_export
listen=unix:$SCENE_DIR/$1.out
edge.volume=home0
END
}
store_out() { # SEGMENT: what offers its store
    printf '\n[peer out1]\nrole=synapse_export\nlisten=unix:%s\nedge.store=file0\n' \
        "$SCENE_DIR/$1.store"
}
bridge() { # FROM TO NAME WHAT
    ctl_exits 0 "$1 reaches $2's $4" bridge add -s "$1" "$3" "unix:$SCENE_DIR/$2.$4"
}
objects() { find "$SCENE_DIR/$1.d/objects" -type f | wc -l; }
on() { "${@:2}"; }
disturbed() { # SIGNAL SEGMENT PEER
    local pid disturber rc=0
    pid=$(peer_pid "$2" "$3")
    (
        sleep "0.$((RANDOM % 4))$((RANDOM % 10))"
        kill -s "$1" "$pid"
        [ "$1" = KILL ] || { sleep 3 && kill -s CONT "$pid"; }
    ) &
    disturber=$!
    goes "$from" "$to" || rc=$?
    wait "$disturber"
    tap_run "from $from, $1 $2's $3 (exit $rc): it goes" scene_until 120 goes "$from" "$to"
    scene_until 60 is_there "$from" "$to" || tap_not_ok "it is not there: $(is_where)"
    read -r from to <<<"$to $from"
}
owner() {
    on "$1" "$XSEGCTL" -s "$1" volume info disk --json | jq -r '.home.host' | sed 's|.*/||'
}
state() {
    on "$1" "$XSEGCTL" rehome status -s "$1" --json |
        jq -r '.volumes[] | select(.name == "disk").state'
}
load() { # NAME SEGMENT [OPTION]...; of VOLUME
    rm -f "$SCENE_DIR/$1.stop" "$SCENE_DIR/$1.out" # of one before
    scene_spawn "$1" /usr/bin/python3 "$(dirname "${BASH_SOURCE[0]}")/keeper_load.py" \
        "nbd+unix:///${VOLUME:-disk}?socket=$SCENE_DIR/$2.sock" \
        "$SCENE_DIR/$1.stop" --reconnect "${@:3}" && scene_wait_line "$1" started
}
load_ends() { # NAME WHAT
    local rc=0
    : >"$SCENE_DIR/$1.stop"
    wait "$(scene_pid "$1")" || rc=$?
    unset "SCENE_PIDS[$1]"
    tap_is "$2" "$rc $(tail -n 1 "$SCENE_DIR/$1.err")" "0 "
    tap_note "$(tail -n 1 "$SCENE_DIR/$1.out")"
}
io() { scene_io "nbd+unix:///disk?socket=$SCENE_DIR/$1.sock" "${@:2}"; }
