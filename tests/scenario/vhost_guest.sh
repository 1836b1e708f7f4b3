#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Real kernels on a vhost-user-blk disk. User-Mode Linux, whose own driver speaks it, makes a file
# system, fills, trims and checks it, while what is below is killed and a cache comes and goes. A
# machine of QEMU boots from a volume and writes to databases while the front is killed, too; it is
# paused, reset, and its power is cut; all that it said to be committed is there.

. "$(dirname "$0")/keeper_lib.sh"
. "$(dirname "$0")/guest_lib.sh"
. "$(dirname "$0")/guest_db_lib.sh"
. "$(dirname "$0")/guest_qemu_lib.sh"
ctl_begin "kernels on a vhost-user-blk disk"
ctl_need front_vhost front_nbd mapperd volume blocker_file cached
scene_need jq fio mke2fs fsck.ext4 nbdcopy
export SKERRY_SEGMENT=k
events=$SKERRY_RUN_DIR/k/events.jsonl socket=$SCENE_DIR/k.sock conf=$SCENE_DIR/k.conf
ADDRESS=none GUEST=none PORT=0 # it has no network

door() { # NAME VOLUME
    printf '[peer %s]\nrole = front_vhost\nlisten = unix:%s\nvolume = %s\nedge.volume = vol0\n' \
        "$1" "$SCENE_DIR/$1.sock" "$2"
    printf '[host %s]\nrestart-delay-max = 0\n' "$1"
}
{ door small small && door root root; } | keeper_file "$conf"
sed -i 's/^size = 64M/size = 256M/' "$conf"
down_at_exit k
ctl up --unguarded "$conf"
ctl_exits 0 "a volume" volume create small --size 96M
image() { nbdcopy "nbd+unix:///$1?socket=$socket" "$SCENE_DIR/$1.raw"; }

# --- User-Mode Linux --------------------------------------------------------------------------
uml_guest() {
    guest_init "$SCENE_DIR/init.guest" <<'EOF_GUEST'
there() { [ "$(blockdev --getsize64 /dev/vda)" -eq $((96 << 20)) ]; }
named() { [ "$(cat /sys/block/vda/serial)" = small ]; }
has_feature() { [ "$(cut -c $(($1 + 1)) /sys/block/vda/device/features)" = 1 ]; }
caches() { [ "$(cat /sys/block/vda/queue/write_cache)" = "write back" ]; }
load() {
    local n
    for n in 1 2 3 4; do
        fio --name=verified --filename=/run/mnt/load --thread --ioengine=psync --direct=1 \
            --rw=randrw --bs=4k-64k --size=8M --verify=crc32c --verify_fatal=1 \
            --verify_backlog=64 --fsync=50 --randrepeat=0 --eta=never || return
    done
}
main() {
    mount -t tmpfs tmp /tmp
    cd /tmp
    step "load the driver" module virtio_blk || return
    step "the disk has its size" there || return
    step "its name" named
    step "a write cache" caches
    step "its rings are packed" has_feature 34
    step "a file system" mke2fs -q -t ext4 -E discard /dev/vda || return
    mkdir -p /run/mnt
    step "mount" mount -t ext4 /dev/vda /run/mnt || return
    echo "LOADING"
    step "verified I/O over all kills" load
    step "a file of zeros" fallocate -l 4M /run/mnt/zeros
    step "trim free blocks" fstrim /run/mnt
    step "unmount" umount /run/mnt
    step "the file system is clean" fsck.ext4 -fn /dev/vda
    step "zeros are written" blkdiscard -z -o 90M -l 4M /dev/vda
    step "the rest is discarded" blkdiscard -f -o 94M /dev/vda
    step "no I/O error in the kernel's log" no_error
}
EOF_GUEST
}

