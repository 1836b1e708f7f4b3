#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ./quickstart itself, with the build that is there: serves an image, verifies it, is idempotent,
# and leaves nothing when it is stopped. Bad arguments are told so and start nothing.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

scene_begin
scene_need_skerry
scene_need nbdcopy mke2fs cmp

QUICKSTART=$(cd "$(dirname "$0")/../.." && pwd)/quickstart
export QUICKSTART_BUILD=$SCENE_BUILD QUICKSTART_STATE=$SCENE_DIR/q SKERRY_SEGMENT=q$$
scene_at_exit "'$QUICKSTART' stop --purge"

socket=$QUICKSTART_STATE/run/nbd.sock
[ ${#QUICKSTART_STATE} -le 60 ] || tap_skip_all "the scratch folder's name is too long"

tap_run "help" "$QUICKSTART" help
tap_exits 2 "an unknown option is a usage error" "$QUICKSTART" --nonsense
tap_exits 2 "two images are a usage error" "$QUICKSTART" a b
tap_fails "an image that is not there" "$QUICKSTART" "$SCENE_DIR/nothing.img"
tap_like "and it is named" "$(cat "$TAP_OUT")" "cannot read '$SCENE_DIR/nothing.img'"
tap_is "nothing was started" "$(ls "$SKERRY_SHM_DIR")" ""

tap_run "serves an image made of the repository" "$QUICKSTART"
out=$(cat "$TAP_OUT")
tap_like "nbdcopy read it back" "$out" "nbdcopy reads [0-9]+ bytes, identical"
tap_like "export read it back" "$out" "export reads [0-9]+ bytes, identical"
tap_like "the cache served a part of that" "$out" "the cache served [1-9][0-9]* %"
tap_like "it tells the URI" "$out" "nbd\+unix:///demo\?socket=$socket"
tap_run "the URI it tells works" nbdcopy "nbd+unix:///demo?socket=$socket" "$SCENE_DIR/back"
tap_run "what is behind it is the image" cmp "$SCENE_DIR/back" "$QUICKSTART_STATE/skerry.img"
tap_run "that is a sound ext4" e2fsck -fn "$SCENE_DIR/back"
tap_run "its status is good" "$QUICKSTART" status

# Negative control: it would have seen one flipped byte.
printf 'X' | dd of="$SCENE_DIR/back" bs=1 seek=5000000 conv=notrunc status=none
tap_fails "one changed byte is seen" cmp "$SCENE_DIR/back" "$QUICKSTART_STATE/skerry.img"

tap_run "again: runs on" "$QUICKSTART"
tap_like "and does not import twice" "$(cat "$TAP_OUT")" "not imported again"

head -c 3000000 /dev/urandom >"$SCENE_DIR/odd name.img"
tap_run "an image of one's own, beside the first" "$QUICKSTART" "$SCENE_DIR/odd name.img"
tap_like "it is verified, too" "$(cat "$TAP_OUT")" "nbdcopy reads 3000000 bytes, identical"

export SKERRY_RUN_DIR=$QUICKSTART_STATE/run
tap_run "the cache comes out" "$XSEGCTL" unplug cache0
tap_run "what it had is in the store" nbdcopy "nbd+unix:///demo?socket=$socket" "$SCENE_DIR/back"
tap_run "all of it" cmp "$SCENE_DIR/back" "$QUICKSTART_STATE/skerry.img"
tap_run "and goes in again" "$XSEGCTL" plug cached --at vol0:store

tap_run "kill: every process, and no client sees an error" "$QUICKSTART" kill
tap_like "it tells how long the pauses were" "$(cat "$TAP_OUT")" "the keeper +[0-9]+ +[0-9]+ ms"
tap_like "the cache was among them" "$(cat "$TAP_OUT")" "cache0 +[0-9]+ +[0-9]+ ms"
tap_like "and what was read back" "$(cat "$TAP_OUT")" "every acknowledged write read back: 0 errors"

tap_run "stop" "$QUICKSTART" stop
tap_fails "kill where nothing runs" "$QUICKSTART" kill
tap_is "no segment is left" "$(ls "$SKERRY_SHM_DIR")" ""
tap_is "no run folder is left" "$(ls -d "$QUICKSTART_STATE/run" 2>/dev/null)" ""
tap_run "stop again" "$QUICKSTART" stop

tap_run "start after stop" "$QUICKSTART"
tap_like "the data was kept" "$(cat "$TAP_OUT")" "not imported again"
tap_run "stop --purge" "$QUICKSTART" stop --purge
tap_is "nothing at all is left" "$(ls -d "$QUICKSTART_STATE" 2>/dev/null)" ""
tap_end
