#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two hosts with a cache each, over one store: a volume goes from one to the other and back while it
# is used, and everybody is killed meanwhile. Clients stay attached where they are, write all the
# while, and read what they have written.

. "$(dirname "$0")/rehome_lib.sh"
ctl_begin "re-homing over a common store"
rehome_need
/usr/bin/python3 -c 'import nbd' 2>/dev/null ||
    tap_skip_all "libnbd's Python module is not installed"

host a vol0 >"$SCENE_DIR/a.conf"
{ host b home0 && out b; } >"$SCENE_DIR/b.conf"
for segment in a b; do
    down_at_exit "$segment"
    ctl_exits 0 "$segment comes up" up "$SCENE_DIR/$segment.conf"
done

# --- refused ----------------------------------------------------------------------------------
ctl_exits 0 "a volume" volume create -s a disk --size 32M
ctl_exits 2 "nowhere" rehome -s a disk
ctl_exits 3 "to nobody" rehome -s a disk --to far0
ctl_exits 0 "a bridge" bridge add -s a far0 "unix:$SCENE_DIR/b.out"
ctl_exits 3 "no volume" rehome -s a disc --to far0
ctl_exits 2 "no time" rehome -s a disk --to far0 --downtime soon
ctl_exits 2 "no such way" rehome -s a disk --to far0 --on-stall postpone
ctl_exits 3 "no re-homer yet" rehome status -s a
ctl_exits 0 "a look at what it would do" rehome -s a disk --to far0 --dry-run --json
json_is "it starts a re-homer" \
    '.volumes[0] | [.rehomer, .starts, .changed] | map(tostring) | join(" ")' \
    "home0 true false"
tap_is "nothing has changed" "$(owner a)" null

# --- there ------------------------------------------------------------------------------------
tap_run "a client of a's" load first a
ctl_exits 0 "it goes to b" rehome -s a disk --to far0 --json
json_is "after a round at least" '.changed and .rounds > 0 and .pause_ns > 0' true
tap_note "waited $(jq .pause_ns "$SCENE_DIR/ctl.out") ns"
tap_is "b has it" "$(owner b)" b
tap_is "a's re-homer knows" "$(state a)" away
tap_is "b's, too" "$(state b)" home
ctl_exits 0 "said again" rehome -s a disk --to far0
ctl_exits 0 "there is nothing to cancel" rehome cancel -s a disk --dry-run
ctl_exits 3 "a cannot send it on by another bridge" rehome -s a disk --to far1
tap_run "a client of b's" io b -c 'write -P 7 20M 64k' -c flush
tap_run "one of a's sees what that one wrote" io a -c 'read -P 7 20M 64k' \
    -c 'write -P 8 21M 64k' -c flush
tap_run "and that one what this one wrote" io b -c 'read -P 8 21M 64k'

# --- and back -----------------------------------------------------------------------------------
ctl_exits 0 "a lets others in" peer start -s a \
    "out0=synapse_export,listen=unix:$SCENE_DIR/a.out,edge.volume=home0"
ctl_exits 0 "b's bridge" bridge add -s b back0 "unix:$SCENE_DIR/a.out"
ctl_exits 0 "it goes back" rehome -s b disk --to back0 --json
tap_is "a has it" "$(owner a)" a
tap_is "a's re-homer knows that it is home" "$(state a) $(state b)" "home away"

# --- by a host's address ------------------------------------------------------------------------
to_a="skerry+unix:///?socket=$SCENE_DIR/a.out" to_b="skerry+unix:///?socket=$SCENE_DIR/b.out"
ctl_exits 2 "a volume's address is none" rehome -s a disk --to "skerry+tls://b.example.net/disk"
ctl rehome -s a disk --to "skerry+unix:///?socket=$SCENE_DIR/nobody" --timeout 5s
tap_is "nobody is there" "$RC" 7
tap_is "and no bridge is left" "$("$XSEGCTL" bridge list -s a --json |
    jq -c '[.bridges[] | select(.end == "import") | .name]')" '["far0"]'
