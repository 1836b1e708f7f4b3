#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# config check, diff, apply and save: the round trip changes nothing, apply does the least and loses
# no request, what fails is put back, and a keeper killed in the middle leaves a pipeline that runs.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "xsegctl config"
conf=$SCENE_DIR/k.conf saved=$SCENE_DIR/saved.conf other=$SCENE_DIR/other.conf
down_at_exit k

steps() { jq -r '[.steps[] | "\(.action) \(.object)"] | join("; ")' "$SCENE_DIR/ctl.out"; }
same() { # NAME FILE
    ctl_exits 0 "$1" config diff "$2" --json
    json_is "$1: no step" '[.same, (.steps | length)] | @csv' 'true,0'
}

# --- check ------------------------------------------------------------------------------------
keeper_file "$conf" </dev/null
ctl_exits 0 "check of a good file" config check "$conf"
sed 's/role = volume/role = volme/' "$conf" >"$other"
ctl_exits 2 "check of a bad one" config check "$other"
err_like "says where" "other.conf:11: unknown role 'volme'; did you mean 'volume'"
ctl_exits 2 "diff checks first" config diff "$other"
ctl_exits 3 "check of none" config check "$SCENE_DIR/none"
ctl_exits 6 "diff needs a keeper" config diff "$conf"

# --- the round trip ---------------------------------------------------------------------------
ctl_exits 0 "up --dry-run" up --unguarded "$conf" --dry-run --json
json_is "says what would start, stores first" '[.steps[].object] | join(" ")' "file0 map0 vol0 nbd0"
ctl_exits 0 "up" up --unguarded "$conf"
ctl volume create disk --size 32M
same "what runs is the file" "$conf"
ctl_exits 0 "save" config save "$saved"
ctl_exits 0 "what was saved is a good file" config check "$saved"
same "what was saved is what runs" "$saved"
ctl_exits 0 "save again" config save "$saved" --json
json_is "changes nothing" .changed false
ctl_exits 4 "save over another file" config save "$conf"
err_like "wants a yes" "exists; say --yes"
ctl_exits 0 "save to stdout" config save
tap_is "is the same" "$OUT" "$(cat "$saved")"
ctl_exits 0 "apply of the same" config apply "$conf" --json
json_is "is no change" '[.changed, (.steps | length)] | @csv' 'false,0'
first=$(pid_of nbd0),$(pid_of vol0),$(pid_of file0)

# --- apply under load -------------------------------------------------------------------------
load_start load
{
    cat "$conf"
    printf '[peer mem1]\nrole = blocker_memory\n[peer vol1]\nrole = volume\nedge.store = mem1\n'
    printf 'edge.map = map1\n[peer map1]\nrole = mapperd\nedge.store = mem1\n'
} >"$other"
ctl_exits 0 "apply --dry-run" config apply "$other" --dry-run --json
tap_is "shows the steps" "$(steps)" "start mem1; start map1; start vol1"
ctl_exits 1 "and has done none: diff" config diff "$other" --json
tap_is "still shows them" "$(steps)" "start mem1; start map1; start vol1"
ctl_exits 0 "apply" config apply "$other" --json
json_is "both are done" '[.changed, .done, (.steps | map(.state) | unique | join(""))] | @csv' \
    'true,3,"done"'
tap_is "nobody else was touched" "$(pid_of nbd0),$(pid_of vol0),$(pid_of file0)" "$first"
same "it is what runs" "$other"
ctl_exits 0 "the keeper knows the file" up "$other" --json
json_is "as its own" .changed false

sed -i 's/role = volume$/role = volume\nobject-size = 1M/' "$other"
ctl_exits 0 "other options" config apply "$other" --json
tap_is "restart who has them" "$(steps)" "restart vol0; restart vol1"
tap_is "and nobody else" "$(pid_of nbd0),$(pid_of file0)" "${first%%,*},${first##*,}"
sed -i 's/^\[peer vol0\]/&\nwatchdog = 7s/' "$other"
low=$(pid_of vol0)
ctl_exits 0 "what only the keeper does otherwise" config apply "$other" --json
tap_is "is no restart" "$(steps)" "settings vol0"
tap_is "really" "$(pid_of vol0)" "$low"

# two peers into one process: both stop, then start
sed -i 's/^\[peer file0\]/&\nhost = vol0/' "$other"
ctl_exits 0 "a peer moves" config apply "$other" --json
tap_is "all of both processes stop first" "$(steps)" "stop vol0; stop file0; start vol0"
tap_is "they are one" "$(pid_of vol0)" "$(pid_of file0)"
same "moved" "$other"
ctl_exits 0 "back to the first file" config apply "$conf" --json
tap_is "what is not in it stops, fronts first" "$(steps)" \
    "stop vol0; start file0; start vol0; stop vol1; stop map1; stop mem1"
