#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Snapshots, sizes and who has a volume, as NBD clients see them.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "NBD: snapshots, read-only, resize, skerry:dirty"
scene_need qemu-io
for module in mapperd volume front_nbd blocker_file; do
    [ -e "$SKERRY_MODULE_DIR/$module.so" ] || tap_skip_all "$module is not built"
done
python=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import nbd' 2>/dev/null && python=$candidate && break
done
[ -n "$python" ] || tap_skip_all "python3-libnbd is not installed"

mkdir "$SCENE_DIR/store"
host() { # SEGMENT: a whole host on the store
    SKERRY_SEGMENT=$1 scene_segment "$1" 128M || exit 99
    scene_peer "$1" -s "$1" "file0=blocker_file,dir=$SCENE_DIR/store" \
        map0=mapperd,edge.store=file0,settle=0 vol0=volume,edge.store=file0,edge.map=map0 \
        "nbd0=front_nbd,listen=unix:$SCENE_DIR/$1.sock,edge.volume=vol0" || exit 99
    scene_wait_socket "$SCENE_DIR/$1.sock" || exit 99
}
host here
export SKERRY_SEGMENT=here
uri="nbd+unix:///disk?socket=$SCENE_DIR/here.sock"
seen() { # CASE [SEGMENT]
    tap_run "$1" "$python" "$(dirname "$0")/nbd_snapshot_client.py" "$1" \
        "$SCENE_DIR/${2:-here}.sock" "$XSEGCTL"
}
closed() { [ "$("$XSEGCTL" volume info disk --json | jq .opens)" = 0 ]; }
fresh() {
    if [ $# -gt 0 ]; then
        scene_until 10 closed
        ctl_exits 0 "away with the snapshot" volume rm monday --yes
        ctl_exits 0 "and the volume" volume rm disk --yes
    fi
    ctl_exits 0 "create" volume create disk --size 32M
    tap_run "write" qemu-io -f raw -c 'write -P 1 0 64k' -c "write -s $SCENE_DIR/old 0 512" \
        -c 'write -P 2 4M 8M' "$uri"
    ctl_exits 0 "snapshot" volume snapshot disk monday
}
printf 'old!' >"$SCENE_DIR/old"
fresh
seen read_only
scene_until 10 closed

fresh again
seen resize
fresh again
seen dirty
fresh again
seen many
fresh again
seen contexts
ctl_exits 0 "away with the clone's" volume rm hers --yes
ctl_exits 0 "and the clone" volume rm child --yes
ctl_exits 0 "and the second" volume rm tuesday --yes

# --- another host has it: it was killed, and nobody can know that ------------------------------
fresh last
mkfifo "$SCENE_DIR/hold"
holder() { exec 7<>"$SCENE_DIR/hold"; exec qemu-io -f raw "$uri" <&7; }
open() { [ "$("$XSEGCTL" volume info disk --json | jq .opens)" = 1 ]; }
scene_spawn holder holder
scene_until 10 open
scene_kill KILL here
scene_stop here
scene_kill KILL holder
scene_stop holder
host there
seen refused there
tap_end
