#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Files of a front that is killed over and over, in User-Mode Linux: its kernel looks up each page
# of a process the slow way, and gives up when that process is killed. A real one does so for pages
# that are new to the process. So what is on its way between kernel and front at that moment must
# not depend on finding one, or whoever has asked sees an error.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/guest_lib.sh"
ADDRESS='' PORT='' GUEST=''
scene_begin "files whose front is killed over and over, in a guest"
guest_need_kernel jq
for module in front_fuse mapperd volume blocker_memory; do
    scene_has_module "$module" || tap_skip_all "$module is not built"
done

cat >"$SCENE_DIR/k.conf" <<'END'
[segment]
name=k
size=48M

[peer fuse0]
role=front_fuse
edge.volume=vol0
path=/run/volumes
restart-limit=0
restart-delay-max=0

[peer vol0]
role=volume
edge.store=memory0
edge.map=map0

[peer map0]
role=mapperd
edge.store=memory0

[peer memory0]
role=blocker_memory
END
# Half a MiB at a time, without a cache: many pages are looked for in each message and answer.
cat >"$SCENE_DIR/blocks.py" <<'END'
import mmap, os, random, sys

path, first, stop = sys.argv[1], int(sys.argv[2]), sys.argv[3]
SIZE, MINE = 512 << 10, range(first, first + 8)
file, buffer = os.open(path, os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, SIZE)
written, turn = dict.fromkeys(MINE, 0), 0
stamp = lambda number, turn: (b"%07d %07d\n" % (number, turn)) * (SIZE // 16)
while not os.path.exists(stop) or turn < 100:
    turn += 1
    number = random.choice(MINE)
    buffer[:] = stamp(number, turn)
    os.pwritev(file, [buffer], number * SIZE)
    written[number] = turn
    for number in random.sample(MINE, 3):
        os.preadv(file, [buffer], number * SIZE)
        if buffer[:] != (stamp(number, written[number]) if written[number] else bytes(SIZE)):
            raise SystemExit(f"block {number} is not what was written in turn {written[number]}")
print(turn, "turns")
END
guest_init "$SCENE_DIR/init.guest" "XSEGCTL=$XSEGCTL" "MODULES=$SKERRY_MODULE_DIR" \
    "PEER=$XSEGPEER" "KEEPER=$XSEGD" "CONF=$SCENE_DIR/k.conf" \
    "BLOCKS=$SCENE_DIR/blocks.py" <<'EOF_GUEST'
front() { # its process, another than $1
    local pid
    until pid=$("$XSEGCTL" status --json | jq -r '.peers[] | select(.name == "fuse0").pid') &&
        [ "$pid" -gt 0 ] && [ "$pid" != "$1" ]; do
        sleep 0.05
    done
    echo "$pid"
}
killed() { # N times
    local i pid=0
    for ((i = 0; i < $1; i++)); do
        pid=$(front "$pid")
        sleep "0.0$((RANDOM % 10))"
        kill -s KILL "$pid" || return
    done
}
ends() {
    wait "$1"
    cat "/run/$2"
    grep -q turns "/run/$2"
}
main() {
    step "load the fuse module" module fuse || return
    cp "$CONF" /run/k.conf
    mkdir /run/skerry /run/shm /run/volumes
    export SKERRY_RUN_DIR=/run/skerry SKERRY_SHM_DIR=/run/shm SKERRY_SEGMENT=k
    export SKERRY_MODULE_DIR=$MODULES SKERRY_XSEGPEER=$PEER SKERRY_XSEGD=$KEEPER
    step "up" "$XSEGCTL" up --unguarded /run/k.conf || return
    step "a volume" "$XSEGCTL" volume create disk --size 8M
    "$PYTHON" "$BLOCKS" /run/volumes/disk 0 /run/stop >/run/one 2>&1 &
    ONE=$!
    "$PYTHON" "$BLOCKS" /run/volumes/disk 8 /run/stop >/run/two 2>&1 &
    TWO=$!
    step "the front is killed thirty times" killed 30
    : >/run/stop
    step "a program that reads and writes saw no error, and reads what it wrote" ends "$ONE" one
    step "another, too" ends "$TWO" two
    step "down" "$XSEGCTL" down k --yes
}
EOF_GUEST
scene_spawn guest guest_boot "$SCENE_DIR/init.guest"
guest_ends guest 900
tap_end