ctl_exits 0 "what it would do" rehome -s a disk --to "$to_b" --dry-run
ctl_exits 0 "it goes to b's address" rehome -s a disk --to "$to_b" --json
json_is "over a bridge of its own" .to far-b.out
tap_is "b has it" "$(owner b) $(state a) $(state b)" "b away home"
ctl_exits 0 "and back to a's" rehome -s b disk --to "$to_a"
tap_is "a has it" "$(owner a) $(state a) $(state b)" "a home away"
ctl_exits 0 "said again, the bridge is there" rehome -s a disk --to "$to_b"
ctl_exits 0 "and back" rehome -s b disk --to "$to_a"
tls=$SCENE_DIR/tls port=$(scene_free_port)
if "$XSEGCTL" cert init --dir "$tls" >"$SCENE_DIR/tls.out" 2>&1; then
    ctl_exits 0 "a certificate for b" cert issue b --dir "$tls" --host 127.0.0.1
    ctl_exits 0 "and one for a" cert issue a --dir "$tls" --uri skerry://hosts/a
    lets_in() { # WHAT VOLUMES
        tap_run "$1" "$XSEGCTL" peer start -s b "out1=synapse_export,listen=tcp:127.0.0.1:$port,$(
        )allow=skerry://hosts/*$2,tls-ca=$tls/ca.crt,tls-cert=$tls/b.crt,$(
        )tls-key=$tls/b.key,edge.volume=home0"
    }
    lets_in "b lets in who has one, to one volume" " disk"
    ctl_exits 1 "that does not do" rehome -s a disk --to "skerry+tls://127.0.0.1:$port" \
        --tls "$tls" --cert a
    err_like "and it says why" "'disk' stays here: the other host lets this one use volumes"
    tap_is "nothing has moved" "$(owner a) $(state a) $(state b)" "a home away"
    ctl_exits 0 "that way in is closed" peer stop -s b out1
    ctl_exits 0 "... for good" peer rm -s b out1
    lets_in "now to all" ""
    # the bridge may not have found the new way in yet
    tap_run "it goes there with one" scene_until 60 "$XSEGCTL" rehome -s a disk \
        --to "skerry+tls://127.0.0.1:$port" --tls "$tls" --cert a
    tap_is "b has it" "$(owner b) $(state a) $(state b)" "b away home"
    ctl_exits 0 "and back" rehome -s b disk --to "$to_a"
else
    tap_skip "with certificates" "$(head -n 1 "$SCENE_DIR/tls.out")"
fi
load_ends first "the first client saw no error"
tap_run "all is there" io a -c 'read -P 7 20M 64k' -c 'read -P 8 21M 64k'

# --- given back -------------------------------------------------------------------------------
cache_b() { "$XSEGCTL" stats -s b --json cache0 | jq "[.peers[].counters.$1] | add"; }
tap_run "a's cache holds something" io a -c 'write -P 9 8M 4M' -c flush
before=$(cache_b ahead)
ctl_exits 0 "a's front goes past the re-homer" edge set -s a nbd0:volume vol0
ctl_exits 0 "it goes to b again" rehome -s a disk --to far0
is_warm() { [ "$(cache_b ahead)" -ge $((before + 1024)) ]; }
tap_run "b's cache fetches it" scene_until 60 is_warm
before=$(cache_b misses)
tap_run "b reads it" io b -c 'read -P 9 8M 4M'
tap_is "from its cache" "$(cache_b misses)" "$before"
tap_is "and not past it any more" "$("$XSEGCTL" edge list -s a --json |
    jq -r '.edges[] | select(.name == "nbd0:volume") | .to')" home0
nobody_has_it() { [ "$(owner a)" = null ]; }
tap_run "nobody has it open, so it is free in a while" scene_until 60 nobody_has_it
ctl_exits 0 "a's again" rehome -s a disk --to far0
ctl_exits 0 "and home, said there" rehome -s a disk --from far0 --json
json_is "from b" '[.from, .home, .bytes] | join(" ")' "far0 here 0"
ctl_exits 0 "said again" rehome -s a disk --from far0 --json
json_is "there is nothing to do" .changed false

