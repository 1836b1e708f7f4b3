#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# `./quickstart kill` in small: every process of a pipeline is killed under verified load, and no
# client sees an error. With a store that cannot keep its promise the same program must say so.

. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)

# up STORE [OPTION]: four processes and a volume; SEGMENT, CONF and URI say which.
up() {
    SEGMENT=demo$$-${1##*_} CONF=$SCENE_DIR/$1.conf SOCKET=$SCENE_DIR/$1.sock
    cat >"$CONF" <<END
[segment]
name=$SEGMENT
size=64M

[peer nbd0]
role=front_nbd
listen=unix:$SOCKET
edge.volume=vol0

[peer vol0]
role=volume
edge.store=store0
edge.map=map0

[peer map0]
role=mapperd
edge.store=store0

[peer store0]
role=$1
${2:-}
END
    export SKERRY_SEGMENT=$SEGMENT
    URI="nbd+unix:///kill?socket=$SOCKET"
    "$XSEGCTL" up "$CONF" >/dev/null || return 1
    scene_at_exit "'$XSEGCTL' down $SEGMENT --yes >/dev/null 2>&1"
    "$XSEGCTL" volume create kill --size 16M >/dev/null
}

scene_begin
scene_need_skerry
PATH=$(dirname "$XSEGCTL"):$PATH

if up blocker_file "dir=$SCENE_DIR/store"; then
    tap_run "each process is killed twice, nobody sees an error" python3 "$HERE/demo_kill_load.py" \
        "$URI" --rounds 2 && tap_show
    tap_run "afterwards nothing in the segment is lost" "$XSEGCTL" segment fsck "$SEGMENT"
    tap_run "and it goes down" "$XSEGCTL" down "$SEGMENT"
else
    tap_not_ok "the pipeline starts"
fi

# what was in memory goes with its process: the load must notice
if up blocker_memory; then
    tap_fails "a store that forgets is found out" python3 "$HERE/demo_kill_load.py" "$URI"
else
    tap_not_ok "the pipeline with a memory store starts"
fi
tap_end
