#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Guests that are attached are not cut off by a hasty command, and a front whose volumes cannot be
# opened is not called well.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "attached means careful"
scene_need qemu-io nbdinfo
ctl_need mapperd volume front_nbd blocker_file
export SKERRY_SEGMENT=k
socket=$SCENE_DIR/k.sock
mkdir "$SCENE_DIR/store"
cat >"$SCENE_DIR/k.conf" <<END
[segment]
name = k
size = 64M

[peer nbd0]
role = front_nbd
listen = unix:$socket
export = disk
export = other
edge.volume = vol0

[peer vol0]
role = volume
edge.store = file0
edge.map = map0

[peer map0]
role = mapperd
edge.store = file0

[peer file0]
role = blocker_file
dir = $SCENE_DIR/store
END
health() {
    ctl status --json
    jq -r ".peers[] | select(.name == \"nbd0\") | .health + \" \" + .reason" "$SCENE_DIR/ctl.out"
}
clients() { "$XSEGCTL" client list --json | jq ".clients | length"; }
clients_are() { [ "$(clients)" = "$1" ]; }

# --- status, end to end -----------------------------------------------------------------------
ctl_exits 1 "up, without the volumes that it exports" up "$SCENE_DIR/k.conf"
down_at_exit k
tap_is "says so" "$(health)" "degraded export 'disk' cannot be opened: No such file or directory"
ctl_exits 0 "the first" volume create disk --size 16M
tap_like "the second is missed, too" "$(health)" "^degraded export 'other' cannot be opened"
ctl_exits 1 "status" status
ctl_exits 0 "the second" volume create other --size 16M
tap_is "all is well" "$(health)" "ok "
ctl_exits 0 "status" status
scene_freeze "$(peer_pid k map0)"
tap_is "the map does not answer" "$(health)" "degraded it does not answer"
kill -s CONT "$(peer_pid k map0)"
tap_is "and does again" "$(health)" "ok "

# --- where to attach ---------------------------------------------------------------------------
ctl_exits 0 "volume uri" volume uri disk
tap_is "is one that clients take" "$(nbdinfo --size "$OUT")" 16777216
ctl_exits 0 "a snapshot" volume snapshot other@monday
ctl_exits 3 "that is not exported has none" volume uri other@monday
err_like "says so" "no front offers volume 'other@monday'"
ctl_exits 3 "nor what is not there" volume uri nix
ctl_exits 2 "attach alone" volume attach disk
err_like "says how" "--print qemu, libvirt, cloud-hypervisor, nbd-client, file or losetup"
ctl_exits 0 "attach --print libvirt" volume attach disk --print libvirt
tap_is "is XML" "$(python3 -c '
import sys, xml.etree.ElementTree as tree
disk = tree.parse(sys.argv[1]).getroot()
source = disk.find("source")
print(disk.get("type"), source.get("name"), source.find("host").get("socket"))
' "$SCENE_DIR/ctl.out")" "network disk $socket"
ctl_exits 0 "attach --print nbd-client" volume attach disk --print nbd-client
out_like "is a command" "^nbd-client -unix '$socket' /dev/nbd0 -persist -name 'disk'\$"
ctl_exits 0 "attach --print qemu" volume attach disk --print qemu
if scene_have qemu-system-x86_64; then
    echo "qemu-system-x86_64 -S -M pc -m 32 -nodefaults -display none -monitor stdio $OUT" \
        >"$SCENE_DIR/machine"
    tap_like "is what a machine takes" \
        "$(printf 'info block\nquit\n' | timeout 60 bash "$SCENE_DIR/machine" 2>&1)" \
        "disk: nbd.unix:///disk.socket=$socket .nbd."
else
    tap_skip "a machine" "there is no qemu-system-x86_64"
fi

# --- clients ----------------------------------------------------------------------------------
mkfifo "$SCENE_DIR/a" "$SCENE_DIR/b"
qemu-io -f raw "nbd+unix:///disk?socket=$socket" <"$SCENE_DIR/a" >/dev/null 2>&1 &
exec 8>"$SCENE_DIR/a"
a=$!
qemu-io -f raw -r "nbd+unix:///other/ro?socket=$socket" <"$SCENE_DIR/b" >/dev/null 2>&1 9>&- &
exec 9>"$SCENE_DIR/b"
b=$!
scene_at_exit "for pid in $a $b; do scene_is_child \$pid && kill \$pid; done"
tap_run "two guests are attached" scene_until 20 clients_are 2
ctl_exits 0 "client list" client list --json
json_is "who, where" '[.clients[] | [.volume, .front, .read_only] | map(tostring) | join(" ")] |
    sort | join("; ")' "disk nbd0 false; other nbd0 true"
json_is "and which process" "[.clients[] | select(.client | test(\"process ($a|$b) \"))] | length" 2

ctl_exits 5 "down" down k
err_like "names them" "stop segment 'k', with 2 clients attached: .*'disk' \(client of process $a "
ctl_exits 5 "peer stop of their front" peer stop nbd0
err_like "names them" "2 clients attached"
ctl_exits 5 "of what is below it" peer stop vol0
ctl_exits 2 "resize to less" volume resize disk 8M
err_like "is another matter" "--allow-shrink"
ctl_exits 5 "with --allow-shrink" volume resize disk 8M --allow-shrink
err_like "names the one that has it" "1 client attached: 'disk' \(client of process $a "
ctl_exits 0 "to more needs nothing" volume resize disk 32M
ctl_exits 0 "down --dry-run" down k --dry-run
tap_is "they are there still" "$(clients)" 2
echo quit >&9
exec 9>&-
wait "$b"
tap_run "one goes" scene_until 20 clients_are 1
ctl_exits 0 "its volume can be made smaller" volume resize other 8M --allow-shrink
ctl_exits 0 "the other's with --yes" volume resize disk 8M --allow-shrink --yes
ctl_exits 5 "peer rm of one that serves" peer rm nbd0
ctl_exits 0 "peer stop --yes" peer stop nbd0 --yes
ctl_exits 0 "peer rm" peer rm nbd0
ctl_exits 0 "it is not listed any more" peer list --json
json_is "by nobody" '[.peers[].name] | index("nbd0")' null
ctl_exits 0 "down" down k
exec 8>&-
wait "$a"
tap_end
