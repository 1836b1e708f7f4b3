#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# xsegctl volume: snapshots, clones and what else concerns maps, through a composer; with VIA=map0
# asked of the mapper itself.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "xsegctl volume: maps"
[ -e "$SKERRY_MODULE_DIR/mapperd.so" ] || tap_skip_all "mapperd is not built"

VIA=${VIA:-vol0}
export SKERRY_SEGMENT=maps
scene_segment maps 128M || exit 99
mkdir "$SCENE_DIR/store"
peers=("file0=blocker_file,dir=$SCENE_DIR/store" "map0=mapperd,edge.store=file0,settle=0")
if [ "$VIA" = vol0 ]; then peers+=("vol0=volume,edge.store=file0,edge.map=map0"); fi
scene_peer host -s maps "${peers[@]}" || exit 99
v() { # WANT NAME VERB ARGS...
    local want=$1 name=$2 verb=$3
    shift 3
    ctl_exits "$want" "$name" volume "$verb" "$@" --via "$VIA"
}

# --- create, snapshot, clone -------------------------------------------------------------------
v 0 "create" create disk --size 100M --json
v 0 "snapshot --dry-run" snapshot disk@monday --dry-run --json
json_is "changes nothing" '[.changed, .dry_run] | @csv' 'false,true'
v 3 "there is none" info disk@monday
v 0 "snapshot" snapshot disk@monday --json
json_is "says what it made" '[.schema_version, .name, .volume, .size, .changed] | @csv' \
    '1,"disk@monday","disk",104857600,true'
v 4 "the same name again" snapshot disk@monday
err_like "says so" "volume 'disk@monday' exists"
v 3 "of no volume" snapshot nix@tuesday
v 2 "of a snapshot" snapshot disk@monday@tuesday
v 0 "info of it" info disk@monday --json
json_is "it is one" '[.type, .parent, .children] | @csv' '"snapshot","disk",0'
v 0 "clone" clone disk@monday vm1 --json
json_is "says what it made" '[.name, .volume, .size, .changed] | @csv' \
    '"vm1","disk@monday",104857600,true'
v 0 "clone it again" clone disk@monday vm1 --json
json_is "nothing changed" .changed false
v 4 "another clone of that name" clone disk vm1
v 0 "create --from, larger" create vm2 --from disk@monday --size 1G --json
json_is "it is larger" .size 1073741824
v 2 "a clone that is smaller" clone disk@monday vm3 --size 1M
v 2 "--from and --object-size" create vm3 --from disk@monday --object-size 64K
v 3 "a clone of nothing" clone nix vm3
v 0 "clone of a volume" clone disk vm4

# --- hooks -------------------------------------------------------------------------------------
v 2 "--freeze-cmd alone" snapshot disk@tuesday --freeze-cmd true
v 1 "a freeze that fails" snapshot disk@tuesday --freeze-cmd 'echo no >&2; exit 3' \
    --thaw-cmd "touch '$SCENE_DIR/thawed'"
err_like "says how" 'exit 3\): no'
tap_run "thawed all the same" test -e "$SCENE_DIR/thawed"
v 3 "no snapshot was made" info disk@tuesday
v 8 "a thaw that fails" snapshot disk@tuesday --freeze-cmd true --thaw-cmd false
err_like "says that the snapshot is there" "the snapshot 'disk@tuesday' is there"
# shellcheck disable=SC2016  # expanded by the hook's shell
v 0 "both" snapshot disk@wednesday --freeze-cmd 'echo $SKERRY_VOLUME >"'"$SCENE_DIR"'/hook"' \
    --thaw-cmd 'echo $SKERRY_SNAPSHOT >>"'"$SCENE_DIR"'/hook"'
tap_is "they were told what" "$(tr '\n' ' ' <"$SCENE_DIR/hook")" "disk disk@wednesday "
v 7 "a freeze that hangs" snapshot disk@thursday --freeze-cmd 'exec sleep 60' \
    --thaw-cmd true -t 300ms
v 137 "killed between them" snapshot disk@friday \
    --freeze-cmd "kill -9 \$PPID; sleep 1; echo on >'$SCENE_DIR/frozen'" \
    --thaw-cmd "cat '$SCENE_DIR/frozen' >'$SCENE_DIR/went'"
tap_run "it is thawed all the same, afterwards" scene_until 60 grep -qsx on "$SCENE_DIR/went"

