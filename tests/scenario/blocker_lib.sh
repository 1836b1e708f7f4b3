# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the blockers' scripts share, on top of lib.sh:
#   blocker_begin LABEL [SIZE]   a segment $SEGMENT of our own, $CHECK; or all is skipped
#   blocker_peer NAME LANES SPEC...  xsegpeer with these peers; the first is $PEER
#   op VERB ARGS...              one request to $PEER; prints what blocker_check says
#   answers VERB ARGS...         that request is answered "ok"; comes: it will be
#   laws NAME [STEPS]            all laws hold for $PEER
#   hammer_begins FIRST, hammer_ends     writes and flushes without end, from number FIRST on; $NEXT
#                                is then the first that was not flushed
#   killed_under_load LABEL SPEC     a peer on LIFE_LANES (2) lanes is killed in the middle of that,
#                                $ROUNDS (3) times: what was flushed is there; it is left
#                                running, as `life` in the scene
#   server_killed NAME START...  the scene's process NAME, a server, is killed under load and
#                                started again by that command: nothing fails, nothing is lost
#   secret_is_hidden PROCESS SECRET      it is in none of its arguments, and not in its log
#   laws_of STORE.sh             all laws hold for that store, in each of its variants
#
# A store's file, ROLE.sh, says how it is started; a new store needs one, and a line in
# tests/blocker.mk:
#   store_variants               lines of LANES [OPTIONS]; what they need may lie in $STORE_DIR
#   store_begin, store_end       its server; store_begin fails with a reason on stdout: skipped
#   store_stopped OPTIONS        checks once the peer has ended
#   STORE_STEPS=COUNT            of random requests for each variant, 2000 without
#   STORE_SHARED=OPTIONS         two segments may serve the same objects, with these options more

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SEGMENT=blk$$ PEER='' PEER_PROCESS='' LAW_NUMBER=0

blocker_begin() {
    scene_begin "$1"
    CHECK=$(scene_find blocker_check)
    [ -n "$XSEGPEER" ] && [ -n "$CHECK" ] ||
        tap_skip_all "xsegpeer and blocker_check are not built; say where with SKERRY_BUILD"
    blocker_segment "${2:-256M}"
}

blocker_segment() {
    "$CHECK" create "$SEGMENT" "$1" || tap_skip_all "no segment of $1"
    scene_at_exit "for n in \"\${!SCENE_PIDS[@]}\"; do scene_stop \"\$n\"; done
        '$CHECK' destroy '$SEGMENT'"
}

blocker_peer() {
    local name=$1 lanes=$2
    shift 2
    PEER=${1%%=*} PEER_PROCESS=$name
    scene_peer "$name" -s "$SEGMENT" -l "$lanes" "$@"
}

# The sentence with which xsegpeer refuses to start.
blocker_refusal() {
    "$XSEGPEER" -s "$SEGMENT" "$@" 2>&1 </dev/null | tail -n 1
}

op() {
    local verb=$1
    shift
    timeout 600 "$CHECK" "$verb" "$SEGMENT" "$PEER" "$@" 2>&1
}
answers() { [ "$(op "$@")" = ok ]; }
comes() { scene_until 120 answers "$@"; }

# A store on a busy machine takes its time; one that has died would be waited for as long.
laws_hold() {
    local check
    timeout -k 5 1200 "$CHECK" all "$SEGMENT" "$PEER" "$1" &
    check=$!
    while kill -s 0 "$check" 2>/dev/null; do
        scene_alive "$PEER_PROCESS" || { kill "$check" && echo "# its process has ended"; }
        sleep 0.1
    done
    wait "$check"
}
laws() { tap_run "$1" laws_hold "${2:-2000}"; }

hammer_begins() { # FIRST
    NEXT=$1
    scene_spawn hammer "$CHECK" hammer "$SEGMENT" "$PEER" 9 "$1"
    scene_until 60 grep -q . "$SCENE_DIR/hammer.out"
}
hammer_ends() {
    local last
    scene_kill KILL hammer
    scene_stop hammer
    # a half-sent line would be a number that was never said
    last=$(tail -n 1 "$SCENE_DIR/hammer.out")
    NEXT=$((${last:-$((NEXT - 1))} + 1))
}

