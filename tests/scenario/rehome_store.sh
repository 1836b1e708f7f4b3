#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two hosts with a store each: a volume goes from one to the other and back with its data, while
# clients of both write to it, and whoever has a part in it is killed. Each 4 KiB is stamped.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/rehome_lib.sh"
ctl_begin "re-homing with the data"
rehome_need
ctl_need mover
/usr/bin/python3 -c 'import nbd' 2>/dev/null ||
    tap_skip_all "libnbd's Python module is not installed"

store_out() { # SEGMENT: what offers its store
    printf '\n[peer out1]\nrole=synapse_export\nlisten=unix:%s\nedge.store=file0\n' \
        "$SCENE_DIR/$1.store"
}
for segment in a b; do
    { host "$segment" home0 "$SCENE_DIR/$segment.d" && out "$segment" && store_out "$segment"; } \
        >"$SCENE_DIR/$segment.conf"
    down_at_exit "$segment"
    ctl_exits 0 "$segment comes up" up "$SCENE_DIR/$segment.conf"
done
bridge() { ctl_exits 0 "$1 reaches $2's $4" bridge add -s "$1" "$3" "unix:$SCENE_DIR/$2.$4"; }
bridge a b far0 out
bridge a b store1 store
bridge b a back0 out
bridge b a store2 store

ctl_exits 0 "a volume" volume create -s a disk --size 64M --object-size 256K
tap_run "a client of a's" load first a
ctl_exits 0 "move" volume move -s a disk --to store1
ctl_exits 0 "rehome" rehome -s a disk --to far0
tap_is "owner" "$(owner b) $(owner a)" "b b"
tap_end
