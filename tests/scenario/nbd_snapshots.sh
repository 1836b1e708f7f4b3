#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Snapshots, sizes and who has a volume, as NBD clients see them.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "NBD: snapshots, read-only, resize, skerry:dirty"
scene_need qemu-io
python=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import nbd' 2>/dev/null && python=$candidate && break
done
[ -n "$python" ] || tap_skip_all "python3-libnbd is not installed"

SCENE_SEGMENT_SIZE=128M
host() { ctl_host "$1" "$SCENE_DIR/store"; } # SEGMENT: all on one store
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
        ctl_exits 0 "away with the snapshot" volume rm disk@monday --yes
        ctl_exits 0 "and the volume" volume rm disk --yes
    fi
    ctl_exits 0 "create" volume create disk --size 32M
    tap_run "write" qemu-io -f raw -c 'write -P 1 0 64k' -c "write -s $SCENE_DIR/old 0 512" \
        -c 'write -P 2 4M 8M' "$uri"
    ctl_exits 0 "snapshot" volume snapshot disk@monday
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
ctl_exits 0 "away with the clone's" volume rm child@hers --yes
ctl_exits 0 "and the clone" volume rm child --yes
ctl_exits 0 "and the second" volume rm disk@tuesday --yes

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
