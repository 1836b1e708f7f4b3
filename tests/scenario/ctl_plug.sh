#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# plug and unplug under load: what runs agrees with config diff and save, what is said again goes
# on, and the plug, the keeper or the cache killed in the middle leaves a pipeline that serves.
# What only a cache has keeps the segment.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "plug and unplug"
"$XSEGPEER" --describe-role cached >/dev/null 2>&1 || tap_skip_all "there is no cached here"
conf=$SCENE_DIR/k.conf saved=$SCENE_DIR/saved.conf
down_at_exit k
# a stopped process would outlive the scene's SIGTERM
stopped=''
scene_at_exit '[ -z "$stopped" ] || kill -s CONT "$stopped"'

keeper_file "$conf" </dev/null
ctl_exits 0 "up" up --unguarded "$conf"
ctl volume create disk --size 32M

steps() { jq -r '[.steps[] | "\(.action) \(.object)"] | join("; ")' "$SCENE_DIR/ctl.out"; }
edge_to() { "$XSEGCTL" edge list --json | jq -r '.edges[] | select(.name == "vol0:store").to'; }
phase() { "$XSEGCTL" cache list --json | jq -r '.caches[] | select(.name == "cache0").phase'; }
phase_is() { [ "$(phase)" = "$1" ]; }
edge_is() { [ "$(edge_to)" = "$1" ]; }
freeze() { { stopped=$(pid_of "$1") && scene_freeze "$stopped"; } || tap_not_ok "$1 is stopped"; }
thaw() { kill -s CONT "$stopped" && stopped=''; }
# The process that works on the job that was begun last: 3 of {"job", ..., "pid", ...}.
worker() { jq -r .pid "$SKERRY_RUN_DIR/k/jobs/$1.json"; }
job_state() { "$XSEGCTL" job show "$1" --json | jq -r .state; }
job_ended() { [ "$(job_state "$1")" != running ]; }

# --- refused ----------------------------------------------------------------------------------
ctl_exits 2 "plug of what is no cache" plug blocker_null --at vol0:store
ctl_exits 2 "plug nowhere" plug cached
ctl_exits 3 "plug at no edge" plug cached --at vol0:stor
ctl_exits 2 "plug with an option for itself" plug cached --at vol0:store begin=caching
ctl_exits 2 "plug with half an option" plug cached --at vol0:store size
ctl_exits 4 "plug under a name in use" plug cached --at vol0:store --name vol0
ctl_exits 1 "plug with an unknown option" plug cached --at vol0:store colour=red
tap_is "leaves the edge alone" "$(edge_to)" file0
ctl_exits 3 "unplug of none" unplug cache0
ctl_exits 2 "unplug of what is no cache" unplug file0

# --- in and out -------------------------------------------------------------------------------
load_start load
ctl_exits 0 "plug --dry-run" plug cached --at vol0:store --dry-run --json
tap_is "says what would be done" "$(steps)" "start cache0; switch vol0:store; begin cache0"
tap_is "and does not do it" "$(edge_to)" file0
ctl_exits 0 "plug" plug cached --at vol0:store size=8M --json
json_is "says where it is" '[.name, .at, .store, .phase, .changed] | map(tostring) | join(" ")' \
    "cache0 vol0:store file0 caching true"
tap_is "the edge leads to it" "$(edge_to)" cache0
tap_is "it caches" "$(phase)" caching
ctl_exits 0 "plug again" plug cached --at vol0:store --json
json_is "is no change" .changed false
ctl_exits 0 "plug --dry-run of what is so" plug cached --at vol0:store --dry-run --json
tap_is "has no step" "$(steps)" ""
ctl_exits 0 "with the same option" plug cached --at vol0:store size=8M --json
json_is "is none either" .changed false
ctl_exits 4 "with another one" plug cached --at vol0:store size=16M
err_like "says what is there" "with size=8M"
ctl_exits 4 "a second one" plug cached --at vol0:store --name cache1
ctl_exits 0 "save" config save "$saved"
tap_like "has the cache, and not how it began" "$(grep -A4 'peer cache0' "$saved" | tr '\n' ' ')" \
    'role = cached edge.store = file0 size = 8M'