loads() { grep -aq LOADING "$SCENE_DIR/guest.out" || guest_ended guest; }
if scene_have linux.uml; then
    guest_need_kernel
    uml_guest
    scene_spawn guest guest_boot "$SCENE_DIR/init.guest" \
        "virtio_uml.device=$SCENE_DIR/small.sock:2"
    scene_until 120 loads || tap_not_ok "the kernel begins"
    for peer in vol0 file0 map0; do
        old=$(pid_of "$peer")
        kill_peer "$peer"
        tap_run "$peer is killed, and back" back "$peer" "$old" 60
    done
    ctl_exits 0 "a cache comes" plug cached --at vol0:store size=16M
    old=$(pid_of cache0)
    kill_peer cache0
    tap_run "it is killed, and back" back cache0 "$old" 60
    ctl_exits 0 "it goes" unplug cache0
    guest_ends guest 300
    tap_run "NBD reads it all" image small
    tap_run "the file system is clean there, too" fsck.ext4 -fn "$SCENE_DIR/small.raw"
else
    tap_skip "User-Mode Linux" "it is not installed"
fi

# --- QEMU ---------------------------------------------------------------------------------------
qemu_need sqlite3 ldd
qemu_prepare >"$SCENE_DIR/initramfs.log" 2>&1 || { tap_not_ok "an initramfs is made"; tap_end; }
db_golden "$SCENE_DIR/golden.raw" >"$SCENE_DIR/golden.log" 2>&1 ||
    { tap_not_ok "a golden image is made"; tap_end; }
qmp() { # COMMAND [ARGUMENTS]: its answer
    python3 -c '
import json, socket, sys
with socket.socket(socket.AF_UNIX) as monitor:
    monitor.connect(sys.argv[1])
    lines = monitor.makefile("rw")
    lines.readline()
    arguments = json.loads(sys.argv[3] or "{}")
    for command, arguments in (("qmp_capabilities", {}), (sys.argv[2], arguments)):
        lines.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        lines.flush()
        answer = {"event": ""}
        while "event" in answer:
            answer = json.loads(lines.readline())
print(json.dumps(answer["return"]))
' "$SCENE_DIR/qmp" "$1" "${2-}"
}
disk_features() { # that were agreed
    local path
    path=$(qmp x-query-virtio | jq -r '.[] | select(.name == "virtio-blk").path')
    qmp x-query-virtio-status "{\"path\": \"$path\"}" | jq -c '."guest-features"'
}
boots() { guest_said writer | grep -ac "boots from $1"; }
has_booted() { [ "$(boots "$1")" -ge "$2" ] || ! scene_alive writer; }

# It writes from here on, over rings of that kind, and peers are killed.
writes() { # RINGS PEER...
    local peer old
    QEMU_DISK=$1
    scene_spawn writer qemu_boot "vhost:$SCENE_DIR/root.sock" /sbin/boot write root
    for peer in "${@:2}"; do
        db_remember root
        old=$(pid_of "$peer")
        kill_peer "$peer"
        tap_run "$peer is killed, and back" back "$peer" "$old" 60
    done
    db_remember root
    tap_is "its rings" "$(disk_features | grep -o 'VIRTIO_F_RING_PACKED')" \
        "${1:+VIRTIO_F_RING_PACKED}"
}
power_is_cut() {
    guest_power_cut writer
    guest_report writer && tap_not_ok "the machine ends before its power is cut"
    tap_is "it saw no error" "$(guest_said writer | grep -ac "I/O error")" 0
}
QEMU_MORE=(-qmp "unix:$SCENE_DIR/qmp,server=on,wait=off" -action reboot=reset)
ctl_exits 0 "an image is imported" volume import "$SCENE_DIR/golden.raw" root --progress=none
writes '' root file0 root vol0 root
ctl_exits 0 "the front is restarted" peer restart root
db_remember root
for command in stop cont stop cont; do tap_is "$command" "$(qmp $command)" "{}"; done
db_remember root
tap_is "it is reset" "$(qmp system_reset)" "{}"
tap_run "and boots again" scene_until 120 has_booted root 2
db_remember root
power_is_cut
writes ,packed=on root vol0 root # as User-Mode Linux has it, which takes all that is offered
power_is_cut
QEMU_MORE=()
scene_spawn again qemu_boot "vhost:$SCENE_DIR/root.sock" /sbin/boot check root
guest_ends again 300
db_check again root
tap_run "NBD reads it all" image root
tap_run "the file system is clean" fsck.ext4 -fn "$SCENE_DIR/root.raw"
ctl_exits 0 "the store is whole" volume fsck
tap_end
