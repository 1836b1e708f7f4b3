#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# volume move: from store to store under load, there and back, alone and with what shares objects
# with it; refused, broken off, killed and said again; a store that is full. MOVE_STORE: the lines
# of another store to move to, and nothing but that.

. "$(dirname "$0")/keeper_lib.sh"
scene_own_mounts "$@"
keeper_begin "volume move"
"$XSEGPEER" --describe-role mover >/dev/null 2>&1 || tap_skip_all "there is no mover here"
conf=$SCENE_DIR/k.conf
down_at_exit k

edges_to() { # of those that lead to stores
    "$XSEGCTL" edge list --json |
        jq -r '[.edges[] | select(.name == "map0:store" or .name == "cache0:store").to] | join(" ")'
}
volumes() { "$XSEGCTL" volume list --json | jq -r '[.volumes[].name] | sort | join(" ")'; }
records() { find "$1/records" -name 'ffffffff.*.0000000[01]' | wc -l; } # that a mapper finds there
objects() { find "$1/objects" -type f 2>/dev/null | wc -l; }
fill() { # VOLUME: 48 MiB, each 4 KiB says where it is
    /usr/bin/python3 -c '
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
for at in range(0, 48 << 20, 1 << 20):
    h.pwrite(b"".join((b"%015d\n" % (at + i)) * 256 for i in range(0, 1 << 20, 4096)), at)
h.flush()
' "nbd+unix:///$1?socket=$socket"
}
holds() { # VOLUME: what fill() wrote
    /usr/bin/python3 -c '
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
for at in range(0, 48 << 20, 1 << 20):
    want = b"".join((b"%015d\n" % (at + i)) * 256 for i in range(0, 1 << 20, 4096))
    assert bytes(h.pread(1 << 20, at)) == want, f"wrong somewhere behind {at}"
' "nbd+unix:///$1?socket=$socket"
}

printf '[peer cache0]\nrole = cached\nsize = 8M\nedge.store = file0\n' >"$SCENE_DIR/more"
if [ -n "${MOVE_STORE:-}" ]; then
    printf '[peer new0]\n%s\n' "$MOVE_STORE" >>"$SCENE_DIR/more"
else
    printf '[peer new0]\nrole = blocker_file\ndir = %s\n' "$SCENE_DIR/new" >>"$SCENE_DIR/more"
fi
keeper_file "$conf" <"$SCENE_DIR/more"
sed -i -e '/^\[peer vol0\]/,/^$/s/edge.store = file0/edge.store = cache0/' \
    -e 's/^size = 64M/size = 256M/' "$conf"
ctl_exits 0 "up" up "$conf"
ctl volume create disk --size 16M --object-size 64K
ctl volume create big --size 64M --object-size 64K
ctl volume create other --size 4M
fill big
load_start load

# --- there and back ---------------------------------------------------------------------------
ctl_exits 0 "a snapshot" volume snapshot big@one
ctl_exits 0 "a clone of it" volume clone big@one kid
ctl_exits 0 "--dry-run" volume move big --to new0 --dry-run --json
json_is "says what would move" '[.volumes, .mover, .changed] | map(tostring) | join(" ")' \
    "3 mover0 false"
tap_is "and does not do it" "$(edges_to)" "file0 file0"
"$XSEGCTL" volume move big --to new0 --bandwidth 24M --json >"$SCENE_DIR/ctl.out" &
for i in 1 2 3; do tap_run "who comes and goes meanwhile ($i) finds all" holds big; done
tap_run "it has moved" wait $!
json_is "says what it did" '[.name, .to, .volumes, .mover, .changed] | map(tostring) | join(" ")' \
    "big new0 3 mover0 true"
json_is "and copied all" '.bytes >= 50331648' true
tap_is "a mover stands in front of both" "$(edges_to)" "mover0 mover0"
past() { # EDGE STORE: as the command does it, which is killed then
    /usr/bin/python3 -c '
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "edge.set", "params": {
    "edge": sys.argv[2], "to": sys.argv[3], "cache_passes": True}}).encode() + b"\n")
