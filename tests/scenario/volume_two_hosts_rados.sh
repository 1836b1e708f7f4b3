#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What two hosts on one folder pass, two hosts on one pool of a Ceph cluster pass as well.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/ceph_lib.sh"
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
export TAP_LIMIT=1500 # a whole script is one command here
scene_begin "two hosts on one pool"
[ -e "$SKERRY_MODULE_DIR/blocker_rados.so" ] || tap_skip_all "blocker_rados is not built"
reason=$(ceph_have) || tap_skip_all "$reason"
export TWO_HOSTS_STORE=rados
for test in volume_two_hosts_cache volume_two_hosts_kill; do
    tap_run "$test" bash "$(dirname "$0")/$test.sh"
done
tap_end
