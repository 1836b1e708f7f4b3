#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two hosts with a store each: what is said on the host that a volume is to come to. It comes first
# and its data after it, while clients of both write to it, and whoever has a part in it is killed.

. "$(dirname "$0")/rehome_lib.sh"
ctl_begin "re-homing, said where the volume goes"
rehome_need
ctl_need mover
/usr/bin/python3 -c 'import nbd' 2>/dev/null ||
    tap_skip_all "libnbd's Python module is not installed"

for segment in a b; do
    { host "$segment" home0 "$SCENE_DIR/$segment.d" && out "$segment" && store_out "$segment"; } \
        >"$SCENE_DIR/$segment.conf"
    down_at_exit "$segment"
    ctl_exits 0 "$segment comes up" up "$SCENE_DIR/$segment.conf"
done
bridge b a desk out
bridge b a desk-store store
movers() {
    "$XSEGCTL" peer list -s b --json |
        jq -r '[.peers[] | select(.role == "mover").name] | join(" ")'
}
state_is() { [ "$(state "$1")" = "$2" ]; }
kid() { scene_io "nbd+unix:///kid?socket=$SCENE_DIR/$1.sock" "${@:2}"; }
from() { ctl_exits "$1" "$2" rehome -s b disk --from desk "${@:3}"; }

# --- refused: nothing has moved ----------------------------------------------------------------
ctl_exits 0 "a volume" volume create -s a disk --size 64M --object-size 256K
ctl_exits 0 "one that stays" volume create -s a other --size 4M
tap_run "it has data" io a -c 'write -P 7 16M 16M' -c 'write -P 8 40M 64k' -c flush
ctl_exits 0 "a snapshot" volume snapshot -s a disk@one
ctl_exits 0 "a clone" volume clone -s a disk@one kid
tap_run "which is not the same" kid a -c 'write -P 9 17M 1M' -c flush
tap_run "a client of a's" load first a
VOLUME=kid tap_run "one of the clone" load kid a
from 2 "there and here" --to desk
from 3 "b does not see it"
from 3 "no store" --store store9
from 2 "its own store" --store file0
ctl_exits 0 "b has a volume of that name" volume create -s b disk --size 4M
from 4 "which of them is meant?" --store desk-store
tap_like "the answer says so" "$ERR" "both hosts have a volume 'disk'"
ctl_exits 0 "not any more, but one of the clone's" volume rename -s b disk kid
from 4 "which comes along" --store desk-store
tap_like "the answer says so" "$ERR" "both hosts have a volume 'kid'"
ctl_exits 0 "it goes" volume rm -s b kid --yes
from 1 "a has no way to b" --store desk-store
tap_like "the answer says so" "$ERR" "stay there.*has no bridge to the one here"
tap_is "what was put in has gone" "$(movers)" ""
tap_is "all is there" "$(owner a) $(objects b)" "a 0"
bridge a b laptop out
ctl_exits 0 "a's re-homer knows the way" edge set -s a home0:volume-to laptop
from 0 "what would be done" --store desk-store --dry-run --json
json_is "" '.volumes[0] | [.name, .from, .store] | join(" ")' "disk desk desk-store"

from 1 "it cannot be made ready" --store desk-store --freeze-cmd false
tap_is "it is a's yet" "$(owner a) $(state a) $(objects b)" "a home 0"
tap_is "what was put in stays: it might have come" "$(movers)" mover0

