#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The front is killed under load and started again: clients that connect again (libnbd, by hand)
# find it, on a UNIX socket and on TCP.

. "$(dirname "$0")/kill_lib.sh"
PORT=$(scene_free_port)
kill_begin "the front is killed, libnbd connects again" "listen=tcp:127.0.0.1:$PORT"

kill_load unix --reconnect --blocks 256
for ((round = 0; round < ROUNDS; round++)); do
    kill_pause
    kill_again front
done
kill_pause
kill_enough unix
tap_run "it did have to connect again" grep -qE ', [1-9][0-9]* reconnects' "$SCENE_DIR/unix.out"

KILL_URI=nbd://127.0.0.1:$PORT/disk
kill_load tcp --reconnect --blocks 256
for ((round = 0; round < ROUNDS; round++)); do
    kill_pause
    kill_again front
done
kill_pause
kill_enough tcp
tap_run "it did have to connect again" grep -qE ', [1-9][0-9]* reconnects' "$SCENE_DIR/tcp.out"

# a client that does not connect again is told; this would not work if nothing had been killed
KILL_URI=$SCENE_URI
kill_load brief
kill_again front
: >"$SCENE_DIR/enough.brief"
scene_until 20 kill_ended brief
scene_stop brief
tap_is "who does not connect again sees it" "$?" 1
tap_run "the front stops" scene_stop front
tap_run "and takes its socket's file with it" test ! -e "$SCENE_SOCKET"
tap_end
