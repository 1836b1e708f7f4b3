#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What users of an S3 server meet: wrong settings, a second writer, a peer and a server that are
# killed, a network that cuts, repeats and delays, a wrong clock, a server that hangs, that takes no
# writes, that is full, a public bucket, a prefix that is taken over, and one that is emptied.

. "$(dirname "$0")/blocker_lib.sh"
. "$(dirname "$0")/s3_lib.sh"
blocker_begin "blocker_s3 and a server with faults" 128M
scene_has_module blocker_s3 >"$SCENE_DIR/reason" || tap_skip_all "$(cat "$SCENE_DIR/reason")"
s3_need "$SCENE_DIR/s3"
tap_note "against $(s3_kind)"

store=blocker_s3,$S3_OPTIONS,timeout=1m
begin() { # NAME LANES SPEC
    blocker_peer "$@" || { tap_not_ok "$1 starts" && tail -n 3 "$SCENE_DIR/$1.err"; }
}

# --- who is refused, and told why ---------------------------------------------------------------
refusal() { blocker_refusal "no=blocker_s3,$1"; }
with() { # OPTION=VALUE: in place of the one that is given
    sed "s#${1%%=*}=[^,]*#$1#" <<<"$S3_OPTIONS"
}
tap_like "an endpoint that is none" "$(refusal "$(with endpoint=ftp://x)")" \
    "endpoint: 'ftp://x' must be http://HOST"
tap_like "a server that is not there" "$(refusal "$(with endpoint=http://127.0.0.1:1)")" \
    "endpoint: 'http://127.0.0.1:1', bucket 'skerry': nothing in time.*connect"
tap_like "a bucket that is not there" "$(refusal "$(with bucket=nowhere)")" \
    "bucket 'nowhere': the server says: NoSuchBucket"
tap_like "a prefix that is none" "$(refusal "$S3_OPTIONS,prefix=a//b")" "prefix: 'a//b' must be"
tap_like "no keys" "$(refusal "endpoint=$S3_URL,bucket=skerry")" \
    'key-file: is not given, and the environment has no access key'
printf '%s\nwrong\n' "$(head -n 1 "$S3_DIR/keys")" >"$SCENE_DIR/wrong"
tap_like "a wrong secret" "$(refusal "$(with "key-file=$SCENE_DIR/wrong")")" \
    "the server says: SignatureDoesNotMatch"
tap_like "nothing there, and nothing may be made" \
    "$(refusal "$S3_OPTIONS,prefix=empty,read-only=yes")" "prefix: there is no store at 'empty'"

# --- secrets, and one writer --------------------------------------------------------------------
begin life 2 "disk=$store"
secret=$(tail -n 1 "$S3_DIR/keys")
secret_is_hidden life "$secret"
tap_like "a second writer is refused, and told which one there is" \
    "$(refusal "$S3_OPTIONS")" "is written by '.*$SEGMENT/disk.*takeover=yes"
scene_stop life
AWS_ACCESS_KEY_ID=$(head -n 1 "$S3_DIR/keys") AWS_SECRET_ACCESS_KEY=$secret \
    begin another 1 "another=blocker_s3,endpoint=$S3_URL,bucket=skerry"
tap_run "once it has stopped, another one may, with keys of the environment" comes write 1 0 0 512 1
scene_stop another

# --- the peer is killed, the server is killed ---------------------------------------------------
ROUNDS=1 killed_under_load "the peer is killed" "disk=$store"
server_killed s3 s3_serve

# --- it hangs -----------------------------------------------------------------------------------
begin hasty 1 "hasty=blocker_s3,$S3_OPTIONS,prefix=hasty,timeout=5s"
tap_is "a write" "$(op write 1 0 0 65536 1)" ok
scene_freeze "$(scene_pid s3)"
tap_is "the server hangs: a read fails in time" "$(op read 1 0 0 65536 1)" ETIMEDOUT
scene_kill CONT s3
tap_run "it goes on" comes read 1 0 0 65536 1

# --- the bucket in the host's name ----------------------------------------------------------------
hosted=$(with "endpoint=http://localhost:$S3_PORT"),style=host,prefix=host
begin hosted 1 "hosted=blocker_s3,$hosted"
tap_is "style=host" "$(op write 1 0 0 4096 1) $(op read 1 0 0 4096 1)" "ok ok"
scene_stop hosted

# --- TLS; answers are lost, cut, late; the server is busy ---------------------------------------
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=s3 \
    -addext subjectAltName=IP:127.0.0.1 -keyout "$SCENE_DIR/tls.key" -out "$SCENE_DIR/tls.crt" \
    2>"$SCENE_DIR/openssl.err"
cat "$SCENE_DIR/tls.key" "$SCENE_DIR/tls.crt" >"$SCENE_DIR/tls.pem"
mkfifo "$SCENE_DIR/until"
(exec "$(dirname "$0")/../lib/s3_trouble.py" "$S3_PORT" 10 "$SCENE_DIR/tls.pem") \
    >"$SCENE_DIR/trouble.out" 2>"$SCENE_DIR/trouble.err" <"$SCENE_DIR/until" &
SCENE_PIDS[trouble]=$!
exec 9>"$SCENE_DIR/until"
scene_until 60 grep -q . "$SCENE_DIR/trouble.out"
rough=$(with "endpoint=https://127.0.0.1:$(head -n 1 "$SCENE_DIR/trouble.out")"),prefix=rough
tap_like "nobody vouches for the server" "$(refusal "$rough")" 'certificate'
begin rough 2 "rough=blocker_s3,$rough,ca-file=$SCENE_DIR/tls.crt,memory=4M"
TAP_LIMIT=1200
tap_run "records and random requests on such a network" "$CHECK" some "$SEGMENT" rough 300
PEER=rough
NEXT=0
hammer_begins 0
sleep 3
hammer_ends
sleep 1 # what is late has come
tap_is "and nothing that was flushed is overwritten by what comes late" \
    "$(op verify 9 $((NEXT - 1)))" ok
scene_stop rough
exec 9>&-
scene_until 60 grep -q = "$SCENE_DIR/trouble.out"
made=$(tail -n 1 "$SCENE_DIR/trouble.out")
tap_note "$made"
for kind in busy late torn unanswered unsent; do
    tap_like "there was trouble: $kind" "$made" "$kind="
done

# --- a clock that is wrong by two hours ---------------------------------------------------------
shim=$SCENE_BUILD/.libs/wrong_clock.so
if [[ $(ldd "$XSEGPEER") =~ lib[atu]+san ]]; then
    tap_skip "a wrong clock" "a sanitizer wants to be loaded first"
else
    LD_PRELOAD=$shim WRONG_CLOCK=7200 begin clock 1 "clock=blocker_s3,$S3_OPTIONS,prefix=clock"
    tap_is "our clock is two hours ahead: the server's is taken" "$(op write 1 0 0 4096 1)" ok
    scene_stop clock
fi

# --- read-only, and a public bucket -------------------------------------------------------------
PEER=disk
tap_is "what others will read" "$(op write 40 0 0 65536 5)" ok
begin reader 1 "reader=blocker_s3,$S3_OPTIONS,read-only=yes"
tap_is "a reader beside the writer" "$(op read 40 0 0 65536 5)" ok
tap_is "does not write" "$(op write 40 0 0 4096 6)" EROFS
scene_stop reader
cat >"$SCENE_DIR/policy" <<'POLICY'
{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*",
 "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::skerry/*"]},
 {"Effect": "Allow", "Principal": "*", "Action": ["s3:ListBucket"],
 "Resource": ["arn:aws:s3:::skerry"]}]}
