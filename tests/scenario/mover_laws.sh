#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A mover that has nothing to move keeps to all laws of a blocker, for volumes in the old store.

. "$(dirname "$0")/blocker_lib.sh"
blocker_begin "the laws of blockers, through a mover" 256M
reason=$(scene_has_module mover) || tap_skip_all "$reason"
blocker_peer stores 2 old0=blocker_memory new0=blocker_memory
blocker_peer mover 1 mover0=mover,edge.store=old0,edge.store-to=new0
laws "through a mover" 2000
tap_run "it stops" scene_stop mover
tap_end
