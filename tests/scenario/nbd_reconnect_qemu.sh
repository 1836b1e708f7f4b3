#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The front is killed while QEMU's block layer uses it with reconnect-delay: first qemu-io, which
# writes patterns and verifies them, then a QEMU storage daemon between the front and a client that
# knows nothing of all this. Neither may meet an error.

. "$(dirname "$0")/kill_lib.sh"
kill_begin "the front is killed, QEMU connects again"
scene_need qemu-io qemu-storage-daemon

NODE="driver=nbd,server.type=unix,server.path=$SCENE_SOCKET,export=disk,reconnect-delay=20"

# QEMU waits a second after each attempt in vain, then two, four: so few kills.
ROUNDS=2

# Commands on stdin, one after the other, while the front comes and goes.
qemu_commands() {
    local i at
    for ((i = 0; i < 160; i++)); do
        at="$((i % 255 + 1)) $((i * 64 + 32768))k 64k"
        echo "write -P $at"
        [ $((i % 10)) -ne 9 ] || echo flush
        echo "read -P $at"
        echo "sleep 5"
    done
    for ((i = 0; i < 160; i++)); do echo "read -P $((i % 255 + 1)) $((i * 64 + 32768))k 64k"; done
}

# qemu-io says what failed and goes on: all of it must be looked at.
qemu_faults() { grep -cE 'failed|error|Error|verification' "$SCENE_DIR/qemu.out"; }

qemu_commands >"$SCENE_DIR/commands"
# shellcheck disable=SC2016  # expanded by the inner shell
scene_spawn qemu bash -c \
    'exec qemu-io --image-opts "$1" <"$2" 2>&1' qemu "$NODE" "$SCENE_DIR/commands"
# its first connection it makes once: reconnect-delay is for those that it has had
qemu_writes() { grep -q 'wrote 65536/65536' "$SCENE_DIR/qemu.out"; }
scene_until 60 qemu_writes || tap_not_ok "qemu-io is under way"
for ((round = 0; round < ROUNDS; round++)); do
    kill_pause
    kill_again front
done
scene_until 60 kill_ended qemu
scene_stop qemu
tap_is "qemu-io ends" "$?" 0 || tail -n 5 "$SCENE_DIR/qemu.out" | sed 's/^/#   /'
tap_is "all was written" "$(grep -c 'wrote 65536/65536' "$SCENE_DIR/qemu.out")" 160
tap_is "and read, twice" "$(grep -c 'read 65536/65536' "$SCENE_DIR/qemu.out")" 320
tap_is "no error" "$(qemu_faults)" 0 || grep -E 'failed|error|Error|verif' "$SCENE_DIR/qemu.out" |
    head -n 5 | sed 's/^/#   /'
tap_run "the checks can fail" bash -c "qemu-io --image-opts -c 'read -P 99 32M 64k' '$NODE' |
    grep -q 'verification failed'"

OUTER=$SCENE_DIR/outer.sock
scene_spawn daemon qemu-storage-daemon --blockdev "$NODE,node-name=n0" \
    --nbd-server "addr.type=unix,addr.path=$OUTER" \
    --export "type=nbd,id=e0,node-name=n0,name=outer,writable=on"
scene_wait_socket "$OUTER" || tap_not_ok "the storage daemon serves"
KILL_URI="nbd+unix:///outer?socket=$OUTER"
kill_load behind
for ((round = 0; round < ROUNDS; round++)); do
    kill_pause
    kill_again front
done
kill_again store volume front
kill_pause
kill_enough behind "a client behind QEMU's block layer: every answer right, none an error"
scene_stop daemon # before the front, or it would wait for that to come back
tap_end
