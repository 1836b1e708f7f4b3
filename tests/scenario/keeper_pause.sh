#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# xsegctl volume while the composer or the mapper has been killed and is being started anew: the
# commands wait for it, and do what they were told.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "commands while the composer is started anew"
conf=$SCENE_DIR/k.conf
keeper_file "$conf" <<<''
sed -i 's/^role = .*/&\nrestart-delay-max = 0/' "$conf"
ctl_exits 0 "up" up "$conf"
down_at_exit k

v() { # WANT VERB ARGS...
    ctl_exits "$1" "${*:2}" volume "${@:2}" --timeout 60s
}

kill_peer vol0
v 0 create disk --size 64M
v 0 snapshot disk@monday
kill_peer map0
v 0 clone disk@monday vm
v 0 info vm
kill_peer vol0 map0
v 0 resize vm 128M
v 0 rename vm vm1
v 0 gc --wait
kill_peer vol0
v 0 rm vm1 --yes
v 0 list --json
json_is "all of it was done" '[.volumes[].name] | sort | join(" ")' "disk disk@monday"

# a sweep that its mapper's death cuts off is waited for until the next one has done it
head -c 8M /dev/urandom >"$SCENE_DIR/image"
v 0 import "$SCENE_DIR/image" garbage --object-size 64K
v 0 snapshot garbage@shared
tap_run "all of it is written again" qemu-io -f raw -c 'write -P 7 0 8M' \
    "nbd+unix:///garbage?socket=$socket"
v 0 rm garbage@shared --yes
v 0 fsck --json
json_is "there is something to sweep" '.unreachable > 100' true
scene_spawn gc "$XSEGCTL" -s k volume gc --wait --rate 60 --timeout 60s
sweeps() { "$XSEGCTL" -s k volume gc --rate 60 --json | jq -e '.running and .objects > 5'; }
tap_run "a slow sweep" scene_until 60 sweeps
kill_peer map0
gc_waited() { wait "$(scene_pid gc)"; }
tap_run "gc --wait goes on over the death of the mapper" gc_waited
v 0 fsck --json
json_is "and all is swept" '.unreachable' 0

# given up: there is nothing to be waited for
is_given_up() {
    kill_peer vol0 2>/dev/null
    state_is vol0 given-up
}
tap_run "the composer is given up" scene_until 60 is_given_up
ctl_exits 1 "a command does not wait for it" volume list --timeout 1h
err_like "says what to do" "start it again with 'xsegctl peer start'"
tap_end
