#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Live upgrade: a new program takes the place of one that runs, under load, without an error.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "the keeper: live upgrade"

conf=$SCENE_DIR/k.conf
keeper_file "$conf" </dev/null
down_at_exit k

# Two programs, and a link that says which is installed.
mkdir "$SCENE_DIR/old" "$SCENE_DIR/new"
cp "$(readlink -f "$XSEGPEER")" "$SCENE_DIR/old/xsegpeer"
cp "$(readlink -f "$XSEGPEER")" "$SCENE_DIR/new/xsegpeer"
"$SCENE_DIR/old/xsegpeer" --list >/dev/null 2>&1 || tap_skip_all "xsegpeer cannot be copied"
ln -s "$SCENE_DIR/old/xsegpeer" "$SCENE_DIR/xsegpeer"
export SKERRY_XSEGPEER=$SCENE_DIR/xsegpeer
install_peer() { ln -sfn "$1" "$SCENE_DIR/xsegpeer.new" && mv -T "$SCENE_DIR/xsegpeer.new" \
    "$SCENE_DIR/xsegpeer"; }
program_of() { readlink "/proc/$(pid_of "$1")/exe"; }

ctl_exits 0 "up" up "$conf"
ctl_exits 0 "a volume" volume create disk --size 16M
tap_is "the old program runs" "$(program_of file0)" "$SCENE_DIR/old/xsegpeer"

# --- the store and the volume, under load ---------------------------------------------------------
load_start load
for i in 1 2 3; do
    for peer in file0 vol0; do
        old=$(pid_of "$peer")
        tap_run "restart $peer ($i)" restart "$peer"
        tap_fails "it is another process" test "$(pid_of "$peer")" = "$old"
    done
done
install_peer "$SCENE_DIR/new/xsegpeer"
for peer in file0 vol0; do
    tap_run "restart $peer with the new program" restart "$peer" --exec
    tap_is "it runs" "$(program_of "$peer")" "$SCENE_DIR/new/xsegpeer"
done
tap_is "nobody died of it" "$(grep -c peer_died "$events")" 0
load_end load "the client saw nothing of it"

# --- a new program that will not do ---------------------------------------------------------------
printf '#!/bin/sh\necho "xsegpeer: this is not for you" >&2\nexit 2\n' >"$SCENE_DIR/bad"
chmod +x "$SCENE_DIR/bad"
install_peer "$SCENE_DIR/bad"
load_start load
old=$(pid_of file0)
tap_fails "a program that refuses the peer is not taken" restart file0 --exec
tap_like "the reason is its own" "$(<"$SCENE_DIR/restart.out")" \
    "this is not for you"
tap_is "the old one runs on" "$(pid_of file0)" "$old"
load_end load "the client saw nothing of it"
install_peer "$SCENE_DIR/new/xsegpeer"

# --- the front: its socket is handed over ---------------------------------------------------------
load_start load --reconnect
inode=$(stat -c %i "$socket")
for i in 1 2 3; do tap_run "restart nbd0 ($i)" restart nbd0 --exec; done
tap_is "the socket is the same" "$(stat -c %i "$socket")" "$inode"
load_end load "a client that connects again finds all"

# --- the keeper itself ----------------------------------------------------------------------------
load_start load
keeper=$(keeper_pid k) front=$(pid_of nbd0)
kill -s HUP "$keeper"
renewed() { [ "$(grep -c keeper_started "$events")" -ge "$1" ]; }
tap_run "the keeper becomes a new program" scene_until 10 renewed 2
ctl_exits 0 "it answers" status
tap_is "in the same process" "$(keeper_pid k)" "$keeper"
tap_is "with the same front" "$(pid_of nbd0)" "$front"
old=$(pid_of vol0)
kill_peer vol0
tap_run "it starts again who dies" back vol0 "$old"
tap_is "whose status it knows: it is its child" "$(event_last peer_died vol0 .reason)" \
    "killed by SIGKILL"
load_end load "the client saw nothing of it"
kill_peer nbd0
tap_run "and has kept the front's socket" back nbd0 "$front"
tap_is "it is the same" "$(stat -c %i "$socket")" "$inode"

# --- what cannot be -------------------------------------------------------------------------------
tap_fails "a peer that is not there" restart nix
tap_like "says so" "$(<"$SCENE_DIR/restart.out")" "there is no peer 'nix'"
ctl_exits 0 "one that was stopped" peer stop nbd0
tap_run "is started" restart nbd0
ctl_exits 0 "all is well" status
ctl_exits 0 "down" down
tap_fails "the socket is gone" test -e "$socket"
tap_end
