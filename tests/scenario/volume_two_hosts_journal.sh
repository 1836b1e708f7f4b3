#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two hosts on one store, one with a cache whose FLUSH is answered by its own journal. A host that
# crashes has what it promised when it comes back, but never what another has written over.

. "$(dirname "$0")/two_hosts_lib.sh"
hosts_begin "two hosts on one store: journals" \
    "mode=writeback,ack=journal,size=8M,age=1h,journal-size=16M,journal=%d/%h.journal"

# What a killed host had is another's, and its own, when the lease has ended.
taken() { io "$1" disk 'write -P 9 1M 4k' 2>&1 | grep -q 'wrote 4096'; }
store_has() { # COMMAND...: by way of b
    local args=() command
    for command in "$@"; do args+=(-c "$command"); done
    timeout -k 5 60 qemu-io -r -f raw "${args[@]}" "$(uri b disk/ro)" >"$TAP_OUT" 2>&1 &&
        ! grep -q 'verification failed' "$TAP_OUT"
}
stored() { # TEST COMMAND...; a volume is given back some time after its last client has gone
    local name=$1
    shift
    if scene_until 60 store_has "$@"; then tap_ok "$name"; else tap_not_ok "$name" && tap_show; fi
}
takes() { # HOST TEST
    if scene_until 60 taken "$1"; then tap_ok "$2"; else tap_not_ok "$2"; fi
}
# A guest that goes has all of it stored: this one stays.
writes() { # TEXT BYTE: 64 KiB of it
    guest ga a disk
    tell ga "write -f -P $2 0 64k"
    says ga 'wrote 65536' "$1"
}
crashes() {
    host_crashes a
    leaves ga
}

host a
with=("${cache[@]}")
below=file0 cache=() # what b reads is the store's
host b
below=cache0 cache=("${with[@]}")
on a 0 "a makes a volume" create disk --size 16M
reads "a writes, and closes it" a disk 'write -P 1 0 64k' 'flush'
stored "all of it is in the store" 'read -P 1 0 64k'

# --- nobody else had it --------------------------------------------------------------------------
writes "a writes to its journal" 2
stored "the store lacks it" 'read -P 1 0 64k'
crashes
host a
# a change of a closed volume is a term of its own, and it is a's
resizes() { "$XSEGCTL" -s a volume resize disk 20M; }
tap_run "a changes its volume before anybody opens it" scene_until 60 resizes
takes a "a has its volume again"
# what a cache alone has of a map's objects is no loss
guest gd a disk
tell gd 'write -f -P 3 8M 64k'
says gd 'wrote 65536' "a guest writes to a new object; only the cache and its journal have it"
on a 0 "fsck looks where the composer does" fsck --json
json_is "nothing is lost" '[([.list[]? | select(.finding == "lost")] | length), .cached] | @csv' 0,1
leaves gd
reads "what was flushed is there" a disk 'read -P 2 0 64k'
stored "it has come to the store by now" 'read -P 2 0 64k'

# --- another had it in between -------------------------------------------------------------------
writes "a writes to its journal" 3
crashes
takes b "b takes the volume"
reads "b does not see what a had in its journal" b disk 'read -P 2 0 64k' 'write -P 4 0 32k' flush
host a
takes a "a has it again"
reads "a sees what b has written, and nothing that is older" a disk 'read -P 4 0 32k' \
    'read -P 2 32k 32k' 'write -P 5 64k 4k' flush
tap_like "a says how much of its own was lost" "$(cat "$SCENE_DIR"/a.err)" \
    'taken over by another host: [1-9][0-9]* bytes'
stored "the store has the same" 'read -P 4 0 32k' 'read -P 2 32k 32k' 'read -P 5 64k 4k'
on a 0 "the store is whole" fsck --json
json_is "nothing is wrong" '[.findings[]? | select(.finding != "unreachable")] | length' 0

# --- and once more: it is not in the journal any more --------------------------------------------
host_crashes a
host a
takes a "a crashes once more and has it again"
reads "it is as it was" a disk 'read -P 4 0 32k' 'read -P 2 32k 32k'
tap_end