same "back" "$conf"
load_end load "no error under all that"

# --- edges --------------------------------------------------------------------------------------
ctl peer start mem2=blocker_memory
ctl_exits 0 "edge set --dry-run" edge set vol0:store mem2 --dry-run --json
json_is "changes nothing" '[.changed, .from] | @csv' 'false,"file0"'
ctl_exits 0 "edge set" edge set vol0:store mem2
ctl_exits 1 "diff sees an edge that was set by hand" config diff "$conf" --json
tap_is "and what is not in the file" "$(steps)" "switch vol0:store; stop mem2"
ctl_exits 0 "apply switches it back" config apply "$conf"
ctl_exits 0 "an edge to nowhere" edge set vol0:store none --json
json_is "led to, leads to" '[.from, .to, .changed] | @csv' '"file0","none",true'
ctl_exits 0 "again" edge set vol0:store none --json
json_is "is no change" .changed false
ctl_exits 1 "diff sees it" config diff "$conf" --json
json_is "says so" '.steps[0].reason' "to file0, was nowhere"
ctl_exits 0 "and back" config apply "$conf"

ctl_exits 2 "an edge to what does not answer it" edge set nbd0:volume file0
err_like "says so" "cannot lead to 'file0': a blocker_file answers no 'volume' requests"
ctl_exits 2 "a cache where no store is" plug cached --at nbd0:volume
err_like "says so" "'nbd0:volume' is no store edge"
sed '0,/edge.volume = vol0/s//edge.volume = file0/' "$conf" >"$other"
ctl_exits 2 "a file with such an edge" config check "$other"
err_like "names line and peers" "$other:[0-9]+: edge.volume leads to 'file0', a blocker_file"
ctl_exits 0 "all is as it was" config diff "$conf"

# --- what cannot be, and what fails -------------------------------------------------------------
sed 's/64M/128M/' "$conf" >"$other"
ctl_exits 4 "a segment of another size" config apply "$other"
err_like "says what to do" "size of a segment cannot change while it runs.*xsegctl down"
low=$(pid_of vol0)
: >"$SCENE_DIR/file"
sed "s|^dir = .*|dir = $SCENE_DIR/file/x|; s/role = volume/&\nobject-size = 2M/" "$conf" >"$other"
printf '[peer m]\nrole = blocker_memory\n' >>"$other"
ctl_exits 8 "a store that does not start with its new options" config apply "$other" --timeout 10s
err_like "says what was done, and why" "1 of 3 steps done, then: 'file0' does not start"
err_like "and what next" "xsegctl config diff"
back_up() { "$XSEGCTL" status --json | jq -e .healthy; }
tap_run "the old one is back" scene_until 10 back_up
tap_is "what was not begun was not touched" "$(pid_of vol0)" "$low"
ctl job list --json
json_is "the job says so" '.jobs[-1] | [.kind, .state, .done, .total, .percent] | @csv' \
    '"config.apply","failed",1,3,33'
ctl_exits 0 "back to what was" config apply "$conf"
printf '[peer bad]\nrole = blocker_file\ndir = %s/file/y\n' "$SCENE_DIR" | cat "$conf" - >"$other"
ctl_exits 1 "a new one that does not start" config apply "$other" --timeout 10s
same "is as if it had never been" "$conf"

# --- killed in the middle -------------------------------------------------------------------------
load_start load2
sed 's/role = volume/&\nobject-size = 1M/; s/role = blocker_file/&\nworkers = 2/' "$conf" >"$other"
"$XSEGCTL" config check "$other" >/dev/null 2>&1 || sed -i '/^workers/d' "$other"
for when in 0.01 0.05 0.1; do
    "$XSEGCTL" config apply "$other" >/dev/null 2>&1 &
    client=$!
    sleep "$when"
    kill_keeper k
    wait "$client"
    ctl_exits 0 "up after a keeper killed $when s into an apply" up --unguarded "$conf"
    scene_until 20 back_up
    ctl_exits 0 "apply after a keeper killed $when s into one" config apply "$other"
    same "after $when s" "$other"
    ctl_exits 0 "and back" config apply "$conf"
done
load_end load2 "no error, whenever the keeper was killed"
"$XSEGCTL" config apply "$SCENE_DIR/other.conf" >/dev/null 2>&1 &
kill -s KILL $!
wait $! 2>/dev/null
ended() { "$XSEGCTL" job list --json | jq -e '[.jobs[].state] | all(. != "running")'; }
scene_until 20 ended
ctl_exits 0 "after a client that was killed" config apply "$conf"
same "all is as it was" "$conf"
ctl_exits 0 "down" down
tap_end