# --- by a program of one's own ------------------------------------------------------------------
small() { scene_io "nbd+unix:///small?socket=$SCENE_DIR/$1.sock" "${@:2}"; }
carry() { # EXIT_STATUS WHAT ARGUMENT...
    local rc=0
    "$(dirname "$XSEGPEER")/carry" "${@:3}" >"$SCENE_DIR/carry.out" 2>"$SCENE_DIR/carry.err" ||
        rc=$?
    tap_is "$2" "$rc" "$1"
}
carried() { tap_is "$1" "$(xargs <"$SCENE_DIR/carry.out")" "$2"; }
refused() { tap_like "$1" "$(<"$SCENE_DIR/carry.err")" "$2"; }
write_a="qemu-io -f raw 'nbd+unix:///small?socket=$SCENE_DIR/a.sock' $(
    )-c 'write -P 13 7M 64k' -c flush >&2"
ctl_exits 0 "a small volume" volume create -s a small --size 8M
tap_run "it has data" small a -c 'write -P 12 0 6M' -c flush
carry 1 "no segment" seed c far0 small
refused "says so" "segment 'c'"
carry 1 "no bridge" seed a far9 small
refused "says so" "no peer 'far9'"
carry 1 "a peer that its re-homer does not know" seed a vol0 small
refused "says so" "no edge of re-homer 'home0' leads to 'vol0'"
carry 1 "no volume" seed a far0 smal
refused "says so" "volume 'smal' is not known in segment 'a'"
carry 1 "it cannot be made ready" seed a far0 small false
carried "so it stays" "suspends synced: Operation canceled closes: 0 bytes are local"
carry 0 "it goes" seed a far0 small "$write_a"
carried "... with what was written last" "suspends synced: moved closes: 0 bytes are local"
kill -s KILL "$(peer_pid b cache0)" # so that b's re-homer has no hints for a's cache
away="'$XSEGCTL' -s a rehome small --to far0 >&2"
carry 1 "it comes, and leaves at once" leech a far0 small true "$away"
refused "the program is told" "Stale file handle"
tap_is "and not of what is elsewhere" "$(grep -c local: "$SCENE_DIR/carry.out")" 0
kill -s KILL "$(peer_pid b cache0)"
carry 0 "it comes to stay" leech a far0 small
end=$(awk '$1 == "local:" && $5 == end { end += $2 } END { print end + 0 }' "$SCENE_DIR/carry.out")
tap_is "all of it is local, told of once and in order" "$end" 8388608
misses_a() { "$XSEGCTL" stats -s a --json cache0 | jq '[.peers[].counters.misses] | add'; }
before=$(misses_a)
tap_run "it is read" small a -c 'read -P 12 0 6M' -c 'read -P 0 6M 1M' -c 'read -P 13 7M 64k'
tap_is "from the cache" "$(misses_a)" "$before"
gone() { "$XSEGCTL" volume rm -s a small --yes; }
tap_run "it is removed" scene_until 60 gone

# --- all of them ------------------------------------------------------------------------------
tap_run "a client of a's" load second a
tap_run "and one of b's" load third b --high
for name in one two three; do
    ctl_exits 0 "volume $name" volume create -s a "$name" --size 8M
    VOLUME=$name tap_run "a client of $name" load "$name" a
done
ctl_exits 0 "one that nobody uses" volume create -s a four --size 8M
ctl_exits 2 "none at a time" evacuate -s a --to far0 --at-once 0
ctl_exits 3 "to nobody" evacuate -s a --to far1
ctl_exits 0 "what would go" evacuate -s a --to far0 --dry-run --json
json_is "all that a has" '[.volumes[].name] | sort | join(" ")' "disk one three two"
hooks=$SCENE_DIR/hooks
ctl_exits 2 "nothing to undo" evacuate -s a --to far0 --thaw-cmd true
ctl_exits 0 "all go" evacuate -s a --to far0 --at-once 2 --json \
    --freeze-cmd "echo freeze \$SKERRY_VOLUME >>'$hooks'" \
    --thaw-cmd "echo thaw \$SKERRY_VOLUME >>'$hooks'"
