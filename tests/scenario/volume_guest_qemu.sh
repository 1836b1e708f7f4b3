#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Machines that boot from clones: the root of the first is a clone of a golden image, on which two
# sqlite databases are written to. Under this load a snapshot is taken and cloned, and a second
# machine boots from that, beside the first; then the first one's power is cut, and its disk boots
# again. Both are whole, with every transaction that was said to be committed before.
#
# volume_guest.sh kills the peers below such a guest, too.

. "$(dirname "$0")/kill_lib.sh"
. "$(dirname "$0")/guest_lib.sh"
. "$(dirname "$0")/guest_db_lib.sh"
. "$(dirname "$0")/guest_qemu_lib.sh"

v() { tap_run "volume $*" "$XSEGCTL" -s "$SEGMENT" volume "$@"; }
uri() { echo "nbd+unix:///$1?socket=$SCENE_SOCKET"; }

start_host() {
    SCENE_STORE=cached,edge.store=file0,size=24M
    SCENE_BELOW=file0=blocker_file,dir=$SKERRY_SHM_DIR/store
    SCENE_VOLUME=other SCENE_SIZE=4M SCENE_SEGMENT_SIZE=192M
    scene_split "$SEGMENT" && return
    tap_not_ok "the pipeline starts"
    tap_end
}

main() {
    local name
    start_host
    v import "$SCENE_DIR/golden.raw" golden --progress=none
    v clone golden vm1
    scene_spawn writer qemu_boot "$(uri vm1)" /sbin/boot write vm1
    db_remember copy
    v snapshot vm1@monday
    v clone vm1@monday copy
    qemu_look_at copy "$(uri copy)"
    db_remember vm1
    guest_power_cut writer
    guest_report writer && tap_not_ok "the first machine ends before its power is cut"
    qemu_look_at vm1 "$(uri vm1)"
    for name in copy vm1@monday; do v rm "$name" --yes; done
    v fsck
    for name in "${!SCENE_PIDS[@]}"; do scene_stop "$name"; done
}

scene_begin "machines boot from clones with databases on them"
scene_need_skerry
qemu_need sqlite3 mke2fs fsck.ext4 nbdcopy ldd
qemu_prepare >"$SCENE_DIR/initramfs.log" 2>&1 || { tap_not_ok "an initramfs is made"; tap_end; }
db_golden "$SCENE_DIR/golden.raw" >"$SCENE_DIR/golden.log" 2>&1 ||
    { tap_not_ok "a golden image is made"; tap_end; }
main
tap_end
