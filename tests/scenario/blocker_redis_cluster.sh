#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A Redis Cluster below blocker_redis: the node that has the store's slot is found from any other,
# the slot moves to another node under load, its node is killed and started again, or a replica
# takes its place; and what a deposed owner sends late is refused wherever the slot is by then.

. "$(dirname "$0")/blocker_lib.sh"
. "$(dirname "$0")/redis_lib.sh"
blocker_begin "blocker_redis and a cluster" 64M
scene_has_module blocker_redis >"$SCENE_DIR/reason" || tap_skip_all "$(cat "$SCENE_DIR/reason")"
redis_have >"$SCENE_DIR/reason" || tap_skip_all "$(cat "$SCENE_DIR/reason")"

# --- the nodes ----------------------------------------------------------------------------------
declare -A PORT ID
node_ask() { timeout 60 redis-cli -p "${PORT[$1]}" "${@:2}"; }
node_is_up() { [ "$(node_ask "$1" ping 2>&1)" = PONG ]; }
# Failures are not to be suspected because a machine is busy: a replica takes over when it is told.
node_start() { # NAME
    mkdir -p "$SCENE_DIR/$1"
    [ -n "${PORT[$1]:-}" ] || PORT[$1]=$(scene_free_port) BUS[$1]=$(scene_free_port)
    scene_spawn "$1" redis-server --port "${PORT[$1]}" --cluster-port "${BUS[$1]}" \
        --bind 127.0.0.1 --dir "$SCENE_DIR/$1" --save '' --appendonly yes --appendfsync always \
        --maxmemory-policy noeviction --repl-diskless-sync-delay 0 --cluster-enabled yes \
        --cluster-config-file nodes.conf --cluster-node-timeout 600000 \
        --cluster-require-full-coverage no
    scene_until 120 node_is_up "$1"
}
declare -A BUS
cluster() { timeout 300 redis-cli --cluster "$@" --cluster-yes >>"$SCENE_DIR/cluster.log" 2>&1; }
all_agree() { # NODE...: all of them know so many nodes
    local name
    for name in "$@"; do
        [ "$(node_ask "$name" cluster nodes | grep -c connected)" = $# ] || return 1
    done
}
for name in a b c; do node_start "$name" || tap_skip_all "a node did not start"; done
cluster create "127.0.0.1:${PORT[a]}" "127.0.0.1:${PORT[b]}" "127.0.0.1:${PORT[c]}" ||
    tap_skip_all "redis-cli makes no cluster: $(tail -n 1 "$SCENE_DIR/cluster.log")"
for name in a b c; do ID[$name]=$(node_ask "$name" cluster myid); done
has_slots() { node_ask a cluster info | grep -q '^cluster_slots_assigned:16384'; }
is_served() { has_slots && all_agree a b c; }
scene_until 120 is_served || tap_skip_all "the nodes do not agree"
SLOT=$(node_ask a cluster keyslot '{skerry}')
has_slot() { [ -z "$(node_ask "$1" get '{skerry}:generation' 2>&1)" ]; }
find_owner() {
    local name
    OWNER='' OTHER=''
    for name in a b c; do if has_slot "$name"; then OWNER=$name; else OTHER=$name; fi; done
    [ -n "$OWNER" ] && [ -n "$OTHER" ]
}
scene_until 60 find_owner || tap_skip_all "no node has the slot"

# The slot to another node, key by key, as redis-cli does it; slot_part moves only some.
slot_begins() { # FROM TO
    node_ask "$2" cluster setslot "$SLOT" importing "${ID[$1]}" >/dev/null
    node_ask "$1" cluster setslot "$SLOT" migrating "${ID[$2]}" >/dev/null
}
slot_part() { # FROM TO COUNT; false: there are none left
    local -a keys
    mapfile -t keys < <(node_ask "$1" cluster getkeysinslot "$SLOT" "$3")
    [ -n "${keys[0]}" ] || return 1
    node_ask "$1" migrate 127.0.0.1 "${PORT[$2]}" '' 0 60000 keys "${keys[@]}" >/dev/null
}
slot_ends() { # FROM TO
    local name
    while slot_part "$1" "$2" 16; do :; done
    for name in "$2" "$1" a b c; do
        node_ask "$name" cluster setslot "$SLOT" node "${ID[$2]}" >/dev/null
    done
}
slot_moves() { slot_begins "$1" "$2" && slot_ends "$1" "$2"; }

TOLD=$OTHER # the node that its peers are told of
store=blocker_redis,port=${PORT[$TOLD]},timeout=1m

# --- who is refused -----------------------------------------------------------------------------
tap_like "braces in a prefix" "$(blocker_refusal "no=$store,prefix={x}y")" "no braces in a cluster"
tap_like "nodes that are none" "$(blocker_refusal "no=$store,nodes=here")" "'here': not HOST:PORT"
tap_like "another database" "$(blocker_refusal "no=$store,database=1")" 'the server says: '

# --- the laws, by a node that has nothing of it -------------------------------------------------
blocker_peer law 2 "law=$store,prefix=law" || tap_not_ok "it starts"
laws "the laws hold" 500
scene_stop law

# --- a slot that moves --------------------------------------------------------------------------
killed_under_load "the peer is killed" "disk=$store"
moved=''
for round in 1 2 3; do
    hammer_begins "$NEXT"
    slot_moves "$OWNER" "$OTHER"
    lines=$(wc -l <"$SCENE_DIR/hammer.out")
    scene_until 240 more_than "$SCENE_DIR/hammer.out" $((lines + 2)) || moved+="$round: stands; "
    hammer_ends
    [ "$(op verify 9 $((NEXT - 1)))" = ok ] || moved+="$round: $(op verify 9 $((NEXT - 1))); "
    read -r OWNER OTHER <<<"$OTHER $OWNER"
done
tap_is "the slot moves three times under load: nothing fails, nothing is lost" "$moved" ""

tap_is "a volume's objects" "$(op fence 40 5) $(op write 40 0 0 4096 1) $(op write 40 1 0 4096 1)" \
    "ok ok ok"
slot_begins "$OWNER" "$OTHER"
slot_part "$OWNER" "$OTHER" 3
for i in 0 1; do scene_spawn "half$i" "$CHECK" read "$SEGMENT" disk 40 "$i" 0 4096 1; done
scene_spawn halfw "$CHECK" write "$SEGMENT" disk 40 7 0 4096 3
scene_spawn halff "$CHECK" fence "$SEGMENT" disk 40 6
slot_ends "$OWNER" "$OTHER"
for i in half0 half1 halfw halff; do
    tap_run "what was asked while it was on both is answered: $i" \
        scene_until 120 grep -qx ok "$SCENE_DIR/$i.out"
done
tap_is "and was done" "$(op read 40 7 0 4096 3)" ok
read -r OWNER OTHER <<<"$OTHER $OWNER"

# --- a deposed owner, wherever the slot is ------------------------------------------------------
one=$SEGMENT
late() { # NUMBER MOVE...: the second takes the volume while the first is stopped, and MOVE is done
    SEGMENT=$one PEER=disk
    tap_is "$1: the first claims" "$(op fence "$1" 5)" ok
    tap_is "$1: and writes" "$(op write "$1" 0 0 4096 1)" ok
    scene_freeze "$(scene_pid life)"
    scene_spawn "late$1" "$CHECK" write "$SEGMENT" disk "$1" 0 0 4096 3
    "${@:2}"
    SEGMENT=$one-b PEER=second
    tap_is "$1: another takes it" "$(op fence "$1" 6) $(op write "$1" 0 0 4096 4)" "ok ok"
    scene_kill CONT life
    tap_run "$1: the late write is answered" scene_until 60 grep -q . "$SCENE_DIR/late$1.out"
    tap_is "$1: and refused" "$(cat "$SCENE_DIR/late$1.out")" ESTALE
    tap_is "$1: nothing of it arrived" "$(op read "$1" 0 0 4096 4)" ok
    SEGMENT=$one PEER=disk
}
SEGMENT=$one-b
blocker_segment 32M
blocker_peer second 1 "second=$store" || tap_not_ok "it starts"
late 51 true
late 52 slot_moves "$OWNER" "$OTHER"
read -r OWNER OTHER <<<"$OTHER $OWNER"
scene_stop second

# --- its node is killed -------------------------------------------------------------------------
server_killed "$OWNER" node_start "$OWNER"

# --- a replica takes its place ------------------------------------------------------------------
node_start d
cluster add-node "127.0.0.1:${PORT[d]}" "127.0.0.1:${PORT[$OWNER]}" --cluster-slave \
    --cluster-master-id "${ID[$OWNER]}"
has_all() { node_ask "$1" info replication | grep -q '^master_link_status:up'; }
tap_run "a replica has all" scene_until 120 has_all d
blocker_peer pair 1 "pair=$store,replicas=1" || tap_not_ok "it starts"
tap_is "one that waits for a replica writes" "$(op write 60 0 0 4096 1)" ok
took_over() { node_ask d role | grep -qx master; }
take_over() {
    node_ask d cluster failover takeover
    scene_until 60 took_over
    node_start "$OWNER" # it is the replica now
}
NEXT=0
server_killed "$OWNER" take_over
tap_is "what a replica may lack is not read by who waits for none" \
    "$(PEER=disk op read 40 0 0 4096 1)" EIO
tap_like "which is said" "$(cat "$SCENE_DIR/life.err")" 'a replica has taken the server.s place'
scene_stop life

# --- the node that it was told of is away -------------------------------------------------------
scene_kill KILL "$TOLD"
scene_stop "$TOLD"
tap_like "a node that is away is said" "$(blocker_refusal "no=$store")" 'does not answer'
for name in a b c; do [ "$name" = "$TOLD" ] || OTHER=$name; done
blocker_peer found 1 "found=$store,nodes=127.0.0.1:1 127.0.0.1:${PORT[$OTHER]}" ||
    tap_not_ok "it starts by another"
tap_is "and finds what is there" "$(PEER=found op read 60 0 0 4096 1)" ok
tap_end