sys.exit(b"\"changed\":true" not in s.recv(65536).replace(b" ", b""))
' "$SKERRY_RUN_DIR/k/xsegd.sock" "$1" "$2"
}
tap_run "the cache's edge leads past it" past cache0:store file0
ctl_exits 0 "said again" volume move big --to new0
tap_is "it does not any more" "$(edges_to)" "mover0 mover0"
tap_is "all volumes are there" "$(volumes)" "big big@one disk kid other"
tap_run "and hold what they held" holds big
tap_run "the clone, too" holds kid
if [ -z "${MOVE_STORE:-}" ]; then
    tap_is "each in its place" "$(records "$SCENE_DIR/store") $(records "$SCENE_DIR/new")" "4 6"
fi
ctl_exits 0 "again" volume move kid --to new0 --json
json_is "there is nothing to copy" .bytes 0
ctl_exits 0 "the one under load" volume move disk --to new0
ctl_exits 0 "the last one" volume move other --to new0 --json
json_is "takes the mover out" .mover null
tap_is "all ask the new store" "$(edges_to)" "new0 new0"
tap_is "the old one is empty" \
    "$(records "$SCENE_DIR/store") $(objects "$SCENE_DIR/store")" "0 0"
tap_is "all volumes are there" "$(volumes)" "big big@one disk kid other"
ctl_exits 0 "again" volume move other --to new0 --json
json_is "nothing is to be done" .changed false
if [ -n "${MOVE_STORE:-}" ]; then
    for volume in big disk other; do
        ctl_exits 0 "back: $volume" volume move "$volume" --to file0
    done
    tap_is "all ask the old store" "$(edges_to)" "file0 file0"
    tap_run "nothing is lost" holds kid
    load_end load "nobody noticed anything of all that"
    ctl_exits 0 "fsck" volume fsck
    tap_end
fi

# --- what comes while it lasts ------------------------------------------------------------------
made=
make_one() {
    "$XSEGCTL" volume snapshot "big@s$1" >/dev/null && "$XSEGCTL" volume clone "big@s$1" "c$1" \
        >/dev/null || made+="c$1 "
}
# who shares objects with it is known by then, and the mover asked for, but not there
keeper=$(keeper_pid k)
scene_freeze "$keeper"
ctl_exits 0 "back, and not waited for" volume move big --to file0 --detach --json
job=$(jq .job "$SCENE_DIR/ctl.out")
sleep 1
make_one 0
kill -s CONT "$keeper"
for ((i = 1; i < 6; i++)); do make_one "$i"; done
tap_is "snapshots and clones of it" "$made" ""
ctl_exits 0 "it ends" job wait "$job"
tap_run "what was made meanwhile holds what it should" holds c5
ctl_exits 0 "they moved along" volume move big --to file0 --json
json_is "all of them" '[.volumes, .bytes] | map(tostring) | join(" ")' "15 0"
for ((i = 0; i < 6; i++)); do
    "$XSEGCTL" volume rm "c$i" --yes >/dev/null && "$XSEGCTL" volume rm "big@s$i" --yes >/dev/null
done
tap_is "and are removed" "$(volumes)" "big big@one disk kid other"
ctl_exits 0 "renamed" volume rename other another
tap_is "it has its new name" "$(volumes)" "another big big@one disk kid"

# --- refused ------------------------------------------------------------------------------------
ctl_exits 2 "without a store" volume move big
ctl_exits 3 "to nobody" volume move big --to nobody
ctl_exits 2 "to what is no store" volume move big --to map0
ctl_exits 3 "of no volume" volume move nothing --to new0
ctl_exits 0 "a third store" peer start third0=blocker_memory
ctl_exits 4 "which has to wait" volume move big --to third0
err_like "says for what" "between '(file0|new0)' and '(file0|new0)'"
ctl_exits 5 "an edge is not led past a mover" edge set map0:store file0
err_like "it says how" "volume move"
ctl_exits 5 "nor is the mover removed" peer rm mover0

