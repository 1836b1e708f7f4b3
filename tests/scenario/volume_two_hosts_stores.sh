#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What two hosts on one folder pass, two hosts on one pool of a Ceph cluster pass as well, two on
# one Redis server, and two on a third host's files, behind a bridge, and behind a cache there.

. "$(dirname "$0")/lib.sh"
export TAP_LIMIT=1500 # a whole script is one command here
scene_begin "two hosts on one store"
for TWO_HOSTS_STORE in rados redis bridge bridged_cache; do
    export TWO_HOSTS_STORE
    for test in volume_two_hosts_cache volume_two_hosts_kill; do
        name="$TWO_HOSTS_STORE: $test"
        rc=0
        timeout "$TAP_LIMIT" bash "$(dirname "$0")/$test.sh" >"$TAP_OUT" 2>&1 || rc=$?
        case $rc in
        0) tap_ok "$name" ;;
        77) tap_skip "$name" "$(sed -n 's/^1..0 # SKIP //p' "$TAP_OUT")" ;;
        *) tap_not_ok "$name" && tap_show ;;
        esac
    done
done
tap_end
