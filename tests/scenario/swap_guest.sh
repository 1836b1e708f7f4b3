#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A volume as swap: User-Mode Linux has the whole pipeline inside, its store on a disk, and a
# program in it uses more memory than it may have. It reads back all it wrote, also when the front,
# the composer and the store are killed under it, and what is in the swap comes back when that ends.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/guest_lib.sh"
ADDRESS='' PORT='' GUEST=''
scene_begin "a volume as swap, in a guest"
guest_need_kernel mkfs.ext4 mkswap jq
for module in front_fuse mapperd volume blocker_file; do
    scene_has_module "$module" || tap_skip_all "$module is not built"
done
if ldd "$XSEGPEER" 2>/dev/null | grep -q libasan; then
    tap_skip_all "the address sanitizer locks no memory"
fi

cat >"$SCENE_DIR/k.conf" <<'END'
[segment]
name=k
size=48M

[peer vol0]
role=volume
edge.store=file0
edge.map=map0

[peer map0]
role=mapperd
edge.store=file0

[peer file0]
role=blocker_file
dir=/run/disk/store
END
guest_init "$SCENE_DIR/init.guest" "XSEGCTL=$XSEGCTL" "MODULES=$SKERRY_MODULE_DIR" \
    "PEER=$XSEGPEER" "KEEPER=$XSEGD" "CONF=$SCENE_DIR/k.conf" \
    "HOG=$(cd "$(dirname "$0")" && pwd)/swap_hog.py" <<'EOF_GUEST'
used() { awk 'NR > 1 { sum += $4 } END { print sum + 0 }' /proc/swaps; }
in_use() { [ "$(used)" -gt 20000 ]; }
locked() { awk '/^VmLck:/ { print ($2 > 40000 ? "yes" : "no") }' "/proc/$1/status"; }
all_locked() {
    local pid
    for pid in $("$XSEGCTL" status --json | jq -r '.keeper.pid, .peers[].pid'); do
        [ "$(locked "$pid")" = "$1" ] || return
    done
}
soon() { # until it is so
    local i
    for ((i = 0; i < 600; i++)); do "$@" && return; sleep 0.1; done
    return 1
}
swaps() { [ "$(awk 'NR > 1' /proc/swaps | wc -l)" -eq "$1" ]; }
status() { # WANT COMMAND...
    local rc=0
    "${@:2}" || rc=$?
    [ "$rc" -eq "$1" ]
}
pid_of() { "$XSEGCTL" status --json | jq -r ".peers[] | select(.name == \"$1\").pid"; }
another() { local pid; pid=$(pid_of "$1") && [ "$pid" -gt 0 ] && [ "$pid" != "$2" ]; }
killed() {
    local old
    old=$(pid_of "$1") && kill -s KILL "$old" && soon another "$1" "$old"
}
hog_ends() {
    wait "$HOG_PID" && grep -q 'all of it' /run/hog && return
    cat /run/hog
    dmesg | tail -n 8
    return 1
}
main() {
    step "load the fuse module" module fuse || return
    step "load the loop module" module loop || return
    cp "$CONF" /run/k.conf && cp "$HOG" /run/hog.py
    mkdir /run/disk /run/skerry /run/shm
    step "the store's disk" mount -t ext4 /dev/ubda /run/disk || return
    export SKERRY_RUN_DIR=/run/skerry SKERRY_SHM_DIR=/run/shm SKERRY_SEGMENT=k
    export SKERRY_MODULE_DIR=$MODULES SKERRY_XSEGPEER=$PEER SKERRY_XSEGD=$KEEPER
    step "up" "$XSEGCTL" up /run/k.conf || return
    step "a volume" "$XSEGCTL" volume create swap --size 256M
    step "with data" "$XSEGCTL" volume create data --size 8M
    step "... in it" sh -c "'$XSEGCTL' mount data && echo words | dd of=/run/skerry/k/mount0/data \
        conv=notrunc && '$XSEGCTL' umount data"
    step "... is refused" status 4 "$XSEGCTL" swap on data
    step "... and left alone" sh -c "'$XSEGCTL' mount data && grep -q words \
        /run/skerry/k/mount0/data && '$XSEGCTL' umount data"
    step "no swap so far" swaps 0
    step "what it would do" "$XSEGCTL" swap on swap --dry-run
    step "... is not done" swaps 0
    step "swap on" "$XSEGCTL" swap on swap --priority 5 || return
    step "it is there" swaps 1
    step "... with its priority" grep -q '5$' /proc/swaps
    step "once more is fine" "$XSEGCTL" swap on swap
    step "all have locked their memory" all_locked yes
    step "it is not unmounted by accident" status 5 "$XSEGCTL" umount swap
    mkdir /run/cgroup
    step "a limit" mount -t cgroup2 cgroup2 /run/cgroup
    mkdir /run/cgroup/users
    echo +memory >/run/cgroup/cgroup.subtree_control
    echo 24M >/run/cgroup/users/memory.max
    sh -c 'echo $$ >/run/cgroup/users/cgroup.procs; exec "$@"' sh \
        "$PYTHON" /run/hog.py 64 2 /run/hog.stop >/run/hog 2>&1 &
    HOG_PID=$!
    step "a program uses more memory than it may have" soon in_use
    for peer in mount0 vol0 file0 mount0; do
        step "$peer is killed under it" killed "$peer"
        sleep 1
    done
    step "successors have locked theirs" soon all_locked yes
    : >/run/hog.stop
    step "the program finds all it wrote" hog_ends
    step "swap off" "$XSEGCTL" swap off swap
    step "no swap is left" swaps 0
    step "nor anything mounted" sh -c "[ -z \"\$('$XSEGCTL' mount)\" ]"
    step "nothing is locked any more" soon all_locked no
    step "the volume is swap from then on" "$XSEGCTL" swap on swap
    step "... and can be ended again" "$XSEGCTL" swap off swap
    step "what is no swap is not ended" status 3 "$XSEGCTL" swap off swap
    step "down" "$XSEGCTL" down k
}
EOF_GUEST
truncate -s 1G "$SCENE_DIR/disk.img"
tap_run "a disk" mkfs.ext4 -q "$SCENE_DIR/disk.img"
scene_spawn guest guest_boot "$SCENE_DIR/init.guest" "ubda=$SCENE_DIR/disk.img"
guest_ends guest 300
tap_end
