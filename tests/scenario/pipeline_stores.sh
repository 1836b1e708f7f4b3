#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Front, composer and mapper, with a cache plugged in and out, over a pool of a Ceph cluster, a
# Redis server, an S3 bucket and a tape library: what is tested over files under kills and while the
# cache changes holds there as well.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/ceph_lib.sh"
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/redis_lib.sh"
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/s3_lib.sh"
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/tape_lib.sh"
export TAP_LIMIT=1500 # a whole script is one command here
scene_begin "pipelines over stores"
here=$(dirname "$0")

over() { # STORE OPTION...
    local store=$1 options
    shift
    options=$(printf ',%s' "$@")
    KILL_STORE=$store$options,${PART}=kill tap_run "$store: peers are killed, nothing is lost" \
        bash "$here/kill_all.sh"
    KEEPER_STORE=$(printf 'role = %s\n' "$store" && printf '%s\n' "$@" "$PART=plug") \
        tap_run "$store: a cache is plugged in and out under load" bash "$here/ctl_plug.sh"
    MOVE_STORE=$(printf 'role = %s\n' "$store" && printf '%s\n' "$@" "$PART=move") \
        tap_run "$store: volumes are moved there and back" bash "$here/volume_move.sh"
}

reason=$SCENE_DIR/reason
if { scene_has_module blocker_rados && ceph_have && ceph_start "$SCENE_DIR/ceph"; } >"$reason"; then
    PART=namespace over blocker_rados pool=skerry
else
    tap_skip "over RADOS" "$(tail -n 1 "$reason")"
fi
if { scene_has_module blocker_redis && redis_have &&
    redis_start "$SCENE_DIR/redis"; } >"$reason"; then
    PART=prefix over blocker_redis "socket=$REDIS_SOCKET"
else
    tap_skip "over Redis" "$(tail -n 1 "$reason")"
fi
for process in ceph-osd ceph-mon; do scene_stop "$process"; done
if { scene_has_module blocker_s3 && s3_have && s3_start "$SCENE_DIR/s3"; } >"$reason"; then
    IFS=, read -ra options <<<"$S3_OPTIONS"
    PART=prefix over blocker_s3 "${options[@]}"
else
    tap_skip "over S3" "$(tail -n 1 "$reason")"
fi
if { scene_has_module blocker_tape && tape_have &&
    tape_start "$SCENE_DIR/tape" 4 1024; } >"$reason"; then
    KILL_STORE=blocker_tape,$TAPE_OPTIONS,index=$SCENE_DIR/index \
        tap_run "blocker_tape: peers are killed, nothing is lost" bash "$here/kill_all.sh"
    # a new library: that one is the other store's
    scene_stop tgtd
    tape_start "$SCENE_DIR/tape2" 4 1024 >"$reason" || tap_not_ok "a second library"
    IFS=, read -ra options <<<"$TAPE_OPTIONS"
    KEEPER_STORE=$(printf '%s\n' "role = blocker_tape" "${options[@]}" "index=$SCENE_DIR/index2") \
        tap_run "blocker_tape: a cache is plugged in and out under load" bash "$here/ctl_plug.sh"
else
    tap_skip "over tape" "$(tail -n 1 "$reason")"
fi
tap_end
