#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What users of a Redis server meet: one that may throw data away, a wrong password, a peer and a
# server that are killed, one that hangs, one that is full, one that comes back without its data,
# and a peer that is stopped while another host takes its volume. Most of it over TLS.

. "$(dirname "$0")/blocker_lib.sh"
. "$(dirname "$0")/redis_lib.sh"
blocker_begin "blocker_redis and a server with faults" 64M
scene_has_module blocker_redis >"$SCENE_DIR/reason" || tap_skip_all "$(cat "$SCENE_DIR/reason")"
dir=$SCENE_DIR/redis
scene_need openssl
redis_tls "$SCENE_DIR" || tap_skip_all "openssl makes no certificate"
redis_need "$dir" "${REDIS_TLS[@]}"

store=blocker_redis,socket=$REDIS_SOCKET,timeout=1m
safe=blocker_redis,$REDIS_TLS_OPTIONS,timeout=1m

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

# --- TLS: who is not who it says, or is not let in ----------------------------------------------
port=${REDIS_TLS[1]}
tls() { blocker_refusal "no=blocker_redis,timeout=1m,port=$port,$1"; }
tap_like "nobody vouches for the server" "$(tls host=localhost,tls=yes)" \
    "host: TLS with 'localhost': self-signed certificate"
tap_like "it has another name" "$(tls "host=127.0.0.1,tls=yes,tls-ca=$SCENE_DIR/tls.crt")" \
    "TLS with '127.0.0.1': .*mismatch"
tap_like "it wants a certificate, too" "$(tls "host=localhost,tls=yes,tls-ca=$SCENE_DIR/tls.crt")" \
    "TLS with 'localhost': .*it may want a certificate: tls-cert"
tap_like "who speaks without is not heard" "$(tls host=localhost)" "Server closed|reset by peer"
tap_like "no port is there" "$(blocker_refusal "no=blocker_redis,host=localhost,port=1,tls=yes")" \
    "TLS with 'localhost': Connection refused"
tap_like "no such file" "$(tls "host=localhost,tls=yes,tls-ca=/nowhere")" "tls-ca: '/nowhere': "
tap_like "a certificate without its key" "$(tls "host=localhost,tls=yes,tls-cert=/c")" \
    'tls-cert and tls-key need each other'
tap_like "options of TLS without it" "$(tls host=localhost,tls-name=x)" 'need tls=yes'
named=${safe/host=localhost/host=127.0.0.1,tls-name=localhost},prefix=named
blocker_peer named 1 "named=$named" ||
    tap_not_ok "it starts"
tap_run "by the name in its certificate: the laws hold" "$CHECK" all "$SEGMENT" named 200
tap_is "nobody else may speak through it" "$(stat -c %a "$SKERRY_RUN_DIR/$SEGMENT/tls.named")" 600
tap_run "it stops" scene_stop named
tap_run "and leaves nothing" test ! -e "$SKERRY_RUN_DIR/$SEGMENT/tls.named"

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
run=$(redis_ask info server | tr -d '\r' | sed -n 's/^run_id://p')
redis_ask hset small:connections:somebody 0 "$run:12345" >/dev/null
tap_like "and cannot claim what somebody writes to" "$(PEER=small op fence 55 3)" \
    '^(EACCES|error 13)'
tap_like "which the log says" "$(cat "$SCENE_DIR/small.err")" 'allow CLIENT KILL'
scene_stop small

# --- the peer is killed under load --------------------------------------------------------------
killed_under_load "the peer is killed" "disk=$safe"

# --- the server is killed under load ------------------------------------------------------------
server_killed redis redis_start "$dir" "${REDIS_TLS[@]}"

# --- it hangs, it is full -----------------------------------------------------------------------
blocker_peer hasty 1 "hasty=blocker_redis,socket=$REDIS_SOCKET,timeout=2s" || tap_not_ok "it starts"
tap_is "a write" "$(op write 1 0 0 65536 1)" ok
scene_freeze "$(scene_pid redis)"
tap_is "the server hangs: a read fails in time" "$(op read 1 0 0 65536 1)" ETIMEDOUT
scene_kill CONT redis
scene_stop hasty
PEER=disk
tap_run "it goes on" comes read 1 0 0 65536 1
redis_ask config set maxmemory 1mb >/dev/null
tap_is "it is full" "$(op write 1 1 0 4194304 1)" ENOSPC
tap_is "and says so" "$(op space 0 0)" "1048576 0"
tap_is "a read goes on" "$(op read 1 0 0 65536 1)" ok
redis_ask config set maxmemory 0 >/dev/null
tap_is "without a limit nobody knows" "$(op space 0 0)" EOPNOTSUPP
redis_ask config set maxmemory 1gb >/dev/null
tap_like "with a new one it says what is free" "$(op space 0 0)" "^1073741824 10[0-9]{8}\$"
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