POLICY
tap_run "the bucket is made public" s3_ask PUT '/skerry?policy=' --data-binary "@$SCENE_DIR/policy"
begin guest 1 "guest=blocker_s3,endpoint=$S3_URL,bucket=skerry,read-only=yes"
tap_is "who has no keys reads it" "$(op read 40 0 0 65536 5)" ok
scene_stop guest

# --- taken over, emptied ------------------------------------------------------------------------
scene_freeze "$(scene_pid life)"
begin heir 1 "heir=$store,takeover=yes"
tap_is "another one takes the prefix over" "$(op write 40 0 0 4096 7)" ok
scene_kill CONT life
PEER=disk
deposed() { [ "$(op write 41 0 0 4096 1)" = ESTALE ]; }
tap_run "the one before notices, and does not write any more" scene_until 120 deposed
PEER=heir
tap_run "its store's object is removed" s3_ask DELETE /skerry/skerry/store
tap_run "an object that is gone" s3_ask DELETE /skerry/skerry/o/0000000000000028/00000000.00000000
tap_is "does not read as zeros" "$(op read 40 0 0 65536 0)" EIO
tap_run "which it says" grep -q 'what was stored here is gone' "$SCENE_DIR/heir.err"
scene_kill KILL heir
scene_stop heir
tap_like "its successor does not serve that either" "$(blocker_refusal "heir=$store")" \
    'has lost its data'

# --- a bucket that takes no writes, and one that is full ----------------------------------------
if [ "$(s3_kind)" = radosgw ]; then
    begin last 1 "last=$store,prefix=last"
    tap_is "a write" "$(op write 1 0 0 4096 1)" ok
    sed -i 's/Allow/Deny/; s/GetObject/PutObject/; s/ListBucket/DeleteBucket/' "$SCENE_DIR/policy"
    s3_ask PUT '/skerry?policy=' --data-binary "@$SCENE_DIR/policy"
    tap_is "nobody may write" "$(op write 1 0 0 4096 2)" EACCES
    tap_is "a read goes on" "$(op read 1 0 0 4096 1)" ok
    s3_ask DELETE '/skerry?policy='
    tap_is "everybody may again" "$(op write 1 0 0 4096 2)" ok
    tap_run "a quota" s3_quota 3
    tap_like "it is used up" "$(op fill 2 10)" ENOSPC
    tap_is "a read goes on" "$(op read 1 0 0 4096 2)" ok
else
    tap_skip "a bucket that takes no writes, or is full" "the owner of versitygw may do all"
fi
tap_end
