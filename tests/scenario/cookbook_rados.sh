#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# docs/cookbook-rados.md, as it stands: its blocks are run, with paths of ours in place of those of
# the system. Three hosts (keepers, segments and folders of their own) serve thirty volumes of one
# pool; snapshots and clones are made across hosts; one host is killed as a whole, and its volumes
# are opened on the others: nothing that was flushed is lost.

. "$(dirname "$0")/xsegctl_lib.sh"
. "$(dirname "$0")/ceph_lib.sh"
ctl_begin "three hosts on one pool, by the cookbook"
ctl_need mapperd volume front_nbd cached blocker_rados
scene_need qemu-io nbdinfo
CEPH_AUTH=cephx CEPH_POOL='' ceph_need "$SCENE_DIR/ceph"
page=$(cd "$(dirname "$0")/../../docs" && pwd)/cookbook-rados.md

# The block of the page with that word behind its fence, for one host.
block() { # KIND HOST
    awk -v fence="^\`\`\`[a-z]+ $1\$" '/^```$/ { on = 0 } on; $0 ~ fence { on = 1 }' "$page" |
        sed "s|/etc/ceph|$SCENE_DIR/ceph|g; s|/run/skerry/ceph|$SCENE_DIR/$2|g
            s|^size=4G|size=128M|; s|--size 100G|--size 16M|"
}
as() { # HOST COMMAND...: its folders
    SKERRY_SHM_DIR=$SCENE_DIR/$1/shm SKERRY_RUN_DIR=$SCENE_DIR/$1/run \
        PATH="$(dirname "$XSEGCTL"):$PATH" "${@:2}"
}
recipe() { block "$1" "$2" | as "$2" timeout 120 bash -eu; } # KIND HOST

host_begins() { # NAME
    local dir=$SCENE_DIR/$1
    mkdir -p "$dir/shm" "$dir/run"
    # a lease that ends while we look, and a cache that fits
    block host "$1" | sed "/^role=mapperd/a lease=3s\nhost=$1
        /^role=cached/a size=32M" >"$dir/ceph.conf"
    (cd "$dir" && recipe up "$1")
}
uri() { echo "nbd+unix:///$2?socket=$SCENE_DIR/$1/nbd.sock"; }
io() { # HOST VOLUME COMMAND...
    local target args=() command
    target=$(uri "$1" "$2")
    for command in "${@:3}"; do args+=(-c "$command"); done
    timeout 60 qemu-io -f raw "${args[@]}" "$target" 2>&1
}
opens() { # HOST VOLUME COMMAND...: when whoever has it has left or died
    local out tries rc
    for ((tries = 0; tries < 200; tries++)); do
        rc=0
        out=$(io "$@") || rc=$?
        grep -q 'is open for writing on host' <<<"$out" || break
        sleep 0.2
    done
    echo "$out"
    [ "$rc" -eq 0 ] && ! grep -qE 'failed|rror' <<<"$out"
}
each() { # NAME HOST FIRST LAST COMMAND...
    local name=$1 host=$2 i wrong=
    for ((i = $3; i <= $4; i++)); do
        opens "$host" "v$i" "${@:5}" >"$SCENE_DIR/io.out" || wrong="v$i: $(<"$SCENE_DIR/io.out")"
    done
    tap_is "$name" "$wrong" ""
}
# Whoever has that host's folders in its environment.
pids_of() {
    local env
    for env in /proc/[0-9]*/environ; do
        grep -qzxF "SKERRY_RUN_DIR=$SCENE_DIR/$1/run" "$env" 2>/dev/null &&
            basename "$(dirname "$env")"
    done
}
host_dies() { # all of it at once, and its memory
    local pids
    mapfile -t pids < <(pids_of "$1")
    kill -STOP "${pids[@]}"
    kill -KILL "${pids[@]}"
    scene_until 20 host_is_dead "$1"
    rm -f "$SCENE_DIR/$1/shm"/*
}
host_is_dead() { [ -z "$(pids_of "$1")" ]; }
for h in a b c; do
    scene_at_exit "for p in \$(pids_of $h); do kill -KILL \$p 2>/dev/null; done"
done

tap_run "the cluster gets a pool and a user" recipe cluster a
for h in a b c; do tap_run "host $h is up" host_begins "$h"; done
tap_run "one makes a volume, a snapshot and a clone" recipe one a
tap_run "another sees them, and opens the clone" recipe other b

for ((i = 1; i <= 30; i++)); do as a "$XSEGCTL" -s ceph volume create "v$i" --size 16M; done \
    >"$SCENE_DIR/create.out" 2>&1
tap_is "thirty volumes" "$(as c "$XSEGCTL" -s ceph volume ls --json |
    jq '[.volumes[] | select(.name | test("^v[0-9]+$"))] | length')" 30
each "ten on a" a 1 10 'write -P 1 0 256k' 'write -P 11 5M 64k' flush
each "ten on b" b 11 20 'write -P 2 0 256k' flush
each "ten on c" c 21 30 'write -P 3 0 256k' 'write -P 13 9M 4k' flush
tap_run "a snapshot on a" as a "$XSEGCTL" -s ceph volume snapshot v1@s
tap_run "its clone on b" as b "$XSEGCTL" -s ceph volume clone v1@s c1
tap_run "is what a had written, and goes its own way" opens b c1 'read -P 1 0 256k' \
    'read -P 11 5M 64k' 'write -P 9 0 64k' flush
tap_run "and a's is as it was" opens a v1 'read -P 1 0 256k'

# Two guests have volumes of c's open when it dies, and write without end.
for i in 21 22; do
    mkfifo "$SCENE_DIR/in$i"
    scene_spawn "guest$i" bash -c 'exec qemu-io -f raw "$1" <"$2"' guest "$(uri c "v$i")" \
        "$SCENE_DIR/in$i"
    exec {fd}>"$SCENE_DIR/in$i"
    echo "write -f -P 4 1M 64k" >&"$fd"
    scene_until 60 grep -q 'wrote 65536' "$SCENE_DIR/guest$i.out" || tap_not_ok "guest $i writes"
    echo "write -P 5 2M 4M" >&"$fd"
done
tap_run "c dies as a whole" host_dies c
scene_stop guest21
scene_stop guest22
each "a has five of its volumes" a 21 25 'read -P 3 0 256k' 'read -P 13 9M 4k' 'write -P 6 4M 4k' \
    flush
each "b has the other five" b 26 30 'read -P 3 0 256k' 'read -P 13 9M 4k' 'write -P 7 4M 4k' flush
tap_run "what the guests had flushed is there" opens a v21 'read -P 4 1M 64k'
tap_run "of both" opens b v22 'read -P 4 1M 64k'
tap_run "c boots again" host_begins c
each "and has them again, with what was written elsewhere" c 26 30 'read -P 3 0 256k' \
    'read -P 7 4M 4k'
tap_run "the store is whole" as c "$XSEGCTL" -s ceph volume fsck --json
tap_is "nothing is wrong" \
    "$(jq '[.findings[]? | select(.finding != "unreachable")] | length' <"$TAP_OUT")" 0
for h in a b c; do tap_run "host $h stops" as "$h" timeout 60 "$XSEGCTL" down ceph; done
tap_end
