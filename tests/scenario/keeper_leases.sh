#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What a composer has open is its segment's as long as it lives, whoever else is started anew; when
# it is gone for good it is given back.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "the keeper: leases of volumes"

conf=$SCENE_DIR/k.conf
down_at_exit k

keeper_may_fail vol0

keeper_file "$conf" <<END
[host vol0]
restart-delay = 10ms
restart-delay-max = 50ms
restart-limit = 3
restart-window = 1h
END
sed -i 's/^role = mapperd/&\nlease = 1s/' "$conf"

counter() { # NAME: of the mapper that serves now
    { "$XSEGCTL" stats map0 --json || true; } |
        jq "[.. | objects | select(has(\"counters\")) | .counters.$1 // 0] | add"
}
counted() { [ "$(counter "$1")" -ge "$2" ]; }
renewed() { # TEST [LEFT]: several times a lease has passed
    local more
    more=$(($(counter renewals) + 7))
    tap_run "$1: it is renewed" scene_until 60 counted renewals "$more"
    tap_is "$1: it is not given back" "$(counter left)" "${2:-0}"
    ctl_exits 0 "$1: it is open" volume info disk --json
    json_is "by us" '.home.host | endswith("/k")' true
}

ctl_exits 0 "up" up "$conf" --timeout 60s
ctl_exits 0 "a volume" volume create disk --size 16M
load_start load --errors
renewed "a volume in use"

was=$(pid_of map0)
kill_peer map0
tap_run "the mapper is started anew" back map0 "$was" 60
renewed "the next mapper hears that it is open"

was=$(pid_of vol0)
kill_peer vol0
tap_run "the composer is started anew" back vol0 "$was" 60
renewed "the next composer has it"

echo 'exit 3' >"$SCENE_DIR/fail"
kill_peer vol0
given_up() { state_is vol0 given-up; }
tap_run "the composer is given up" scene_until 60 given_up
tap_run "what it had is given back" scene_until 60 counted left 1
rm "$SCENE_DIR/fail"
ctl_exits 0 "it is brought back by hand" peer start vol0
load_end load "what was acknowledged before is there"
tap_like "requests were refused meanwhile" "$(tail -n 1 "$SCENE_DIR/load.out")" 'errors EIO$'
load_start load
renewed "it is open again" 1
load_end load "and in use"

# --- a successor that nobody asks for it ---------------------------------------------------------
closed() { "$XSEGCTL" volume info disk --json | jq -e '.home.host == null'; }
tap_run "closed, it is nobody's" scene_until 60 closed
scene_spawn idle /usr/bin/python3 -c 'import nbd, sys, time
handle = nbd.NBD()
handle.connect_uri(sys.argv[1])
print("started", flush=True)
time.sleep(1000)' "nbd+unix:///disk?socket=$socket"
scene_wait_line idle started
renewed "open, and never written to" 1
vol=$(pid_of vol0) nbd=$(pid_of nbd0)
kill_peer vol0 nbd0
tap_run "composer and front are started anew" back vol0 "$vol" 60
tap_run "both of them" back nbd0 "$nbd" 60
tap_run "the next composer lives, and does not have it" scene_until 60 counted left 2
tap_run "it is nobody's" closed
ctl_exits 0 "down" down
tap_end
