#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Each peer in turn, two at once, all at once: whoever can connect again finds everything that was
# acknowledged, and what was not, done or not done, never half and never later.

. "$(dirname "$0")/kill_lib.sh"
kill_begin "any peers are killed"

kill_load load
for peers in volume store "volume store" "store volume"; do
    kill_pause
    # shellcheck disable=SC2086
    kill_again $peers
done
kill_pause
kill_enough load "below a living front: no error at all"

kill_load load --reconnect
for peers in front "front volume" "front store" "store volume front" "front volume store"; do
    kill_pause
    # shellcheck disable=SC2086
    kill_again $peers
done
kill_pause
kill_enough load "with the front: nothing acknowledged is lost"
for peer in front volume store; do tap_run "$peer stops" scene_stop "$peer"; done
tap_end