killed_under_load() { # LABEL SPEC
    local i
    NEXT=0
    for ((i = 0; i <= ${ROUNDS:-3}; i++)); do
        blocker_peer life "${LIFE_LANES:-2}" "$2" || tap_not_ok "$1: it starts"
        [ "$i" -eq 0 ] || tap_is "$1: what was flushed by $((NEXT - 1)) is there" \
            "$(op verify 9 $((NEXT - 1)))" ok
        [ "$i" -lt "${ROUNDS:-3}" ] || break
        hammer_begins "$NEXT"
        scene_until 60 more_than "$SCENE_DIR/hammer.out" 5 # however slow the disk is
        sleep "0.$((RANDOM % 5 + 1))$((RANDOM % 10))"
        scene_kill KILL life
        hammer_ends
        scene_stop life
    done
    tap_run "$1: something was written" test "$NEXT" -gt 16
    tap_is "$1: a hammer that was not there would be missed" \
        "$(op verify 10 $((NEXT - 1)) | cut -c 1-10)" "wrong data"
}

more_than() { [ "$(wc -l <"$1")" -gt "$2" ]; } # FILE LINES
server_killed() { # NAME START...
    local lines
    hammer_begins "$NEXT"
    scene_kill KILL "$1"
    scene_stop "$1"
    "${@:2}" >/dev/null
    lines=$(wc -l <"$SCENE_DIR/hammer.out")
    tap_run "the load goes on when the server is back, without an error" \
        scene_until 240 more_than "$SCENE_DIR/hammer.out" $((lines + 2))
    hammer_ends
    tap_is "and nothing that was flushed is lost" "$(op verify 9 $((NEXT - 1)))" ok
}

secret_is_hidden() { # PROCESS SECRET
    tap_is "the secret is in no argument, and in no log" "$(
        cat "/proc/$(scene_pid "$1")/cmdline" "$SCENE_DIR/$1.err" | grep -acF -- "$2"
    )" 0
}

# One variant of a store; $1: role, $2: lanes, $3: options.
laws_of_variant() {
    local name=law$((++LAW_NUMBER)) options=$3
    if blocker_peer "$name" "$2" "$name=$1${options:+,$options}" 2>/dev/null; then
        laws "$1, $2 lanes${options:+, $options}" "$STORE_STEPS"
        tap_run "... and stops" scene_stop "$name"
        store_stopped "$options"
    elif grep -q 'refuses' "$SCENE_DIR/$name.err"; then
        tap_skip "$1, $options" "$(tail -n 1 "$SCENE_DIR/$name.err")"
    else
        tap_not_ok "$1, $options"
        sed 's/^/#   /' "$SCENE_DIR/$name.err"
    fi
}

# Two segments on the same objects.
laws_of_two() {
    local one=$SEGMENT options=$3,$STORE_SHARED two
    blocker_peer first "$2" "first=$1,$options" || tap_not_ok "the first of two starts"
    SEGMENT=$one-$1
    blocker_segment 64M
    two=$SEGMENT
    blocker_peer second "$2" "second=$1,$options" || tap_not_ok "the second of two starts"
    tap_run "$1, two segments, $options" "$CHECK" shared "$one" first "$two" second
    tap_run "... and the first stops" scene_stop first
    tap_run "... and the second" scene_stop second
    SEGMENT=$one
}

laws_of() {
    local role variants=() variant lanes options
    role=$(basename "$1" .sh)
    STORE_DIR=$SCENE_DIR/$role STORE_SHARED='' STORE_STEPS=2000
    mkdir -p "$STORE_DIR"
    store_begin() { :; }
    store_end() { :; }
    store_stopped() { :; }
    . "$1"
    if ! store_begin >"$STORE_DIR/reason"; then
        tap_skip "$role" "$(tail -n 1 "$STORE_DIR/reason")"
        return
    fi
    mapfile -t variants < <(store_variants)
    for variant in "${variants[@]}"; do
        read -r lanes options <<<"$variant"
        laws_of_variant "$role" "$lanes" "$options"
    done
    [ -z "$STORE_SHARED" ] || laws_of_two "$role" "$lanes" "$options"
    store_end
}
