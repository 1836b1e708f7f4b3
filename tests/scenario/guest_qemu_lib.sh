# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A machine for scenario scripts, on top of lib.sh and guest_lib.sh: QEMU, which emulates all of it,
# CPU too, and so runs wherever tests run; no root is needed. Its kernel is Debian's for clouds, as
# it comes in its package: nothing is installed. Its disk is its root; whatever is on it boots.
#
#   qemu_need                        tap_skip_all where no machine can be started
#   qemu_prepare                     makes what is loaded with the kernel, in $SCENE_DIR
#   qemu_boot DISK WORD...           becomes a machine with that disk (what QEMU's -drive calls
#                                    file, so an NBD URI; or vhost:SOCKET), whose first process
#                                    is WORD...; so:
#                                    scene_spawn NAME qemu_boot ...
#                                    QEMU_MORE=(WORD...): of QEMU's, too;
#                                    QEMU_DISK=,WORD...: of a vhost disk
#   db_more TREE                     for db_golden (guest_db_lib.sh): '/sbin/boot write NAME' writes
#                                    to its databases, '/sbin/boot check NAME' looks at them
#   qemu_look_at NAME DISK           a machine does the latter, and ends
#
# The kernel is sought in $SKERRY_GUEST_KERNEL and in /: boot/vmlinuz-VERSION, lib/modules/VERSION.
# ./quickstart test fetches one; by hand:  apt-get download linux-image-VERSION; dpkg -x *.deb DIR

QEMU_MORE=() QEMU_DISK=''
QEMU_MODULES='virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk'

qemu_kernel() {
    local top
    for top in "${SKERRY_GUEST_KERNEL:-/nowhere}" /; do
        compgen -G "${top%/}/boot/vmlinuz-*-cloud-amd64" | sort -V | tail -n 1
    done | head -n 1
}

# shellcheck disable=SC2120  # more programs may be given
qemu_need() {
    scene_need qemu-system-x86_64 busybox "$@"
    QEMU_KERNEL=$(qemu_kernel)
    [ -n "$QEMU_KERNEL" ] ||
        tap_skip_all "no kernel for the guest: set SKERRY_GUEST_KERNEL (guest_qemu_lib.sh)"
    ! ldd "$(command -v busybox)" >/dev/null 2>&1 || tap_skip_all "busybox is not the static one"
}

# Modules for the disk, and an init that mounts it and gives it what the kernel was told to run.
qemu_prepare() {
    local tree=$SCENE_DIR/initramfs modules name
    modules=${QEMU_KERNEL%/boot/*}/lib/modules/${QEMU_KERNEL##*/vmlinuz-}
    mkdir -p "$tree"/{bin,dev,proc,root} && cp "$(command -v busybox)" "$tree/bin" || return
    for name in $QEMU_MODULES; do
        cp "$(find "$modules" -name "$name.ko" | grep .)" "$tree" || return
    done
    {
        echo '#!/bin/busybox sh'
        echo "for name in $QEMU_MODULES; do busybox insmod /\$name.ko; done"
        cat <<'EOF_INIT'
busybox mount -t devtmpfs dev /dev
until [ -b /dev/vda ]; do busybox sleep 0.1; done
busybox mount -t ext4 /dev/vda /root && busybox mount -t devtmpfs dev /root/dev &&
    exec busybox switch_root -c /dev/console /root "$@"
echo "STEP failed the root is mounted"
busybox reboot -f
EOF_INIT
    } >"$tree/init"
    chmod +x "$tree/init"
    (cd "$tree" && find . | busybox cpio -o -H newc) >"$SCENE_DIR/initramfs.cpio"
}

# On a busy host a CPU stands still for a while: without no_timer_check the kernel may panic since
# its timer does not tick; and what it says of that is not to go amidst a guest's lines.
qemu_boot() {
    local disk=(-drive "file=$1,format=raw,if=virtio,discard=unmap")
    [ "$1" = "${1#vhost:}" ] ||
        disk=(-object "memory-backend-memfd,id=memory,size=192M,share=on"
            -machine memory-backend=memory -chardev "socket,id=disk,path=${1#vhost:},reconnect=1"
            -device "vhost-user-blk-pci,chardev=disk,num-queues=1$QEMU_DISK")
    shift
    exec qemu-system-x86_64 -M pc -accel tcg -cpu max -m 192 -nodefaults -no-user-config \
        -no-reboot -display none -serial stdio -kernel "$QEMU_KERNEL" \
        -initrd "$SCENE_DIR/initramfs.cpio" \
        -append "console=ttyS0 loglevel=1 nowatchdog no_timer_check mitigations=off panic=-1 \
reboot=t -- $*" \
        "${disk[@]}" "${QEMU_MORE[@]}"
}

# --- databases on its disk ---------------------------------------------------------------------

# What the first process of a machine does with the golden system.
db_more() {
    mkdir -p "$1"/{run,proc} && cp "$(command -v busybox)" "$1/bin" && {
        echo '#!/bin/busybox sh'
        guest_step
        cat <<'EOF_BOOT'
no_error() { ! busybox dmesg | busybox grep -iE "I/O error|EXT4-fs (error|warning)"; }
busybox mount -t proc proc /proc
busybox mount -t tmpfs tmp /run
sed() { busybox sed "$@"; }
tail() { busybox tail "$@"; }
echo "STEP ok $(busybox uname -sr) boots from $2"
case $1 in
write) /sbin/init write 1000000 ;;
check)
    /sbin/init check "$2"
    step "it writes" /sbin/init write 5
    /sbin/init check "$2/after"
    step "no error in the kernel's log" no_error
    ;;
esac
step "the root is left in order" busybox mount -o remount,ro /
echo "STEP end"
busybox reboot -f
EOF_BOOT
    } >"$1/sbin/boot" && chmod +x "$1/sbin/boot"
}

# Boots from a disk, and looks at it; what it leaves is a clean file system.
qemu_look_at() { # NAME DISK
    scene_spawn "$1" qemu_boot "$2" /sbin/boot check "$1"
    guest_ends "$1"
    db_check "$1" "$1"
    nbdcopy "$2" "$SCENE_DIR/after.raw" &&
        tap_run "$1: the file system is clean" fsck.ext4 -fn "$SCENE_DIR/after.raw"
}