ctl_exits 0 "what was saved is what runs" config diff "$saved" --json
json_is "no step is left" '.steps | length' 0
ctl_exits 5 "an edge is not led past a cache" edge set vol0:store file0
ctl_exits 5 "nor by a file without it" config apply "$conf"
err_like "it says how" "xsegctl unplug"
ctl_exits 5 "nor is it stopped" peer stop cache0
ctl_exits 0 "unplug --dry-run" unplug cache0 --dry-run --json
tap_is "says what would be done" "$(steps)" "drain cache0; switch vol0:store; stop cache0"
ctl_exits 0 "unplug" unplug cache0 --json
json_is "says what became of it" '[.store, .discarded] | map(tostring) | join(" ")' "file0 0"
tap_is "the edge leads past it" "$(edge_to)" file0
ctl_exits 0 "what runs is what the file says" config diff "$conf" --json
json_is "no page is kept" '.same' true
ctl_exits 5 "a file does not put it in again, either" config apply "$saved"
err_like "it says how" "xsegctl plug"
ctl_exits 0 "nothing is lost" segment fsck --json
json_is "nor kept" .pages.kept 0
for ((i = 0; i < 4; i++)); do
    "$XSEGCTL" plug cached --at vol0:store >/dev/null && sleep 0.2 &&
        "$XSEGCTL" unplug cache0 >/dev/null || break
done
tap_is "in and out, four times" "$i $(edge_to)" "4 file0"
tap_is "each is an event" "$(event_count cache_plugged cache0) \
$(event_count cache_unplugged cache0)" "5 5"

# --- killed in the middle ---------------------------------------------------------------------
# A composer that stands still keeps plug waiting for its turn: the edge leads to the cache, which
# passes everything on.
plug_frozen() { # NAME
    freeze vol0
    ctl_exits 0 "$1: plug, while the composer does not move" plug cached --at vol0:store \
        size=8M --detach --json
    job=$(jq .job "$SCENE_DIR/ctl.out")
    scene_until 10 edge_is cache0
    tap_is "$1: the edge leads to it, it does not cache yet" "$(phase)" passing
}

plug_frozen plug
kill -s KILL "$(worker "$job")"
thaw
scene_until 10 job_ended "$job"
tap_is "plug killed: the cache passes everything on" "$(edge_to) $(phase)" "cache0 passing"
ctl_exits 0 "said again" plug cached --at vol0:store size=8M --json
json_is "it goes on" '[.phase, .changed] | map(tostring) | join(" ")' "caching true"
tap_is "and caches" "$(phase)" caching
ctl_exits 0 "and goes" unplug cache0

plug_frozen keeper
kill -s KILL "$(keeper_pid k)"
thaw
scene_until 10 phase_is caching
tap_is "keeper killed: the plug goes on" "$(edge_to) $(phase)" "cache0 caching"
ctl_exits 0 "the next keeper" up --unguarded "$conf"
ctl_exits 0 "knows the cache" plug cached --at vol0:store --json
json_is "as it is" .changed false
ctl_exits 0 "and takes it out" unplug cache0

plug_frozen cached
old=$(pid_of cache0)
kill_peer cache0
thaw
tap_run "cached killed: it is back" back cache0 "$old"
scene_until 10 phase_is caching
tap_is "and the plug went on" "$(edge_to) $(phase)" "cache0 caching"
old=$(pid_of cache0)
kill_peer cache0
tap_run "killed while it caches: it is back" back cache0 "$old"
tap_is "and caches" "$(phase)" caching
ctl_exits 0 "unplug" unplug cache0

plug_frozen cancel
ctl_exits 0 "cancelled" job cancel "$job"
thaw
scene_until 10 job_ended "$job"
tap_is "it is undone" "$(job_state "$job") $(edge_to) $(pid_of cache0)" "cancelled file0 "

# --- unplug in the middle ---------------------------------------------------------------------
ctl_exits 0 "plug" plug cached --at vol0:store size=8M
freeze vol0
ctl_exits 0 "unplug, while the composer does not move" unplug cache0 --detach --json
job=$(jq .job "$SCENE_DIR/ctl.out")
scene_until 10 edge_is file0
kill -s KILL "$(worker "$job")"
thaw
scene_until 10 job_ended "$job"
ctl_exits 0 "killed, and said again" unplug cache0 --json
ctl_exits 0 "it is gone" segment fsck --json
json_is "with its pages" .pages.kept 0
load_end load "nobody noticed anything of all that"

