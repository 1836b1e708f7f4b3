#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The sector-stamp checker: passes on a store that tells the truth, and fails on each store that
# tells one lie, by that lie's name. Also across restarts of the checker, with a journal.

. "$(dirname "$0")/lib.sh"
SCENE_SIZE=16M SCENE_SEGMENT_SIZE=128M TAP_LIMIT=60

# stamp WANT_EXIT NAME ARGS...; its last line is in $SAID
stamp() {
    local want=$1 name=$2
    shift 2
    tap_exits "$want" "$name" "$STAMP" "$@"
    SAID=$(grep -a '^{"errors"' "$TAP_OUT" | tail -n 1)
}
number() { sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" <<<"$SAID"; }
nonzero() { tap_like "$1" "$(number "$2")" '^[1-9][0-9]*$'; }

start() {
    SCENE_STORE="blocker_liar,lie=$1,every=200,edge.store=mem0" SCENE_BELOW=mem0=blocker_memory
    scene_stacked "stamp$$-$1-$((++STARTED))" && return
    tap_not_ok "a pipeline with a store that lies '$1' starts"
    tap_end
}
stop() { scene_stop front; }

truth() {
    start none
    stamp 0 "the truth passes" --ops 20000 "$SCENE_URI"
    tap_is "with no guest errors" "$(number guest_errors)" 0
    nonzero "and reads" reads
    stop
}

# Many at once in a few pages: what a page cache would mix if nobody kept them apart.
files() {
    SCENE_STORE="blocker_file,io=$1,dir=$SCENE_DIR/store-$1" SCENE_BELOW=
    scene_stacked "stamp$$-file-$1" || {
        tap_not_ok "a pipeline with a file store starts"
        tap_end
    }
    stamp 0 "a file store (io=$1) neither tears nor mixes" \
        --ops 40000 --hot 8K --depth 16 "$SCENE_URI"
    tap_is "with no guest errors" "$(number guest_errors)" 0
    stop
}

# lie, what the checker calls it
lies() {
    local lie word rc
    while read -r lie word; do
        # which sectors are read after a lie depends on what overtakes what: until one is met
        for _ in 1 2 3 4 5; do
            start "$lie"
            rc=0
            "$STAMP" --ops 20000 "$SCENE_URI" >"$SCENE_DIR/lie.out" 2>&1 || rc=$?
            SAID=$(grep -a '^{"errors"' "$SCENE_DIR/lie.out" | tail -n 1)
            stop
            [ "$rc" -eq 0 ] || break
        done
        tap_is "a store that lies '$lie' is caught" "$rc" 1
        nonzero "as '$word'" "$word"
    done <<EOT
lose old
lose lost
old old
tear torn
swap misplaced
place misplaced
error guest_errors
EOT
}

# Nothing is read in the first run: only the journal can tell the second what to expect.
across_runs() {
    local journal=$SCENE_DIR/journal
    start none
    stamp 0 "a first run writes" \
        --ops 5000 --read-share 0 --no-final --journal "$journal" "$SCENE_URI"
    stamp 0 "a second finds all of it" --verify-only --journal "$journal" "$SCENE_URI"
    scene_spawn killed "$STAMP" --seconds 60 --journal "$journal" "$SCENE_URI"
    sleep 0.5
    scene_kill KILL killed
    stamp 0 "and what one that was killed had written" \
        --verify-only --journal "$journal" "$SCENE_URI"
    stamp 0 "the load goes on from there" --ops 5000 --sync --journal "$journal" "$SCENE_URI"
    stamp 1 "without the journal nobody wrote that" --verify-only "$SCENE_URI"
    nonzero "as 'alien'" alien
    stop
    rm -f "$journal"
    start lose
    stamp 0 "a store loses writes that nobody reads" \
        --ops 5000 --read-share 0 --no-final --journal "$journal" "$SCENE_URI"
    stamp 1 "the next run misses them" --verify-only --journal "$journal" "$SCENE_URI"
    nonzero "as 'lost'" lost
    stop
}

# A server that stands still is a pause, not an error; one that is gone too long is given up.
pauses() {
    start none
    scene_spawn paused "$STAMP" --seconds 8 --progress 0.1 "$SCENE_URI"
    scene_until 60 grep -q . "$SCENE_DIR/paused.out" # it is under way
    scene_freeze "$(scene_pid front)"
    sleep 1.2
    scene_kill CONT front
    tap_run "a pause is no error" wait "$(scene_pid paused)"
    SAID=$(tail -n 1 "$SCENE_DIR/paused.out")
    tap_run "and is counted" test "$(number pause_max_ns)" -ge 1000000000
    scene_spawn hung "$STAMP" --seconds 2 --hang 1 --reconnect 1 --progress 0.1 "$SCENE_URI"
    scene_until 60 grep -q . "$SCENE_DIR/hung.out"
    scene_freeze "$(scene_pid front)"
    tap_exits 1 "who never answers is given up" wait "$(scene_pid hung)"
    SAID=$(tail -n 1 "$SCENE_DIR/hung.out")
    nonzero "as 'hung'" hung
    stamp 3 "who lets nobody in, too" --seconds 1 --reconnect 0.5 "$SCENE_URI"
    scene_kill CONT front
    stop
    stamp 3 "nobody there at all" --seconds 1 --reconnect 0.2 "$SCENE_URI"
}

scene_begin "the sector-stamp checker and its negative controls"
scene_need_skerry
STAMP=$SCENE_BUILD/stamp STARTED=0
tap_run "the liar compiles" scene_module blocker_liar.c || tap_end
truth
files auto
files threads
lies
across_runs
pauses
tap_end
