#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# volume create, rm, list, info, import and export.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "xsegctl volume"

down_at_exit v
export SKERRY_SEGMENT=v
mkdir "$SCENE_DIR/store"
pipeline "$SCENE_DIR/v.conf" v 'role = blocker_file' "dir = $SCENE_DIR/store"
ctl_exits 0 "up" up "$SCENE_DIR/v.conf"

# --- create, info, list -----------------------------------------------------------------------
ctl_exits 0 "create" volume create disk --size 10M --json
json_is "says what it made" \
    '[.schema_version, .name, .size, .object_size, .state, .changed] | @csv' \
    '1,"disk",10485760,4194304,"ready",true'
ctl_exits 0 "create it again" volume create disk --size 10M --json
json_is "nothing changed" .changed false
ctl_exits 4 "create with another size" volume create disk --size 11M
err_like "says what is there" "volume 'disk' exists: 10485760 bytes"
ctl_exits 4 "create with other objects" volume create disk --size 10M --object-size 64K
ctl_exits 2 "no size" volume create x
ctl_exits 2 "a size of 0" volume create x --size 0
ctl_exits 2 "half a sector" volume create x --size 1000
ctl_exits 2 "objects of no power of two" volume create x --size 1M --object-size 5000
ctl_exits 2 "objects too large" volume create x --size 1M --object-size 8M
ctl_exits 2 "a bad name" volume create a/b --size 1M
ctl_exits 2 "a name of control characters" volume create $'a\nb' --size 1M
ctl_exits 0 "a name in UTF-8" volume create 'Grüße 世界' --size 1M --object-size 64K
ctl_exits 0 "info" volume info 'Grüße 世界' --json
json_is "it is as it was made" '[.name, .size, .object_size, .opens] | @csv' \
    '"Grüße 世界",1048576,65536,0'
ctl_exits 3 "info of what is not there" volume info nix
err_like "says so" "volume 'nix' does not exist"
ctl_exits 0 "list" volume list --json
json_is "lists both" '[.volumes[].name] | sort | join(",")' 'Grüße 世界,disk'
for i in $(seq 1 80); do "$XSEGCTL" volume create "many$i" --size 1M >/dev/null || break; done
ctl_exits 0 "list of many" volume list --json
json_is "none is missing, none is there twice" \
    '[.volumes[].name | select(startswith("many"))] | unique | length' 80
ctl_exits 0 "list as lines" volume list -o jsonl
tap_is "each line is an object of its own" \
    "$(jq -s 'map(select(.schema_version == 1)) | length' <<<"$OUT")" 82

# --- rm ---------------------------------------------------------------------------------------
ctl_exits 2 "rm asks" volume rm disk
ctl_exits 0 "rm --dry-run" volume rm disk --dry-run --json
json_is "removes nothing" .removed false
if scene_have nbdkit && python3 -c 'import nbd' 2>/dev/null; then
    scene_spawn client python3 -c "
import nbd, time
h = nbd.NBD(); h.connect_uri('nbd+unix:///disk?socket=$SCENE_DIR/v.sock')
print('ready', flush=True); time.sleep(600)"
    scene_wait_line client ready
    ctl_exits 5 "rm of what is attached" volume rm disk --yes
    err_like "says so" "volume 'disk' is attached: 1 have it open"
    ctl_exits 0 "info counts it" volume info disk --json
    json_is "one has it open" .opens 1
    scene_stop client
    closed() { [ "$("$XSEGCTL" volume info disk --json | jq .opens)" = 0 ]; }
    scene_until 10 closed
else
    tap_skip "rm of what is attached" "python3-libnbd is not installed"
fi
ctl_exits 0 "rm" volume rm disk --yes
ctl_exits 3 "rm again" volume rm disk --yes
ctl_exits 0 "the name is free" volume create disk --size 1M

