#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# xsegctl volume import: gone on with after it was killed, and on a base from which little differs.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "xsegctl volume: imports"
for module in mapperd volume blocker_file; do
    [ -e "$SKERRY_MODULE_DIR/$module.so" ] || tap_skip_all "$module is not built"
done

export SKERRY_SEGMENT=imports
scene_segment imports 128M || exit 99
mkdir "$SCENE_DIR/store"
peers=("file0=blocker_file,dir=$SCENE_DIR/store" "map0=mapperd,edge.store=file0,settle=0"
    "vol0=volume,edge.store=file0,edge.map=map0")
scene_peer host -s imports "${peers[@]}" || exit 99
v() { # WANT NAME VERB ARGS...
    local want=$1 name=$2 verb=$3
    shift 3
    ctl_exits "$want" "$name" volume "$verb" "$@"
}
f() { echo "$SCENE_DIR/$1"; }
same() { # NAME FILE VOLUME: its bytes, then zeros
    rm -f "$(f out)"
    v 0 "export" export "$3" "$(f out)"
    cp --sparse=always "$2" "$(f want)"
    truncate -s "$(stat -c %s "$(f out)")" "$(f want)"
    tap_run "$1" cmp "$(f want)" "$(f out)"
}
state_is() { [ "$("$XSEGCTL" volume info "$1" --json | jq -r .state)" = "$2" ]; }

head -c 12M /dev/urandom >"$(f image)"
truncate -s 40M "$(f image)"
dd if=/dev/urandom of="$(f image)" bs=1M seek=30 count=2 conv=notrunc status=none

# --- killed ------------------------------------------------------------------------------------
mkfifo "$(f fifo)"
feed() { # NAME: an import that waits in the middle, with 9 of its objects in the store
    local before
    before=$(large)
    scene_spawn "$1" "$XSEGCTL" volume import "$(f fifo)" "$1" --size 40M --object-size 1M "${@:2}"
    exec 9>"$(f fifo)"
    head -c 9M "$(f image)" >&9
    scene_until 60 more "$((before + 9))"
}
murder() {
    kill -s KILL "$(scene_pid "$1")"
    wait "$(scene_pid "$1")"
    exec 9>&-
} 2>/dev/null
large() { find "$SCENE_DIR/store" -type f -size +1000k | wc -l; }
more() { [ "$(large)" -ge "$1" ]; }
feed half
v 5 "import of what is being imported" import "$(f image)" half --object-size 1M -t 500ms
err_like "says so" "volume 'half' is being imported"
murder half
ctl_exits 0 "job tidy" job tidy
ctl job list --json
json_is "its job says what to do" '.jobs | map(select(.object == "half"))[0] |
    [.state, (.error.message | test("said again it goes on"))] | @csv' '"failed",true'
tap_run "what it has done is there, and not served" state_is half importing
v 5 "nor cloned" clone half vm
v 4 "import of something else" import "$(f image)" half --size 50M
err_like "says what is there" "half imported, and was to have 41943040 bytes in objects of 1048576"
v 4 "in other objects" import "$(f image)" half --object-size 64K
v 0 "import --dry-run" import "$(f image)" half --dry-run --json
json_is "would go on" '[.resumed, .changed] | @csv' 'true,false'
# the segment's processes die, too
scene_kill KILL host
wait "$(scene_pid host)" 2>/dev/null
scene_peer host -s imports "${peers[@]}" || exit 99
v 0 "import again" import "$(f image)" half --json
json_is "it went on" '[.resumed, .same >= 9437184, .data <= 5242880] | @csv' 'true,true,true'
same "it is the same" "$(f image)" half
v 4 "once more" import "$(f image)" half

# --- cancelled -----------------------------------------------------------------------------------
feed gone
scene_kill INT gone
wait "$(scene_pid gone)"
exec 9>&-
v 3 "nothing is left of a cancelled one" info gone
feed kept --keep
scene_kill INT kept
wait "$(scene_pid kept)"
exec 9>&-
tap_like "with --keep it says what to do" "$(cat "$SCENE_DIR/kept.err")" 'said again it goes on'
tap_run "it is kept" state_is kept importing
head -c 1M /dev/zero | "$XSEGCTL" volume import - kept --size 40M >"$(f said)"
tap_is "other contents, as stdin" $? 0
head -c 1M /dev/zero >"$(f zeros)"
same "nothing of the first is left in it" "$(f zeros)" kept
v 0 "import what can be removed" import "$(f zeros)" thing
feed rest
murder rest
v 0 "half an import can be removed" rm rest --yes
v 3 "it is gone" info rest

# --- on a base -----------------------------------------------------------------------------------
v 0 "a base" import "$(f image)" disk
v 0 "a snapshot of it" snapshot disk@golden
cp --sparse=always "$(f image)" "$(f changed)"
dd if=/dev/urandom of="$(f changed)" bs=4k seek=300 count=16 conv=notrunc status=none
dd if=/dev/zero of="$(f changed)" bs=4k seek=1000 count=8 conv=notrunc status=none
dd if=/dev/urandom of="$(f changed)" bs=4k seek=5000 count=3 conv=notrunc status=none
fallocate -p -o 31M -l 1M "$(f changed)"
v 0 "import --base" import "$(f changed)" vm --base disk@golden --json
json_is "what differs was written" '[.data, .same > 12000000, .resumed] | @csv' '77824,true,false'
same "it is the same" "$(f changed)" vm
same "the base is as it was" "$(f image)" disk@golden
v 0 "info" info vm --json
json_is "a clone" '[.parent, .state, .shared > 0] | @csv' '"disk@golden","ready",true'
v 5 "its base stays" rm disk@golden --yes
v 0 "the same as stdin" import "$(f changed)" vm2 --base disk@golden --size 48M
"$XSEGCTL" volume import - vm3 --base disk@golden --size 48M <"$(f fifo)" >"$(f said)" &
cat "$(f changed)" >"$(f fifo)"
wait $!
tap_is "a pipe, larger than the base" $? 0
same "it is the same" "$(f changed)" vm3
head -c 100k "$(f image)" >"$(f short)"
v 2 "what is shorter than its base" import "$(f short)" vm4 --base disk@golden
err_like "says what to do" "the base 'disk@golden' has 41943040 bytes.*--size makes it larger"
v 0 "made larger" import "$(f short)" vm4 --base disk@golden --size 40M --json
json_is "almost nothing was written" .data 0
same "the rest is empty" "$(f short)" vm4
v 3 "a base that is not there" import "$(f image)" vm5 --base nix
v 2 "--base and --object-size" import "$(f image)" vm5 --base disk@golden --object-size 64K
feed part
v 5 "a base that is not whole" import "$(f image)" vm5 --base part
murder part
v 4 "going on with another base" import "$(f image)" part --base disk@golden
v 0 "fsck" fsck
v 0 "flatten" flatten vm
same "still the same" "$(f changed)" vm
tap_end
