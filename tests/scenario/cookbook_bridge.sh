#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# docs/cookbook-bridge.md, as it stands: its blocks are run, with both hosts on this one.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "a pipeline over two hosts, by the cookbook"
ctl_need mapperd volume front_nbd cached synapse_import synapse_export blocker_file tier
scene_need qemu-io jq
page=$(cd "$(dirname "$0")/../../docs" && pwd)/cookbook-bridge.md
cd "$SCENE_DIR" || exit 1
PATH=$PATH:$(dirname "$XSEGCTL")
port=$(scene_free_port)

block() { # KIND [CHANGES]
    awk -v fence="^\`\`\`[a-z]+ $1\$" '/^```$/ { on = 0 } on; $0 ~ fence { on = 1 }' "$page" |
        sed "s|/run/skerry|$SCENE_DIR|; s|/etc/skerry/tls|$SCENE_DIR/tls|
            s|/var/lib/skerry|$SCENE_DIR|; s|^xsegctl cert [a-z]*|& --dir $SCENE_DIR/tls|
            s|0.0.0.0:7070|127.0.0.1:$port|; s|store1.example.net|localhost|; s|:7070|:$port|
            s|^size=4G|size=256M|; s|--size 100G|--size 1G|; s|^role=cached|&\nsize=64M|
            ${2:-}"
}
recipe() { block "$@" | timeout 120 bash -eu; }
io() { scene_io "nbd+unix:///disk?socket=$SCENE_DIR/$1/nbd.sock" "${@:2}"; } # SEGMENT COMMAND...

tap_run "certificates" recipe certificates
block far >far.conf
block near >near.conf
block near 's/^name=near/name=third/; s|/near/|/third/|; s|host7|host8|' >third.conf
down_at_exit far
down_at_exit near
down_at_exit third
mkdir -p far near third
tap_run "the far host" recipe far-up
SKERRY_SEGMENT=near tap_run "the near one has a volume" recipe near-up
tap_run "data goes into it" io near -c 'write -P 7 3M 2M' -c 'write -P 8 100M 4k' -c flush
ctl_exits 0 "the near host stops" down near
tap_run "another one has a certificate" xsegctl cert issue host8 --uri skerry://hosts/host8 \
    --dir "$SCENE_DIR/tls"
tap_run "and is up" xsegctl up third.conf
tap_run "what the first one wrote is there" io third -c 'read -P 7 3M 2M' -c 'read -P 8 100M 4k' \
    -c 'read -P 0 0 1M'
links() { # SEGMENT FIELD
    xsegctl bridge list -s "$1" --json | jq -r "[.bridges[] | .$2] | join(\" \")"
}
tap_is "the link is up" "$(links third state)" up
ctl_exits 0 "... says its status" bridge status -s third far0
ctl_exits 3 "... and none of what is no bridge" bridge status -s third cache0
tap_is "... and so it is there" "$(links far 'sessions > 0')" true
tap_is "... and somebody has used it" "$(links third 'rtt_ns > 0 and .received > 2097152')" true
fences() { stat -c %s "$SCENE_DIR/far.bridge/fence.out0"; }
before=$(fences)
tap_run "a volume more" xsegctl volume create more --size 1G -s third
tap_run "... is written to" timeout 120 qemu-io -f raw -c 'write 0 4k' \
    "nbd+unix:///more?socket=$SCENE_DIR/third/nbd.sock"
tap_run "... of which the far host notes whose it is" test "$(fences)" -gt "$before"
tap_run "... and removed" scene_until 60 xsegctl volume rm more --yes -s third
tap_is "... with what was noted" "$(fences)" "$before"
tap_run "a cache is plugged in there" xsegctl plug cached --at out0:store -s far
tap_run "... and used" io third -c 'read -P 7 3M 2M' -c 'write -P 7 3M 2M' -c flush
tap_run "... and taken out" xsegctl unplug cache0 -s far
tap_run "... with all in the store" io third -c 'read -P 7 3M 2M' -c 'read -P 8 100M 4k'
ctl_exits 0 "the near one stops" down third
recipe_small() { # KIND: the port is another one here
    block "$1" "s|^xsegctl mount.*|& --memory 192M --tls $SCENE_DIR/tls|
        s|localhost/|localhost:$port/|" | timeout 120 bash -eu
}
down_at_exit laptop
tap_run "a volume is mounted" recipe_small mount
tap_run "... and used" io run/laptop -c 'read -P 7 3M 2M' -c 'read -P 8 100M 4k' \
    -c 'write -P 5 9M 1M'