# --- it comes ------------------------------------------------------------------------------------
from 0 "it comes" --store desk-store --json
json_is "with its data" '.bytes >= 17 * 1048576 and .changed and .home == "here"' true
tap_is "b has it" "$(owner b) $(state a) $(state b)" "b away home"
tap_is "and nothing is left of it, but what stays is seen here" "$(objects a) $(movers)" "0 mover0"
ctl_exits 0 "as long as one wants to" unplug -s b mover0
ctl_exits 0 "it goes" volume rm -s a other --yes
tap_run "all is there" io b -c 'read -P 7 16M 16M' -c 'read -P 8 40M 64k'
tap_run "the clone came, too" kid b -c 'read -P 9 17M 1M' -c 'read -P 7 18M 14M'
tap_exits 1 "one that neither has" scene_io "nbd+unix:///nobody?socket=$SCENE_DIR/a.sock" -c quit
exporter=$(peer_pid b out0)
kill -s STOP "$exporter" # whoever comes again to a waits for b
kill -s KILL "$(peer_pid a nbd0)"
sleep 1
kill -s CONT "$exporter"
tap_run "a client that comes anew to a is led there" io a -c 'read -P 7 16M 16M'
from 0 "said again" --store desk-store --json
json_is "there is nothing to do" '[.bytes, .changed] | join(" ")' "0 false"

# --- killed, and cut off ------------------------------------------------------------------------
bridge a b laptop-store store
tap_run "a client of b's" load second b --high
goes() { # FROM TO
    local other=desk
    [ "$1" = a ] || other=laptop
    "$XSEGCTL" rehome -s "$2" disk --from "$other" --store "$other-store" --timeout 60s \
        >"$SCENE_DIR/goes" 2>&1
}
from=b to=a
is_where() { echo "$(owner "$to") $(state "$from") $(state "$to") $(objects "$from")"; }
is_there() { [ "$(is_where)" = "$to away home 0" ]; }
# those who look into the store that it leaves find no volume there, and keep what is its own
scene_spawn slowly "$XSEGCTL" rehome -s a disk --from laptop --store laptop-store --bandwidth 32K
is_coming() { [ "$(owner a)" = a ] && [ "$("$XSEGCTL" volume list -s b --json |
    jq '.volumes | length')" = 0 ]; }
tap_run "it is on its way to a" scene_until 60 is_coming
ctl_exits 0 "fsck at b" volume fsck -s b --repair
ctl_exits 0 "gc at b" volume gc -s b --wait
kill -s KILL "$(peer_pid b map0)"
ctl_exits 4 "another one of that name" volume create -s b disk --size 4M
tap_like "the answer says why" "$ERR" "on its way to another store"
is_half_there() { [ "$(objects b)" -gt 0 ]; }
tap_run "all that before it had gone" is_half_there
scene_kill KILL slowly
wait "$(scene_pid slowly)"
unset 'SCENE_PIDS[slowly]'
tap_run "it comes" scene_until 120 goes b a
tap_run "its name came along" io a -c 'read -P 7 16M 16M'
tap_run "and back" scene_until 120 goes a b

for ((round = 1; round <= ${REHOME_ROUNDS:-1}; round++)); do
    for victim in "b home0" "a home0" "a file0" "b file0" "a laptop-store" "b desk" "b out1" \
        "a out0" "a cache0" "b map0" "a map0" "b vol0"; do
        # shellcheck disable=SC2086
        disturbed KILL $victim
    done
    # a mover is there while one is needed
    disturbed STOP a out1
done
# nobody remembers that it has ever been elsewhere, nor is it to be seen in the store there
[ "$from" = b ] || { tap_run "to b once more" scene_until 120 goes a b; }
for segment in a b; do
    ctl_exits 0 "$segment's re-homer anew" peer restart -s "$segment" home0
done
tap_run "is told by the other host where it is" scene_until 60 state_is a away
load_ends first "a's client noticed nothing"
load_ends second "nor did b's"
load_ends kid "nor that of the clone"
tap_run "all is here" io b -c 'read -P 7 16M 16M' -c 'read -P 8 40M 64k'
tap_run "also of the clone" kid b -c 'read -P 9 17M 1M' -c 'read -P 7 18M 14M'
ctl_exits 0 "fsck finds nothing" volume fsck -s b
ctl_exits 0 "a goes" down a --yes
tap_run "b needs it no more" io b -c 'read -P 7 16M 16M' -c 'write -P 7 16M 64k' -c flush
tap_end
