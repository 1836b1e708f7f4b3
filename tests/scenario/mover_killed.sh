#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A mover that is killed when it has shown a volume's records, and has not taken the hidden ones
# away: another host finds the volume and has it, and the next mover leaves it that.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "a mover killed when all is in its place"
"$XSEGPEER" --crash-points 2>/dev/null | grep -q '^mover\.record\.put' ||
    tap_skip_all "built without --enable-crash-points"

host() { # NAME STORE FOLDER: a composer over that peer, and a shared folder
    cat <<END
[segment]
name=$1
size=128M
[peer nbd0]
role=front_nbd
listen=unix:$SCENE_DIR/$1.sock
edge.volume=vol0
[peer vol0]
role=volume
edge.store=$2
edge.map=map0
[peer map0]
role=mapperd
edge.store=$2
[peer file0]
role=blocker_file
dir=$SCENE_DIR/$3
shared=yes
END
}
{
    host k mover0 old
    cat <<END
[peer new0]
role=blocker_file
dir=$SCENE_DIR/new
shared=yes
[peer mover0]
role=mover
host=mover0
edge.store=file0
edge.store-to=new0
[host mover0]
restart=never
END
} >"$SCENE_DIR/k.conf"
host b file0 new >"$SCENE_DIR/b.conf"
down_at_exit k
down_at_exit b
io() { scene_io "nbd+unix:///disk?socket=$SCENE_DIR/$1.sock" "${@:2}"; } # HOST COMMAND...
home() { "$XSEGCTL" volume info disk -s b --json | jq -r .home.host; }
holds() { # a client of b's that stays
    /usr/bin/python3 -c '
import nbd, os, sys, time
h = nbd.NBD()
h.connect_uri(sys.argv[1])
assert bytes(h.pread(4096, 0)) == b"\7" * 4096
h.pwrite(b"\10" * 4096, 4096)
h.flush()
print("has it", flush=True)
while not os.path.exists(sys.argv[2]):
    h.pwrite(b"\10" * 4096, 4096)
    h.flush()
    time.sleep(0.05)
h.shutdown()
' "nbd+unix:///disk?socket=$SCENE_DIR/b.sock" "$SCENE_DIR/end"
}

keeper_may_fail mover0
ctl_exits 0 "one host, with a mover" up --unguarded "$SCENE_DIR/k.conf"
ctl_exits 0 "one that has the other store alone" up --unguarded "$SCENE_DIR/b.conf"
ctl_exits 0 "a volume" volume create disk --size 16M
tap_run "with data" io k -c 'write -P 7 0 1M' -c flush
given_back() { [ "$("$XSEGCTL" volume info disk --json | jq -r .home)" = null ]; }
tap_run "that nobody has open any more" scene_until 60 given_back
# the group's record three times, the hidden ones, the name, and three times those in their place
sed -i 's/== \*/== *--drain-limit*/' "$SCENE_DIR/xsegpeer" # not when it is only checked
printf 'rm -f "%s"\nexport SKERRY_CRASH=mover.record.put:8\n' "$SCENE_DIR/fail" >"$SCENE_DIR/fail"
ctl_exits 0 "a mover that will be killed" peer restart mover0
scene_spawn move "$XSEGCTL" volume move disk --to new0
tap_run "it is killed" scene_until 60 event_seen peer_died mover0 1
tap_run "hidden records are there" compgen -G "$SCENE_DIR/new/records/ffffffff.*.40000000"
scene_spawn holder holds
tap_run "the other host has the volume" scene_wait_line holder "has it" 60
owner=$(home)
tap_like "as its record says" "$owner" '/b$'
ctl_exits 0 "the mover again" peer start mover0
tap_run "it goes on" wait "$(scene_pid move)"
tap_exits 1 "no record is hidden any more" compgen -G "$SCENE_DIR/new/records/*.4000000?"
tap_is "whose the volume is has not changed" "$(home)" "$owner"
touch "$SCENE_DIR/end"
tap_run "nor has its client noticed" wait "$(scene_pid holder)"
tap_run "all is there" io b -c 'read -P 7 0 4k' -c 'read -P 8 4k 4k' -c 'read -P 7 8k 1016k'
tap_end
