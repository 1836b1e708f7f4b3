#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Front, composer and mapper, with a cache plugged in and out, over a pool of a Ceph cluster: what
# is tested over files under kills and while the cache changes holds there as well.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/ceph_lib.sh"
export TAP_LIMIT=1500 # a whole script is one command here
scene_begin "a pipeline over RADOS"
[ -e "$SKERRY_MODULE_DIR/blocker_rados.so" ] || tap_skip_all "blocker_rados is not built"
ceph_need "$SCENE_DIR/ceph"
here=$(dirname "$0")
KILL_STORE=blocker_rados,pool=skerry,namespace=kill \
    tap_run "peers are killed: nothing acknowledged is lost" bash "$here/kill_all.sh"
KEEPER_STORE=$'role = blocker_rados\npool = skerry\nnamespace = plug' \
    tap_run "a cache is plugged in and out under load" bash "$here/ctl_plug.sh"
tap_end
