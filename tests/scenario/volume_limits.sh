#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Volumes at their limits, through NBD, composer and mapper over files: sizes from a sector to
# 16 TiB, names of 255 bytes of UTF-8 and names that are refused, 64 clones of one image,
# a chain of 64 snapshots and clones: read through, flattened, removed.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "volumes: limits"
/usr/bin/python3 -c 'import nbd' 2>/dev/null || tap_skip_all "python3-libnbd is not installed"

export SKERRY_SEGMENT=limits LC_ALL=C.UTF-8
sock=$SCENE_DIR/limits.sock
ctl_host limits "$SCENE_DIR/store"
v() { ctl_exits "$1" "$2" volume "${@:3}"; } # WANT NAME VERB ARGS...
nbd() { # NAME WHAT ARGS...
    local name=$1
    shift
    tap_run "$name" /usr/bin/python3 -B "$(dirname "$0")/volume_edges.py" "$sock" "$@"
}
quietly() { "$XSEGCTL" volume "$@" >/dev/null; }

# --- sizes ---------------------------------------------------------------------------------------
tib16=$((16 << 40)) odd=$((3 * 65536 + 1536)) # three objects and three sectors
v 2 "of nothing" create none --size 0
err_like "says why" "a multiple of 512 bytes, and not 0"

v 0 "of one sector" create sector --size 512
nbd "it is written" put sector 0 9 512
v 0 "its snapshot" snapshot sector@1
v 0 "a clone of that, larger" clone sector@1 sector2
v 0 "resized" resize sector2 1M
nbd "what was there" is sector2 0 9 512
nbd "zeros behind it" is sector2 512 0
nbd "what it came from stays" size sector 512

v 0 "an odd size" create odd --size $odd --object-size 64K
v 2 "half a sector more" create odder --size $((odd + 256))
nbd "its size" size odd $odd
nbd "its last sector" put odd $((odd - 512)) 5 512
nbd "nothing behind it" behind odd
v 0 "snapshot" snapshot odd@1
v 0 "clone" clone odd@1 odd2
nbd "its last sectors" put odd2 $((odd - 1024)) 6 512
nbd "what is its own" is odd2 $((odd - 1024)) 6 512
nbd "what it shares" is odd2 $((odd - 512)) 5 512
nbd "the snapshot has none of it" is odd@1/ro $((odd - 1024)) 0 512
v 0 "flatten" flatten odd2
nbd "all as before" is odd2 $((odd - 512)) 5 512

v 0 "16 TiB" create large --size 16T
nbd "its size" size large $tib16
nbd "its first block" put large 0 1
nbd "its last block" put large $((tib16 - 4096)) 2
nbd "nothing behind it" behind large
v 0 "snapshot" snapshot large@1
v 0 "clone" clone large@1 large2
nbd "the clone's last block" put large2 $((tib16 - 4096)) 3
nbd "the clone's first" is large2 0 1
nbd "the snapshot's last" is large@1 $((tib16 - 4096)) 2
v 0 "info" info large2 --json
json_is "two objects, one of them shared" '[.size, .objects, .shared] | @csv' "$tib16,2,4194304"
v 0 "diff" diff large@1 large2 --json
json_is "says which block" '.stretches | map([.offset, .length]) | flatten | @csv' \
    "$((tib16 - 4096)),4096"
v 2 "larger than a map can be" create huge --size 65T
err_like "says how large it can be" "at most 16777216 objects, which is 64.0 TiB"

