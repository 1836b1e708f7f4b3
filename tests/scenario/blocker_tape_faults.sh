#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What users of tapes meet: cartridges that end inside an object, are full, write-protected,
# damaged, foreign or missing, an index that is lost, what operators ask, a peer and a target that
# are killed, one that hangs, and a target that asks for a password.

. "$(dirname "$0")/blocker_lib.sh"
. "$(dirname "$0")/tape_lib.sh"
blocker_begin "blocker_tape, and tapes with faults" 64M
scene_has_module blocker_tape >"$SCENE_DIR/reason" || tap_skip_all "$(cat "$SCENE_DIR/reason")"

# --- who is refused, and told why ---------------------------------------------------------------
refusal() { blocker_refusal "no=blocker_tape,index=$SCENE_DIR/no,$1"; }
mkdir "$SCENE_DIR/empty"
tap_like "a drive that is none" "$(refusal drive=/tmp/x)" "drive: '/tmp/x' must be image:FOLDER"
tap_like "a folder without cartridges" "$(refusal "drive=image:$SCENE_DIR/empty")" \
    'an empty file whose name ends with .tap is a new one'
tap_like "a target that is not there" "$(refusal drive=iscsi://127.0.0.1:1/iqn.x:y/1)" \
    'drive: iscsi://127.0.0.1:1'
tap_like "a changer for an image" "$(refusal "drive=image:$SCENE_DIR/empty,changer=x")" 'changer: '

# --- cartridges end inside objects --------------------------------------------------------------
tapes=$SCENE_DIR/tapes
tape_images "$tapes" 4
options=drive=image:$tapes,capacity=16M,file=2M
store=blocker_tape,$options,index=$SCENE_DIR/index
begins() { blocker_peer tape 1 "tape=$store" || tap_not_ok "it starts"; }
begins
filled=$(op fill 1 100)
tap_like "all cartridges fill up" "$filled" '^(8|9|10|11|12) ENOSPC$'
filled=${filled%% *}
all_is_there() {
    local i
    for ((i = 0; i < filled; i++)); do
        answers read 1 "$i" 0 4194304 $((i + 1)) || answers read 1 "$i" 0 4194304 1 || return 1
    done
}
tap_run "what was written is there, over the ends of cartridges" all_is_there
tap_is "a flush does not fail for what was refused" "$(op flush 1 0)" ok
tap_is "deletes go on, a discard too" \
    "$(for i in 0 1 2 3; do op delete 1 $i; done | tr '\n' ' ')$(op discard 1 4 0 4194304)" \
    "ok ok ok ok ok"
tap_run "and give room: the oldest cartridges are cleaned" comes write 2 0 0 4194304 7
tap_is "what was written then is read" "$(op read 2 0 0 4194304 7)" ok
tap_is "what was deleted is not there" "$(op read 1 0 0 4194304 0) $(op read 1 4 0 4194304 0)" \
    "ok ok"
tap_is "the rest is" "$(op read 1 $((filled - 1)) 0 4194304 1)" ok
tap_is "records are" "$(op put 9 0)" ok

# --- what operators ask -------------------------------------------------------------------------
tape() { timeout 120 "$XSEGCTL" -s "$SEGMENT" tape "$@" 2>&1 </dev/null; }
states() { tape list tape --json | jq -r '[.cartridges[] | .state] | sort | join(" ")'; }
tap_like "the list has them all" "$(states)" '^active( free)+( full)+$|^active( blank)+( full)+$'
tap_like "one that is damaged nowhere" "$(tape verify tape)" 'damaged +0'
before=$(tape list tape --json | jq '[.cartridges[] | select(.state == "full")] | length')
tap_like "a plan to clean names the oldest" "$(tape clean tape --dry-run)" 'cartridge +[1-4]'
tap_is "... and changes nothing" \
    "$(tape list tape --json | jq '[.cartridges[] | select(.state == "full")] | length')" "$before"
tap_run "it is cleaned" tape clean tape
tap_is "and what was on it is there" "$(op read 1 $((filled - 1)) 0 4194304 1)" ok
tap_like "a slot that is the store's is not labelled" "$(tape label tape 1)" 'is cartridge 1 of it'
tap_like "nor one that is not there" "$(tape label tape 77)" 'there is no cartridge in slot 77'
tap_like "the index is made again" "$(tape rebuild-index tape --yes)" 'cartridges +4'
tap_is "and all is there" "$(op read 2 0 0 4194304 7) $(op get 9 1)" "ok ok"
tap_like "a peer that has no tapes is told so" "$(tape list nobody)" "has no peer 'nobody'"
tap_run "it stops" scene_stop tape

