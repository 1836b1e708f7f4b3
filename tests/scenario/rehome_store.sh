#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two hosts with a store each: a volume goes from one to the other and back with its data, while
# clients of both write to it, and whoever has a part in it is killed. What was written is there.

. "$(dirname "$0")/rehome_lib.sh"
scene_own_mounts "$@"
ctl_begin "re-homing with the data"
rehome_need
ctl_need mover
/usr/bin/python3 -c 'import nbd' 2>/dev/null ||
    tap_skip_all "libnbd's Python module is not installed"

mkdir "$SCENE_DIR/b.d"
mount -t tmpfs -o size=96M none "$SCENE_DIR/b.d" 2>/dev/null &&
    scene_at_exit "umount -l '$SCENE_DIR/b.d'"
for segment in a b; do
    { host "$segment" home0 "$SCENE_DIR/$segment.d" && out "$segment" && store_out "$segment"; } \
        >"$SCENE_DIR/$segment.conf"
    down_at_exit "$segment"
    ctl_exits 0 "$segment comes up" up "$SCENE_DIR/$segment.conf"
done
bridge a b far0 out
bridge a b store1 store
bridge b a back0 out
bridge b a store2 store

# --- refused: nothing has moved ----------------------------------------------------------------
ctl_exits 0 "a volume" volume create -s a disk --size 64M --object-size 256K
tap_run "it has data" io a -c 'write -P 7 16M 16M' -c 'write -P 8 40M 64k' -c flush
ctl_exits 0 "a snapshot" volume snapshot -s a disk@one
ctl_exits 0 "a clone" volume clone -s a disk@one kid
tap_run "which is not the same" scene_io "nbd+unix:///kid?socket=$SCENE_DIR/a.sock" \
    -c 'write -P 9 17M 1M' -c flush
ctl_exits 4 "b has no such volume" rehome -s a disk --to far0
tap_like "and the answer says what to do" "$ERR" "--store"
nobody_has() { [ "$("$XSEGCTL" volume info -s a disk --json | jq .home.host)" = null ]; }
tap_run "... nor is it kept for a move that does not begin" scene_until 60 nobody_has
ctl_exits 2 "no name" rehome -s a disk --to far0 --store no/name
ctl_exits 3 "no store" rehome -s a disk --to far0 --store store9
ctl_exits 2 "what is no store" rehome -s a disk --to far0 --store cache0
tap_is "all is here" "$(objects b)" 0

# --- there, and back ----------------------------------------------------------------------------
tap_run "a client of a's" load first a
ctl_exits 2 "no limit to nothing" rehome -s a disk --to far0 --bandwidth 16M
ctl_exits 2 "no size" rehome -s a disk --to far0 --store store1 --bandwidth fast
ctl_exits 0 "it goes to b" rehome -s a disk --to far0 --store store1 --bandwidth 16M --json
json_is "with its data" '.bytes >= 17 * 1048576 and .changed' true
# but for the last eight objects, which may take no time
json_is "no faster than it may" '.duration_ns >= (.bytes - 8 * 262144) * 1000000000 / 16777216' true
tap_is "b has it" "$(owner b) $(owner a) $(state a) $(state b)" "b b away home"
tap_is "and nothing of it is left" "$(objects a)" 0
ctl_exits 0 "said again" rehome -s a disk --to far0 --store store1 --json
json_is "there is nothing to do" '.bytes' 0
tap_run "a client of b's" load second b --high
tap_run "all is there" io b -c 'read -P 7 16M 16M' -c 'read -P 8 40M 64k'
tap_run "the clone went, too" scene_io "nbd+unix:///kid?socket=$SCENE_DIR/b.sock" \
    -c 'read -P 9 17M 1M' -c 'read -P 7 18M 14M'
tap_run "a's client of it also sees it" scene_io "nbd+unix:///kid?socket=$SCENE_DIR/a.sock" \
    -c 'read -P 9 17M 1M'
