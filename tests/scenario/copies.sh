#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# How often a byte is copied on its way, process for process: not at all by the NBD front, between a
# socket and pages, nor by a composer; once by the vhost-user front, between a guest's memory and
# pages. Either end of a bridge sends from pages; of what it receives, up to 32 KiB of a frame come
# along with its header and are copied, the rest comes into pages. What is counted is memcpy() and
# memmove(), by tests/lib/copies.c.

. "$(dirname "$0")/lib.sh"
scene_begin "how often data are copied"
scene_need nbdcopy
SHIM=$SCENE_BUILD/.libs/copies.so
[ -e "$SHIM" ] || tap_skip_all "copies.so is not built"
if [[ $(ldd "$XSEGPEER") =~ lib[atu]+san ]]; then
    tap_skip_all "a sanitizer wants to be loaded first"
fi
for module in synapse_import front_vhost front_nbd; do
    scene_has_module "$module" >"$SCENE_DIR/reason" || tap_skip_all "$(cat "$SCENE_DIR/reason")"
done
MIB=32
near=near$$ far=far$$
scene_segment "$near" 256M >/dev/null || tap_skip_all "no segment"
scene_segment "$far" 256M >/dev/null || tap_skip_all "no segment"

counted() { # NAME SEGMENT PEER...: a process whose copies are counted
    local name=$1 segment=$2
    shift 2
    COPIES=$SCENE_DIR/$name.copies LD_PRELOAD=$SHIM scene_peer "$name" -s "$segment" "$@" ||
        tap_not_ok "$name starts"
}
scene_peer store -s "$far" mem0=blocker_memory || tap_not_ok "the store starts"
counted export "$far" "out0=synapse_export,listen=unix:$SCENE_DIR/bridge,edge.store=mem0"
counted import "$near" "far0=synapse_import,remote=unix:$SCENE_DIR/bridge,port=out0"
counted volumes "$near" map0=mapperd,edge.store=far0,settle=0 \
    vol0=volume,edge.store=far0,edge.map=map0
tap_run "a volume" "$XSEGCTL" -s "$near" volume create disk --size "${MIB}M"
counted nbd "$near" "nbd0=front_nbd,listen=unix:$SCENE_DIR/nbd.sock,edge.volume=vol0"
counted vhost "$near" \
    "vh0=front_vhost,listen=unix:$SCENE_DIR/vh.sock,volume=disk,edge.volume=vol0"

head -c "${MIB}M" /dev/urandom >"$SCENE_DIR/data"
uri="nbd+unix:///disk?socket=$SCENE_DIR/nbd.sock"
tap_run "NBD: all is written" nbdcopy --request-size=1048576 "$SCENE_DIR/data" "$uri"
tap_run "... and read" nbdcopy --request-size=1048576 "$uri" \
    "$SCENE_DIR/back"
tap_run "... as it was" cmp "$SCENE_DIR/data" "$SCENE_DIR/back"
for what in write read; do
    tap_run "vhost-user: $what all" "$SCENE_BUILD/vhost_check" load "$SCENE_DIR/vh.sock" \
        "$what" 1048576 8 0
done

copies() { # NAME WHAT FROM TO: MiB
    local bytes
    scene_stop "$1"
    bytes=$(cat "$SCENE_DIR/$1.copies")
    tap_note "$1 copied ${bytes:=nothing} bytes"
    tap_run "$2" test "$bytes" -ge $(($3 << 20)) -a "$bytes" -le $(($4 << 20))
}
# twice MIB passed either front, four times all passed the rest, half of that in each direction
copies vhost "vhost-user: each byte is copied once" $((2 * MIB)) $((2 * MIB + 4))
copies nbd "NBD: none is" 0 4
copies volumes "composer and mapper: none is" 0 4
copies import "a bridge: not all that comes, and nothing that goes" 0 $((3 * MIB / 2))
copies export "... at the other end" 0 $((3 * MIB / 2))
tap_end
