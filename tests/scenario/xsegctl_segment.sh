#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# segment create, destroy, list, dump; and segment files that are not what they should be.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "xsegctl segment"

file=$SKERRY_SHM_DIR/xseg.one

# --- create -----------------------------------------------------------------------------------
ctl_exits 0 "create" segment create one --size 16M --json
json_is "create says what it made" '[.schema_version, .name, .size, .changed] | @csv' \
    '1,"one",16777216,true'
tap_is "the file has that size" "$(stat -c %s "$file")" 16777216
tap_is "nobody else may read it" "$(stat -c %a "$file" | cut -c3)" 0
ctl_exits 0 "create it again" segment create one --size 16M --json
json_is "nothing changed" .changed false
ctl_exits 4 "create with another size" segment create one --size 32M
err_like "says that it exists" "segment 'one' exists"
ctl_exits 4 "create with other lanes" segment create one --lanes 3
ctl_exits 2 "a size that is none" segment create two --size 12potatoes
err_like "names it" "12potatoes.*not a size"
ctl_exits 2 "too small" segment create two --size 4K
ctl_exits 2 "a bad name" segment create ../two --size 16M
ctl_exits 2 "no name" segment create
ctl_exits 2 "one too many" segment create two three
ctl_exits 2 "lanes out of range" segment create two --lanes 65
ctl_exits 3 "a hugetlbfs mount that is not there" \
    segment create two --size 16M --huge "$SCENE_DIR/nowhere"
tap_is "no half segment is left" "$(ls -A "$SKERRY_SHM_DIR")" xseg.one

# --- list and dump ----------------------------------------------------------------------------
ctl_exits 0 "list" segment list -o csv
tap_is "list has it" "$(cut -d, -f1,2,6 <<<"$OUT" | tail -1)" one,16777216,ok
ctl_exits 0 "dump" segment dump one --json
json_is "dump has all tables" '.tables | length' 12
json_is "tables do not overlap" \
    '[.tables | sort_by(.offset) | . as $t | range(1; length) |
      $t[.-1].offset + $t[.-1].size <= $t[.].offset] | all' true
json_is "pages lie in the file" '.tables[-1].offset + .tables[-1].size <= .segment.size' true
ctl_exits 0 "dump the only one" segment dump
ctl_exits 3 "dump what is not there" segment dump nix
err_like "says what to do" "segment 'nix' does not exist; create it"

# --- destroy ----------------------------------------------------------------------------------
ctl_exits 2 "destroy asks, and nobody is there" segment destroy one
err_like "says --yes" "say --yes"
ctl_exits 0 "destroy --dry-run" segment destroy one --dry-run --json
json_is "it destroys nothing" .destroyed false
tap_run "it is still there" test -e "$file"
scene_peer mem -s one mem0=blocker_memory
ctl_exits 5 "destroy refuses while a peer is in it" segment destroy one --yes
err_like "says which" "in use by mem0 \(pid $(scene_pid mem)\)"
scene_stop mem
ctl_exits 0 "destroy" segment destroy one --yes
ctl_exits 3 "destroy again" segment destroy one --yes
tap_is "nothing is left" "$(ls -A "$SKERRY_SHM_DIR")" ''
ctl_exits 3 "no segment at all" volume list
err_like "says how to make one" "there is no segment; make one"

# --- files that are not what they should be ---------------------------------------------------
good=$SCENE_DIR/good
bad() { # NAME REGEX: the file is there, spoilt
    local what=$1 regex=$2
    ctl_exits 1 "status of a segment that is $what" -s one status
    err_like "$what: says so" "$regex"
    ctl_exits 4 "create over one that is $what" segment create one --size 16M
    ctl_exits 0 "list shows one that is $what" segment list --json
    json_is "$what: as unusable" '.segments[0].state' unusable
    ctl_exits 0 "destroy one that is $what" segment destroy one --yes
    tap_fails "$what: it is gone" test -e "$file"
}
poke() { # OFFSET HEX
    cp "$good" "$file"
    printf '%b' "$2" | dd of="$file" bs=1 seek="$1" conv=notrunc status=none
}
ctl segment create one --size 16M
cp "$file" "$good"
rm "$file"
: >"$file" && bad empty 'truncated|not a segment'
head -c 8192 "$good" >"$file" && bad truncated 'truncated|bytes'
head -c 16777216 /dev/urandom >"$file" && bad garbage 'not a segment'
poke 0 '\x00\x00\x00\x00\x00\x00\x00\x00' && bad unfinished 'not a segment'
poke 8 '\x09\x00\x00\x00' && bad 'of another version' 'version|layout'
poke 12 '\xde\xad\xbe\xef' && bad 'of another build' 'layout|build'
poke 200 '\xff\xff\xff\xff' && bad 'corrupt in its tables' 'corrupt|checksum|table'

# another boot: its boot id and the checksum over it are rewritten
cp "$good" "$file"
python3 - "$file" <<'PY'
import struct, sys
def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff
with open(sys.argv[1], "r+b") as f:
    head = bytearray(f.read(4096))
    # the checksum stands behind the last table: 11 places of 24 bytes
    for at in range(64, 1024, 4):
        if crc32c(bytes(head[8:at])) == struct.unpack_from("<I", head, at)[0]:
            break
    else:
        sys.exit("no checksum found")
    head[40:56] = bytes(16)
    struct.pack_into("<I", head, at, crc32c(bytes(head[8:at])))
    f.seek(0)
    f.write(head)
PY
bad 'of another boot' 'boot'

# --- a full disk ------------------------------------------------------------------------------
full=$SCENE_DIR/full
mkdir "$full"
if mount -t tmpfs -o size=4M none "$full" 2>/dev/null; then
    scene_at_exit "umount '$full'"
    SKERRY_SHM_DIR=$full ctl_exits 1 "create on a full disk" segment create one --size 16M
    err_like "says what is missing" '[Ss]pace|memory'
    tap_is "nothing is left on it" "$(ls -A "$full")" ''
else
    tap_skip "create on a full disk" "no tmpfs can be mounted here"
fi
tap_end
