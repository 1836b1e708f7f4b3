#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What users of a Redis server meet: one that may throw data away, a wrong password, a peer and a
# server that are killed, one that hangs, one that is full, one that comes back without its data,
# and a peer that is stopped while another host takes its volume.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/blocker_lib.sh"
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/redis_lib.sh"
blocker_begin "blocker_redis and a server with faults" 64M
scene_has_module blocker_redis >"$SCENE_DIR/reason" || tap_skip_all "$(cat "$SCENE_DIR/reason")"
dir=$SCENE_DIR/redis
redis_need "$dir"

store=blocker_redis,socket=$REDIS_SOCKET,timeout=1m

# --- who is refused, and told why ---------------------------------------------------------------
refusal() { blocker_refusal "no=blocker_redis,socket=$REDIS_SOCKET,$1"; }
tap_like "a server that is not there" "$(blocker_refusal "no=blocker_redis,socket=/nowhere")" \
    "socket: '/nowhere' does not answer"
redis_ask config set maxmemory-policy allkeys-lru >/dev/null
tap_like "one that may throw data away" "$(refusal prefix=p)" 'maxmemory-policy noeviction'
redis_ask config set maxmemory-policy noeviction >/dev/null
redis_ask config set appendfsync everysec >/dev/null
tap_like "one that flushes later" "$(refusal prefix=p)" "flush: 'always' needs.*flush=memory"
redis_ask config set appendfsync always >/dev/null
echo "wrong-$$" >"$SCENE_DIR/wrong"
tap_like "a password that it does not know" "$(refusal "password-file=$SCENE_DIR/wrong")" \
    'the server says: '
tap_like "and a file that is not there" "$(refusal password-file=/nowhere)" \
    "password-file: '/nowhere'"

# --- a user, by a secret that nobody sees -------------------------------------------------------
secret=secret-$$-$RANDOM
redis_ask acl setuser small on ">$secret" '~small:*' '+@all' >/dev/null
echo "$secret" >"$SCENE_DIR/right"
blocker_peer small 1 "small=$store,prefix=small,user=small,password-file=$SCENE_DIR/right" ||
    tap_not_ok "it starts"
tap_run "a user's laws hold" "$CHECK" all "$SEGMENT" small 200
secret_is_hidden small "$secret"
scene_stop small
redis_ask acl setuser small '-client|kill' >/dev/null
blocker_peer small 1 "small=$store,prefix=small,user=small,password-file=$SCENE_DIR/right" ||
    tap_not_ok "it starts"
tap_run "one that may not end connections writes by scripts" "$CHECK" all "$SEGMENT" small 200
redis_ask hset small:f:0000000000000037 p:somebody 1 >/dev/null
redis_ask hset small:connections:somebody 0 12345 >/dev/null
tap_like "and cannot claim what somebody writes to" "$(PEER=small op fence 55 3)" \
    '^(EACCES|error 13)'
tap_like "which the log says" "$(cat "$SCENE_DIR/small.err")" 'allow CLIENT KILL'
scene_stop small

# --- the peer is killed under load --------------------------------------------------------------
killed_under_load "the peer is killed" "disk=$store"

# --- the server is killed under load ------------------------------------------------------------
server_killed redis redis_start "$dir"

# --- it hangs, it is full -----------------------------------------------------------------------
blocker_peer hasty 1 "hasty=blocker_redis,socket=$REDIS_SOCKET,timeout=2s" || tap_not_ok "it starts"
tap_is "a write" "$(op write 1 0 0 65536 1)" ok
scene_freeze "$(scene_pid redis)"
tap_is "the server hangs: a read fails in time" "$(op read 1 0 0 65536 1)" ETIMEDOUT
scene_kill CONT redis
PEER=disk
tap_run "it goes on" comes read 1 0 0 65536 1
redis_ask config set maxmemory 1mb >/dev/null
tap_is "it is full" "$(op write 1 1 0 4194304 1)" ENOSPC
tap_is "a read goes on" "$(op read 1 0 0 65536 1)" ok
redis_ask config set maxmemory 1gb >/dev/null
tap_is "there is room again" "$(op write 1 1 0 4194304 1)" ok

# --- one that is stopped, while another takes its volume ----------------------------------------
tap_is "it claims a volume and writes" "$(op fence 31 5) $(op write 31 0 0 4096 1)" "ok ok"
scene_freeze "$(scene_pid life)"
scene_spawn late "$CHECK" write "$SEGMENT" disk 31 0 0 4096 3
one=$SEGMENT
SEGMENT=$one-b
blocker_segment 32M
blocker_peer second 1 "second=$store" || tap_not_ok "it starts"
tap_is "another takes it, and writes" "$(op fence 31 6) $(op write 31 0 0 4096 4)" "ok ok"
scene_kill CONT life
tap_run "the first goes on: its write is answered" scene_until 60 grep -q . "$SCENE_DIR/late.out"
tap_is "and refused" "$(cat "$SCENE_DIR/late.out")" ESTALE
tap_is "nothing of it arrived" "$(op read 31 0 0 4096 4)" ok

# Again and again, in the middle of many writes: what is in its socket then is not done, either.
storm() { # until it is calm
    while [ ! -e "$SCENE_DIR/calm" ]; do op write 32 0 0 65536 3; done
}
wrong=''
for ((term = 10; term < 30; term += 2)); do
    SEGMENT=$one PEER=disk storms=()
    [ "$(op fence 32 "$term")" = ok ] || wrong+="$term: the first does not get it; "
    rm -f "$SCENE_DIR/calm"
    for i in 1 2 3 4; do
        storm >"$SCENE_DIR/storm.$i" 2>&1 &
        storms+=($!)
    done
    sleep 0.2
    scene_freeze "$(scene_pid life)"
    SEGMENT=$one-b PEER=second
    [ "$(op fence 32 $((term + 1))) $(op write 32 0 0 65536 4)" = "ok ok" ] ||
        wrong+="$term: the second does not get it; "
    scene_kill CONT life
    scene_until 60 grep -q ESTALE "$SCENE_DIR/storm.1" || wrong+="$term: it is not refused; "
    : >"$SCENE_DIR/calm"
    wait "${storms[@]}"
    [ "$(op read 32 0 0 65536 4)" = ok ] || wrong+="$term: a late write; "
done
tap_is "ten times in the middle of writes: none comes late" "$wrong" ""
scene_stop second
SEGMENT=$one PEER=disk

# --- it comes back without its data -------------------------------------------------------------
scene_kill KILL redis
scene_stop redis
rm -rf "$dir/appendonlydir"
redis_start "$dir" >/dev/null
tap_is "what was there does not read as zeros" "$(op read 1 0 0 65536 0)" EIO
tap_run "which it says" grep -q 'its data is gone' "$SCENE_DIR/life.err"
scene_kill KILL life
scene_stop life
tap_like "its successor does not serve that either" "$(blocker_refusal "disk=$store")" \
    'has lost its data'
tap_end
