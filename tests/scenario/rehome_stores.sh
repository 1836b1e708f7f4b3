#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two hosts over one Redis server, and over one pool of a Ceph cluster: a volume goes from one to
# the other and back while it is written to, and stays where it is when a move is cancelled. Then
# one of the hosts has its files, and the data go along.

. "$(dirname "$0")/rehome_lib.sh"
. "$(dirname "$0")/ceph_lib.sh"
. "$(dirname "$0")/redis_lib.sh"
ctl_begin "re-homing over Redis and RADOS"
rehome_need
/usr/bin/python3 -c 'import nbd' 2>/dev/null ||
    tap_skip_all "libnbd's Python module is not installed"
for segment in a b; do down_at_exit "$segment"; done

over() { # SECTION: standard input's, with that instead of the folder's
    sed "/^role=blocker_file/,/^shared=yes/c\\$1"
}
ends() { # SEGMENT...
    local segment
    for segment; do ctl_exits 0 "$segment goes down" down "$segment" --yes; done
}
moves() { # SECTION
    local i
    { host a home0 && out a; } | over "$1" >"$SCENE_DIR/a.conf"
    { host b home0 && out b; } | over "$1" >"$SCENE_DIR/b.conf"
    for i in a b; do ctl_exits 0 "$i comes up" up "$SCENE_DIR/$i.conf"; done
    bridge a b far0 out
    bridge b a back0 out
    ctl_exits 0 "a volume" volume create -s a disk --size 32M
    tap_run "a client of a's" load client a
    ctl rehome -s a disk --to far0 --downtime 1us --on-stall cancel
    tap_is "it stays, as no pause is as short as that" "$RC $(owner a)" "1 a"
    tap_run "it is written to on" io a -c 'write -P 5 24M 64k' -c flush
    for i in 1 2 3; do
        ctl_exits 0 "it goes to b ($i)" rehome -s a disk --to far0 --downtime 1us
        tap_run "a client of b's ($i)" io b -c "write -P $i 20M 64k" -c flush
        ctl_exits 0 "it goes back ($i)" rehome -s b disk --to back0 --downtime 1us
        tap_run "one of a's ($i)" io a -c "read -P $i 20M 64k" -c 'read -P 5 24M 64k'
    done
    from=a to=b
    for i in a b; do
        for victim in cache0 file0 map0 vol0 home0; do disturbed KILL "$i" "$victim"; done
    done
    load_ends client "the client saw no error"
    ends b a # which has it
}
goes() { # FROM TO
    local edge=far0
    [ "$1" = a ] || edge=back0
    "$XSEGCTL" rehome -s "$1" disk --to "$edge" >"$SCENE_DIR/goes.out" 2>&1
}
is_where() { echo "$(owner a) $(owner b) $(state a) $(state b)"; }
is_there() { # FROM TO
    local states="home away"
    [ "$2" = a ] || states="away home"
    [ "$(is_where)" = "$2 $2 $states" ]
}
goes_along() { # SECTION: b's store
    local i
    host a home0 "$SCENE_DIR/a.d" >"$SCENE_DIR/a.conf"
    host b home0 | over "$1" >"$SCENE_DIR/b.conf"
    for i in a b; do
        { out "$i" && store_out "$i"; } >>"$SCENE_DIR/$i.conf"
        ctl_exits 0 "$i comes up" up "$SCENE_DIR/$i.conf"
    done
    bridge a b far0 out
    bridge a b store1 store
    bridge b a back0 out
    bridge b a store2 store
    ctl_exits 0 "a volume of files" volume create -s a disk --size 32M --object-size 256K
    tap_run "a client of a's" load client a
    for i in 1 2; do
        ctl_exits 0 "it goes to b ($i)" rehome -s a disk --to far0 --store store1
        tap_is "with its data" "$(objects a) $(owner b)" "0 b"
        tap_run "a client of b's ($i)" io b -c "write -P $i 20M 64k" -c flush
        ctl_exits 0 "it goes back ($i)" rehome -s b disk --to back0 --store store2
        tap_run "one of a's ($i)" io a -c "read -P $i 20M 64k"
    done
    load_ends client "the client saw no error"
    ends b a # which has it
    rm -r "$SCENE_DIR/a.d"
}

if redis_have >"$TAP_OUT" && redis_start "$SCENE_DIR/redis" >"$TAP_OUT"; then
    moves "role=blocker_redis\nsocket=$REDIS_SOCKET"
    goes_along "role=blocker_redis\nsocket=$REDIS_SOCKET\nprefix=along"
else
    tap_skip "over Redis" "$(tail -n 1 "$TAP_OUT")"
fi
if ceph_have >"$TAP_OUT" && ceph_start "$SCENE_DIR/ceph" >"$TAP_OUT"; then
    moves "role=blocker_rados\npool=skerry"
    goes_along "role=blocker_rados\npool=skerry\nnamespace=along"
else
    tap_skip "over RADOS" "$(tail -n 1 "$TAP_OUT")"
fi
tap_end
