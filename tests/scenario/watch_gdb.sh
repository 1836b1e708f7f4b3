#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/skerry-gdb.py: a segment as gdb sees it, in a living process and in its core file.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "gdb"
scene_need gdb gcore
here=$(dirname "$0")
top=$(cd "$here/../.." && pwd)
SCENE_SEGMENT_SIZE=64M SCENE_SIZE=4M scene_split g || tap_skip_all "no pipeline"
scene_spawn load python3 "$here/watch_load.py" "$SCENE_URI" until="$SCENE_DIR/enough"
waiting() { [ "$("$XSEGCTL" -s g trace --slow 100ms --json | jq '.requests | length')" -gt 0 ]; }
moves() { [ "$("$XSEGCTL" -s g stats nbd0 --json | jq '.peers[0].counters.reads')" -gt 100 ]; }
scene_until 20 moves || exit 99
scene_freeze "$(scene_pid store)"
tap_run "requests wait for a store that stands still" scene_until 20 waiting
request=$("$XSEGCTL" -s g trace --slow 100ms --json | jq -r '.requests[0].request')
slot=${request%.*}

ask() { # what gdb looks at..., then commands after --
    local target=() commands=()
    while [ "$1" != -- ]; do target+=("$1"); shift; done
    shift
    for command in "$@"; do commands+=(-ex "$command"); done
    timeout -k 5 60 gdb -nx -batch -iex 'set debuginfod enabled off' "${target[@]}" \
        -x "$top/tools/skerry-gdb.py" "${commands[@]}" >"$SCENE_DIR/gdb.out" 2>"$SCENE_DIR/gdb.err"
}
said() { tap_like "$1" "$(<"$SCENE_DIR/gdb.out")" "$2"; }

check_all() { # LABEL TARGET...
    local label=$1
    shift
    ask "$@" -- skerry "skerry request $slot" "skerry requests submitted" "skerry peer store0" \
        "skerry lanes" "skerry ports" "skerry ring 0 1" "skerry page 0"
    if ! grep -q '^segment g:' "$SCENE_DIR/gdb.out" &&
        grep -q 'ptrace: Operation not permitted\|no debug information' "$SCENE_DIR/gdb.err"; then
        tap_skip "$label" "$(grep -m1 'ptrace\|no debug' "$SCENE_DIR/gdb.err")"
        return
    fi
    said "$label: the segment" $'segment g: [^\n]*/xseg\.g, 67108864 bytes'
    said "$label: requests by state" $'\nrequests: ([0-9]+ [a-z]+, )*[1-9][0-9]* submitted'
    said "$label: pages by state" $'\npages: [0-9]+ free'
    said "$label: peers" $'\npeer store0 \(blocker_memory\): alive, pid '"$(scene_pid store)"
    said "$label: a request" \
        $'\nrequest '"$slot"', generation '"${request#*.}"': submitted, with store0'
    said "$label: its hops" \
        $'\nhop 1: lane [0-9]+ -> store0: (read|write) volume [0-9a-f]{16} object'
    said "$label: its pages" $'\nextents 0: 1 pages from [0-9]+'
    said "$label: requests of a state" $'\n'"$slot"'\.'"${request#*.}"' +submitted +store0'
    said "$label: lanes" $'\nlane [0-9]+: alive, pid '"$(scene_pid front)"
    said "$label: ports" $'\nport [0-9]+: vol0, alive, lanes [0-9]'
    said "$label: a ring" $'\nring from lane 0 to lane 1: taken up to'
    said "$label: a page" $'\npage 0: [a-z]+, [0-9]+ pins'
}

check_all "a living process" -p "$(scene_pid front)"
tap_run "it lives on" kill -0 "$(scene_pid front)"
if gcore -o "$SCENE_DIR/core" "$(scene_pid front)" >"$SCENE_DIR/gcore.out" 2>&1; then
    core=$SCENE_DIR/core.$(scene_pid front)
    program=$(readlink "/proc/$(scene_pid front)/exe")
    check_all "a core file" "$program" "$core"
    ask "$program" "$core" -- "skerry request 99999999"
    tap_like "a request that cannot be" "$(<"$SCENE_DIR/gdb.err")" 'there are [0-9]+ requests'
    ask "$program" "$core" -- "skerry peer nix"
    tap_like "a peer that is not" "$(<"$SCENE_DIR/gdb.err")" "there is no peer 'nix'"
    ask "$program" "$core" -- "skerry nix"
    tap_like "a word that is none" "$(<"$SCENE_DIR/gdb.err")" 'there is peers, peer'
else
    tap_skip "a core file" "$(grep -m1 ptrace "$SCENE_DIR/gcore.out")"
fi
scene_kill CONT store
touch "$SCENE_DIR/enough"
wait "$(scene_pid load)"
tap_is "the load saw no error" $? 0
tap_end
