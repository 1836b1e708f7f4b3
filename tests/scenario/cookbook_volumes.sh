#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What docs/cookbook.md says of golden images and backups, and README.md of snapshots, done as it is
# written there.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "cookbook: volumes"
scene_need qemu-img qemu-io qemu-nbd nbdinfo
ctl_need mapperd volume front_nbd blocker_file
top=$(realpath "${abs_top_srcdir:-$(dirname "$0")/../..}")
page=$top/docs/cookbook.md

# The Nth block below a heading (0: the top of the page), with folders of ours.
block() { # N HEADING
    awk -v n="$1" -v heading="$2" '
        BEGIN { here = heading == "" }
        /^## / { here = $0 == "## " heading }
        here && /^```/ { if (wanted) exit; inside = !inside; wanted = inside && ++count == n; next }
        wanted' "$page" |
        sed "s,/run/skerry,$SKERRY_RUN_DIR,g; s,/var/lib/skerry,$SCENE_DIR/store,g
            s,^size=1G,size=128M,"
}
recipe() { # NAME N HEADING
    block "$2" "$3" >"$SCENE_DIR/recipe"
    tap_run "$1" test -s "$SCENE_DIR/recipe"
    tap_run "$1, done" bash -eu "$SCENE_DIR/recipe"
}
golden="A golden image for 100 virtual machines"
backup="A backup every hour"

mkdir "$SCENE_DIR/bin" "$SCENE_DIR/backup" "$SCENE_DIR/store"
ln -s "$(realpath "$XSEGCTL")" "$SCENE_DIR/bin/xsegctl"
export PATH=$SCENE_DIR/bin:$PATH SKERRY_SEGMENT=demo
cd "$SCENE_DIR" || exit 99
block 1 "" >demo.conf
down_at_exit demo
recipe "the pipeline of the page" 2 ""
nbd() { echo "nbd+unix:///$1?socket=$SKERRY_RUN_DIR/demo/nbd.sock"; }
io() { # VOLUME COMMAND...
    local name=$1 args=()
    shift
    for command in "$@"; do args+=(-c "$command"); done
    qemu-io -f raw "${args[@]}" "$(nbd "$name")"
}

# --- golden images ----------------------------------------------------------------------------
head -c 5M /dev/urandom >debian.raw
truncate -s 64M debian.raw
qemu-img convert -f raw -O qcow2 debian.raw debian-12.qcow2
recipe "an image and its clones" 1 "$golden"
tap_like "all are there" "$(cat "$TAP_OUT")" $'\n  - vm100'
recipe "they are exports" 2 "$golden"
tap_run "one is written to" io vm7 'write -P 7 0 1M'
tap_run "the others have the image" qemu-img compare debian-12.qcow2 "$(nbd vm8)" -F raw
recipe "one that runs is an image, too" 3 "$golden"
tap_run "with what was written to it" qemu-img compare "$(nbd vm7)" "$(nbd vm107)" -f raw -F raw
dd if=/dev/urandom of=debian.raw bs=4k seek=100 count=5 conv=notrunc status=none
qemu-img convert -f raw -O qcow2 debian.raw debian-12.1.qcow2
recipe "the next version" 4 "$golden"
tap_run "a clone of it" qemu-img compare debian-12.1.qcow2 "$(nbd vm101)" -F raw
ctl volume info debian-12.1 --json
json_is "it hangs from the last one" .parent debian-12@golden
ctl_exits 5 "which stays" volume rm debian-12@golden --yes
recipe "one goes, one gets all" 5 "$golden"
ctl volume info vm2 --json
json_is "that hangs from nothing" '.parent, .shared' $'null\n0'

# --- backups ----------------------------------------------------------------------------------
block 1 "$backup" >bin/backup
chmod +x bin/backup
hourly() { # no two in the same second
    local second
    second=$(date +%s)
    backup disk backup || return
    until [ "$(date +%s)" -gt "$second" ]; do sleep 0.1; done
}
truncate -s 10G whole
tap_run "a guest" io disk 'write -P 1 0 8M' 'write -P 2 5G 1M'
tap_run "the first backup" hourly
tap_run "an hour" io disk 'write -P 3 1M 64k' 'discard 4M 4M' 'write -P 4 9G 4k'
tap_run "the second" hourly
tap_run "an hour" io disk 'write -P 5 5G 512k' 'write -z 0 64k'
tap_run "the third" hourly
tap_is "three files" "$(find backup -name '*.qcow2' | wc -l)" 3
newest=$(find backup -name '*.qcow2' | sort | tail -n 1)
tap_run "the last has what was changed" test "$(stat -c %s "$newest")" -lt 2000000
ctl volume list --json
json_is "one snapshot is left of it" \
    '[.volumes[] | select(.type == "snapshot" and (.name | startswith("disk@")))] | length' 1
tap_like "with hooks it is the same" "$(block 3 "$backup")" '^xsegctl volume snapshot .*--thaw '
recipe "it is restored" 4 "$backup"
tap_run "it is the same" qemu-img compare -f raw -F raw "$(nbd disk)" "$(nbd restored)"
tap_run "the other one, too" qemu-img compare -f raw -F raw "$(nbd disk)" "$(nbd restored-2)"

# --- README -----------------------------------------------------------------------------------
page=$top/README.md
ctl_exits 0 "a volume" volume create demo --size 64M
tap_run "a guest" io demo 'write -P 6 20M 5M'
recipe "snapshot, clone, export" 1 "Snapshots and clones"
tap_run "it is the same" qemu-img compare monday.qcow2 "$(nbd test)" -F raw
ctl_exits 0 "fsck" volume fsck
ctl_exits 0 "down" down demo
tap_end