tap_run "... with a cache for all hosts" recipe shared
tap_run "... it goes on" io run/laptop -c 'read -P 7 3M 2M' -c 'read -P 5 9M 1M'
tap_run "... and ends" recipe umount
tap_run "the cache is taken out" xsegctl unplug cache0 -s far
tap_run "it is mounted until all is near" recipe_small mount-wait
block events 's|logger -t skerry|exec echo|' >"$SCENE_DIR/events.sh"
scene_spawn told bash "$SCENE_DIR/events.sh"
is_told() { grep -q "$1" "$SCENE_DIR/told.err"; }
tap_run "... with all" io run/laptop -c 'read -P 5 9M 1M' -c 'read -P 8 100M 4k'
tap_run "... and ends" recipe umount
tap_run "... which is told to who wants to know" scene_until 60 is_told keeper_stopped
scene_kill INT told
tap_run "the near one again" xsegctl up third.conf
ctl_exits 0 "the far host is started anew" down far
is_down() { [ "$(links third state)" = down ]; }
tap_run "... the link is down" scene_until 60 is_down
ctl_exits 1 "... says its status" bridge status -s third
tap_like "... which status says" "$(xsegctl status third)" 'far0 .*degraded +its link is down'
tap_run "... below one that is up" recipe far-up
tap_run "which goes on" io third -c 'read -P 7 3M 2M' -c 'write -P 9 3M 2M' -c flush
ends=(tls-ca="$SCENE_DIR/tls/ca.crt" tls-cert="$SCENE_DIR/tls/host8.crt"
    tls-key="$SCENE_DIR/tls/host8.key")
ctl_exits 0 "what a second bridge would do" bridge add -s third far1 "tcp:localhost:$port" \
    "${ends[@]}" --at cache0:store --dry-run
out_like "... is to start, and to switch" 'switch +cache0:store'
tap_is "... and is not done" "$(links third name)" far0
ctl_exits 0 "a second bridge, at run time" bridge add -s third far1 "tcp:localhost:$port" \
    "${ends[@]}" --at cache0:store
ctl_exits 4 "... whose name is taken then" bridge add -s third far1 "tcp:localhost:$port"
tap_run "... is used" io third -c 'read -P 9 3M 2M' -c 'write -P 9 3M 2M' -c flush
tap_run "... as it shows" test "$(xsegctl stats -s third --json far1 |
    jq '.peers[0].counters.writes')" -gt 0
ctl_exits 5 "it is not taken away from below an edge" bridge rm -s third far1
ctl_exits 0 "what would be done otherwise" bridge rm -s third far1 --to far0 --dry-run
ctl_exits 0 "... but when that leads elsewhere" bridge rm -s third far1 --to far0
tap_run "... which goes on" io third -c 'read -P 9 3M 2M' -c 'write -P 9 3M 2M' -c flush
ctl_exits 3 "there is no such bridge" bridge rm -s third far1
ctl_exits 7 "nobody listens" bridge add -s third far2 "tcp:localhost:$(scene_free_port)" \
    "${ends[@]}" --timeout 2s
tap_is "... and nothing is left of it" "$(links third name)" far0
ctl_exits 0 "it stops" down third
ctl_exits 0 "the far one, too" down far

# --- only a front here --------------------------------------------------------------------------
{
    block far 's/^edge.store=file0/edge.volume=vol0/'
    printf '\n[peer map0]\nrole=mapperd\nedge.store=file0\n'
    printf '\n[peer vol0]\nrole=volume\nedge.store=file0\nedge.map=map0\n'
} >far.conf
block near 's/edge.volume=vol0/edge.volume=far0/' |
    awk -v RS= -v ORS='\n\n' '!/^\[peer (vol0|map0|cache0)\]/' >near.conf
tap_run "a composer over there" xsegctl up far.conf
tap_run "a front here" xsegctl up near.conf
tap_run "serves what is there" io near -c 'read -P 9 3M 2M' -c 'write -P 1 3M 2M' -c flush
tap_is "and the far host knows" "$(xsegctl volume list -s far --json | jq '.volumes[0].opens')" 0
ctl_exits 0 "the near host stops" down near
ctl_exits 0 "and the far one" down far
tap_end