# --- list --tree, info -------------------------------------------------------------------------
v 0 "ls" ls --tree
out_like "is list" $'\n- disk@monday'
v 0 "list --tree" list --tree
out_like "snapshots are below" $'\n- disk@monday'
out_like "their clones below them" $'\n  - vm1'
v 0 "list --tree --json" list --tree --json
json_is "depths and parents" '.volumes | map(select(.name == "vm1")) |
    [.[0].depth, .[0].parent] | @csv' '2,"disk@monday"'
v 0 "info" info disk --json
json_is "children and snapshots" \
    '[.children, ([.snapshots[].name] | join(" ")), .home, .limits.iops] | @csv' \
    '4,"disk@monday disk@tuesday disk@wednesday",,0'
v 0 "info, for people" info disk
out_like "a table of snapshots" "SNAPSHOT.*WRITTEN"

# --- what is refused, and who stands in the way --------------------------------------------------
v 5 "rm of one with children" rm disk --yes
err_like "names them" \
    "volume 'disk' has children: 'disk@monday', 'vm4', 'disk@tuesday', 'disk@wednesday'"
v 5 "rm --dry-run says so, too" rm disk --dry-run
v 0 "protect" protect vm4 --json
json_is "protected" '[.protected, .changed] | @csv' 'true,true'
v 0 "protect again" protect vm4 --json
json_is "nothing changed" .changed false
v 5 "rm of what is protected" rm vm4 --yes
err_like "says so" "it is protected; 'xsegctl volume unprotect vm4' allows it"
v 0 "unprotect" unprotect vm4
v 2 "rm without --yes" rm vm4
v 0 "rm" rm vm4 --yes
v 3 "it is gone" info vm4

# --- rename, resize, limit -----------------------------------------------------------------------
v 0 "rename" rename vm2 'größer' --json
json_is "says so" '[.name, .from, .changed] | @csv' '"größer","vm2",true'
v 3 "the old name is free" info vm2
v 4 "to a name that is taken" rename größer vm1
err_like "names it" "the name 'vm1' is taken"
v 4 "the plan says so, too" rename größer vm1 --dry-run
v 0 "to its own" rename größer größer --json
json_is "nothing changed" .changed false
v 2 "to no name" rename größer a/b
v 0 "grow" resize vm1 200M --json
json_is "it was, it is" '[.from, .size, .lost, .changed] | @csv' '104857600,209715200,0,true'
v 0 "to the same" resize vm1 200M --json
json_is "nothing changed" .changed false
v 2 "shrink without --allow-shrink" resize vm1 50M
err_like "says what is lost" 'its last 150.0 MiB \(157286400 bytes\) would be lost'
v 0 "shrink --dry-run" resize vm1 50M --dry-run --json
json_is "what would be lost" '[.lost, .changed] | @csv' '157286400,false'
v 0 "shrink" resize vm1 50M --allow-shrink
v 0 "info" info vm1 --json
json_is "it is smaller" .size 52428800
v 2 "to half a sector" resize vm1 1000
v 2 "to nothing" resize vm1 0

# --- sizes that cannot be ----------------------------------------------------------------------
most="a volume has at most 16777216 objects, which is"
v 2 "a volume that is too large" create large --size 65T
err_like "names the limit" "volume 'large' cannot be made: $most 64.0 TiB in objects of 4.0 MiB"
v 2 "in small objects" create large --size 65G --object-size 4K
err_like "names theirs" "$most 64.0 GiB in objects of 4.0 KiB"
v 2 "--dry-run" create large --size 65T --dry-run
v 2 "a volume that grows too large" resize vm1 65T
err_like "names the limit" "volume 'vm1' cannot be resized: $most 64.0 TiB in objects of 4.0 MiB"
v 2 "a clone that is too large" clone disk@monday large --size 65T
truncate -s 1M "$SCENE_DIR/image"
v 2 "an image that is too large" import "$SCENE_DIR/image" large --size 65T
err_like "names the limit" "volume 'large' cannot be made: $most 64.0 TiB in objects of 4.0 MiB"
v 3 "nothing was made" info large
v 0 "the largest" create large --size 64T
v 0 "is removed" rm large --yes
v 4 "of a snapshot" resize disk@monday 1M --yes
v 0 "limit" limit vm1 --iops 500 --bandwidth 10M --burst 2s --json
json_is "limited" '[.iops, .bandwidth, .burst_ns, .changed] | @csv' '500,10485760,2000000000,true'
v 0 "no more requests" limit vm1 --iops 0 --json
json_is "the rest stays" '[.iops, .bandwidth, .burst_ns] | @csv' '0,10485760,2000000000'
v 0 "shown" limit vm1 --json
json_is "nothing changed" '[.bandwidth, .changed] | @csv' '10485760,false'
v 2 "a limit that is none" limit vm1 --burst soon

