#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A real kernel mounts the export: User-Mode Linux, an ordinary process, attaches it with
# nbd-client over a tap device, mounts the ext4 in it, reads, writes, and checks it.
#
#   nbd_uml.sh                          Skerry serves the image
#   nbd_uml.sh EXPORT COMMAND...        COMMAND serves it, in the foreground: in its arguments
#                                       %ADDRESS% %PORT% %IMAGE% are where and what
#
# Everything runs in name spaces of its own (network, pid, mount), which end with this script and
# take all processes with them. Needs root, /dev/net/tun and the package user-mode-linux.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/guest_lib.sh"
guest_addresses 10.117.0
SELF=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")

# --- the guest: its init, a script with the host's files read-only below it ------------------

write_guest() {
    guest_init "$SCENE_DIR/init.guest" "EXPORT=$EXPORT" <<'EOF_GUEST'
sums() { (cd "$1" && find . -path ./lost+found -prune -o -type f ! -name by-guest -print0 |
    sort -z | xargs -0 sha256sum); }
write_file() {
    dd if=/dev/urandom of=/run/mnt/by-guest bs=64k count=64 conv=fsync &&
        sha256sum </run/mnt/by-guest >/run/sum && sync
}
same_after_remount() {
    echo 3 >/proc/sys/vm/drop_caches
    mount -o ro /dev/nbd0 /run/mnt && sha256sum </run/mnt/by-guest | cmp - /run/sum &&
        umount /run/mnt
}
main() {
    step "load the nbd module" module nbd || return
    step "bring the network up" network || return
    step "attach with nbd-client" attach "$EXPORT" || return
    step "the file system is clean before" fsck.ext4 -fn /dev/nbd0
    mkdir -p /run/mnt
    step "mount" mount -t ext4 /dev/nbd0 /run/mnt || return
    sums /run/mnt | sed 's/^/SUM /'
    step "write a file and sync" write_file
    echo "GUESTFILE $(cut -d' ' -f1 /run/sum)"
    step "trim free blocks" fstrim /run/mnt
    step "unmount" umount /run/mnt
    step "mount again, the file is the same" same_after_remount
    step "the file system is clean afterwards" fsck.ext4 -fn /dev/nbd0
    step "no I/O error in the kernel's log" no_error
    step "detach" nbd-client -d /dev/nbd0
}
EOF_GUEST
}

# --- inside the name spaces ------------------------------------------------------------------

serve_command() {
    local words=() word
    for word in "$@"; do
        word=${word//%ADDRESS%/$ADDRESS} word=${word//%PORT%/$PORT}
        words+=("${word//%IMAGE%/$SCENE_DIR/image.raw}")
    done
    scene_spawn server "${words[@]}"
}

serve_skerry() {
    SCENE_VOLUME=$EXPORT SCENE_SIZE=$(stat -c %s "$SCENE_DIR/image.raw")
    scene_stacked "uml" "listen=tcp:$ADDRESS:$PORT,tls=off" &&
        nbdcopy "$SCENE_DIR/image.raw" "$SCENE_URI"
}

inside() {
    guest_network_up || { echo "STEP failed the host's side of the network"; return 1; }
    if [ $# -gt 0 ]; then serve_command "$@"; else serve_skerry; fi
    scene_wait_tcp "$ADDRESS" "$PORT" || { echo "STEP failed the server starts"; return 1; }
    echo "STEP ok the server serves $ADDRESS:$PORT"
    scene_spawn uml guest_boot "$SCENE_DIR/init.guest"
    guest_end uml || tap_note "the guest did not end in time"
    cat "$SCENE_DIR/uml.out"
    if scene_have nbdcopy; then
        nbdcopy "nbd://$ADDRESS:$PORT/$EXPORT" "$SCENE_DIR/after.raw" ||
            echo "STEP failed read back"
    fi
    for name in "${!SCENE_PIDS[@]}"; do scene_stop "$name"; done
    [ $# -gt 0 ] || "$XSEGCTL" segment destroy uml --yes
}

if [ "${1:-}" = --inside ]; then
    shift
    inside "$@"
    exit
fi

# --- outside ---------------------------------------------------------------------------------

host_sums() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }

# What the guest wrote must be in the image as the server serves it afterwards.
check_image_after() {
    local want
    if [ ! -s "$SCENE_DIR/after.raw" ]; then
        tap_skip "the image read back" "nbdcopy is not installed"
        return
    fi
    tap_run "the image read back is a clean ext4" fsck.ext4 -fn "$SCENE_DIR/after.raw"
    want=$(tr -d '\r' <"$SCENE_DIR/guest.out" | sed -n 's/^GUESTFILE //p')
    debugfs -R "dump /by-guest $SCENE_DIR/by-guest" "$SCENE_DIR/after.raw" 2>/dev/null
    [ -s "$SCENE_DIR/by-guest" ] || want="a file of 4 MiB"
    tap_is "the guest's file is in the image" \
        "$(sha256sum "$SCENE_DIR/by-guest" 2>&1 | cut -d' ' -f1)" "$want"
}

make_tree() {
    local n
    mkdir -p "$SCENE_DIR/tree/folder/deep"
    cp "$(dirname "$SELF")"/*.sh "$(dirname "$SELF")"/*.py "$SCENE_DIR/tree/folder"
    for n in 1 2 3 4; do
        head -c $((n * 777777)) /dev/urandom >"$SCENE_DIR/tree/folder/deep/random.$n"
    done
    mke2fs -q -t ext4 -d "$SCENE_DIR/tree" "$SCENE_DIR/image.raw" 64M 2>&1 | grep -v Creating
    [ -s "$SCENE_DIR/image.raw" ]
}

scene_begin
guest_need mke2fs fsck.ext4 debugfs
EXPORT=${1:-disk}
[ $# -eq 0 ] || shift
if [ $# -eq 0 ]; then
    scene_need_skerry
    scene_need nbdcopy
fi
make_tree || { tap_not_ok "an ext4 image is made"; tap_end; }
write_guest
export SCENE_DIR EXPORT XSEGPEER XSEGCTL
SCENE_GRACE=1
scene_spawn guest unshare -nmp --fork --kill-child --mount-proc "$SELF" --inside "$@"
scene_until "$((${UML_LIMIT:-90} + 30))" scene_gone guest ||
    tap_note "the guest did not end in time"
scene_stop guest
guest_report guest || {
    tap_not_ok "the guest came to its end"
    tail -n 20 "$SCENE_DIR"/guest.{out,err} "$SCENE_DIR/uml.err" 2>/dev/null | sed 's/^/#   /'
    tap_end
}
tap_is "the guest's checksums are those of the files" \
    "$(tr -d '\r' <"$SCENE_DIR/guest.out" | sed -n 's/^SUM //p')" "$(host_sums "$SCENE_DIR/tree")"
check_image_after
tap_end
