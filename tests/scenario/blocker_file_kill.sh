#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# SIGKILL while writes and flushes are under way: the next process finds what was flushed, or what
# was written after it, in each place, and no page in pieces.

. "$(dirname "$0")/blocker_lib.sh"
blocker_begin "blocker_file is killed" 32M

ROUNDS=${ROUNDS:-4}
for io in threads auto; do
    killed_under_load "$io" "$io=blocker_file,dir=$SCENE_DIR/$io,io=$io"
    tap_run "$io: it stops" scene_stop life
done
tap_end