# --- replicas: one is waited for, or none; one takes the server's place ------------------------
node_ask() { timeout 60 redis-cli -s "$SCENE_DIR/$1/redis.sock" "${@:2}"; }
node_is_up() { [ "$(node_ask "$1" ping 2>&1)" = PONG ]; }
node_start() { # NAME PORT [WORD...]
    mkdir -p "$SCENE_DIR/$1"
    scene_spawn "$1" redis-server --port 0 --unixsocket "$SCENE_DIR/$1/redis.sock" \
        --dir "$SCENE_DIR/$1" --save '' --appendonly yes --appendfsync always \
        --maxmemory-policy noeviction --repl-diskless-sync-delay 0 --tls-replication yes \
        "${REDIS_TLS[@]}" --tls-port "$2" "${@:3}"
    scene_until 120 node_is_up "$1"
}
node_has_all() { node_ask "$1" info replication | grep -q '^master_link_status:up'; }
north=$(scene_free_port) south=$(scene_free_port)
# What both are reached by goes to the south, which has the north's data.
take_its_place() {
    node_ask south replicaof no one
    ln -sfn "$SCENE_DIR/south/redis.sock" "$SCENE_DIR/place"
    node_start north "$north" --replicaof localhost "$south"
}
node_start north "$north"
ln -s "$SCENE_DIR/north/redis.sock" "$SCENE_DIR/place"
pair=blocker_redis,socket=$SCENE_DIR/place
blocker_peer pair 1 "pair=$pair,prefix=pair,replicas=1,timeout=2s" || tap_not_ok "it starts"
tap_like "there is none to wait for: that is said" "$(cat "$SCENE_DIR/pair.err")" \
    'has 0 of 1 replicas'
tap_is "and a write fails" "$(op write 1 0 0 4096 1)" ETIMEDOUT
tap_like "which is said" "$(cat "$SCENE_DIR/pair.err")" 'too few replicas'
scene_stop pair
node_start south "$south" --replicaof localhost "$north"
tap_run "a replica has all" scene_until 60 node_has_all south
tap_like "it is not served" \
    "$(blocker_refusal "no=blocker_redis,socket=$SCENE_DIR/south/redis.sock")" \
    'the server is a replica'
blocker_peer lone 1 "lone=$pair,prefix=lone,timeout=1m" || tap_not_ok "it starts"
tap_is "one that waits for none" "$(op write 1 0 0 4096 1)" ok
blocker_peer pair 1 "pair=$pair,prefix=pair,replicas=1,timeout=1m" || tap_not_ok "it starts"
tap_run "one that waits: the laws hold" "$CHECK" all "$SEGMENT" pair 200
NEXT=0
server_killed north take_its_place
PEER=lone
tap_is "what a replica may lack is not read" "$(op read 1 0 0 4096 0)" EIO
tap_like "which is said" "$(cat "$SCENE_DIR/lone.err")" 'a replica has taken the server.s place'
scene_stop lone
blocker_peer lone 1 "lone=$pair,prefix=lone" || tap_not_ok "it starts"
tap_is "started anew it goes on with what is there" "$(op write 1 0 0 4096 2)" ok
PEER=pair
node_ask south replicaof localhost "$north" >/dev/null
scene_spawn slow "$CHECK" write "$SEGMENT" pair 2 0 0 4096 3
sleep 0.5
tap_is "a server that is made a replica is waited for" "$(cat "$SCENE_DIR/slow.out")" ''
node_ask south replicaof no one >/dev/null
tap_run "until it is none" scene_until 60 grep -q '^ok' "$SCENE_DIR/slow.out"
for name in pair lone south north; do scene_stop "$name"; done
PEER=disk

# --- it comes back without its data -------------------------------------------------------------
scene_kill KILL redis
scene_stop redis
rm -rf "$dir/appendonlydir"
redis_start "$dir" "${REDIS_TLS[@]}" >/dev/null
tap_is "what was there does not read as zeros" "$(op read 1 0 0 65536 0)" EIO
tap_run "which it says" grep -q 'its data is gone' "$SCENE_DIR/life.err"
scene_kill KILL life
scene_stop life
tap_like "its successor does not serve that either" "$(blocker_refusal "disk=$safe")" \
    'has lost its data'
tap_end