# --- rollback, diff, flatten ---------------------------------------------------------------------
v 0 "grow it" resize disk 150M
v 2 "rollback without --yes" rollback disk@monday
err_like "says what is lost" "lose all that was written to volume 'disk' since 20"
v 0 "rollback" rollback disk@monday --yes --json
json_is "size, too" .size 104857600
v 3 "to what is no snapshot of it" rollback vm1@tuesday --yes
v 2 "to what is no snapshot at all" rollback disk --yes
err_like "says what is missing" "say VOLUME@SNAP"
v 0 "diff" diff disk@monday disk --json
json_is "the same" '.stretches | length' 0
v 3 "diff since nothing" diff nix disk
v 0 "flatten --dry-run" flatten vm1 --dry-run --json
json_is "from where" '[.parent, .changed] | @csv' '"disk@monday",false'
v 0 "flatten" flatten vm1 --json
json_is "done" '[.name, .changed] | @csv' '"vm1",true'
v 0 "info" info vm1 --json
json_is "it hangs from nothing" '[.parent, .shared] | @csv' ',0'
v 0 "flatten it again" flatten vm1 --json
json_is "nothing changed" .changed false
ctl job list --json
json_is "it was a job" '.jobs | map(select(.kind == "volume.flatten")) | map(.state) | unique |
    join(",")' 'done'
v 4 "flatten of a snapshot" flatten disk@monday

# --- break-lock, gc, fsck ------------------------------------------------------------------------
v 0 "break-lock of what nobody has" break-lock disk --yes --json
json_is "nothing changed" '[.had, .changed] | @csv' ',false'
v 0 "gc --wait" gc --wait --progress=none --json
json_is "it has ended" '[.running, .error] | @csv' 'false,0'
v 0 "gc" gc --rate 100 --json
v 2 "gc at no rate" gc --rate 0
v 0 "the end of it" gc --wait
v 0 "fsck" fsck --json
json_is "clean" '[.clean, (.list | length)] | @csv' 'true,0'
v 0 "fsck of one" fsck vm1
v 3 "fsck of none" fsck nix

# records that are damaged: one half, then both
id=$("$XSEGCTL" volume info vm1 --json --via "$VIA" | jq -r .id)
restart() {
    scene_stop host
    for half in "$@"; do
        dd if=/dev/zero of="$SCENE_DIR/store/records/ffffffff.$id.0000000$half" bs=64 seek=4 \
            count=4 conv=notrunc status=none
    done
    scene_peer host -s maps "${peers[@]}"
}
restart 1
v 1 "fsck with half a record" fsck --json
json_is "it says which" '.list | map([.finding, .volume, .repaired]) | unique | .[] | @csv' \
    '"half-record","vm1",false'
err_like "and what to do" "fsck --repair' repairs"
v 1 "fsck --repair --dry-run looks only" fsck --repair --dry-run
v 0 "fsck --repair" fsck --repair --json
json_is "it is repaired" '.list | map([.finding, .repaired]) | unique | .[] | @csv' \
    '"half-record",true'
v 0 "nothing is wrong any more" fsck
restart 0 1
v 0 "a damaged one is listed" list --json
json_is "by its id" ".volumes | map(select(.state == \"damaged\").name) | join(\",\")" "$id"
v 8 "fsck --repair of what cannot be repaired" fsck --repair
out_like "what it is" "bad-record +$id"
v 0 "the others go on" info disk
v 0 "all are there" list --tree --json
json_is "all" '.volumes | length' 6
v 1 "nothing is deleted while it is there" gc --wait
v 0 "it can be removed by its id" rm "$id" --yes
v 0 "then things are deleted again" gc --wait
v 0 "its name goes, too" fsck --repair
v 0 "and nothing is wrong any more" fsck
v 0 "the name is free" clone disk@monday vm1
v 0 "and so again" rm vm1 --yes

# --- many of them ------------------------------------------------------------------------------
many() {
    local i
    for i in $(seq 1 40); do
        "$XSEGCTL" volume clone disk@monday "many$i" --via "$VIA" >/dev/null || return
    done
}
tap_run "40 clones" many
v 0 "a tree of them" list --tree --json
json_is "below the snapshot" '.volumes | map(select(.parent == "disk@monday")) | length' 41
v 5 "their snapshot is not removed" rm disk@monday --yes
err_like "names some" "and 36 more"
tap_end
