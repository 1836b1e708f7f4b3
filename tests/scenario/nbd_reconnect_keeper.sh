#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The keeper holds the front's sockets: whoever connects while the front is killed or restarted
# waits in the queue and meets no refusal, and QEMU's block layer has its connection back at its
# first attempt.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "the keeper holds the front's sockets"

conf=$SCENE_DIR/k.conf port=$(scene_free_port)
keeper_file "$conf" <<END
[host nbd0]
restart-delay-max = 0
END
sed -i "s|^listen = unix:.*|&\nlisten = tcp:127.0.0.1:$port|" "$conf"
down_at_exit k
ctl_exits 0 "up" up "$conf"
ctl_exits 0 "a volume" volume create disk --size 16M
ctl_exits 0 "another" volume create disk2 --size 16M

# Connects all the time, each connection greeted; the last line: how often, and what went wrong.
cat >"$SCENE_DIR/knock.py" <<'PY'
import os, socket, sys, time

def knock(where):
    family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET
    with socket.socket(family) as s:
        s.settimeout(20)
        s.connect(where)
        return s.recv(8)

path, port, stop = sys.argv[1], int(sys.argv[2]), sys.argv[3]
count, refused, cut = 0, [], 0
print("started", flush=True)
while not os.path.exists(stop):
    for where in (path, ("127.0.0.1", port)):
        count += 1
        try:
            cut += knock(where) != b"NBDMAGIC"
        except ConnectionResetError:
            cut += 1
        except OSError as error:
            refused.append(f"{where}: {error}")
    time.sleep(0.002)
print(count, "knocks,", cut, "of them cut off,", len(refused), "refused", *refused[:5])
sys.exit(1 if refused or count < 50 else 0)
PY

inode=$(stat -c %i "$socket")
scene_spawn knock python3 "$SCENE_DIR/knock.py" "$socket" "$port" "$SCENE_DIR/knock.stop"
scene_wait_line knock started
for _ in 1 2 3; do
    old=$(pid_of nbd0)
    kill_peer nbd0
    tap_run "killed: it is back" back nbd0 "$old"
done
for _ in 1 2; do
    old=$(pid_of nbd0)
    tap_run "restarted" restart nbd0
    tap_run "it is back" back nbd0 "$old"
done
: >"$SCENE_DIR/knock.stop"
wait "$(scene_pid knock)"
tap_is "nobody was refused meanwhile" "$?" 0
unset "SCENE_PIDS[knock]"
tap_note "$(tail -n 1 "$SCENE_DIR/knock.out")"
tap_is "it is the same socket all the time" "$(stat -c %i "$socket")" "$inode"

# a restart passes on connections, too: clients that would not connect again need not
scene_spawn plain /usr/bin/python3 "$(dirname "$0")/nbd_recover.py" \
    "nbd+unix:///disk?socket=$socket" --until "$SCENE_DIR/plain.stop"
scene_spawn plain2 /usr/bin/python3 "$(dirname "$0")/nbd_recover.py" \
    "nbd://127.0.0.1:$port/disk2" --until "$SCENE_DIR/plain.stop"
scene_wait_line plain "under way" && scene_wait_line plain2 "under way"
for how in "" "" --exec ""; do
    old=$(pid_of nbd0)
    restart nbd0 $how
    tap_run "restart $how under load: it is back" back nbd0 "$old"
    sleep 0.2
done
: >"$SCENE_DIR/plain.stop"
for name in plain plain2; do
    wait "$(scene_pid $name)"
    tap_is "$name: a client that never connects again saw no error" "$?" 0 ||
        sed 's/^/#   /' "$SCENE_DIR/$name.out" "$SCENE_DIR/$name.err"
    unset "SCENE_PIDS[$name]"
    tap_note "$(tail -n 1 "$SCENE_DIR/$name.out")"
done

if scene_have qemu-storage-daemon; then
    outer=$SCENE_DIR/outer.sock
    node="driver=nbd,node-name=n0,server.type=unix,server.path=$socket,export=disk"
    scene_spawn daemon qemu-storage-daemon --blockdev "$node,reconnect-delay=20" \
        --nbd-server "addr.type=unix,addr.path=$outer" \
        --export "type=nbd,id=e0,node-name=n0,name=outer,writable=on"
    scene_wait_socket "$outer" || tap_not_ok "the storage daemon serves"
    scene_spawn load /usr/bin/python3 "$(dirname "$0")/nbd_recover.py" \
        "nbd+unix:///outer?socket=$outer" --until "$SCENE_DIR/load.stop"
    scene_wait_line load "under way"
    for how in kill kill restart restart; do
        old=$(pid_of nbd0)
        if [ $how = kill ]; then kill_peer nbd0; else restart nbd0; fi
        tap_run "$how: it is back" back nbd0 "$old"
        sleep 0.2
    done
    : >"$SCENE_DIR/load.stop"
    wait "$(scene_pid load)"
    tap_is "a client behind QEMU: every answer right, none an error" "$?" 0 ||
        sed 's/^/#   /' "$SCENE_DIR/load.out" "$SCENE_DIR/load.err"
    unset "SCENE_PIDS[load]"
    tap_note "$(tail -n 1 "$SCENE_DIR/load.out")"
    scene_stop daemon
else
    tap_skip "a client behind QEMU" "qemu-storage-daemon is not installed"
fi

ctl_exits 0 "down" down k
tap_run "which removes the socket's file" test ! -e "$socket"
tap_fails "and nobody listens" scene_connects 127.0.0.1 "$port"
tap_end
