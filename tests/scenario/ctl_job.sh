#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Jobs: imports and exports go on when their client leaves, are shown, waited for and cancelled;
# what a killed one leaves is gone, with a keeper or without.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "xsegctl job"
down_at_exit j
export SKERRY_SEGMENT=j
mkdir "$SCENE_DIR/store"
pipeline "$SCENE_DIR/j.conf" j 'role = blocker_file' "dir = $SCENE_DIR/store"
ctl_exits 3 "an import where there is no segment" volume import "$SCENE_DIR/j.conf" x --detach
tap_is "is no job" "$(find "$SKERRY_RUN_DIR" -type f)" ''
ctl_exits 0 "up" up --unguarded "$SCENE_DIR/j.conf"
img=$SCENE_DIR/img
head -c 96M /dev/urandom >"$img"

state() { "$XSEGCTL" job show "$1" --json 2>/dev/null | jq -r .state; }
is_state() { [ "$(state "$1")" = "$2" ]; }
no_volume() { ! "$XSEGCTL" volume info "$1"; }
importing() { "$XSEGCTL" volume info "$1" --json | jq -e '.state == "importing"'; }
job_of() {
    "$XSEGCTL" job list --json | jq -r ".jobs | map(select(.object == \"$1\")) | .[-1].job"
}
has_job() { [ "$(job_of "$1")" != null ]; }
worker() { "$XSEGCTL" job show "$1" --json | jq -r .pid; }

# --- a client that stays, one that leaves, one that is killed ----------------------------------
ctl_exits 0 "import" volume import "$img" a --json
json_is "its result" '[.name, .size, .changed] | @csv' '"a",100663296,true'
ctl_exits 0 "job list" job list --json
json_is "has it" '.jobs[-1] | [.kind, .object, .state, .unit, .done, .percent] | @csv' \
    '"volume.import","a","done","bytes",100663296,100'
ctl_exits 0 "import --detach" volume import "$img" b --detach --json
id=$(jq -r .job <<<"$OUT")
ctl_exits 0 "job wait" job wait "$id" --json
json_is "is done, with a result" '[.state, .result.size] | @csv' '"done",100663296'
ctl_exits 0 "the volume is there" volume info b
scene_spawn client "$XSEGCTL" volume import "$img" c
scene_until 10 importing c
scene_kill KILL client
wait "$(scene_pid client)" 2>/dev/null
tap_run "a killed client's job goes on" scene_until 20 is_state "$(job_of c)" "done"
ctl_exits 0 "export of it" volume export c "$SCENE_DIR/c"
tap_run "it is whole" cmp "$img" "$SCENE_DIR/c"
scene_spawn client "$XSEGCTL" volume import "$img" h
scene_until 10 importing h
scene_kill HUP client
wait "$(scene_pid client)"
tap_run "one whose terminal hangs up, too" scene_until 20 is_state "$(job_of h)" "done"

# --- cancelled ---------------------------------------------------------------------------------
stopped_import() { # NAME: an import whose process stands still in the middle
    local store
    store=$(peer_pid j mem0)
    scene_freeze "$store" # so that it cannot be done before we stop it
    scene_spawn "$1" "$XSEGCTL" volume import "$img" "$1"
    scene_until 10 has_job "$1"
    id=$(job_of "$1")
    scene_freeze "$(worker "$id")"
    kill -s CONT "$store"
    scene_until 10 importing "$1"
}
stopped_import d
ctl_exits 0 "job cancel --dry-run" job cancel "$id" --dry-run --json
json_is "changes nothing" '[.changed, .state] | @csv' 'false,"running"'
ctl_exits 0 "job cancel" job cancel "$id" --json
json_is "it was told" .changed true
kill -s CONT "$(worker "$id")"
wait "$(scene_pid d)"
tap_is "its client says so" $? 1
ctl_exits 1 "job wait exits as it did" job wait "$id"
err_like "says why" "interrupted"
tap_is "its state" "$(state "$id")" cancelled
ctl_exits 3 "nothing of it is left" volume info d
ctl_exits 0 "cancel of one that has ended" job cancel "$id" --json
json_is "is no change" .changed false
ctl_exits 3 "cancel of none" job cancel 4711
ctl_exits 2 "cancel of what is no number" job cancel x
stopped_import e
ctl_exits 7 "wait with a limit" job wait --timeout 10ms "$id"
kill -s CONT "$(worker "$(job_of e)")"
scene_until 20 is_state "$(job_of e)" "done"

# --- the worker is killed ----------------------------------------------------------------------
stopped_import f
kill -s KILL "$(scene_pid f)"
kill -s KILL "$(worker "$id")"
tap_run "client and worker killed: the keeper tidies up" scene_until 60 is_state "$id" failed
tap_run "what it has done is kept" importing f
ctl_exits 0 "it is gone on with" volume import "$img" f --json
json_is "says so" .resumed true
scene_spawn export "$XSEGCTL" volume export f "$SCENE_DIR/f" --yes
half() { compgen -G "$SCENE_DIR/.f.*"; }
scene_until 10 half
id=$(job_of f)
kill -s KILL "$(worker "$id")" "$(scene_pid export)" 2>/dev/null
wait "$(scene_pid export)" 2>/dev/null
ended() { [ "$(state "$id")" != running ] && [ "$(state "$id")" != lost ]; }
scene_until 20 ended
tap_fails "a killed export leaves no file" half

# --- without a keeper --------------------------------------------------------------------------
kill -s KILL "$(keeper_pid j)"
stopped_import g
kill -s KILL "$(scene_pid g)"
kill -s KILL "$(worker "$id")"
ctl_exits 0 "job list without a keeper" job list --json
json_is "it is lost" '.jobs[-1].state' lost
ctl_exits 0 "job tidy --dry-run" job tidy --dry-run --json
json_is "says which" '[.jobs[].job] | join(" ")' "$id"
ctl_exits 0 "import of the same name goes on" volume import "$img" g
tap_is "the lost one has failed" "$(state "$id")" failed
stopped_import i
kill -s KILL "$(scene_pid i)"
kill -s KILL "$(worker "$id")"
ctl_exits 0 "a new keeper" up --unguarded "$SCENE_DIR/j.conf"
tap_run "tidies up what it finds" scene_until 60 is_state "$id" failed
tap_run "what it has done is kept" importing i
ctl_exits 0 "and can be removed" volume rm i --yes

# --- what the keeper does is a job, too --------------------------------------------------------
ctl_exits 0 "peer restart" peer restart nbd0 --host
ctl job list --json
json_is "is a job" '.jobs[-1] | [.kind, .object, .state] | @csv' '"peer.restart","nbd0","done"'
ctl_exits 0 "import --dry-run" volume import "$img" z --dry-run
ctl_exits 3 "makes nothing" volume info z
ctl_exits 4 "of a name that is taken" volume import "$img" a --dry-run
ctl_exits 0 "export --dry-run" volume export a "$SCENE_DIR/z" --dry-run
tap_fails "writes nothing" test -e "$SCENE_DIR/z"
ctl_exits 0 "volume create --dry-run" volume create z --size 1M --dry-run --json
json_is "changes nothing" '[.changed, .dry_run] | @csv' 'false,true'
ctl_exits 3 "really" volume info z
ctl_exits 0 "segment reap --dry-run" segment reap --dry-run --json
json_is "changes nothing" .changed false
ctl_exits 0 "segment reap" segment reap --json
json_is "nothing is pending" .pending 0
ctl_exits 0 "down" down
tap_is "no record is left" "$(find "$SKERRY_RUN_DIR" -path '*jobs*')" ''
tap_end