# --- names ---------------------------------------------------------------------------------------
whale=$(printf '🐋%.0s' {1..47})abc # 191 bytes
v 0 "191 bytes of UTF-8" create "$whale" --size 1M --json
json_is "as it was given" .name "$whale"
v 2 "one more" create "${whale}d" --size 1M
nbd "written to over NBD" put "$whale" 0 8
v 0 "snapshot of it" snapshot "$whale"'@ünïcode: a, b = "c" *'
nbd "read over NBD" is "$whale"'@ünïcode: a, b = "c" *' 0 8
v 0 "of 63 bytes: 255 in all" snapshot "$whale@$(printf 'x%.0s' {1..63})"
v 2 "of one more" snapshot "$whale@$(printf 'x%.0s' {1..64})"
v 0 "renamed" rename "$whale" 'größer'
v 3 "the old name" info "$whale"
v 0 "the new one" info 'größer'
v 0 "its snapshots go with it" info 'größer@ünïcode: a, b = "c" *'
v 0 "each volume has names of its own" create smaller --size 1M
v 0 "the same one" snapshot 'smaller@ünïcode: a, b = "c" *'
v 2 "a snapshot stays with its volume" rename 'smaller@ünïcode: a, b = "c" *' 'größer@x'
v 0 "and has another name" rename 'smaller@ünïcode: a, b = "c" *' smaller@x
v 2 "a volume has no @" create a@b --size 1M
err_like "is told what that is" "xsegctl volume snapshot a@b"
v 2 "as it was said once" snapshot smaller y
err_like "shows how it is said now" "xsegctl volume snapshot smaller@y"
v 3 "a snapshot without its volume" info x
err_like "is found all the same" "there is a snapshot 'smaller@x'"
for name in 'a/b' $'a\nb' $'a\tb' $'\x7f' $'caf\xc3' $'\xff' $'\xc0\xaf' $'\xed\xa0\x80' ''; do
    v 2 "refused: $(printf %q "$name")" create "$name" --size 1M
done
v 2 "refused: a leading -" create --size 1M -- -a

# --- 64 clones of one image ----------------------------------------------------------------------
clones() {
    local i
    for i in {0..63}; do quietly clone image@gold "clone$i" || return; done
}
removed() {
    local i
    for i in {0..63}; do quietly rm "clone$i" --yes || return; done
}
v 0 "an image" create image --size 1M --object-size 256K
nbd "written" put image 0 1 1048576
v 0 "frozen" snapshot image@gold
tap_run "64 clones of it" clones
nbd "each has its own and what it shares" crowd clone 64 524288
nbd "the image is as it was" is image 0 1 1048576
nbd "the snapshot, too" is image@gold 0 1 1048576
v 5 "it is not removed" rm image@gold --yes
err_like "who hangs from it" "and 59 more"
v 0 "one stands alone" flatten clone63
nbd "it has all of it" is clone63 0 1 $((63 * 4096))
tap_run "all clones removed" removed
v 0 "then the snapshot is" rm image@gold --yes

# --- a chain of 64 -------------------------------------------------------------------------------
chain() {
    local i
    for i in {1..63}; do
        quietly snapshot "level$((i - 1))@snap" || return
        quietly clone "level$((i - 1))@snap" "level$i" || return
        /usr/bin/python3 -B "$(dirname "$0")/volume_edges.py" "$sock" put "level$i" \
            $((i * 4096)) $((i + 1)) || return
    done
}
unchain() {
    local i
    for i in {62..1}; do
        quietly rm "level$i" --yes && quietly rm "level$((i - 1))@snap" --yes || return
    done
}
v 0 "the lowest" create level0 --size $((odd + 262144)) --object-size 64K
nbd "written" put level0 0 1
tap_run "63 snapshots, a clone of each, a block in each" chain
nbd "read through all of them" levels level63 64
nbd "half-way" levels level31 32
v 0 "a snapshot on top" snapshot level63@top
v 0 "flattened" flatten level63
nbd "the same" levels level63 64
nbd "the snapshot, too" levels level63@top 64
v 0 "the tree" list --tree --json
json_is "is 125 deep: the flattened one hangs from nothing" '[.volumes[].depth] | max' 125
v 0 "rm of the top" rm level63@top --yes
v 0 "rm of the last snapshot" rm level62@snap --yes
tap_run "the others, from above" unchain
nbd "what stands alone is whole" levels level63 64
v 0 "gc" gc --wait --progress=none
v 0 "fsck" fsck --json
json_is "clean" .clean true
nbd "still" levels level63 64
tap_end
