#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# While the rest of a volume that is to move is written back, writes wait and reads do not: the
# store of the host that has it holds its flush for as long as we look.

. "$(dirname "$0")/rehome_lib.sh"
. "$(dirname "$0")/keeper_lib.sh"
ctl_begin "reads while a volume is re-homed"
rehome_need
if ! scene_module blocker_meddle.c; then tap_skip_all "no compiler"; fi

# a has no cache: its composer flushes the store itself
meddle ""
host a home0 | sed -e '/^\[peer cache0\]/,/^$/d' \
    -e '/^\[peer vol0\]/,/^$/s/^edge.store=.*/edge.store=bad0/' >"$SCENE_DIR/a.conf"
{
    printf '\n[peer bad0]\nrole=blocker_meddle\nrules=%s\nedge.store=file0\n' "$SCENE_DIR/rules"
    out a
} >>"$SCENE_DIR/a.conf"
{ host b home0 && out b; } >"$SCENE_DIR/b.conf"
for segment in a b; do
    down_at_exit "$segment"
    ctl_exits 0 "$segment comes up" up "$SCENE_DIR/$segment.conf"
done
ctl_exits 0 "a volume" volume create -s a disk --size 64M
ctl_exits 0 "a bridge" bridge add -s a far0 "unix:$SCENE_DIR/b.out"

uri="nbd+unix:///disk?socket=$SCENE_DIR/a.sock"
client_attach "$uri"
mkfifo "$SCENE_DIR/writes"
# shellcheck disable=SC2016  # its own
scene_spawn writer sh -c 'exec qemu-io -f raw "$1" <"$0"' "$SCENE_DIR/writes" "$uri"
exec 8>"$SCENE_DIR/writes"
writes() { echo "write -P $1 0 64k" >&8; }
has_written() { [ "$(grep -c 'ops;' "$SCENE_DIR/writer.out")" -ge "$1" ]; }
waits() { [ "$("$XSEGCTL" rehome status -s a --json | jq '[.volumes[].waiting] | add')" -gt 0 ]; }
is() { [ "$(state a)" = "$1" ]; }

flushing() { # ROUND; b begins to get it, and a's flush does not end
    # the first round's passes, and however long it takes, there is no second one
    meddle "away ops=flush after=1"
    "$XSEGCTL" rehome -s a disk --to far0 --downtime 60s >"$SCENE_DIR/move.out" 2>&1 &
    tap_run "round $1: the rest is written back" scene_until 60 is flushing
    writes "$1"
    tap_run "... a write waits" scene_until 60 waits
    tap_run "... and reads do not" say "read -P $(($1 - 1)) 0 64k" "read -P 0 32M 4k"
    tap_is "... as it is still" "$(state a)" flushing
    has_written $(($1 + 1))
    tap_is "... and nothing was written" "$?" 1
}

writes 0
tap_run "somebody writes" scene_until 60 has_written 1
flushing 1
ctl_exits 0 "it is cancelled" rehome cancel -s a disk
wait $!
tap_is "... and stays" "$? $(state a)" "1 home"
tap_run "... the write goes on" scene_until 60 has_written 2
tap_run "... and is there" say 'read -P 1 0 64k'
meddle ""
flushing 2
meddle ""
wait $!
tap_is "when that has ended it goes" "$? $(state a) $(owner b)" "0 away b"
tap_run "... and the write" scene_until 60 has_written 3
tap_run "... which a's client reads" say 'read -P 2 0 64k'
tap_run "... as does b's" io b -r -c 'read -P 2 0 64k'
client_leave
exec 8>&-
scene_stop writer
tap_end