tap_is "commands of ours before and after each" "$(sort "$hooks" | xargs)" \
    "freeze disk freeze one freeze three freeze two thaw disk thaw one thaw three thaw two"
json_is "there are four" '.moved, (.volumes | length)' "4
4"
tap_is "b has them" "$("$XSEGCTL" rehome status -s b --json |
    jq -r '[.volumes[] | select(.state == "home")] | length')" 4
ctl_exits 0 "nothing is left to go" evacuate -s a --to far0 --json
json_is "so nothing went" '.moved, .changed' "0
false"
# with a terminal there is progress to be shown
tap_run "a person sees one go back" script -qec "$XSEGCTL rehome -s b two --to back0" \
    "$SCENE_DIR/typescript"
ctl_exits 0 "and the others" evacuate -s b --to back0 --json
json_is "three of them" .moved 3
for name in one two three; do
    load_ends "$name" "the client of $name saw no error"
    tap_run "volume $name goes" scene_until 60 "$XSEGCTL" volume rm -s a "$name" --yes
done

# --- with commands of the user's ------------------------------------------------------------------
# FREEZE, THAW: what they do besides saying whether b has it
hooked() {
    local at="\$('$XSEGCTL' rehome status -s b --json |
        jq -r '.volumes[] | select(.name == \"disk\").state') >>'$hooks'"
    : >"$hooks"
    ctl rehome -s a disk --to far0 --json --freeze-cmd "echo freeze $at; $1" \
        --thaw-cmd "echo thaw $at; $2"
}
heard() { tap_is "$1" "$RC $(xargs <"$hooks")" "$2"; }
io_a="qemu-io -f raw 'nbd+unix:///disk?socket=$SCENE_DIR/a.sock'"
hooked "sleep 1; $io_a -c 'write -P 10 22M 64k' -c flush" "$io_a -c 'write -P 11 23M 64k'"
heard "what we do first is done here, what we do then is done there" \
    "0 freeze away thaw home"
tap_run "it is there" io b -c 'read -P 10 22M 64k' -c 'read -P 11 23M 64k'
ctl_exits 0 "home again" rehome -s b disk --to back0
hooked "exit 3" true
heard "what cannot be done keeps it here" "1 freeze away thaw away"
err_like "says so" "volume 'disk' stays here: --freeze-cmd failed \(exit status 3\)"
tap_is "a has it" "$(owner a) $(state a) $(state b)" "a home away"
hooked "kill -9 $(peer_pid a home0); sleep 0.5" "exit 4"
heard "a re-homer that is killed meanwhile is told again, once it is there" \
    "0 freeze away thaw home"
err_like "what cannot be undone is said" "--thaw-cmd of volume 'disk' failed \(exit status 4\)"
ctl_exits 0 "home again" rehome -s b disk --to back0
hooked "'$XSEGCTL' rehome cancel -s a disk; sleep 1; echo freeze done >>'$hooks'" true
heard "cancelled meanwhile, it is undone after that" "1 freeze away freeze done thaw away"
# the hook's parent is the job
hooked 'kill -INT $PPID; sleep 60; echo too late' true
heard "interrupted, it is undone" "1 freeze away thaw away"
tap_is "a has it" "$(owner a) $(state a) $(state b)" "a home away"
# by then the first command goes on by itself
undone() { [ "$(grep -c thaw "$hooks")" = 1 ]; }
hooked "kill -9 \$PPID; sleep 1; echo freeze done >>'$hooks'" true
tap_run "killed, it is undone" scene_until 60 undone
heard "... after what was begun" "1 freeze away freeze done thaw away"
is_home() { [ "$(state a) $(state b)" = "home away" ]; }
tap_run "but the volume does not wait for it" scene_until 60 is_home