# --- import and export ------------------------------------------------------------------------
img=$SCENE_DIR/img
truncate -s 40M "$img"
dd if=/dev/urandom of="$img" bs=1M seek=3 count=6 conv=notrunc status=none
dd if=/dev/urandom of="$img" bs=1 seek=31457281 count=777 conv=notrunc status=none
dd if=/dev/urandom of="$img" bs=4096 seek=10239 count=1 conv=notrunc status=none
kib() { du -k "$1" | cut -f1; }

for objects in 4M 64K; do
    ctl_exits 0 "import, objects of $objects" volume import "$img" "i$objects" \
        --object-size "$objects" --json
    json_is "holes were skipped" '.data < 7000000 and .data >= 6291456' true
    ctl_exits 0 "export" volume export "i$objects" "$SCENE_DIR/out$objects" --json
    tap_run "it is the same" cmp "$img" "$SCENE_DIR/out$objects"
    tap_run "it is as sparse" test "$(kib "$SCENE_DIR/out$objects")" -le $(($(kib "$img") + 64))
done
ctl_exits 0 "the store, too" volume info i4M --json
json_is "only objects with data are there" .objects 5
ctl_exits 4 "import to a name that is taken" volume import "$img" i4M
ctl_exits 4 "export over a file" volume export i4M "$SCENE_DIR/out4M"
ctl_exits 0 "export over a file with --yes" volume export i4M "$SCENE_DIR/out4M" --yes
"$XSEGCTL" volume export i4M - 2>/dev/null | cmp - "$img"
tap_is "export to stdout" "${PIPESTATUS[*]}" "0 0"
"$XSEGCTL" volume import - piped --size 40M <"$img" >/dev/null 2>&1
tap_is "import a file as stdin" $? 0
# shellcheck disable=SC2002  # a pipe is what is tested
cat "$img" | "$XSEGCTL" volume import - piped2 --size 48M >/dev/null 2>&1
tap_is "import a pipe, with room left" $? 0
ctl_exits 0 "export it" volume export piped2 "$SCENE_DIR/piped2"
tap_run "it is the same" cmp -n 41943040 "$SCENE_DIR/piped2" "$img"
truncate -s 1000001 "$SCENE_DIR/odd"
printf x | dd of="$SCENE_DIR/odd" bs=1 seek=1000000 conv=notrunc status=none
ctl_exits 0 "a size that is no multiple of 512" volume import "$SCENE_DIR/odd" odd --json
err_like "says that it rounds" "1000001 bytes are rounded up to 1000448"
json_is "the size is rounded" .size 1000448
ctl_exits 0 "export it" volume export odd "$SCENE_DIR/odd.out"
tap_run "the same, and zeros" cmp -n 1000001 "$SCENE_DIR/odd" "$SCENE_DIR/odd.out"

nothing() { # NAME VOLUME
    ctl_exits 3 "$1: no volume is left" volume info "$2"
}
ctl_exits 3 "import of no file" volume import "$SCENE_DIR/none" x
ctl_exits 1 "import of a folder" volume import "$SCENE_DIR" x
ctl_exits 2 "import of an empty file" volume import /dev/null x
ctl_exits 2 "a --size that is too small" volume import "$img" x --size 1M
nothing "too small" x
# shellcheck disable=SC2002
cat "$img" | "$XSEGCTL" volume import - x --size 1M >/dev/null 2>"$SCENE_DIR/ctl.err"
tap_is "a pipe with more than --size" $? 1
nothing "a pipe with more" x
head -c 1M /dev/zero | "$XSEGCTL" volume import - x >/dev/null 2>&1
tap_is "a pipe without --size" $? 2
ctl_exits 3 "export of no volume" volume export nix "$SCENE_DIR/nix"
tap_fails "no file is made" test -e "$SCENE_DIR/nix"
ctl_exits 1 "export into no folder" volume export i4M "$SCENE_DIR/none/x"
ctl_exits 1 "export to a folder" volume export i4M "$SCENE_DIR"
ctl_exits 2 "what progress?" volume import "$img" x --progress=lots
err_like "says what there is" "auto, bar, plain, json or none"
ctl_exits 0 "progress as JSON" volume import "$img" prog --progress=json
tap_is "the last line is the end" "$(tail -1 <<<"$ERR" | jq -c '[.operation, .done == .total]')" \
    '["import",true]'