# --- killed ---------------------------------------------------------------------------------------
wrong=
for victim in mover0 new0 file0 mover0 job map0 mover0 cache0; do
    to=new0
    ctl volume move big --to "$to" --detach --json
    job=$(jq .job "$SCENE_DIR/ctl.out")
    sleep "0.0$((RANDOM % 10))"
    if [ "$victim" = job ]; then
        kill -s KILL "$(jq -r .pid "$SKERRY_RUN_DIR/k/jobs/$job.json")" 2>/dev/null
    else
        kill_peer "$victim" 2>/dev/null
    fi
    ctl job wait "$job"
    ctl volume move big --to "$to"
    [ "$RC" -eq 0 ] || wrong+="$victim: $ERR; "
    holds big || wrong+="$victim: big differs; "
    ctl volume move big --to file0
    [ "$RC" -eq 0 ] || wrong+="$victim, back: $ERR; "
done
tap_is "kills in the middle, said again" "$wrong" ""
ctl volume move big --to new0 --detach --json
job=$(jq .job "$SCENE_DIR/ctl.out")
ctl_exits 0 "cancelled" job cancel "$job"
ctl job wait "$job"
ctl_exits 0 "and brought back" volume move big --to file0
tap_run "it is whole" holds big
load_end load "nobody noticed anything of all that"
ctl_exits 0 "fsck" volume fsck
ctl_exits 0 "gc" volume gc --wait --json
json_is "finds nothing that nobody needs" .unreachable 0

# --- a new file for what runs ---------------------------------------------------------------------
ctl_exits 0 "save" config save "$SCENE_DIR/saved.conf"
ctl_exits 0 "down" down k
ctl_exits 0 "up" up "$SCENE_DIR/saved.conf"
tap_is "all is there" "$(volumes)" "another big big@one disk kid"
tap_run "and whole" holds kid
ctl_exits 0 "to the new store, the rest of it" volume move big --to new0 --json
json_is "the mover goes" .mover null
ctl_exits 0 "down" down k
ctl_exits 0 "up with a file of before" up "$SCENE_DIR/saved.conf"
tap_is "all is found all the same" "$(volumes)" "another big big@one disk kid"
tap_run "and whole" holds kid
ctl_exits 0 "and is moved back" volume move disk --to file0
ctl_exits 0 "fsck" volume fsck

# --- a store that has such a volume already -----------------------------------------------------
# Another pipeline's: it has a volume 'another', as this one has.
cat >"$SCENE_DIR/theirs.conf" <<END
[segment]
name = t
size = 64M

[peer nbd9]
role = front_nbd
listen = unix:$SCENE_DIR/t.sock
edge.volume = vol9

[peer vol9]
role = volume
edge.store = their0
edge.map = map9

[peer map9]
role = mapperd
edge.store = their0

[peer their0]
role = blocker_file
shared = yes
dir = $SCENE_DIR/theirs
END
down_at_exit t
ctl_exits 0 "somebody else's pipeline" -s t up "$SCENE_DIR/theirs.conf"
ctl -s t volume create another --size 1M
ctl -s t volume create theirs --size 1M
ctl_exits 0 "all back" volume move big --to file0
ctl_exits 0 "all back" volume move another --to file0 --json
json_is "the mover goes" .mover null

# --- one that was being taken out -----------------------------------------------------------------
ctl_exits 0 "a mover" peer start mover0=mover,edge.store=new0,edge.store-to=file0
ctl_exits 0 "of which somebody was killed as he had stopped it" peer stop mover0
ctl_exits 0 "is taken out" volume move disk --to file0
tap_is "altogether" "$("$XSEGCTL" peer list --json |
    jq -c '[.peers[] | select(.role == "mover")]')" "[]"