# --- the index is lost --------------------------------------------------------------------------
rm -r "$SCENE_DIR/index"
begins
tap_is "an index that is lost is made again" \
    "$(op read 2 0 0 4194304 7) $(op read 1 $((filled - 1)) 0 4194304 1) $(op get 9 1)" "ok ok ok"
tap_is "what was deleted stays so" "$(op read 1 0 0 4194304 0) $(op read 1 4 0 4194304 0)" "ok ok"
scene_kill KILL tape
scene_stop tape
begins
tap_is "killed, it comes back" "$(op read 2 0 0 4194304 7) $(op write 3 0 0 4096 3)" "ok ok"
scene_stop tape

# --- a drive of this machine, by a fake of the kernel's driver ----------------------------------
shim=$SCENE_BUILD/.libs/fake_st.so device=$SKERRY_SHM_DIR/nst0
st_begins() { # MIB OPTION...
    local megabytes=$1
    shift
    scene_spawn st env LD_PRELOAD="$shim" FAKE_ST="$device" FAKE_ST_MB="$megabytes" "$@" \
        "$XSEGPEER" -s "$SEGMENT" \
        "st0=blocker_tape,drive=$device,index=$SCENE_DIR/index-st,file=2M"
    scene_wait_line st ready && PEER=st0 PEER_PROCESS=st
}
if [ -e "$shim" ]; then
    : >"$device"
    st_begins 4096 || tap_not_ok "a blank tape in a drive"
    laws "all laws hold on a drive of the kernel's" 500
    tap_run "it stops" scene_stop st
    rm -r "$SCENE_DIR/index-st" && : >"$device"
    st_begins 24
    filled=$(op fill 1 100)
    tap_like "the tape ends inside an object" "$filled" '^[3-5] ENOSPC$'
    tap_is "what was written before is there" "$(op read 1 1 0 4194304 1)" ok
    scene_kill KILL st
    scene_stop st
    rm -r "$SCENE_DIR/index-st"
    st_begins 24
    tap_is "killed, and the index lost: it is there" "$(op read 1 1 0 4194304 1)" ok
    scene_stop st
    if st_begins 24 FAKE_ST_READ_ONLY=yes; then
        tap_like "write-protected: it is read, and not written" \
            "$(op read 1 1 0 4194304 1) $(op write 2 0 0 4096 1) " '^ok (ENOSPC|EROFS) '
        scene_stop st
    else
        tap_like "write-protected: refused, and told why" "$(cat "$SCENE_DIR/st.err")" protected
    fi
else
    tap_skip "a drive of this machine" "fake_st.so is not built"
fi
PEER=tape PEER_PROCESS=tape

# --- missing, foreign, damaged, write-protected -------------------------------------------------
newest=$(ls -t "$tapes" | head -n 1)
mv "$tapes/$newest" "$SCENE_DIR/$newest"
tap_like "a cartridge that is missing is named" "$(blocker_refusal "tape=$store")" \
    'cartridge [1-4] .*is missing; put it into the library'
rm -r "$SCENE_DIR/index"
mv "$SCENE_DIR/$newest" "$tapes/$newest"
tape_images "$SCENE_DIR/other" 1
blocker_peer other 1 "other=blocker_tape,drive=image:$SCENE_DIR/other,index=$SCENE_DIR/index2"
tap_is "another store" "$(op write 5 0 0 4096 5)" ok
scene_stop other
cp "$SCENE_DIR/other/T1.tap" "$tapes/T5.tap"
tap_like "a library with cartridges of two stores" "$(blocker_refusal "tape=$store")" \
    'cartridges of two stores'
printf '\4\0\0\0abcd\4\0\0\0' >"$tapes/T5.tap"
cp "$tapes/T5.tap" "$SCENE_DIR/before"
rm -rf "$SCENE_DIR/index"
begins
tap_is "a cartridge of something else is left alone" \
    "$(op read 2 0 0 4194304 7) $(cmp "$tapes/T5.tap" "$SCENE_DIR/before" && echo same)" "ok same"
tap_like "... and named in the log" "$(cat "$SCENE_DIR/tape.err")" 'slot 5 is left alone'
tap_like "it is not labelled" "$(tape label tape 5)" 'has something on it'
tap_like "but when that is wanted, and said so" \
    "$(tape label tape 5 --overwrite) $(tape label tape 5 --overwrite --yes)" '--yes.*number +5'
scene_stop tape