VOLUME=kid tap_run "which stays a's, and is written to" load kid a
ctl_exits 5 "so the mover has to stay" unplug -s a mover0
load_ends kid "its client noticed nothing"
is_free() { [ "$("$XSEGCTL" volume info -s b kid --json | jq .home.host)" = null ]; }
tap_run "nobody has it any more" scene_until 60 is_free
ctl_exits 0 "it comes back" rehome -s b disk --to back0 --store store2 --json
tap_is "a has it" "$(owner b) $(owner a) $(state a) $(state b)" "a a home away"
tap_is "and nothing of it is left at b's" "$(objects b)" 0

# --- all of them, and one too many ----------------------------------------------------------------
for name in one two; do
    ctl_exits 0 "volume $name" volume create -s a "$name" --size 1G
    VOLUME=$name tap_run "a client of $name" load "$name" a
done
ctl_exits 0 "what would go" evacuate -s a --to far0 --store store1 --dry-run --json
json_is "and where its data" '[.volumes[] | .name + " " + .store] | sort | join(", ")' \
    "disk store1, one store1, two store1"
ctl_exits 0 "all go" evacuate -s a --to far0 --store store1 --json
json_is "with their data" '.moved == 3 and .bytes > 17 * 1048576' true
ctl_exits 0 "and come back" evacuate -s b --to back0 --store store2 --json
json_is "all of them" .moved 3
for name in one two; do
    load_ends "$name" "the client of $name noticed nothing"
    tap_run "volume $name goes" scene_until 60 "$XSEGCTL" volume rm -s a "$name" --yes
done
if mountpoint -q "$SCENE_DIR/b.d"; then
    ctl_exits 0 "one that is too large" volume create -s a large --size 160M --object-size 256K
    large() { scene_io "nbd+unix:///large?socket=$SCENE_DIR/a.sock" "$@"; }
    tap_run "it is filled" large -c 'write -P 3 0 80M' -c 'write -P 4 80M 80M' -c flush
    ctl_exits 1 "it does not fit" rehome -s a large --to far0 --store store1
    tap_like "the answer says so" "$ERR" "'large' stays where it is: 'store1' has .* MiB free"
    ctl_exits 1 "nor if it is called for" rehome -s b large --from back0 --store store2
    tap_like "the answer says so" "$ERR" "'large' stays where it is: 'file0' has .* MiB free"
    tap_is "nothing has moved" "$(objects b)" 0
    mount -o remount,size=256M "$SCENE_DIR/b.d"
    takes_room() { # all but 4 MiB
        scene_until 60 is_some && fallocate -l $(($(df -B 1 --output=avail "$SCENE_DIR/b.d" |
            tail -n 1) - (4 << 20))) "$SCENE_DIR/b.d/hog"
    }
    is_some() { [ "$(objects b)" -gt 0 ]; }
    takes_room &
    ctl_exits 1 "it fits, and then somebody else takes the room" \
        rehome -s a large --to far0 --store store1 --bandwidth 1M
    wait $!
    rm "$SCENE_DIR/b.d/hog"
    ERR_FULL=$ERR
    ctl_exits 5 "the mover has to stay" unplug -s a mover0
    tap_like "the answer says so" "$ERR_FULL" "No space left on device.*stays usable"
    tap_run "it stays usable" large -c 'read -P 3 0 80M' -c 'read -P 4 80M 80M'
    ctl_exits 0 "all of it goes back" volume move -s a large --to file0
    tap_run "and is whole" large -c 'read -P 3 0 80M' -c 'read -P 4 80M 80M'
    tap_run "it is removed" scene_until 60 "$XSEGCTL" volume rm -s a large --yes
else
    tap_skip "a store that is full" "tmpfs cannot be mounted here"
fi

