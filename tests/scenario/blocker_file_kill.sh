#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# SIGKILL while writes and flushes are under way: the next process finds what was flushed, or what
# was written after it, in each place, and no write in pieces.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/blocker_lib.sh"
blocker_begin "blocker_file is killed" 32M

ROUNDS=${ROUNDS:-4}
last=
for io in threads auto; do
    dir=$SCENE_DIR/$io next=0
    for ((i = 0; i < ROUNDS; i++)); do
        blocker_peer "w$io$i" 2 "w$io$i=blocker_file,dir=$dir,io=$io" || tap_not_ok "it starts"
        if [ "$next" -gt 0 ]; then
            tap_is "$io: what was flushed by $((next - 1)) is there" \
                "$(op verify 9 $((next - 1)))" ok
        fi
        scene_spawn "h$io$i" "$CHECK" hammer "$SEGMENT" "$PEER" 9 "$next"
        sleep "0.$((RANDOM % 5 + 1))$((RANDOM % 10))"
        scene_kill KILL "w$io$i"
        scene_kill KILL "h$io$i"
        scene_stop "h$io$i"
        scene_stop "w$io$i"
        last=$(tail -n 1 "$SCENE_DIR/h$io$i.out")
        # a half-sent line would be a number that was never said
        next=$((${last:-$((next - 1))} + 1))
    done
    tap_run "$io: something was written" test "$next" -gt 16
    blocker_peer "v$io" 1 "v$io=blocker_file,dir=$dir,io=$io" || tap_not_ok "it starts"
    tap_is "$io: at the end all is there" "$(op verify 9 $((next - 1)))" ok
    tap_is "$io: a hammer that was not there would be missed" \
        "$(op verify 10 $((next - 1)) | cut -c 1-10)" "wrong data"
    tap_run "$io: it stops" scene_stop "v$io"
done
tap_end