# --- what only the cache has ------------------------------------------------------------------
ctl_exits 0 "plug" plug cached --at vol0:store size=8M
scene_spawn writer /usr/bin/python3 -c '
import nbd, os, sys, time
h = nbd.NBD()
h.connect_uri(sys.argv[1])
h.pread(4096, 1 << 20)  # a store that stands still tells nobody which objects there are
print("connected", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
h.pwrite(b"only in the cache" + bytes(4079), 1 << 20)
print("written", flush=True)
' "nbd+unix:///disk?socket=$socket" "$SCENE_DIR/frozen"
scene_wait_line writer connected
freeze file0
: >"$SCENE_DIR/frozen"
tap_run "a write that the store does not see" scene_wait_line writer written
ctl_exits 0 "it is dirty" cache list --json
json_is "and counted" '.caches[0].dirty >= 4096' true
ctl_exits 0 "unplug --detach" unplug cache0 --detach --json
job=$(jq .job "$SCENE_DIR/ctl.out")
scene_until 10 phase_is draining
ctl_exits 0 "does not get on, and is cancelled" job cancel "$job"
scene_until 15 job_ended "$job"
tap_is "the cache stays" "$(edge_to)" cache0
"$XSEGCTL" peer stop nbd0 >/dev/null
"$XSEGCTL" down k --yes --timeout 1s >/dev/null 2>&1
tap_is "down: the segment stays" "$?" 5
thaw
ctl_exits 5 "it is not destroyed" segment destroy k --yes
err_like "and says how much is in it" "--discard-dirty=[0-9]+"
ctl_exits 5 "nor for another number" segment destroy k --yes --discard-dirty=1
ctl_exits 5 "a pipeline without the cache does not come up" up --unguarded "$conf"
ctl_exits 0 "one with it does" up --unguarded "$saved"
tap_run "what was written is there" /usr/bin/python3 -c '
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
sys.exit(bytes(h.pread(4096, 1 << 20))[:17] != b"only in the cache")
' "nbd+unix:///disk?socket=$socket"
ctl_exits 0 "unplug writes it back" unplug cache0
ctl_exits 0 "down" down k

# --- who is being started, and how it is kept --------------------------------------------------
sed 's/^\[peer cache0\]$/&\nrestart-limit = 7\nrestart-delay = 300ms/' "$saved" \
    >"$SCENE_DIR/keys.conf"
kept_as() { "$XSEGCTL" config save | grep -c '^restart-limit *= *7$'; }
ctl_exits 0 "up with keys of its own for the cache" up --unguarded "$SCENE_DIR/keys.conf"
tap_is "they are known" "$(kept_as)" 1
ctl_exits 0 "unplug" unplug cache0
tap_is "they go with it" "$(kept_as)" 0
ctl_exits 0 "plug" plug cached --at vol0:store
tap_is "and come with it" "$(kept_as)" 1
kill_peer cache0
ctl_exits 0 "unplug of a cache that is being started waits for it" unplug cache0
tap_is "it is out" "$(edge_to)" file0
kill_keeper k
ctl_exits 0 "the next keeper" up --unguarded "$SCENE_DIR/keys.conf"
tap_is "does not bring back what the file has" "$(edge_to) $(pid_of cache0)" "file0 "
ctl_exits 0 "plug" plug cached --at vol0:store
wrong=
for delay in 0 0.005 0.02 0.05 0.1; do
    kill_peer file0
    sleep "$delay"
    ctl unplug cache0
    [ "$RC" -eq 0 ] || wrong+="$delay: $ERR; "
    ctl plug cached --at vol0:store
    [ "$RC" -eq 0 ] || wrong+="$delay: plug: $ERR; "
done
tap_is "neither minds a store that is being started" "$wrong" ""
ctl_exits 0 "down" down k

# --- a store that fails -----------------------------------------------------------------------
# vol0 over cache0 over bad0, which hands all to file0 until it is told to fail. The mapper is led
# past both.
rules=$SCENE_DIR/rules
if ! scene_module blocker_meddle.c; then
    tap_skip "a store that fails" "no compiler"
    tap_end
fi
: >"$rules"
{
    sed '0,/edge.store = file0/s//edge.store = bad0/' "$conf"
    printf '[peer bad0]\nrole = blocker_meddle\nrules = %s\nedge.store = file0\n' "$rules"
} >"$SCENE_DIR/bad.conf"
fresh() { # TEXT: written through the cache
    /usr/bin/python3 -c '
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
h.pwrite(sys.argv[2].encode().ljust(4096), 2 << 20)
' "nbd+unix:///disk?socket=$socket" "$1"
}
read_back() {
    /usr/bin/python3 -c '
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
print(bytes(h.pread(4096, 2 << 20)).decode().strip())
' "nbd+unix:///disk?socket=$socket"
}
is_ill() { ! "$XSEGCTL" status >/dev/null; }
ctl_exits 0 "up over a store that can fail" up --unguarded "$SCENE_DIR/bad.conf"
ctl_exits 0 "plug" plug cached --at vol0:store size=8M age=100ms epoch=50ms
fresh old
ctl_exits 0 "flush" cache flush cache0
meddle "fail=EIO ops=write,flush"
fresh new
tap_run "the store fails: status says so" scene_until 10 is_ill
ctl_exits 1 "status" status --json
json_is "and why" '.peers[] | select(.name == "cache0") |
    .health == "degraded" and (.reason | test("its store fails .Input/output error."))' true
ctl_exits 1 "unplug" unplug cache0 --timeout 300ms
err_like "says so, and how much it is" "fails .*: 4096 bytes .*--discard-dirty=4096"
tap_is "the cache stays, and serves" "$(edge_to) $(phase) $(read_back)" "cache0 caching new"
ctl_exits 5 "giving up less than that" unplug cache0 --discard-dirty=0
ctl_exits 0 "giving up all" unplug cache0 --discard-dirty=4096 --json
json_is "is said" .discarded 4096
meddle ""
tap_is "it is gone" "$(edge_to) $(read_back)" "bad0 old"
ctl_exits 0 "status is well again" status
ctl_exits 0 "no page is kept" segment fsck --json
json_is "none" .pages.kept 0
ctl_exits 0 "down" down k

# --- a cache that shares its process ------------------------------------------------------------
# It stays there, out of the way, until it is put in again; it cannot be killed alone.
keeper_file "$SCENE_DIR/apart.conf" <<<$'[peer cache0]\nrole = cached\nedge.store = file0'
{
    echo '[host rest]'
    sed -e 's/^\[peer \(vol0\|map0\|file0\|cache0\)\]/&\nhost = rest/' \
        -e '/^\[peer vol0\]/,/^$/s/edge.store = file0/edge.store = cache0/' "$SCENE_DIR/apart.conf"
} >"$SCENE_DIR/shared.conf"
ctl_exits 0 "up in two processes" up --unguarded "$SCENE_DIR/shared.conf"
pid=$(pid_of cache0)
tap_is "the cache shares one" "$(edge_to) $(pid_of vol0)" "cache0 $pid"
fresh shared
ctl_exits 0 "unplug --dry-run" unplug cache0 --dry-run --json
tap_is "does not stop it" "$(steps)" "drain cache0; switch vol0:store"
ctl_exits 5 "it cannot be killed alone" unplug cache0 --discard-dirty=1G
err_like "says what to do" "shares its process .*down --discard-dirty"
ctl_exits 0 "unplug" unplug cache0 --json
json_is "leaves it in its process" '[.stopped, .changed] | map(tostring) | join(" ")' "false true"
tap_is "out of the way" "$(edge_to) $(phase) $(pid_of cache0) $(read_back)" \
    "file0 passing $pid shared"
kill_peer cache0
tap_run "killed: all of it is back" back cache0 "$pid"
tap_is "and the cache still out of the way" "$(edge_to) $(phase) $(read_back)" \
    "file0 passing shared"
ctl_exits 0 "plug" plug cached --at vol0:store --json
json_is "finds it there" '[.name, .phase] | join(" ")' "cache0 caching"
ctl_exits 0 "down" down k
tap_end
