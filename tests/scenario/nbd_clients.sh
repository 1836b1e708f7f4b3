#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Real NBD clients against a writable export, whose contents are destroyed.
#
#   nbd_clients.sh [URI]    without URI: Skerry, stacked and as three processes, from memory, then
#                           from files
#
# The export is 64 MiB or more; what is not installed is skipped, saying so.

. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
IMAGE_MIB=64 SCENE_SIZE=128M

# A sparse image of random runs and holes, of the export's size. Another one each time: a write
# that is lost shows only where other bytes were before.
SEED=0
make_image() {
    SEED=$((SEED + 1))
    python3 - "$WORK/image.raw" "$IMAGE_MIB" "$SEED" "$(export_size)" <<'PY'
import random, sys
size, rng, mib = int(sys.argv[2]), random.Random(int(sys.argv[3])), 1 << 20
with open(sys.argv[1], "wb") as f:
    for _ in range(size):
        f.seek(rng.randrange((size - 1) * mib) // 512 * 512)
        f.write(rng.randbytes(rng.choice((512, 4096, 70000, 300000))))
    f.truncate(int(sys.argv[4]))
PY
}

need_or_skip() {
    local name=$1
    shift
    local program
    for program in "$@"; do
        scene_have "$program" || { tap_skip "$name" "$program is not installed"; return 1; }
    done
}

json_has() { python3 -c "import json, sys; d = json.load(open(sys.argv[1])); assert $2, d" "$1"; }

export_size() { nbdinfo --size "$URI"; }

# --- libnbd's tools --------------------------------------------------------------------------

info_json() { nbdinfo --json "$URI" >"$WORK/info.json" && json_has "$WORK/info.json" "$1"; }

clients_info() {
    need_or_skip "nbdinfo" nbdinfo || return
    tap_run "nbdinfo --json describes a writable export" info_json \
        'd["protocol"].startswith("newstyle") and not d["exports"][0]["is_read_only"]'
    tap_run "nbdinfo --json: structured replies and base:allocation" info_json \
        'd["structured"] and "base:allocation" in d["exports"][0]["contexts"]'
    tap_run "nbdinfo --list" nbdinfo --list "$URI"
    # shellcheck disable=SC2016  # $1 is the inner shell's
    tap_run "nbdinfo --can connect, write, flush" bash -c \
        'for c in connect write flush; do nbdinfo --can $c "$1" || exit 1; done' - "$URI"
}

copy_there_and_back() {
    rm -f "$WORK/back.raw"
    make_image && nbdcopy "$@" "$WORK/image.raw" "$URI" && nbdcopy "$@" "$URI" "$WORK/back.raw" &&
        cmp "$WORK/image.raw" "$WORK/back.raw"
}

# The map has to cover the export without gap, and agree that data is data.
map_is_whole() {
    nbdinfo --map --json "$URI" >"$WORK/map.json" && python3 - "$WORK" "$(export_size)" <<'PY'
import json, sys
extents = json.load(open(sys.argv[1] + "/map.json"))
at = 0
with open(sys.argv[1] + "/image.raw", "rb") as image:
    for e in extents:
        assert e["offset"] == at and e["length"] > 0, e
        if e["type"] & 2:
            image.seek(at)
            left = e["length"]
            while left:
                part = image.read(min(left, 1 << 20))
                assert not any(part), f"data at {at} is reported as zero"
                left -= len(part)
        at += e["length"]
assert at == int(sys.argv[2]), at
PY
}

clients_copy() {
    need_or_skip "nbdcopy" nbdcopy nbdinfo || return
    tap_run "nbdcopy there and back" copy_there_and_back
    tap_run "nbdcopy, one connection, synchronous" copy_there_and_back -C 1 --synchronous
    tap_run "nbdcopy, 4 connections, 64 requests of 4 KiB" \
        copy_there_and_back -C 4 -R 64 --request-size=4096
    tap_run "nbdcopy --allocated, without extents" copy_there_and_back --allocated --no-extents
    tap_run "nbdinfo --map covers the export and tells the truth" map_is_whole
}

# --- QEMU ------------------------------------------------------------------------------------

qemu_convert_and_back() {
    rm -f "$WORK/back.raw"
    make_image && qemu-img convert -n -f raw -O raw -m 16 -W "$WORK/image.raw" "$URI" &&
        qemu-img compare -f raw -F raw "$WORK/image.raw" "$URI" &&
        qemu-img convert -f raw -O raw "$URI" "$WORK/back.raw" &&
        cmp "$WORK/image.raw" "$WORK/back.raw"
}

qemu_map_is_whole() {
    qemu-img map -f raw --output=json "$URI" >"$WORK/qmap.json" || return
    python3 - "$WORK" "$(export_size)" <<'PY'
import json, sys
at = 0
for e in json.load(open(sys.argv[1] + "/qmap.json")):
    assert e["start"] == at, e
    at += e["length"]
assert at == int(sys.argv[2]), at
PY
}

# qemu-io says 'Pattern verification failed' and exits 1 when a -P pattern is not what it reads.
qemu_patterns() {
    qemu-io -f raw "$URI" \
        -c 'write -P 0x11 0 8M' -c 'write -P 0x22 4190208 8k' -c 'write -f -P 0x33 1M 512' \
        -c 'write -z 2M 1M' -c 'write -z -u 3M 64k' -c 'discard 8M 4M' -c 'flush' \
        -c 'aio_write -P 0x44 5M 64k' -c 'aio_write -P 0x45 6M 64k' -c 'aio_flush' \
        -c 'read -P 0x11 0 1M' -c 'read -P 0x33 1M 512' -c 'read -P 0x11 1049088 1000448' \
        -c 'read -P 0 2M 1M' -c 'read -P 0 3M 64k' -c 'read -P 0x22 4190208 8k' \
        -c 'read -P 0x11 4198400 1044480' -c 'read -P 0x44 5M 64k' -c 'read -P 0x45 6M 64k'
}

qemu_wrong_pattern() { qemu-io -f raw "$URI" -c 'read -P 0x77 1M 512'; }

clients_qemu() {
    need_or_skip "qemu-img, qemu-io" qemu-img qemu-io nbdinfo || return
    tap_run "qemu-img info" qemu-img info -f raw "$URI"
    tap_run "qemu-img convert there, compare, and back" qemu_convert_and_back
    tap_run "qemu-img map covers the export" qemu_map_is_whole
    tap_run "qemu-io patterns: write, zero, discard, FUA, aio" qemu_patterns
    tap_fails "qemu-io notices a wrong pattern" qemu_wrong_pattern
}

# --- fio -------------------------------------------------------------------------------------

fio_verify() {
    (cd "$WORK" && fio --name="$1" --ioengine=nbd --uri="$URI" --verify=crc32c \
        --verify_fatal=1 --randseed=$((SEED += 1)) --output-format=terse \
        --output="$WORK/fio.$1" "${@:2}")
}

# Disjoint halves, so that two jobs may verify what each wrote.
fio_two_jobs() {
    local half=$((IMAGE_MIB / 2))M
    (cd "$WORK" && fio --ioengine=nbd --uri="$URI" --verify=crc32c --verify_fatal=1 --rw=randwrite \
        --output-format=terse --output="$WORK/fio.two" --iodepth=16 --size="$half" --io_size=8M \
        --name=a --bs=4k --offset=0 --name=b --bs=16k --offset="$half")
}

clients_fio() {
    need_or_skip "fio" fio || return
    fio --enghelp=nbd >/dev/null 2>&1 || { tap_skip "fio" "fio has no nbd engine"; return; }
    tap_run "fio randwrite 4k QD16, verified" fio_verify small --rw=randwrite --bs=4k \
        --iodepth=16 --size=32M
    tap_run "fio randwrite mixed sizes QD32, verified" fio_verify mixed --rw=randwrite \
        --bsrange=512-128k --bs_unaligned=0 --blockalign=512 --iodepth=32 --io_size=64M \
        --size="${IMAGE_MIB}M"
    tap_run "fio two jobs on one export, verified" fio_two_jobs
    tap_run "fio sequential 1M with flushes, verified" fio_verify large --rw=write --bs=1m \
        --iodepth=4 --size="${IMAGE_MIB}M" --fsync=8
}

# --- libnbd from Python ----------------------------------------------------------------------

clients_libnbd() {
    local python
    for python in python3 /usr/bin/python3; do
        "$python" -c 'import nbd' 2>/dev/null && break
        python=
    done
    if [ -z "$python" ]; then
        tap_skip "libnbd from Python" "python3-libnbd is not installed"
        return
    fi
    tap_run "libnbd: 4 connections share one export" "$python" "$HERE/nbd_libnbd.py" "$URI"
}

clients_all() {
    URI=$1 WORK=$SCENE_DIR/work
    tap_note "clients of $URI"
    rm -rf "$WORK"
    mkdir -p "$WORK"
    for clients in ${CLIENTS:-info copy qemu fio libnbd}; do "clients_$clients"; done
}

scene_begin
if [ $# -gt 0 ]; then
    clients_all "$1"
    tap_end
fi
scene_need_skerry
# serve SHAPE STORE
SERVED=0
serve() {
    SCENE_STORE=$2 SERVED=$((SERVED + 1))
    if "scene_$1" "nbdc$$-$SERVED"; then
        tap_note "$1, $2"
        clients_all "$SCENE_URI"
    else
        tap_not_ok "a $1 pipeline on $2 starts"
    fi
    for peer in front volume store; do scene_stop "$peer" || tap_not_ok "$peer stops cleanly"; done
}
mkdir "$SCENE_DIR/objects"
serve stacked blocker_memory
serve split blocker_memory
serve stacked "blocker_file,dir=$SCENE_DIR/objects"
tap_end
