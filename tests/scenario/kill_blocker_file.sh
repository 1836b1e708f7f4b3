#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The file blocker is killed again and again under load, with io_uring and with threads: clients of
# the front see a pause, no error, and every byte that was acknowledged.

. "$(dirname "$0")/kill_lib.sh"
kill_begin "the file blocker is killed"

for io in auto threads; do
    SCENE_BOTTOM=store0=blocker_file,dir=$SKERRY_SHM_DIR/store,io=$io
    kill_load "$io"
    for ((round = 0; round < ROUNDS; round++)); do
        kill_pause
        kill_again store
    done
    kill_pause
    kill_enough "$io"
done
tap_is "nothing half-written is left" "$(ls "$SKERRY_SHM_DIR/store/tmp")" ""
tap_end