# a file system that fills up under the export
full=$SCENE_DIR/full
mkdir "$full"
if mount -t tmpfs -o size=2M none "$full" 2>/dev/null; then
    scene_at_exit "umount '$full'"
    ctl_exits 1 "export onto a full disk" volume export i4M "$full/x"
    err_like "says so" "No space left"
    tap_is "no half image is left" "$(ls -A "$full")" ''
else
    tap_skip "export onto a full disk" "no tmpfs can be mounted here"
fi

# ^C in the middle of both: a pipe that gives half and then waits
mkfifo "$SCENE_DIR/fifo"
scene_spawn import "$XSEGCTL" volume import "$SCENE_DIR/fifo" half --size 40M
exec 9>"$SCENE_DIR/fifo"
head -c 9M /dev/urandom >&9
importing() { "$XSEGCTL" volume info half --json | jq -e '.state == "importing"'; }
tap_run "while it is imported it says so" scene_until 10 importing
ctl_exits 5 "it is not exported meanwhile" volume export half "$SCENE_DIR/half"
ctl_exits 5 "nor removed: it is attached" volume rm half --yes
scene_kill INT import
wait "$(scene_pid import)"
tap_is "^C ends the import" $? 1
exec 9>&-
nothing "^C" half
tap_like "it says why" "$(cat "$SCENE_DIR/import.err")" 'interrupted \(SIGINT\)'
mkfifo "$SCENE_DIR/out.fifo"
scene_spawn export "$XSEGCTL" volume export i4M "$SCENE_DIR/out.fifo" --yes
exec 8<"$SCENE_DIR/out.fifo"
head -c 64K <&8 >/dev/null
scene_kill TERM export
wait "$(scene_pid export)"
tap_is "SIGTERM ends an export" $? 1
exec 8<&-

# what an import whose process is killed has made is kept
scene_spawn import "$XSEGCTL" volume import "$SCENE_DIR/fifo" orphan --size 40M
exec 9>"$SCENE_DIR/fifo"
head -c 9M /dev/urandom >&9
orphaned() { "$XSEGCTL" volume info orphan; }
scene_until 10 orphaned
kill -s KILL "$(scene_pid import)"
wait "$(scene_pid import)" 2>/dev/null
exec 9>&-
tidied() {
    "$XSEGCTL" job list --json |
        jq -e 'all(.jobs[]; .state != "lost" and .state != "running")'
}
tap_run "the keeper notices that it was killed" scene_until 60 tidied
tap_run "what it has done is kept" orphaned
ctl job list --json
json_is "its job says so" '.jobs | map(select(.object == "orphan")) | .[0] |
    [.kind, .state, .reason] | @csv' \
    '"volume.import","failed","its process was killed; what was imported is kept: said again it '"\
"'goes on, '"'xsegctl volume rm'"' removes it"'
ctl_exits 0 "it can be removed" volume rm orphan --yes

# --- which composer ---------------------------------------------------------------------------
ctl peer start mem1=blocker_memory
ctl peer start map1=mapperd,edge.store=mem1
ctl_exits 0 "a second composer" peer start vol1=volume,edge.store=mem1,edge.map=map1
ctl_exits 2 "now one must be named" volume list
err_like "says which there are" \
    "several composers \((vol0, vol1|vol1, vol0)\); say which with --via"
ctl_exits 0 "--via" volume list --via vol1 --json
json_is "it has no volumes" '.volumes | length' 0
ctl_exits 3 "--via nobody" volume list --via nix
ctl peer stop vol1
ctl_exits 0 "one again" volume list

# a store that does not answer: a time limit and a reason
store=$(peer_pid v mem0)
scene_freeze "$store"
ctl_exits 7 "a store that hangs" volume create slow --size 1M --timeout 1s
err_like "says what to look at" "nobody answers; 'xsegctl status' says"
kill -s CONT "$store"
ctl_exits 0 "down" down
tap_end