# --- killed, and cut off ------------------------------------------------------------------------
is_settled() {
    [[ $(state a) = @(home|away) && $(state b) = @(home|away) && $(owner a) = @(a|b) ]]
}
home() { [ "$(state a)" != away ] || "$XSEGCTL" -s b rehome disk --to back0; }
disturbed() { # WHAT SIGNAL PEER_OF_A_OR_B: at another moment each time; and home again
    local segment peer pid disturber rc=0
    read -r segment peer <<<"$3"
    pid=$(peer_pid "$segment" "$peer")
    (
        sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
        kill -s "$2" "$pid"
        # longer than the destination may take to answer
        [ "$2" = KILL ] || { sleep 3 && kill -s CONT "$pid"; }
    ) &
    disturber=$!
    "$XSEGCTL" -s a rehome disk --to far0 --timeout 60s >"$SCENE_DIR/there" 2>&1 || rc=$?
    wait "$disturber"
    scene_until 120 is_settled || tap_not_ok "$1: nobody knows whose it is"
    if [ "$rc" -eq 0 ] && [ "$(state a)" != away ]; then
        tap_not_ok "$1: it said 'away', and is not"
    fi
    tap_run "$1 (exit $rc): it goes back" scene_until 120 home
}
# a round is every process of both once
for ((round = 1; round <= ${REHOME_ROUNDS:-1}; round++)); do
    for victim in "a home0" "a vol0" "a map0" "a cache0" "a far0" "a out0" "b home0" "b vol0" \
        "b map0" "b cache0" "b out0" "b back0"; do
        disturbed "round $round, $victim killed" KILL "$victim"
    done
done
for victim in "a far0" "b out0" "b vol0" "b home0"; do
    disturbed "$victim stands still" STOP "$victim"
done
load_ends second "the client of a's saw no error"
load_ends third "nor did the one of b's"
tap_run "all is there" io a -c 'read -P 7 20M 64k' -c 'read -P 8 21M 64k'

# --- a chain: the first one reaches the third through the second alone ----------------------------
{ host c home0 && out c; } >"$SCENE_DIR/c.conf"
down_at_exit c
ctl_exits 0 "c comes up" up "$SCENE_DIR/c.conf"
bridge b c on0 out
tap_run "a client of a's" load fourth a
ctl_exits 0 "it goes to b" rehome -s a disk --to far0
ctl_exits 0 "and on to c" rehome -s b disk --to on0
tap_is "c has it" "$(owner c) $(state a) $(state b) $(state c)" "c away away home"
for segment in a b; do
    kill -s KILL "$(peer_pid "$segment" home0)"
    tap_run "$segment's re-homer is killed: who is attached to a goes on" \
        io a -c 'write -P 14 24M 64k' -c flush
    is_away() { [ "$(state "$segment")" = away ]; }
    tap_run "its successor has found the way" scene_until 60 is_away
done
tap_run "all is there" io c -c 'read -P 14 24M 64k' -c 'read -P 7 20M 64k'
tap_run "b's composer is offered, past its re-homer" "$XSEGCTL" peer start -s b \
    "past0=synapse_export,listen=unix:$SCENE_DIR/b.past,edge.volume=vol0"
ctl_exits 0 "a's bridge there" bridge add -s a past0 "unix:$SCENE_DIR/b.past"
tap_run "with a front" "$XSEGCTL" peer start -s a \
    "nbd1=front_nbd,listen=unix:$SCENE_DIR/past.sock,edge.volume=past0"
tap_like "who goes that way is told, over the bridge, who has it" "$(io past -c 'read 0 4k' 2>&1)" \
    "open for writing on host '[^']*/c' since"
load_ends fourth "its client saw no error"

ctl_exits 0 "a goes" down a
old=$(peer_pid b home0)
kill -s KILL "$old" # its successor asks who is behind the bridge: nobody
is_succeeded() { "$XSEGCTL" -s b status --json | jq -e --argjson old "$old" '.peers[] |
    select(.name == "home0" and .state == "serving" and .pid != $old)'; }
tap_run "b's re-homer has a successor" scene_until 60 is_succeeded
ctl_exits 0 "b goes, and does not wait for it" down b
tap_end
