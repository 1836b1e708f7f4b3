#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The memory blocker's limit: beyond it a write fails, that write only; space given back is there.

. "$(dirname "$0")/blocker_lib.sh"
blocker_begin "blocker_memory" 64M

for lanes in 1 2; do
    blocker_peer "mem$lanes" "$lanes" "m$lanes=blocker_memory,size=12M" || tap_not_ok "it starts"
    tap_is "three objects of 4 MiB fit into 12 MiB" "$(op fill 1 100)" "3 ENOSPC"
    tap_is "a write where there is space already goes on" "$(op write 1 0 4096 8192 5)" ok
    tap_is "a read, too" "$(op read 1 0 4096 8192 5)" ok
    tap_is "a new page does not" "$(op write 2 0 0 512 5)" ENOSPC
    tap_is "nothing is free" "$(op space 0 0)" "12582912 0"
    tap_is "discard" "$(op discard 1 1 65536 8192)" ok
    tap_is "two pages are free" "$(op space 0 0)" "12582912 8192"
    tap_is "two pages are there again" "$(op write 2 0 0 8192 7)" ok
    tap_is "and no third" "$(op write 2 0 8192 4096 7)" ENOSPC
    tap_is "delete" "$(op delete 1 2)" ok
    tap_is "writes go on" "$(op write 2 1 0 1048576 8)" ok
    tap_is "nothing was mixed up" "$(op read 2 0 0 8192 7) $(op read 2 1 0 1048576 8)" "ok ok"
    tap_run "it stops" scene_stop "mem$lanes"
done

# half of the pool by default, and never all of it
blocker_peer half 1 h=blocker_memory || tap_not_ok "it starts"
filled=$(op fill 1 100)
tap_like "by default it takes half of the pages" "$filled" '^[567] ENOSPC$'
tap_is "and requests have pages still" "$(op read 1 0 0 1048576 1)" ok
tap_run "it stops" scene_stop half
tap_like "more than three quarters is refused" \
    "$(blocker_refusal big=blocker_memory,size=63M)" 'three quarters'
tap_end
