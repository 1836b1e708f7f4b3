#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A machine that writes to databases moves from one host to another while it runs, and its disk with
# it (docs/examples/migrate-vm.py): first in vain, then for good. Its power is cut there; all that
# it said to be committed, here or there, is on the disk, and who goes past the re-homer is refused.

. "$(dirname "$0")/rehome_lib.sh"
. "$(dirname "$0")/guest_lib.sh"
. "$(dirname "$0")/guest_db_lib.sh"
. "$(dirname "$0")/guest_qemu_lib.sh"
ctl_begin "a machine moves, and its disk with it"
rehome_need
qemu_need sqlite3 mke2fs fsck.ext4 nbdcopy ldd python3
MIGRATE=$(dirname "$0")/../../docs/examples/migrate-vm.py
export XSEGCTL

# One that goes on where the other one has stopped, maybe in the middle of a line.
guest_said() {
    local name=$1
    [ "$name" != writer ] || set -- writer there
    (cd "$SCENE_DIR" && cat "${@/%/.out}" 2>/dev/null) | tr -d '\r'
}
uri() { echo "nbd+unix:///disk?socket=$SCENE_DIR/$1.sock"; }
migrate() { # PEER
    /usr/bin/python3 "$MIGRATE" "$SCENE_DIR/qmp" "unix:$SCENE_DIR/incoming" disk "$1" -s a
}
is_incoming() { [ -S "$SCENE_DIR/incoming" ]; }
waits_there() { # NAME
    rm -f "$SCENE_DIR/incoming"
    QEMU_MORE=(-incoming "unix:$SCENE_DIR/incoming")
    scene_spawn "$1" qemu_boot "$(uri b)" /sbin/boot write disk
    QEMU_MORE=()
    scene_until 60 is_incoming
}
# Writes behind the machine's file system, past the re-homer, whenever a line comes.
past() {
    /usr/bin/python3 -c '
import sys, nbd
handle = nbd.NBD()
handle.connect_uri(sys.argv[1])
for line in sys.stdin:
    try:
        handle.pwrite(b"x" * 4096, 100 << 20)
        print("written", flush=True)
    except nbd.Error as error:
        print("refused", flush=True)
' "nbd+unix:///disk?socket=$SCENE_DIR/past.sock" <"$SCENE_DIR/lines"
}
said_past() { [ "$(wc -l <"$SCENE_DIR/past.out")" -ge "$1" ]; }

qemu_prepare >"$SCENE_DIR/initramfs.log" 2>&1 || { tap_not_ok "an initramfs is made"; tap_end; }
db_golden "$SCENE_DIR/golden.raw" >"$SCENE_DIR/golden.log" 2>&1 ||
    { tap_not_ok "a golden image is made"; tap_end; }
{ host a home0 && out a; } >"$SCENE_DIR/a.conf"
{ host b home0 && out b edge.volume-to=back0 && cat <<END; } >"$SCENE_DIR/b.conf"

[peer back0]
role=synapse_import
remote=unix:$SCENE_DIR/a.out
port=out0
END
for segment in a b; do
    down_at_exit "$segment"
    ctl_exits 0 "$segment comes up" up "$SCENE_DIR/$segment.conf"
done
ctl_exits 0 "a bridge there" bridge add -s a far0 "unix:$SCENE_DIR/b.out"
ctl_exits 0 "the machine's disk" volume import -s a "$SCENE_DIR/golden.raw" disk --progress=none
ctl_exits 0 "with room behind its file system" volume resize -s a disk 104M
ctl_exits 0 "a way past the re-homer" peer start -s a \
    "past0=front_nbd,listen=unix:$SCENE_DIR/past.sock,edge.volume=vol0"

# --- here -------------------------------------------------------------------------------------
QEMU_MORE=(-qmp "unix:$SCENE_DIR/qmp,server=on,wait=off")
scene_spawn writer qemu_boot "$(uri a)" /sbin/boot write disk

db_remember here
mkfifo "$SCENE_DIR/lines"
scene_spawn past past
exec 7>"$SCENE_DIR/lines"
echo >&7
tap_run "somebody else here may write, too" scene_until 30 said_past 1
tap_is "and does" "$(cat "$SCENE_DIR/past.out")" written

# --- in vain ----------------------------------------------------------------------------------
tap_run "a machine waits there" waits_there vain
tap_fails "it does not go by a bridge that is none" migrate far1
scene_stop vain
db_remember stays
tap_is "the disk has stayed" "$(owner a)" a

# --- there ------------------------------------------------------------------------------------
tap_run "another one waits there" waits_there there
tap_run "it goes" migrate far0
tap_is "b has the disk" "$(owner b) $(state a)" "b away"
ctl_exits 0 "who goes past the re-homer" edge set -s a past0:volume vol0
echo >&7
tap_run "and writes" scene_until 30 said_past 2
tap_is "is refused" "$(tail -n 1 "$SCENE_DIR/past.out")" refused
db_remember disk

# --- its power is cut ---------------------------------------------------------------------------
guest_power_cut there
guest_power_cut writer
exec 7>&-
qemu_look_at disk "$(uri b)"
tap_end
