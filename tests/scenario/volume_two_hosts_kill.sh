#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A guest that was fenced off stays so when its composer is killed: another host has had the volume,
# and the next composer must not take it back for a connection from before that.

. "$(dirname "$0")/two_hosts_lib.sh"
hosts_begin "two hosts, one guest of before"
HOSTS_APART=1
host a
host b

composer_dies() {
    scene_kill KILL a
    { wait "$(scene_pid a)"; } 2>/dev/null
    composer_starts a
}
counts() { [ "$(grep -c "$1" "$SCENE_DIR/ga.out")" = "$2" ]; }
says_so() { # TEXT TIMES TEST
    if scene_until 60 counts "$1" "$2"; then tap_ok "$3"; else tap_not_ok "$3"; fi
}

on a 0 "a makes a volume" create disk --size 16M
guest ga a disk
tell ga 'write -f -P 1 0 64k'
says ga 'wrote 65536' "a's guest writes"
composer_dies
tell ga 'write -f -P 2 64k 64k'
says_so 'wrote 65536' 2 "nobody else has had it: the guest goes on when its composer was killed"

on a 0 "a snapshot, while it is open" snapshot disk@monday
guest gs a disk
tell gs 'write -f -P 2 128k 64k'
says gs 'wrote 65536' "a guest that came after it writes, too"

on b 0 "the lock is broken" break-lock disk --yes
reads "b writes and closes" b disk 'write -P 3 0 128k' 'flush'
composer_dies
tell ga 'write -f -P 4 0 64k'
says ga 'write failed' "a's guest of before writes no more"
tell ga 'write -f -P 5 64k 4k'
says_so 'write failed' 2 "nor a second time"
b_opens() { io b disk 'read -P 3 0 128k' >/dev/null 2>&1; }
if scene_until 60 b_opens; then tap_ok "b may have it"; else tap_not_ok "b may have it"; fi
reads "what b has written is there" b disk 'read -P 3 0 128k'

reads "a new connection may write" a disk 'write -P 6 0 4k' 'flush'
tell ga 'write -f -P 7 0 64k'
says_so 'write failed' 3 "the old one does not, beside it"
guest gn a disk
tell gn 'write -f -P 6 0 4k'
says gn 'wrote 4096' "while a new one has it open"
tell gs 'write -f -P 8 64k 64k'
says gs 'write failed' "the one from after the snapshot does not, either"
leaves gn
leaves gs
leaves ga
b_may() { io b disk 'read 0 4k' >/dev/null 2>&1; }
scene_until 60 b_may # it is given back in the background
reads "both hosts see the same" b disk 'read -P 6 0 4k' 'read -P 3 4k 124k'
tap_end