ctl_exits 0 "another" peer start mover0=mover,edge.store=new0,edge.store-to=file0
ctl_exits 0 "is stopped, too" peer stop mover0
ctl_exits 0 "and in nobody's way" volume move disk --to new0
ctl_exits 0 "nor on the way back" volume move disk --to file0 --json
json_is "the mover goes" .mover null

# --- what was removed over there ------------------------------------------------------------------
ctl_exits 0 "a volume" volume create extra --size 1M
ctl_exits 0 "is moved" volume move extra --to new0
ctl_exits 0 "and removed there" volume rm extra --yes
ctl_exits 0 "altogether" volume gc --wait
ctl_exits 0 "another goes there" volume move disk --to new0
ctl_exits 0 "and comes back" volume move disk --to file0 --json
json_is "nothing is left there: the mover goes" .mover null

# --- one that has stopped half way --------------------------------------------------------------
ctl_exits 0 "slowly" volume move big --to new0 --bandwidth 64K --detach --json
job=$(jq .job "$SCENE_DIR/ctl.out")
has_begun() {
    "$XSEGCTL" stats mover0 --json | jq -e '[.peers[].counters.moved_objects] | add > 0'
}
tap_run "it begins" scene_until 60 has_begun
ctl_exits 0 "cancelled" job cancel "$job"
ctl job wait "$job"
for volume in disk another; do ctl_exits 0 "$volume goes" volume move "$volume" --to new0; done
tap_is "nobody else is left, but the mover is" "$(edges_to)" "mover0 mover0"
tap_run "which knows where it is" holds kid
ctl_exits 0 "it goes on" volume move big --to new0 --json
json_is "then the mover goes" .mover null
for volume in big disk another; do
    ctl_exits 0 "$volume is back" volume move "$volume" --to file0
done

ctl_exits 0 "their store, here as well" peer start \
    "shared0=blocker_file,shared=yes,dir=$SCENE_DIR/theirs"
ctl_exits 4 "one of the same name" volume move another --to shared0
err_like "says so" "'shared0' has a volume of the same name.*volume rename"
tap_is "and what was put in for it is taken out" "$(edges_to)" "file0 file0"
tap_is "the name leads where it did" "$("$XSEGCTL" volume info another --json | jq .size)" 4194304
ctl_exits 0 "with another name" volume rename another other
ctl_exits 0 "it moves" volume move other --to shared0
tap_is "and they have it" "$("$XSEGCTL" -s t volume list --json | jq -r '[.volumes[].name] | sort |
    join(" ")')" "another other theirs"
