#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A real kernel uses the export while the front is killed and started again: User-Mode Linux, with
# the connection handed to it by netlink so that it waits for the next one. What runs in the guest
# (fio, with verification, on the raw device) sees a pause and no error.

. "$(dirname "$0")/kill_lib.sh"
. "$(dirname "$0")/guest_lib.sh"
guest_addresses 10.118.0
KILLS=3

write_guest() {
    guest_init "$SCENE_DIR/init.guest" "HERE=$KILL_HERE" "KILLS=$KILLS" <<'EOF_GUEST'
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
# That connections break and time out is as it should be here.
no_error() { ! dmesg | grep "I/O error"; }
main() {
    cp "$HERE/nbd_netlink.py" /run # the tests may lie below /tmp
    mount -t tmpfs tmp /tmp
    cd /tmp
    step "load the nbd module" module nbd || return
    step "bring the network up" network || return
    "$PYTHON" /run/nbd_netlink.py "$HOST" "$PORT" disk | tee /run/netlink &
    step "the device has a size" attached || return
    echo "LOADING"
    step "verified I/O over all kills" load
    step "no I/O error in the kernel's log" no_error
}
EOF_GUEST
}

guest_loads() { grep -q LOADING "$SCENE_DIR/guest.out" || guest_ended guest; }
guest_reconnected() { [ "$(reconnects)" -ge "$1" ] || guest_ended guest; }
reconnects() { grep -c RECONNECTED "$SCENE_DIR/guest.out"; }

main() {
    local kills=0 peers name
    guest_network_up || { tap_not_ok "the host's side of the network"; return; }
    SCENE_STORE=blocker_file,dir=$SKERRY_SHM_DIR/store SCENE_SIZE=64M SCENE_SEGMENT_SIZE=128M
    scene_split "$SEGMENT" "listen=tcp:$ADDRESS:$PORT,tls=off" ||
        { tap_not_ok "the pipeline starts"; return; }
    scene_spawn guest guest_boot "$SCENE_DIR/init.guest"
    scene_until 60 guest_loads || tap_not_ok "the guest begins"
    for peers in "front" "front volume" "store volume front"; do
        kill_pause
        # shellcheck disable=SC2086
        kill_again $peers
        kills=$((kills + 1))
        scene_until 20 guest_reconnected $kills || tap_not_ok "the kernel is given a connection"
    done
    guest_ends guest
    tap_is "the kernel was given a new connection each time" "$(reconnects)" "$KILLS"
    for name in "${!SCENE_PIDS[@]}"; do scene_stop "$name"; done
}

# All of it runs in name spaces of its own.
if [ "${1:-}" != --inside ]; then
    if ! unshare -nmp --fork true 2>/dev/null; then tap_skip_all "no name spaces here"; fi
    exec unshare -nmp --fork --kill-child=TERM --mount-proc "$0" --inside
fi
scene_begin "the front is killed, a Linux kernel connects again"
guest_need fio
scene_need_skerry
write_guest
main
tap_end
