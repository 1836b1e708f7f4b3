#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The composer is killed again and again under load: clients of the front see a pause, no error.
# Its successor knows nothing and serves what is open all the same; what it was told to create or
# remove is created or removed.

. "$(dirname "$0")/kill_lib.sh"
kill_begin "the composer is killed"
scene_need jq

kill_load load
for ((round = 0; round < ROUNDS; round++)); do
    kill_pause
    kill_again volume
done
kill_pause
kill_enough load

# the volume is known to be open, though its successor did not see it opened
kill_load load
sleep 0.1
kill_again volume
sleep 0.3
tap_exits 5 "a volume that is in use is not removed" "$XSEGCTL" -s "$SEGMENT" volume rm disk --yes
kill_enough load

# nor when its user does nothing: the front opens it again for a composer that has forgotten
"$XSEGCTL" -s "$SEGMENT" volume create idle --size 8M >"$SCENE_DIR/idle.log"
scene_spawn idler "$KILL_PYTHON" -c "
import nbd, sys
handle = nbd.NBD()
handle.connect_uri('nbd+unix:///idle?socket=$SCENE_SOCKET')
print('open', flush=True)
sys.stdin.read() or __import__('signal').pause()"
scene_wait_line idler open || tap_not_ok "a client opens it"
kill_again volume
tap_exits 5 "a volume that is open but idle is not removed" \
    "$XSEGCTL" -s "$SEGMENT" volume rm idle --yes
kill_again volume
idle_opens() {
    "$XSEGCTL" -s "$SEGMENT" volume list --json | jq '.volumes[] | select(.name == "idle").opens'
}
idle_is_open() { [ "$(idle_opens)" -gt 0 ]; }
tap_run "the front opens it again by itself" scene_until 10 idle_is_open
tap_is "once" "$(idle_opens)" 1
scene_stop idler
scene_until 5 "$XSEGCTL" -s "$SEGMENT" volume rm idle --yes
tap_is "when its user has left it is removed" \
    "$("$XSEGCTL" -s "$SEGMENT" volume list -o csv | grep -c '^idle,')" 0

# creating and removing: each is asked for once; only who finds the composer dead asks again
ask() {
    until "$XSEGCTL" -s "$SEGMENT" "$@" 2>"$SCENE_DIR/ask.err"; do
        grep -q 'is dead' "$SCENE_DIR/ask.err" || { cat "$SCENE_DIR/ask.err" >&2; return 1; }
        sleep 0.02
    done
}
for ((round = 0; round < ROUNDS; round++)); do
    scene_spawn create ask volume create "v$round" --size 8M
    sleep "0.0$((RANDOM % 6))"
    kill_again volume
    scene_until 20 kill_ended create
    scene_stop create
    tap_is "volume $round is created" "$?" 0 || sed 's/^/#   /' "$SCENE_DIR/create.err"
done
tap_is "each is there once" \
    "$("$XSEGCTL" -s "$SEGMENT" volume list -o csv | grep -c '^v[0-9]')" "$ROUNDS"
for ((round = 0; round < ROUNDS; round++)); do
    scene_spawn remove ask volume rm "v$round" --yes
    sleep "0.0$((RANDOM % 6))"
    kill_again volume
    scene_until 20 kill_ended remove
    scene_stop remove
    tap_is "volume $round is removed" "$?" 0 || sed 's/^/#   /' "$SCENE_DIR/remove.err"
done
tap_is "none is left" "$("$XSEGCTL" -s "$SEGMENT" volume list -o csv | grep -c '^v[0-9]')" 0
tap_is "nor any record but the disk's: its name, its home, two copies of its map's top" \
    "$(find "$SKERRY_SHM_DIR/store/records" -type f | wc -l)" 4
tap_end
