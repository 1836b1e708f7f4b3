#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# xsegctl volume import and export of qcow2, whole and since a snapshot; snapshots, clones and
# sizes of a volume that somebody has open.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "xsegctl volume: images"
scene_need qemu-img qemu-nbd qemu-io

export SKERRY_SEGMENT=images
sock=$SCENE_DIR/images.sock
ctl_host images "$SCENE_DIR/store"
v() { ctl_exits "$1" "$2" volume "${@:3}"; } # WANT NAME VERB ARGS...
io() { # VOLUME COMMAND...
    local name=$1 args=()
    shift
    for command in "$@"; do args+=(-c "$command"); done
    qemu-io -f raw "${args[@]}" "nbd+unix:///$name?socket=$sock"
}
same() { # NAME FILE VOLUME
    tap_run "$1" qemu-img compare "$2" "nbd+unix:///$3?socket=$sock" -F raw
}
f() { echo "$SCENE_DIR/$1"; }

# --- import ------------------------------------------------------------------------------------
head -c 3M /dev/urandom >"$(f base.raw)"
truncate -s 40M "$(f base.raw)"
dd if=/dev/urandom of="$(f base.raw)" bs=4096 seek=9000 count=3 conv=notrunc status=none
qemu-img convert -f raw -O qcow2 "$(f base.raw)" "$(f base.qcow2)"
qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 "$(f top.qcow2)" 48M
qemu-io -f qcow2 -c 'write -P 7 1M 64k' -c 'write -z 2M 128k' -c 'write -P 9 47M 64k' \
    "$(f top.qcow2)" >/dev/null
v 2 "what is named qcow2 is not taken for raw" import "$(f base.qcow2)" golden
err_like "both words are said" 'format auto.*format raw'
v 0 "import qcow2" import "$(f base.qcow2)" golden --format auto --json
json_is "as large as it says, holes skipped" '[.size, .data < 4000000] | @csv' '41943040,true'
same "it is the same" "$(f base.raw)" golden
v 1 "a backing file is not read" import "$(f top.qcow2)" chain --format qcow2
err_like "the word for it is said" 'allow-backing'
v 3 "nothing is left" info chain
v 0 "import with a backing file" import "$(f top.qcow2)" chain --format qcow2 --allow-backing --json
json_is "its size" .size 50331648
same "it is the same" "$(f top.qcow2)" chain
v 0 "import as raw" import "$(f base.qcow2)" bytes --format raw --size 8M
v 1 "import as what it is not" import "$(f base.qcow2)" wrong --format vmdk
mv "$(f base.qcow2)" "$(f gone.qcow2)"
v 1 "import of a chain with a hole" import "$(f top.qcow2)" wrong --format qcow2 --allow-backing
v 3 "nothing of it is left" info wrong
mv "$(f gone.qcow2)" "$(f base.qcow2)"

# --- export ------------------------------------------------------------------------------------
v 0 "export qcow2" export golden "$(f out.qcow2)" --format qcow2 --json
same "it is the same" "$(f out.qcow2)" golden
tap_run "it is sound" qemu-img check "$(f out.qcow2)"
tap_is "it is sparse" "$(($(du -k "$(f out.qcow2)" | cut -f1) < 4500))" 1
v 2 "qcow2 to stdout" export golden - --format qcow2
v 2 "--since as raw" export golden "$(f x)" --since golden --format raw

# --- a guest that writes the header of an image --------------------------------------------------
secret=$(f secret)
head -c 1M /dev/urandom >"$secret"
qemu-img create -q -f qcow2 -b "$secret" -F raw "$(f evil.img)" 1M
evil=$(stat -c %s "$(f evil.img)")
v 0 "a disk whose contents are a qcow2 image" import "$(f evil.img)" evil --size 1M
v 0 "is exported" export evil "$(f back.img)"
v 0 "and imported again" import "$(f back.img)" restored
tap_run "byte by byte" cmp -n "$evil" "$(f evil.img)" "$(f back.img)"
same_raw() { qemu-img compare -f raw "$1" "nbd+unix:///$2?socket=$sock" -F raw; }
tap_run "with nothing of the file that it names" same_raw "$(f back.img)" restored
printf '%s\n' '# Disk DescriptorFile' version=1 CID=1 parentCID=ffffffff \
    'createType="monolithicFlat"' "RW 2048 FLAT \"$secret\" 0" >"$(f evil.vmdk)"
v 1 "an extent elsewhere is not read" import "$(f evil.vmdk)" evil2 --format auto
qemu-img create -q -f qcow2 -o data_file="$(f data)" "$(f datafile.qcow2)" 1M
v 1 "a data file is not read" import "$(f datafile.qcow2)" evil2 --format qcow2
v 3 "nothing is left" info evil2

# --- a volume that is written to -----------------------------------------------------------------
v 0 "clone" clone golden disk
tap_run "write" io disk 'write -P 1 0 4k' 'write -P 2 5M 100k' 'write -P 3 20M 1M'
same "the golden image is as it was" "$(f base.raw)" golden
mkfifo "$(f hold)"
holder() { exec 7<>"$(f hold)"; exec qemu-io -f raw "nbd+unix:///disk?socket=$sock" <&7; }
scene_spawn holder holder
v 0 "snapshot while it is open" snapshot disk@monday
tap_run "write" io disk 'write -P 4 0 4k' 'discard 20M 1M' 'write -P 8 21000k 4k' \
    'write -z 24M 4M' 'write -P 5 39M 10k' 'write -P 6 5132k 4k'
tap_like "a snapshot is exported, to be read" \
    "$(nbdinfo "nbd+unix:///disk@monday?socket=$sock" 2>&1)" 'is_read_only: true'
v 0 "another" snapshot disk@tuesday
v 0 "diff" diff disk@monday disk@tuesday --json
json_is "begins with the first" '.stretches[0] | [.offset, .length, .zero] | @csv' '0,4096,false'
v 0 "export the first" export disk@monday "$(f disk@monday.qcow2)" --format qcow2
v 0 "and what was written since" export disk@tuesday "$(f tuesday.qcow2)" \
    --since disk@monday --json
json_is "less than all" '.data < 12000000' true
v 0 "export the second, whole" export disk@tuesday "$(f tuesday.raw)"
tap_run "the two together are the same" qemu-img compare "$(f tuesday.qcow2)" "$(f tuesday.raw)"
tap_run "it is sound" qemu-img check "$(f tuesday.qcow2)"
v 0 "import both as one" import "$(f tuesday.qcow2)" copy --format qcow2 --allow-backing
same "the same" "$(f tuesday.qcow2)" copy
v 5 "rollback of what is open" rollback disk@monday --yes
v 5 "rm of what is open" rm disk --yes
v 0 "grow what is open" resize disk 64M
tap_like "who comes sees it" "$(qemu-img info --output=json "nbd+unix:///disk?socket=$sock")" \
    '"virtual-size": 67108864'
scene_stop holder
closed() { [ "$("$XSEGCTL" volume info disk --json | jq .opens)" = 0 ]; }
scene_until 10 closed
v 0 "rollback" rollback disk@monday --yes
same "as it was on monday" "$(f disk@monday.qcow2)" disk
v 0 "flatten" flatten disk --json
same "the same" "$(f disk@monday.qcow2)" disk
v 0 "gc" gc --wait
v 0 "fsck" fsck
same "still the same" "$(f disk@monday.qcow2)" disk
tap_end
