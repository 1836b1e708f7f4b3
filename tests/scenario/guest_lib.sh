# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A guest kernel for scenario scripts, on top of lib.sh: User-Mode Linux, an ordinary process of
# the host, whose root is the host's file system, read-only. It reaches the host over a tap device,
# so all of it runs in name spaces of its own (network, pid, mount) that end with the script and
# take all processes with them. Needs root, /dev/net/tun and the package user-mode-linux.
#
#   guest_need                       tap_skip_all where no guest can be started
#   guest_need_kernel                the same, for one without a network: no name spaces, no root
#   guest_addresses NET              HOST and guest are NET.1 and NET.2: ADDRESS, GUEST, PORT
#   guest_init FILE [NAME=VALUE...]  makes the guest's init: the variables, what is below, and then
#                                    stdin, which defines main()
#   guest_network_up                 the host's side of the network, in the name spaces
#   guest_boot INIT [DEVICE...]      becomes a guest, so: scene_spawn NAME guest_boot INIT; with
#                                    a network, or these devices instead
#   guest_power_cut NAME             ends it as a power cut would
#   guest_end NAME [S]               waits until it has ended by itself
#   guest_said NAME                  prints what it has said on its console
#   guest_report NAME                its steps as tests; fails when it has not come to its end
#   guest_ends NAME [S]              both, as tests
#
# In the guest: step NAME CMD... says 'STEP ok NAME' or 'STEP failed NAME' and why; module NAME;
# network; attach EXPORT [DEVICE] (nbd0) over TCP.

export PATH=$PATH:/usr/sbin:/sbin

guest_need_kernel() { scene_need linux.uml python3 "$@"; }

guest_need() {
    guest_need_kernel unshare ip nbd-client "$@"
    if [ "$(id -u)" -ne 0 ] || [ ! -c /dev/net/tun ]; then
        tap_skip_all "needs root and /dev/net/tun"
    fi
    unshare -nmp --fork true 2>/dev/null || tap_skip_all "no name spaces here"
}

guest_addresses() { ADDRESS=$1.1 GUEST=$1.2 PORT=10809; }

guest_init() {
    local file=$1 pair
    shift
    {
        echo '#!/bin/bash'
        for pair in "HOST=$ADDRESS" "PORT=$PORT" "GUEST=$GUEST" \
            "PYTHON=$(python3 -c 'import sys; print(sys.executable)')" "$@"; do
            printf '%s=%q\n' "${pair%%=*}" "${pair#*=}"
        done
        guest_init_head
        cat
        guest_init_tail
    } >"$file"
    chmod +x "$file"
}

# For any shell; /run/log is its own.
guest_step() {
    cat <<'EOF_GUEST'
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
EOF_GUEST
}

guest_init_head() {
    guest_step
    cat <<'EOF_GUEST'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
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
    local device=/dev/${2:-nbd0}
    nbd-client -N "$1" -b 512 "$HOST" "$PORT" "$device" &&
        [ "$(blockdev --getsize64 "$device")" -gt 0 ]
}
no_error() { ! dmesg | grep -iE "I/O error|nbd[0-9]*: .*(error|timed out)"; }
EOF_GUEST
}

guest_init_tail() {
    cat <<'EOF_GUEST'
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
}

guest_network_up() {
    ip link set lo up && ip tuntap add tap0 mode tap && ip addr add "$ADDRESS/24" dev tap0 &&
        ip link set tap0 up
}

# UML 6.1 cannot write the registers of CPUs with AMX; tests/lib/uml_xstate.c says why.
guest_preload() {
    grep -qw amx_tile /proc/cpuinfo || return
    "${CC:-cc}" -D_GNU_SOURCE -O2 -shared -fPIC -o "$SCENE_DIR/xstate.so" \
        "$(dirname "${BASH_SOURCE[0]}")/../lib/uml_xstate.c" && echo "$SCENE_DIR/xstate.so"
}

guest_boot() {
    local init=$1
    shift
    [ $# -gt 0 ] || set -- vec0:transport=tap,ifname=tap0,depth=128,gro=1
    mkdir -p "$SCENE_DIR/uml"
    TMPDIR=$SKERRY_SHM_DIR LD_PRELOAD=$(guest_preload) exec linux.uml mem=256M \
        root=/dev/root rootfstype=hostfs rootflags=/ ro init="$init" con=null con0=fd:0,fd:1 \
        quiet umid="${init##*.}" uml_dir="$SCENE_DIR/uml/" "$@"
}

guest_ended() { ! scene_alive "$1"; }

# User-Mode Linux has a session of its own, with all processes that run its programs.
guest_power_cut() {
    kill -s KILL -- "-$(scene_pid "$1")" 2>/dev/null || scene_kill KILL "$1"
    scene_stop "$1"
}

guest_end() {
    local rc=0
    scene_until "${2:-${UML_LIMIT:-90}}" guest_ended "$1" || rc=1
    [ "$rc" -eq 0 ] || guest_power_cut "$1"
    scene_stop "$1"
    return "$rc"
}

guest_ends() {
    guest_end "$@" || tap_not_ok "$1 ends in time"
    guest_report "$1" || {
        tap_not_ok "$1 comes to its end"
        tail -n 20 "$SCENE_DIR/$1".{out,err} | sed 's/^/#   /'
    }
}

guest_said() { tr -d '\r' <"$SCENE_DIR/$1.out"; }

guest_report() {
    local verdict line rc=1
    while read -r _ verdict line; do
        case $verdict in
        ok) tap_ok "$1: $line" ;;
        failed) tap_not_ok "$1: $line" ;;
        log) tap_note "  $line" ;;
        end) rc=0 ;;
        esac
    done < <(guest_said "$1" | grep -a '^STEP ')
    return "$rc"
}
