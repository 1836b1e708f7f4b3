#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Databases in a guest: two sqlite databases on an ext4 on a clone of a golden image are written to
# by a Linux kernel; snapshots and a clone are taken from under it; composer, mapper, cache and
# store are killed; in the end the guest's power is cut. Each clone then boots, and its own programs
# find databases that are whole, with every transaction that was committed before it was made.
#
# The guest is User-Mode Linux, which is up in a second; volume_guest_qemu.sh has less of this in
# machines whose root is the clone.

. "$(dirname "$0")/kill_lib.sh"
. "$(dirname "$0")/guest_lib.sh"
. "$(dirname "$0")/guest_db_lib.sh"
guest_addresses 10.119.0

# --- the two guests ----------------------------------------------------------------------------

# Writes until its power is cut.
writer_init() {
    guest_init "$SCENE_DIR/init.writer" <<'EOF_GUEST'
main() {
    step "load the nbd module" module nbd && step "bring the network up" network || return
    step "attach the clone" attach vm1 || return
    step "its file system is clean" fsck.ext4 -fn /dev/nbd0
    mkdir -p /run/mnt
    step "it is mounted" mount -t ext4 /dev/nbd0 /run/mnt || return
    mount -t devtmpfs dev /run/mnt/dev
    chroot /run/mnt /sbin/init write 1000000
}
EOF_GUEST
}

# Each disk boots, is looked at, goes on, and is whole afterwards.
reader_init() {
    guest_init "$SCENE_DIR/init.reader" "DISKS=$*" <<'EOF_GUEST'
boot() { chroot /run/mnt /sbin/init "$@"; }
one() { # DISK DEVICE
    step "$1: attach" attach "$1" "$2" || return
    step "$1: mount, the journal is replayed" mount -t ext4 "/dev/$2" /run/mnt || return
    mount -t devtmpfs dev /run/mnt/dev
    boot check "$1"
    step "$1: it writes" boot write 5
    boot check "$1/after"
    umount /run/mnt/dev
    step "$1: unmount" umount /run/mnt
    step "$1: the file system is clean" fsck.ext4 -fn "/dev/$2"
    step "$1: detach" nbd-client -d "/dev/$2"
}
main() {
    local disk number=0
    step "load the nbd module" module nbd && step "bring the network up" network || return
    mkdir -p /run/mnt
    for disk in $DISKS; do one "$disk" nbd$((number++)); done
    step "no I/O error in the kernel's log" no_error
}
EOF_GUEST
}

# --- the host ----------------------------------------------------------------------------------

v() { tap_run "volume $*" "$XSEGCTL" -s "$SEGMENT" volume "$@"; }

start_host() {
    guest_network_up || { tap_not_ok "the host's side of the network"; tap_end; }
    SCENE_STORE=cached,edge.store=file0,size=24M
    SCENE_BELOW=file0=blocker_file,dir=$SKERRY_SHM_DIR/store
    SCENE_VOLUME=other SCENE_SIZE=4M SCENE_SEGMENT_SIZE=192M
    scene_split "$SEGMENT" "listen=tcp:$ADDRESS:$PORT,tls=off" && return
    tap_not_ok "the pipeline starts"
    tap_end
}

# What the guest must not notice: snapshots, a clone, and that everything below the front dies.
under_load() {
    db_remember monday
    v snapshot vm1@monday
    db_remember kill
    kill_again volume
    kill_again store
    db_remember tuesday
    v snapshot vm1@tuesday
    db_remember live
    v clone vm1 live
    db_remember vm1
    guest_power_cut writer
}

# Nobody has told the host that the guest is gone: its connection is still there.
disks_of_snapshots() {
    v clone vm1@monday monday
    v clone vm1@tuesday tuesday
}

# What went on in the guests is nowhere but in their clones.
afterwards() {
    local name
    nbdcopy "nbd://$ADDRESS:$PORT/golden" "$SCENE_DIR/golden.after" &&
        tap_run "the golden image is as it was" \
            cmp "$SCENE_DIR/golden.raw" "$SCENE_DIR/golden.after"
    for name in monday tuesday vm1@monday live; do v rm "$name" --yes; done
    v gc --wait
    v fsck
}

main() {
    local disk name
    start_host
    v import "$SCENE_DIR/golden.raw" golden --progress=none
    v clone golden vm1
    writer_init
    scene_spawn writer guest_boot "$SCENE_DIR/init.writer"
    under_load
    guest_report writer && tap_not_ok "the first guest ends before its power is cut"
    disks_of_snapshots
    reader_init monday tuesday live vm1
    scene_spawn reader guest_boot "$SCENE_DIR/init.reader"
    guest_ends reader
    for disk in monday tuesday live vm1; do db_check reader "$disk"; done
    afterwards
    for name in "${!SCENE_PIDS[@]}"; do scene_stop "$name"; done
}

# All of it runs in name spaces of its own.
if [ "${1:-}" != --inside ]; then
    if ! unshare -nmp --fork true 2>/dev/null; then tap_skip_all "no name spaces here"; fi
    exec unshare -nmp --fork --kill-child=TERM --mount-proc "$0" --inside
fi
scene_begin "databases in a guest, on clones"
scene_need_skerry
guest_need sqlite3 mke2fs fsck.ext4 nbdcopy ldd
db_golden "$SCENE_DIR/golden.raw" >"$SCENE_DIR/golden.log" 2>&1 ||
    { tap_not_ok "a golden image is made"; tap_end; }
main
tap_end