tape_images "$SCENE_DIR/weak" 3
store=blocker_tape,drive=image:$SCENE_DIR/weak,index=$SCENE_DIR/index3,capacity=64M,file=2M
begins
for i in 0 1 2 3; do
    answers write 1 "$i" 0 1048576 $((i + 1)) || tap_not_ok "write $i"
done
scene_stop tape
python3 - "$SCENE_DIR/weak/T1.tap" <<'PY'
import sys
with open(sys.argv[1], 'r+b') as f:
    f.seek(300000)
    f.write(b'damaged')
PY
begins
tap_is "a damaged block is EIO or EILSEQ, never other data" \
    "$(op read 1 0 0 1048576 1 | sed 's/EILSEQ/EIO/') $(op read 1 3 0 1048576 4)" "EIO ok"
tap_like "... and the log says where" "$(cat "$SCENE_DIR/tape.err")" 'a read, cartridge 1.*damaged'
scene_stop tape
chmod 0444 "$SCENE_DIR/weak/T1.tap"
begins
tap_is "a write-protected cartridge: the next one is taken" \
    "$(op write 2 0 0 1048576 2) $(op flush 2 0) $(op read 2 0 0 1048576 2)" "ok ok ok"
tap_is "... and it is read" "$(op read 1 3 0 1048576 4)" ok
scene_stop tape

# --- reads in the order of the tape -------------------------------------------------------------
tape_images "$SCENE_DIR/order" 1
store=blocker_tape,drive=image:$SCENE_DIR/order,index=$SCENE_DIR/index4
counter() {
    "$XSEGCTL" -s "$SEGMENT" stats tape --json | grep -o "\"$1\": *[0-9]*" | grep -o '[0-9]*$'
}
begins
op fill 1 4 >/dev/null
tap_run "nothing has waited too long" test "$(counter overdue)" = 0
scene_stop tape
store=$store,deadline=0s
begins
answers read 1 0 0 4194304 1
more_overdue() { [ "$(counter overdue)" -gt 0 ]; }
tap_run "with no patience, each read is overdue" scene_until 60 more_overdue
scene_stop tape

# --- kills --------------------------------------------------------------------------------------
tape_images "$SCENE_DIR/kills" 3
killed_under_load "the peer is killed" \
    "disk=blocker_tape,drive=image:$SCENE_DIR/kills,capacity=128M,file=1M,index=$SCENE_DIR/index5"
scene_stop life

if ! tape_have >"$SCENE_DIR/reason" || ! tape_start "$SCENE_DIR/target" 3 512 >"$SCENE_DIR/reason"
then
    tap_skip "a drive and a changer" "$(tail -n 1 "$SCENE_DIR/reason")"
    tap_end
fi
store=blocker_tape,$TAPE_OPTIONS,index=$SCENE_DIR/index6,file=4M
NEXT=0
blocker_peer disk 1 "disk=$store" || tap_not_ok "it starts"
server_killed tgtd tape_serve
scene_freeze "$(scene_pid tgtd)"
scene_spawn waits "$CHECK" write "$SEGMENT" disk 4 0 0 65536 4
sleep 1
tap_is "the target hangs: nothing is answered" "$(cat "$SCENE_DIR/waits.out")" ""
scene_kill CONT tgtd
tap_run "it goes on" scene_until 120 grep -qx ok "$SCENE_DIR/waits.out"
scene_stop disk
blocker_peer disk 1 "disk=$store,timeout=1s" || tap_not_ok "it starts"
scene_kill KILL tgtd
scene_stop tgtd
tap_like "a target that is gone for good: a request fails in time" "$(op write 4 0 0 65536 5)" \
    '^(ETIMEDOUT|EIO)$'
scene_stop disk
secret=secret-$$-$RANDOM
tape_serve >"$SCENE_DIR/reason" && tape_chap tapes "$secret" || tap_not_ok "the target starts"
tap_like "a target that asks for a password" "$(blocker_refusal "disk=$store")" 'drive: iscsi:'
echo "wrong-$secret" >"$SCENE_DIR/password"
tap_like "... and is given another one" \
    "$(blocker_refusal "disk=$store,user=tapes,password-file=$SCENE_DIR/password")" 'drive: iscsi:'
echo "$secret" >"$SCENE_DIR/password"
blocker_peer disk 1 "disk=$store,user=tapes,password-file=$SCENE_DIR/password" ||
    tap_not_ok "it starts"
tap_is "... and the right one" "$(op write 4 1 0 65536 6) $(op read 4 1 0 65536 6)" "ok ok"
secret_is_hidden disk "$secret"
scene_stop disk
tap_end
