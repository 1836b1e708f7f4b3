#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The store of docs/write-a-blocker.md is built against what `make install` installs, by its own
# Makefile, keeps to the laws of stores, and serves a volume with snapshots and clones over the
# death of its process.

. "$(dirname "$0")/keeper_lib.sh"
. "$(dirname "$0")/blocker_lib.sh"
keeper_begin "a store built elsewhere"
scene_need make pkg-config "${CC:-cc}"
[ -e /usr/include/lmdb.h ] || tap_skip_all "LMDB is not installed (apt-get install liblmdb-dev)"
[ -e "$SCENE_BUILD/Makefile" ] || tap_skip_all "there is no build tree to install from"
if [[ $(ldd "$XSEGPEER") =~ lib[atu]+san ]]; then
    tap_skip_all "an installed module would need the sanitizer, too"
fi
CHECK=$(scene_find blocker_check)
[ -n "$CHECK" ] || tap_skip_all "blocker_check is not built"
TAP_LIMIT=300

root=$SCENE_DIR/root
tap_run "make install" env -u MAKEFLAGS -u MAKELEVEL \
    make -C "$SCENE_BUILD" install DESTDIR="$root"
pc=$(find "$root" -name skerry.pc)
tap_run "it has installed skerry.pc" test -n "$pc"
sed -i "s|=/|=$root/|; s|-I/|-I$root/|" "$pc" # as if installed there
export PKG_CONFIG_PATH=${pc%/*}
SKERRY_MODULE_DIR=$(pkg-config --variable=moduledir skerry)
export SKERRY_MODULE_DIR
cp -r "$(dirname "$0")/../../docs/examples/blocker_lmdb" "$SCENE_DIR/example"
chmod -R u+w "$SCENE_DIR/example"
tap_run "the example is built and installed" env -u MAKEFLAGS -u MAKELEVEL \
    make -C "$SCENE_DIR/example" install
tap_run "it describes itself" "$XSEGPEER" --help-role blocker_lmdb
tap_run "its manual page can be made" "$XSEGPEER" --man blocker_lmdb
cp "$SCENE_DIR/example/store.sh" "$SCENE_DIR/blocker_lmdb.sh"
blocker_segment 256M
laws_of "$SCENE_DIR/blocker_lmdb.sh"

# what was built with other headers is refused
other='s/^#define PEER_INTERFACE .*/#define PEER_INTERFACE 0u/'
find "$root" -name peer.h -exec sed -i "$other" {} +
rm -f "$SCENE_DIR/example/"*.so
tap_run "it is built for another Skerry" env -u MAKEFLAGS -u MAKELEVEL make -C "$SCENE_DIR/example"
mkdir "$SCENE_DIR/modules"
cp "$SCENE_DIR/example/blocker_lmdb.so" "$SCENE_DIR/modules/"
tap_like "which is said" "$(SKERRY_MODULE_DIR=$SCENE_DIR/modules \
    blocker_refusal "x=blocker_lmdb,dir=$SCENE_DIR/x")" \
    'was built with version 0 of the peer interface, .*; build it anew'

# a whole pipeline on it
conf=$SCENE_DIR/k.conf
keeper_file "$conf" <<<''
sed -i "s|^role = blocker_file|role = blocker_lmdb|; s|/store\$|/lmdb|" "$conf"
ctl_exits 0 "up" up "$conf"
down_at_exit k
ctl_exits 0 "a volume" volume create disk --size 64M
uri="nbd+unix:///%s?socket=$socket"
io() { # VOLUME COMMAND...
    local volume=$1 commands=() command
    shift
    for command in "$@"; do commands+=(-c "$command"); done
    # shellcheck disable=SC2059
    qemu-io -f raw "${commands[@]}" "$(printf "$uri" "$volume")"
}
tap_run "is written to" io disk 'write -P 1 0 8M' flush
ctl_exits 0 "a snapshot" volume snapshot disk@one
ctl_exits 0 "a clone" volume clone disk@one twin
old=$(pid_of file0)
kill_peer file0
tap_run "its process is killed, and back" back file0 "$old"
tap_run "nothing is lost, clones are independent" io twin 'read -P 1 0 8M' 'write -P 2 1M 64k' \
    'read -P 2 1M 64k' 'read -P 1 2M 64k'
tap_run "nor is the volume changed" io disk 'read -P 1 0 8M' 'discard 4M 1M' flush
ctl_exits 0 "all maps agree with all objects" volume fsck --json
json_is "nothing is wrong" '[.findings[]? | select(.finding != "unreachable")] | length' 0
ctl_exits 0 "down" down
tap_end
