#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A real kernel uses the export while the front is killed and started again: User-Mode Linux, with
# the connection handed to it by netlink so that it waits for the next one. What runs in the guest
# (fio, with verification, on the raw device) sees a pause and no error.
#
# Everything runs in name spaces of its own, which end with this script and take all processes with
# them. Needs root, /dev/net/tun and the package user-mode-linux.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/kill_lib.sh"
ADDRESS=10.118.0.1 GUEST=10.118.0.2 PORT=10809 KILLS=3
SELF=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
export PATH=$PATH:/usr/sbin:/sbin

write_guest() {
    cat >"$SCENE_DIR/init" <<EOF_GUEST
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
HOST=$ADDRESS PORT=$PORT GUEST=$GUEST HERE='$KILL_HERE' KILLS=$KILLS
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
attached() {
    local i
    for ((i = 0; i < 100; i++)); do
        [ "$(cat /sys/block/nbd0/size)" -gt 0 ] && return
        sleep 0.1
    done
    return 1
}
# Round after round, each verified, until the host has killed often enough, and one more.
load() {
    local last=no
    until [ $last = yes ]; do
        [ "$(grep -c RECONNECTED /run/netlink)" -lt $KILLS ] || last=yes
        fio --name=verified --filename=/dev/nbd0 --thread --ioengine=psync --direct=1 \
            --rw=randrw --bs=4k --size=2M --verify=crc32c --verify_fatal=1 \
            --verify_backlog=64 --fsync=50 --randrepeat=0 --eta=never || return
    done
}
no_error() { ! dmesg | grep -E "I/O error|Buffer I/O"; }
main() {
    step "load the nbd module" module nbd || return
    step "bring the network up" network || return
    "$PYTHON" /run/nbd_netlink.py "$HOST" "$PORT" disk | tee /run/netlink &
    step "the device has a size" attached || return
    echo "LOADING"
    step "verified I/O over all kills" load
    step "no I/O error in the kernel's log" no_error
}
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs tmp /run
cp "$HERE/nbd_netlink.py" /run # the tests may lie below /tmp
mount -t tmpfs tmp /tmp
cd /tmp
echo "STEP ok a guest kernel boots ($(uname -r))"
main
echo "STEP end"
echo o >/proc/sysrq-trigger
sleep 5
EOF_GUEST
    chmod +x "$SCENE_DIR/init"
}

# --- inside the name spaces ------------------------------------------------------------------

network_up() {
    ip link set lo up && ip tuntap add tap0 mode tap && ip addr add "$ADDRESS/24" dev tap0 &&
        ip link set tap0 up
}

# UML 6.1 cannot write the registers of CPUs with AMX; tests/lib/uml_xstate.c says why.
preload() {
    grep -qw amx_tile /proc/cpuinfo || return
    "${CC:-cc}" -D_GNU_SOURCE -O2 -shared -fPIC -o "$SCENE_DIR/xstate.so" \
        "$KILL_HERE/../lib/uml_xstate.c" && echo "$SCENE_DIR/xstate.so"
}

guest_says() { grep -q "$1" "$SCENE_DIR/uml.out"; }
guest_reconnected() { [ "$(grep -c RECONNECTED "$SCENE_DIR/uml.out")" -ge "$reconnects" ]; }
guest_ended() { ! scene_alive uml; }

inside() {
    local reconnects=0 peers name
    network_up || { echo "STEP failed the host's side of the network"; return 1; }
    SCENE_STORE=blocker_file,dir=$SKERRY_SHM_DIR/store SCENE_SIZE=64M SCENE_SEGMENT_SIZE=128M
    scene_split "$SEGMENT" "listen=tcp:$ADDRESS:$PORT,tls=off" ||
        { echo "STEP failed the pipeline starts"; return 1; }
    mkdir -p "$SCENE_DIR/uml"
    TMPDIR=$SKERRY_SHM_DIR LD_PRELOAD=$(preload) scene_spawn uml timeout -k 5 90 linux.uml \
        mem=256M root=/dev/root rootfstype=hostfs rootflags=/ ro init="$SCENE_DIR/init" \
        con=null con0=fd:0,fd:1 quiet umid=guest uml_dir="$SCENE_DIR/uml/" \
        vec0:transport=tap,ifname=tap0,depth=128,gro=1
    scene_until 60 guest_says LOADING || echo "STEP failed the guest begins"
    for peers in front "front volume" "store volume front"; do
        kill_pause
        # shellcheck disable=SC2086
        kill_again $peers
        reconnects=$((reconnects + 1))
        scene_until 20 guest_reconnected || echo "STEP failed the kernel is given a connection"
    done
    scene_until 60 guest_ended
    cat "$SCENE_DIR/uml.out"
    for name in "${!SCENE_PIDS[@]}"; do scene_stop "$name"; done
    "$XSEGCTL" segment destroy "$SEGMENT" --yes
}

if [ "${1:-}" = --inside ]; then
    inside
    exit
fi

# --- outside ---------------------------------------------------------------------------------

scene_begin "the front is killed, a Linux kernel connects again"
scene_need linux.uml unshare ip python3 fio
if [ "$(id -u)" -ne 0 ] || [ ! -c /dev/net/tun ]; then
    tap_skip_all "needs root and /dev/net/tun"
fi
unshare -nmp --fork true 2>/dev/null || tap_skip_all "no name spaces here"
scene_need_skerry
write_guest
export SCENE_DIR SEGMENT XSEGPEER XSEGCTL
SCENE_GRACE=1
scene_spawn guest unshare -nmp --fork --kill-child --mount-proc "$SELF" --inside
scene_until 150 bash -c "! kill -0 $(scene_pid guest) 2>/dev/null" ||
    tap_note "the guest did not end in time"
scene_stop guest
ENDED=
while read -r _ verdict line; do
    case $verdict in
    ok) tap_ok "$line" ;;
    failed) tap_not_ok "$line" ;;
    log) tap_note "  $line" ;;
    end) ENDED=yes ;;
    esac
done < <(tr -d '\r' <"$SCENE_DIR/guest.out" | grep '^STEP ')
if [ -z "$ENDED" ]; then
    tap_not_ok "the guest came to its end"
    tail -n 20 "$SCENE_DIR"/guest.{out,err} "$SCENE_DIR/uml.err" 2>/dev/null | sed 's/^/#   /'
fi
tap_is "the kernel was given a new connection each time" \
    "$(grep -c RECONNECTED "$SCENE_DIR/guest.out")" "$KILLS"
tap_end
