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

# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
ADDRESS=10.117.0.1 GUEST=10.117.0.2 PORT=10809
SELF=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
export PATH=$PATH:/usr/sbin:/sbin

# --- the guest: its init, a script with the host's files read-only below it ------------------

write_guest() {
    cat >"$SCENE_DIR/init" <<EOF_GUEST
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
EXPORT='$EXPORT' HOST=$ADDRESS PORT=$PORT GUEST=$GUEST
PYTHON='$(python3 -c 'import sys; print(sys.executable)')'
EOF_GUEST
    cat >>"$SCENE_DIR/init" <<'EOF_GUEST'
step() {
    local name=$1 rc
    shift
    "$@" >/run/log 2>&1 </dev/null
    rc=$?
    if [ $rc -eq 0 ]; then echo "STEP ok $name"; return 0; fi
    echo "STEP failed $name: exit $rc"
    sed 's/^/STEP log /' /run/log | tail -n 12
    return 1
}
# nbd depends on no other module, so kmod is not needed: finit_module is system call 313.
module() {
    local file
    file=$(find "/usr/lib/uml/modules/$(uname -r)" -name "$1.ko" | head -n 1)
    "$PYTHON" - "$file" <<'PY'
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(313, os.open(sys.argv[1], os.O_RDONLY), b"", 0):
    sys.exit(os.strerror(ctypes.get_errno()))
PY
}
network() {
    ip link set lo up && ip addr add "$GUEST/24" dev vec0 && ip link set vec0 up
}
attach() {
    nbd-client -N "$EXPORT" -b 512 "$HOST" "$PORT" /dev/nbd0 &&
        [ "$(blockdev --getsize64 /dev/nbd0)" -gt 0 ]
}
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
no_error() { ! dmesg | grep -iE "I/O error|nbd0: .*(error|timed out)"; }
main() {
    step "load the nbd module" module nbd || return
    step "bring the network up" network || return
    step "attach with nbd-client" attach || return
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
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs tmp /run
echo "STEP ok a guest kernel boots ($(uname -r))"
main
echo "STEP end"
echo o >/proc/sysrq-trigger
sleep 5
EOF_GUEST
    chmod +x "$SCENE_DIR/init"
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

network_up() {
    ip link set lo up && ip tuntap add tap0 mode tap && ip addr add "$ADDRESS/24" dev tap0 &&
        ip link set tap0 up
}

# UML 6.1 cannot write the registers of CPUs with AMX; tests/lib/uml_xstate.c says why.
preload() {
    grep -qw amx_tile /proc/cpuinfo || return
    "${CC:-cc}" -D_GNU_SOURCE -O2 -shared -fPIC -o "$SCENE_DIR/xstate.so" \
        "$(dirname "$SELF")/../lib/uml_xstate.c" && echo "$SCENE_DIR/xstate.so"
}

inside() {
    network_up || { echo "STEP failed the host's side of the network"; return 1; }
    if [ $# -gt 0 ]; then serve_command "$@"; else serve_skerry; fi
    scene_wait_tcp "$ADDRESS" "$PORT" || { echo "STEP failed the server starts"; return 1; }
    echo "STEP ok the server serves $ADDRESS:$PORT"
    mkdir -p "$SCENE_DIR/uml"
    TMPDIR=$SKERRY_SHM_DIR LD_PRELOAD=$(preload) timeout -k 5 "${UML_LIMIT:-90}" linux.uml \
        mem=256M root=/dev/root rootfstype=hostfs rootflags=/ ro init="$SCENE_DIR/init" \
        con=null con0=fd:0,fd:1 quiet umid=guest uml_dir="$SCENE_DIR/uml/" \
        vec0:transport=tap,ifname=tap0,depth=128,gro=1 \
        </dev/null 2>"$SCENE_DIR/uml.err"
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

report_steps() {
    local line
    tr -d '\r' <"$SCENE_DIR/guest.out" | grep '^STEP ' >"$SCENE_DIR/steps"
    while read -r _ verdict line; do
        case $verdict in
        ok) tap_ok "$line" ;;
        failed) tap_not_ok "$line" ;;
        log) tap_note "  $line" ;;
        end) ENDED=yes ;;
        esac
    done <"$SCENE_DIR/steps"
}

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
scene_need linux.uml unshare ip nbd-client mke2fs fsck.ext4 debugfs python3
if [ "$(id -u)" -ne 0 ] || [ ! -c /dev/net/tun ]; then
    tap_skip_all "needs root and /dev/net/tun"
fi
unshare -nmp --fork true 2>/dev/null || tap_skip_all "no name spaces here"
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
scene_until "$((${UML_LIMIT:-90} + 30))" bash -c "! kill -0 $(scene_pid guest) 2>/dev/null" ||
    tap_note "the guest did not end in time"
scene_stop guest
ENDED=
report_steps
if [ -z "$ENDED" ]; then
    tap_not_ok "the guest came to its end"
    tail -n 20 "$SCENE_DIR"/guest.{out,err} "$SCENE_DIR/uml.err" 2>/dev/null | sed 's/^/#   /'
    tap_end
fi
tap_is "the guest's checksums are those of the files" \
    "$(tr -d '\r' <"$SCENE_DIR/guest.out" | sed -n 's/^SUM //p')" "$(host_sums "$SCENE_DIR/tree")"
check_image_after
tap_end