# --- killed, and cut off ------------------------------------------------------------------------
goes() { # FROM: to the other one, with its data
    if [ "$1" = a ]; then
        "$XSEGCTL" rehome -s a disk --to far0 --store store1 --timeout 60s
    else
        "$XSEGCTL" rehome -s b disk --to back0 --store store2 --timeout 60s
    fi >"$SCENE_DIR/goes" 2>&1
}
from=a to=b
is_where() { echo "$(owner a) $(owner b) $(state a) $(state b) $(objects a) $(objects b)"; }
is_there() { # FROM TO
    [ "$(owner "$1") $(owner "$2") $(state "$1") $(state "$2") $(objects "$1")" = \
        "$2 $2 away home 0" ]
}
# a round is every process of both once, each time on the other way
for ((round = 1; round <= ${REHOME_ROUNDS:-1}; round++)); do
    for victim in "a mover0" "b mover0" "b file0" "a file0" "a store1" "b store2" "b out1" \
        "a out1" "a home0" "b home0" "a cache0" "b vol0" "b map0"; do
        # shellcheck disable=SC2086
        disturbed KILL $victim
    done
done
for victim in "a out1" "a store1" "b mover0"; do
    # shellcheck disable=SC2086
    disturbed STOP $victim
done
[ "$from" = a ] || tap_run "home again" goes b
load_ends first "a's client noticed nothing"
load_ends second "nor did b's"
tap_run "all is here" io a -c 'read -P 7 16M 16M' -c 'read -P 8 40M 64k'
tap_run "also of the clone" scene_io "nbd+unix:///kid?socket=$SCENE_DIR/a.sock" \
    -c 'read -P 9 17M 1M' -c 'read -P 7 18M 14M'
ctl_exits 0 "fsck finds nothing" volume fsck -s a
ctl_exits 0 "a's mover goes" unplug -s a mover0
ctl_exits 0 "and b's" unplug -s b mover0

# --- copies that stay ---------------------------------------------------------------------------
kept=$SCENE_DIR/kept
copies() { find "$kept" -type f | wc -l; }
away() { # it goes, copies stay; and the mover goes
    tap_run "what is in the cache is written" io a -c flush
    ctl_exits 0 "it goes to b, copies stay" rehome -s a disk --to far0 --store store1 --keep "$kept"
    tap_is "in that folder alone" "$(objects a) $(($(copies) > 68))" "0 1"
    tap_run "a's mover goes" scene_until 60 "$XSEGCTL" unplug -s a mover0
    tap_run "b writes to it" io b -c "write -P $1 18M 64k" -c flush
}
comes() {
    ctl_exits 0 "it comes back" rehome -s a disk --from far0 --store store1 --keep "$kept" --json
}
ctl_exits 2 "nowhere" rehome -s a disk --to far0 --store store1 --keep kept
ctl_exits 2 "copies of nothing" rehome -s a disk --to far0 --keep "$kept"
away 17
comes
json_is "only what has changed crosses the bridge" '.bytes > 65535 and .bytes < 1048576' true
tap_is "and no copies are left" "$(copies)" 0
tap_run "all is there" io a -c 'read -P 7 16M 2M' -c 'read -P 17 18M 64k' -c 'read -P 8 40M 64k'
away 19
find "$kept" -type f -exec sh -c 'head -c 300000 /dev/urandom >"$1"' - '{}' \;
comes
json_is "copies that are none are no use" '.bytes > 17 * 1048576' true
tap_run "and no harm" io a -c 'read -P 7 16M 2M' -c 'read -P 19 18M 64k' -c 'read -P 8 40M 64k'
tap_run "write as before" io a -c 'write -P 7 18M 64k' -c flush
ctl_exits 0 "fsck finds nothing" volume fsck -s a
ctl_exits 0 "b goes" down b --yes
tap_run "a needs it no more" io a -c 'read -P 7 16M 16M' -c 'write -P 7 16M 64k' -c flush
ctl_exits 0 "also to list its volumes" volume list -s a --json
json_is "these" '[.volumes[].name] | sort | join(" ")' "disk disk@one kid"
tap_end
