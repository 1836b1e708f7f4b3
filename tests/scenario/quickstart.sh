#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ./quickstart itself, with the build that is there: serves an image, verifies it, is idempotent,
# and leaves nothing when it is stopped. Bad arguments are told so and start nothing.

. "$(dirname "$0")/lib.sh"

scene_begin
scene_need_skerry
scene_need nbdcopy mke2fs cmp qemu-img

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

# A stage that cannot be built says which package it lacks.
printf '#!/bin/sh\necho "cannot find libclang_rt.fuzzer" >&2\nexit 1\n' >"$SCENE_DIR/clang"
chmod +x "$SCENE_DIR/clang"
FUZZ_CC=$SCENE_DIR/clang tap_fails "no fuzzers without clang's library" \
    bash "$(dirname "$QUICKSTART")/tests/fuzz/run.sh" "$SCENE_DIR/fuzz"
tap_like "it is named" "$(cat "$TAP_OUT")" "apt-get install clang libclang-rt-14-dev"

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

mkdir "$SCENE_DIR/b"
head -c 4096 /dev/urandom >"$SCENE_DIR/b/odd name.img"
tap_fails "another image of that name" "$QUICKSTART" "$SCENE_DIR/b/odd name.img"
tap_like "is a clash, and said" "$(cat "$TAP_OUT")" "volume 'odd name.img' is of"
qemu-img convert -f raw -O qcow2 "$SCENE_DIR/odd name.img" "$SCENE_DIR/odd.qcow2"
tap_run "a qcow2 image" "$QUICKSTART" "$SCENE_DIR/odd.qcow2"
tap_run "is served as what it is" qemu-img compare -f raw "$SCENE_DIR/odd name.img" \
    "nbd+unix:///odd.qcow2?socket=$socket"
cp "$SCENE_DIR/odd.qcow2" "$SCENE_DIR/hidden.img"
tap_fails "one that does not say so" "$QUICKSTART" "$SCENE_DIR/hidden.img"
tap_like "is asked for" "$(cat "$TAP_OUT")" "say --format qcow2, or --format raw"
tap_run "as raw" "$QUICKSTART" --format raw "$SCENE_DIR/hidden.img"
truncate -s 2T "$SCENE_DIR/sparse.img"
printf x | dd of="$SCENE_DIR/sparse.img" bs=1 seek=1099511627776 conv=notrunc status=none
tap_run "an image of 2 TiB, all but empty" timeout 120 "$QUICKSTART" "$SCENE_DIR/sparse.img"
tap_like "is verified" "$(cat "$TAP_OUT")" "nbdcopy reads 2199023255552 bytes, identical"

# A folder with blanks: links to all of it, so that it is the same build.
mkdir "$SCENE_DIR/with blanks"
ln -s "$(dirname "$QUICKSTART")"/* "$SCENE_DIR/with blanks"
tap_run "from a folder with blanks" "$SCENE_DIR/with blanks/quickstart" status
rm -f "${TMPDIR:-/tmp}/skerry-$(id -u)-$(cksum <<<"$SCENE_DIR/with blanks" | cut -d' ' -f1)"

# Without sudo, as somebody else: one sentence on the terminal.
if [ "$(id -u)" -eq 0 ] && id nobody >/dev/null 2>&1 &&
    ! setpriv --reuid=nobody --clear-groups test -r "$QUICKSTART"; then
    tap_skip "somebody without sudo" "nobody may not read this tree"
elif [ "$(id -u)" -eq 0 ] && id nobody >/dev/null 2>&1; then
    mkdir "$SCENE_DIR/bin"
    for tool in bash env id cat dirname cksum cut mkdir nproc grep sed; do
        ln -s "$(type -P "$tool")" "$SCENE_DIR/bin/$tool"
    done
    ln -s "$(type -P false)" "$SCENE_DIR/bin/dpkg-query"
    chmod 755 "$SCENE_DIR"
    tap_fails "a missing package and no sudo" setpriv --reuid=nobody --clear-groups env -i \
        PATH="$SCENE_DIR/bin" HOME=/ QUICKSTART_BUILD= QUICKSTART_STATE=/nowhere \
        bash "$QUICKSTART"
    tap_like "is one sentence" "$(cat "$TAP_OUT")" "missing and there is no sudo; as root: apt-get"
fi

export SKERRY_RUN_DIR=$QUICKSTART_STATE/run
tap_run "the cache comes out" "$XSEGCTL" unplug cache0
tap_run "what it had is in the store" nbdcopy "nbd+unix:///demo?socket=$socket" "$SCENE_DIR/back"
tap_run "all of it" cmp "$SCENE_DIR/back" "$QUICKSTART_STATE/skerry.img"
tap_run "and goes in again" "$XSEGCTL" plug cached --at vol0:store

tap_run "kill: every process, and no client sees an error" "$QUICKSTART" kill
tap_like "it tells how long the pauses were" "$(cat "$TAP_OUT")" "the keeper +[0-9]+ +[0-9]+ ms"
tap_like "the cache was among them" "$(cat "$TAP_OUT")" "cache0 .*[0-9]+ +[0-9]+ ms"
tap_like "and what was read back" "$(cat "$TAP_OUT")" "every acknowledged write read back: 0 errors"

guard=$("$XSEGCTL" status --json | sed -n 's/.*"guard_pid": *\([0-9]*\).*/\1/p')
kill -KILL "$guard" "$(cat "$SKERRY_RUN_DIR/q$$/xsegd.pid")"
unset SKERRY_RUN_DIR
tap_run "stop, with the keeper dead, and without its segment's name" env -u SKERRY_SEGMENT \
    "$QUICKSTART" stop
tap_fails "kill where nothing runs" "$QUICKSTART" kill
tap_is "no segment is left" "$(ls "$SKERRY_SHM_DIR")" ""
tap_is "no run folder is left" "$(ls -d "$QUICKSTART_STATE/run" 2>/dev/null)" ""
tap_run "stop again" "$QUICKSTART" stop

tap_run "start after stop" "$QUICKSTART"
tap_like "the data was kept" "$(cat "$TAP_OUT")" "not imported again"
mkfifo "$SCENE_DIR/guest"
qemu-io -f raw "nbd+unix:///demo?socket=$socket" <"$SCENE_DIR/guest" >/dev/null 2>&1 &
exec 8>"$SCENE_DIR/guest"
attached() { [ "$("$XSEGCTL" client list -o csv | grep -c demo)" = 1 ]; }
SKERRY_RUN_DIR=$QUICKSTART_STATE/run tap_run "a guest is attached" scene_until 20 attached
tap_fails "stop" "$QUICKSTART" stop
tap_like "names it" "$(cat "$TAP_OUT")" "1 client attached: 'demo' .*--yes"
tap_run "stop --purge --yes" "$QUICKSTART" stop --purge --yes
exec 8>&-
wait $!
tap_is "nothing at all is left" "$(ls -d "$QUICKSTART_STATE" 2>/dev/null)" ""
tap_end
