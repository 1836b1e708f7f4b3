# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A bad network, on top of lib.sh: tests/lib/relay.c.
#   relay_start PORT         the scene's process `relay` listens at $RELAY_PORT, and what comes
#                            goes on to PORT of this host; or all is skipped
#   network WORD=NUMBER...   what it is to do from now on

RELAY_PORT=''

network() {
    printf '%s ' "$@" >"$SCENE_DIR/network.new"
    mv "$SCENE_DIR/network.new" "$SCENE_DIR/network"
}

relay_start() { # PORT
    local relay
    relay=$(scene_find relay)
    [ -n "$relay" ] || tap_skip_all "tests/lib/relay is not built"
    RELAY_PORT=$(scene_free_port)
    network delay=0
    scene_spawn relay "$relay" "$RELAY_PORT" "$1" "$SCENE_DIR/network"
    scene_wait_tcp 127.0.0.1 "$RELAY_PORT"
}
