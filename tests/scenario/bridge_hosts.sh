#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Three hosts, each a network name space with segments and run folders of its own: a store, and two
# that mount a volume of it in turn. The link goes down, the store's host dies and gets another
# address, and one of the two dies with the volume open.

. "$(dirname "$0")/hosts_lib.sh"
ctl_begin "three hosts"
ctl_need mapperd volume front_nbd cached synapse_import synapse_export blocker_file tier
hosts_begin store one two
hosts_link store one 1
hosts_link store two 2
hosts_know one '10.77.1.1 store.example.net'
hosts_know two '10.77.2.1 store.example.net'
uri_of() { echo "nbd+unix:///disk?socket=$SCENE_DIR/$1/run/disk/nbd.sock"; } # HOST
io() { scene_io "$(uri_of "$1")" "${@:2}"; } # HOST COMMAND...
mounts() { # HOST OPTION...
    on "$1" "$XSEGCTL" mount skerry+tls://store.example.net/disk --tls "$TLS" --cert "$1" \
        --memory 192M "${@:2}" >"$SCENE_DIR/mount.$1" 2>&1
}
hosts_certs store one two

cat >"$SCENE_DIR/store.conf" <<END
[segment]
name=store
size=256M

[peer file0]
role=blocker_file
dir=$SCENE_DIR/files

[peer out0]
role=synapse_export
listen=tcp:0.0.0.0:7070
allow=skerry://hosts/*
tls-ca=$TLS/ca.crt
tls-cert=$TLS/store.crt
tls-key=$TLS/store.key
state=$SCENE_DIR/state
edge.store=file0
END
tap_run "the store" on store "$XSEGCTL" up "$SCENE_DIR/store.conf"
tap_run "one mounts a volume" mounts one --near "$SCENE_DIR/near" --create 128M --wait
client_attach "$(uri_of one)"
tap_run "... writes" say 'write -P 1 0 20M' 'write -f -P 2 100M 4k'
tap_run "... and reads" say 'read -P 1 0 20M' 'read -P 2 100M 4k'
hosts_cut store one
tap_run "with the cable out it reads" say 'read -P 1 5M 5M'
tap_run "... and writes" say 'write -f -P 3 5M 5M' 'read -P 3 5M 5M'
hosts_mend store one
flushed() { # what it has is at the store
    on one "$XSEGCTL" stats -s disk --json cache0 | jq -e '[.peers[].counters.dirty] | add == 0' \
        >"$SCENE_DIR/flushed"
}
tap_run "with the cable in it goes to the store" scene_until 240 flushed
hosts_die store
tap_run "the store's host dies; one reads" say 'read -P 3 5M 5M'
ip -n "store$$" addr del 10.77.1.1/24 dev toone
ip -n "store$$" addr add 10.77.1.9/24 dev toone
hosts_know one '10.77.1.9 store.example.net'
tap_run "it comes back with another address" on store "$XSEGCTL" up "$SCENE_DIR/store.conf"
tap_run "... one writes" say 'write -f -P 4 30M 5M'
tap_run "... which comes there" scene_until 240 flushed
mounts two
tap_exits 1 "two may not have the volume meanwhile" io two -c 'write -P 9 0 4k'
on two "$XSEGCTL" umount disk >/dev/null 2>&1
client_leave
tap_run "one ends it" on one "$XSEGCTL" umount disk
tap_run "two mounts it" mounts two
tap_run "... has all" io two -c 'read -P 1 0 5M' -c 'read -P 3 5M 5M' -c 'read -P 1 10M 10M' \
    -c 'read -P 2 100M 4k' -c 'read -P 4 30M 5M'
client_attach "$(uri_of two)"
tap_run "... writes" say 'write -f -P 5 0 1M'
leaves() { on two "$XSEGCTL" cache flush -s disk cache0 >/dev/null 2>&1; }
tap_run "... to the store" leaves
hosts_die two
client_leave
# the lease of a host that is gone has to run out
again() { mounts one --near "$SCENE_DIR/near" --wait; }
tap_run "two dies with the volume open; one mounts it" scene_until 240 again
tap_run "... has what two wrote" io one -c 'read -P 5 0 1M' -c 'read -P 1 1M 4M' \
    -c 'read -P 3 5M 5M' -c 'read -P 4 30M 5M'
tap_run "... and writes" io one -c 'write -P 6 0 1M' -c flush
tap_run "it ends" on one "$XSEGCTL" umount disk
tap_run "so does the store" on store "$XSEGCTL" down store
tap_end