ctl_exits 0 "and back" volume move other --to file0 --json
json_is "the mover stays, for theirs can be used here, too" .mover mover0
scene_spawn holder /usr/bin/python3 -c '
import nbd, os, sys, time
h = nbd.NBD()
h.connect_uri(sys.argv[1])
h.pwrite(b"theirs" + bytes(506), 0)
print("open", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
' "nbd+unix:///theirs?socket=$SCENE_DIR/t.sock" "$SCENE_DIR/enough"
scene_wait_line holder open
ctl_exits 5 "what they have open is not moved" volume move theirs --to file0
err_like "says why" "another host has it"
: >"$SCENE_DIR/enough"
scene_stop holder
ctl_exits 0 "they go" -s t down t
ctl_exits 0 "then it moves" volume move theirs --to file0
tap_is "with what they wrote" "$(/usr/bin/python3 -c '
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
print(bytes(h.pread(512, 0))[:6].decode())
' "nbd+unix:///theirs?socket=$socket")" theirs

takes_room() { # FOLDER: all but 2 MiB, once something has been moved there
    scene_until 60 is_some "$1" &&
        fallocate -l $(($(df -B 1 --output=avail "$1" | tail -n 1) - (2 << 20))) "$1/hog"
}
is_some() { [ "$(objects "$1")" -gt 0 ]; }
fills_up() { # VOLUME FOLDER: it fits, and then somebody else takes the room
    takes_room "$2" &
    ctl_exits 1 "it ends in the middle, for want of room" volume move "$1" --to new0 --bandwidth 1M
    wait $!
}

# --- full -----------------------------------------------------------------------------------------
mkdir "$SCENE_DIR/small"
if mount -t tmpfs -o size=8M none "$SCENE_DIR/small" 2>/dev/null; then
    scene_at_exit "umount -l '$SCENE_DIR/small'"
    ctl_exits 0 "down" down k
    sed 's|^dir = .*/new$|dir = '"$SCENE_DIR"'/small|' "$conf" >"$SCENE_DIR/small.conf"
    ctl_exits 0 "up over another store, a small one" up "$SCENE_DIR/small.conf"
    ctl volume create large --size 64M --object-size 64K
    fill large
    before=$(volumes)
    ctl_exits 1 "it does not fit" volume move large --to new0
    err_like "says so, and what to do" \
        "'large' stays where it is: 'new0' has .* MiB free, and it takes.*make room"
    tap_is "nothing has been moved" "$(objects "$SCENE_DIR/small") $(edges_to)" "0 file0 file0"
    mount -o remount,size=56M "$SCENE_DIR/small"
    fills_up large "$SCENE_DIR/small"
    err_like "says so, and what to do" "No space left on device.*stays usable.*make room"
    tap_run "it is whole" holds large
    ctl_exits 0 "and comes back" volume move large --to file0
    tap_run "whole" holds large
    tap_is "with all the others" "$(volumes)" "$before"
    tap_is "the mover has gone" "$(edges_to)" "file0 file0"
else
    tap_skip "a store that is full" "tmpfs cannot be mounted here"
fi
# --- the host dies in the middle, and nobody says it again ----------------------------------------
old=$SCENE_DIR/old2 new=$SCENE_DIR/new2
ctl down k
mkdir "$old" "$new"
if mount -t tmpfs -o size=56M none "$new" 2>/dev/null; then
    scene_at_exit "umount -l '$new'"
    sed -e "s|^dir = .*/store$|dir = $old|" -e "s|^dir = .*/new$|dir = $new|" "$conf" \
        >"$SCENE_DIR/two.conf"
    ctl_exits 0 "up over two empty stores" up "$SCENE_DIR/two.conf"
    ctl volume create half --size 64M --object-size 64K
    ctl volume create other --size 1M
    fill half
    ctl_exits 0 "a mover stays for the rest" volume move other --to new0
    ctl_exits 0 "and is in the file" config save "$SCENE_DIR/half.conf"
    id=$("$XSEGCTL" volume info half --json | jq -r .id)
    fills_up half "$new"
    mount -o remount,size=256M "$new"
    host_dies() { # all at once, unless one of those who start others is faster
        local pids
        mapfile -t pids < <("$XSEGCTL" status --json | jq -r '[.keeper.pid, .keeper.guard_pid,
            (.peers[] | select(.state == "serving") | .pid)][] | select(. != null and . > 0)')
        kill -s KILL "${pids[@]}"
        "$XSEGCTL" segment destroy k --yes
    }
    tap_run "all that was in memory is gone" scene_until 60 host_dies
    tap_run "half of it is here" test "$(find "$old/objects/$id" -type f | wc -l)" -ge 1
    tap_run "a part of a copy is there, too" bash -c 'cd "$0/objects" &&
        cp --parents "$(find "$2" -type f | tail -n 1)" "$1/objects"' "$old" "$new" "$id"
    ctl_exits 0 "up" up "$SCENE_DIR/half.conf"
    tap_run "it is whole" holds half
    ctl_exits 0 "and is removed" volume rm half --yes --timeout 100s
    ctl_exits 0 "gc" volume gc --wait
    tap_is "nothing of it is left" \
        "$(find "$old/objects/$id" "$new/objects/$id" -type f 2>/dev/null | wc -l)" 0
    ctl_exits 0 "fsck" volume fsck
else
    tap_skip "a host that dies in the middle" "tmpfs cannot be mounted here"
fi
tap_end
