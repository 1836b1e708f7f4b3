#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every command of README.md and docs/cookbook.md, as it stands there, and what comes of it. Each
# fenced block says what it is: sh is run, ini is taken by the keeper, text and xml are to be looked
# at. A block of sh that is run nowhere fails, so does one without a word.
#
# In name spaces of its own (mounts, network, processes), so that paths and ports are those of the
# pages, and what a page kills is its own.

if [ -z "${DOCS_INSIDE:-}" ]; then
    spaces=(unshare -mnpf --mount-proc --kill-child)
    "${spaces[@]}" true 2>/dev/null || { echo '1..0 # SKIP no name spaces here'; exit 77; }
    exec env DOCS_INSIDE=1 "${spaces[@]}" bash "$0"
fi
. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "commands of the pages"
scene_need qemu-img qemu-io qemu-nbd qemu-system-x86_64 nbdinfo nbdcopy openssl ip
ctl_need mapperd volume front_nbd front_vhost blocker_file cached
top=$(realpath "${abs_top_srcdir:-$(dirname "$0")/../..}")
ip link set lo up

# Folders of the pages, empty; those that we had to make go again.
for folder in /run/skerry /var/lib/skerry /etc/skerry; do
    if [ ! -d "$folder" ]; then
        mkdir -p "$folder" || exit 99
        scene_at_exit "rmdir '$folder'"
    fi
    mount -t tmpfs none "$folder" || tap_skip_all "cannot mount"
    scene_at_exit "umount '$folder'"
done
unset SKERRY_RUN_DIR SKERRY_SEGMENT
mkdir "$SCENE_DIR/bin" "$SCENE_DIR/work" "$SCENE_DIR/work/backup"
ln -s "$(realpath "$XSEGCTL")" "$SCENE_DIR/bin/xsegctl"
# A machine without a screen, for as long as it takes to see that it has its disk.
cat >"$SCENE_DIR/bin/qemu-system-x86_64" <<'END'
#!/bin/bash
out=$(printf 'info block\ninfo qtree\nquit\n' | timeout 60 /usr/bin/qemu-system-x86_64 "$@" -S \
    -display none -monitor stdio 2>&1)
echo "$out"
grep -qE 'nbd\+unix|dev: vhost-user-blk-pci' <<<"$out"
END
printf '#!/bin/sh\ntrue\n' >"$SCENE_DIR/bin/virsh"
chmod +x "$SCENE_DIR/bin/qemu-system-x86_64" "$SCENE_DIR/bin/virsh"
export PATH=$SCENE_DIR/bin:$PATH
cd "$SCENE_DIR/work" || exit 99

# --- blocks ---------------------------------------------------------------------------------------
# PAGE: a line "KIND HEADING|NUMBER" for each; the number counts within the heading.
blocks() {
    awk '/^## / { heading = substr($0, 4); n = 0 }
        /^```/ { inside = !inside; if (inside) print (substr($0, 4) == "" ? "-" : substr($0, 4)),
            heading "|" ++n }' "$top/$1"
}
block() { # PAGE N HEADING
    awk -v n="$2" -v heading="$3" '
        BEGIN { here = heading == "" }
        /^## / { here = $0 == "## " heading }
        here && /^```/ { if (wanted) exit; inside = !inside; wanted = inside && ++count == n; next }
        wanted' "$top/$1"
}
declare -A SEEN=()
WITHOUT='^$' # lines that cannot be run here
run() { # NAME PAGE N HEADING
    SEEN[$2:$4|$3]=run
    block "$2" "$3" "$4" | grep -Ev "$WITHOUT" >"$SCENE_DIR/block"
    tap_run "$1" test -s "$SCENE_DIR/block"
    tap_run "$1, done" timeout 300 bash -e "$SCENE_DIR/block"
}
not_here() { # PAGE N HEADING WHY
    SEEN[$1:$3|$2]=elsewhere
    tap_note "$1, '$3' $2: $4"
}
keeper_takes() { # NAME PAGE N HEADING
    mkdir -p demo.conf.d
    block "$2" "$3" "$4" >demo.conf.d/page.conf
    ctl_exits 0 "$1" config check demo.conf
    rm -r demo.conf.d
}
has_files() { scene_has_module front_fuse && [ -c /dev/fuse ]; }
has_loop() { has_files && losetup -f >"$SCENE_DIR/free" 2>&1; }
cook=docs/cookbook.md
golden="A golden image for 100 virtual machines" backup="A backup every hour"
nbd() { echo "nbd+unix:///$1?socket=/run/skerry/demo/nbd.sock"; }
io() { # VOLUME COMMAND...
    local name=$1 args=()
    shift
    for command in "$@"; do args+=(-c "$command"); done
    qemu-io -f raw "${args[@]}" "$(nbd "$name")"
}

# --- the cookbook --------------------------------------------------------------------------------
block $cook 1 "" >demo.conf
down_at_exit demo
run "the pipeline of the page" $cook 2 ""

head -c 5M /dev/urandom >debian.raw
truncate -s 64M debian.raw
qemu-img convert -f raw -O qcow2 debian.raw debian-12.qcow2
cp debian-12.qcow2 debian.qcow2
run "a disk, in and out" $cook 1 "Copy a disk in and out"
tap_run "what came out is what went in" cmp debian.raw copy.raw

run "an image and its clones" $cook 1 "$golden"
tap_like "all are there" "$(cat "$TAP_OUT")" $'\n  - vm100'
run "they are exports" $cook 2 "$golden"
tap_run "one is written to" io vm7 'write -P 7 0 1M'
tap_run "the others have the image" qemu-img compare debian-12.qcow2 "$(nbd vm8)" -F raw
run "one that runs is an image, too" $cook 3 "$golden"
tap_run "with what was written to it" qemu-img compare "$(nbd vm7)" "$(nbd vm107)" -f raw -F raw
dd if=/dev/urandom of=debian.raw bs=4k seek=100 count=5 conv=notrunc status=none
qemu-img convert -f raw -O qcow2 debian.raw debian-12.1.qcow2
run "the next version" $cook 4 "$golden"
tap_run "a clone of it" qemu-img compare debian-12.1.qcow2 "$(nbd vm101)" -F raw
ctl volume info debian-12.1 --json
json_is "it hangs from the last one" .parent debian-12@golden
ctl_exits 5 "which stays" volume rm debian-12@golden --yes
run "one goes, one gets all" $cook 5 "$golden"
ctl volume info vm2 --json
json_is "that hangs from nothing" '.parent, .shared' $'null\n0'
move="Move a volume to another store"
run "a volume moves to another store" $cook 1 "$move"
tap_run "what it had is there" qemu-img compare "$(nbd vm7)" "$(nbd vm107)" -f raw -F raw
run "the file knows of the mover" $cook 2 "$move"
tap_run "it does" grep -q 'role = mover' demo-moved.conf
ctl_exits 0 "and back" volume move vm7 --to file0 --json
json_is "the mover goes" .mover null

block $cook 1 "$backup" >"$SCENE_DIR/bin/backup"
SEEN[$cook:$backup|1]=run
chmod +x "$SCENE_DIR/bin/backup"
hourly() { # no two in the same second
    local second
    backup disk backup || return
    second=$(date +%s) # it may have begun in the one before that of its name
    until [ "$(date +%s)" -gt "$second" ]; do sleep 0.1; done
}
tap_run "a guest" io disk 'write -P 1 0 8M' 'write -P 2 5G 1M'
tap_run "the first backup" hourly
tap_run "an hour" io disk 'write -P 3 1M 64k' 'discard 4M 4M' 'write -P 4 9G 4k'
tap_run "the second" hourly
tap_run "an hour" io disk 'write -P 5 5G 512k' 'write -z 0 64k'
tap_run "the third" hourly
tap_is "three files" "$(find backup -name '*.qcow2' | wc -l)" 3
newest=$(find backup -name '*.qcow2' | sort | tail -n 1)
tap_run "the last has what was changed" test "$(stat -c %s "$newest")" -lt 2000000
ctl volume list --json
json_is "one snapshot is left of it" \
    '[.volumes[] | select(.type == "snapshot" and (.name | startswith("disk@")))] | length' 1
export now=disk@hooks
run "with hooks it is the same" $cook 3 "$backup"
ctl_exits 0 "that one goes again" volume rm disk@hooks --yes
run "it is restored" $cook 4 "$backup"
tap_run "it is the same" qemu-img compare -f raw -F raw "$(nbd disk)" "$(nbd restored)"
tap_run "the other one, too" qemu-img compare -f raw -F raw "$(nbd disk)" "$(nbd restored-2)"

slow="Put a cache in front of a slow store, and take it out again"
run "a cache, in and out" $cook 1 "$slow"
keeper_takes "a cache from the beginning" $cook 2 "$slow"

run "a machine" $cook 1 "Attach it to QEMU"
run "what to say to others" $cook 2 "Attach it to QEMU"
keeper_takes "a disk without a socket" $cook 1 "A machine's disk without a socket"
run "one more, and a machine" $cook 2 "A machine's disk without a socket"
if has_files; then
    run "volumes as files" $cook 1 "Volumes as files"
    tap_run "they end" xsegctl peer stop files0
    rmdir /srv/volumes
else
    not_here $cook 1 "Volumes as files" "no front_fuse, or no /dev/fuse"
fi
device="A volume as a device, and its file system"
if has_loop; then
    run "a device" $cook 1 "$device"
    rmdir /srv/home
else
    not_here $cook 1 "$device" "no front_fuse, no /dev/fuse or no loop devices"
fi
memory="A volume as memory of a program"
has_memory() { # and what builds one
    scene_has_module front_region && scene_have cc && scene_have pkg-config &&
        [ "$(stat -f -c %T "$SKERRY_SHM_DIR")" = tmpfs ]
}
if has_memory; then
    cp "$top"/docs/examples/region/notes.* .
    mkdir pc
    ln -s "$top/include" "$SCENE_DIR/skerry" # as if installed there
    libraries=$(realpath "$SKERRY_MODULE_DIR")
    sed -e "s|%includedir%|$SCENE_DIR/skerry|" -e 's|%version%|0|' -e "s|%libdir%|$libraries|" \
        "$top/skerry-region.pc.in" >pc/skerry-region.pc
    LD_LIBRARY_PATH=$libraries PKG_CONFIG_PATH=$PWD/pc run "memory" $cook 1 "$memory"
    tap_like "all notes, and those of the snapshot" "$(cat "$TAP_OUT")" \
        $'of a C program\nthe second one, of Python\na third one\nthe first one, of a C program'
else
    not_here $cook 1 "$memory" "no front_region, no compiler or no tmpfs"
fi
not_here $cook 1 "A volume as swap" "it is this machine's; swap_guest.sh does that in a guest"
ctl_exits 0 "it goes again" peer stop vm7
not_here $cook 1 "Attach it to the kernel" "nbd is no part of this kernel; nbd_uml.sh boots one"

keeper_takes "only some volumes" $cook 1 "Only some volumes, or read-only"
run "to be read" $cook 2 "Only some volumes, or read-only"
run "what has changed" $cook 1 "What has changed since a snapshot"
tap_like "the context is there" "$(cat "$TAP_OUT")" 'skerry:dirty:monday'

tls="Serve over TCP, with TLS"
run "certificates" $cook 1 "$tls"
mkdir /etc/skerry/tls
cp tls/*.crt tls/*.key /etc/skerry/tls
mkdir demo.conf.d
block $cook 2 "$tls" >demo.conf.d/tls.conf
ctl_exits 0 "the front has them" config apply demo.conf
cd tls || exit 99
run "clients with TLS" $cook 3 "$tls"
cd ..
rm -r demo.conf.d
ctl_exits 0 "back to the socket" config apply demo.conf
run "look inside" $cook 1 "Look inside"

# --- README ---------------------------------------------------------------------------------------
ctl_exits 0 "a volume" volume create demo --size 64M
tap_run "a guest" io demo 'write -P 6 20M 5M'
ctl_exits 0 "with a cache, as quickstart has it" plug cached --at vol0:store size=64M
run "a cache, out and in" README.md 1 "A cache, in and out while guests run"
run "snapshot, clone, export" README.md 1 "Snapshots and clones"
tap_run "it is the same" qemu-img compare monday.qcow2 "$(nbd test)" -F raw
tap_note "without nbd-client: this kernel has no nbd; nbd_uml.sh boots one that has"
WITHOUT=nbd-client
run "attach the disk" README.md 1 "Attach the disk"
run "without a socket" README.md 3 "Attach the disk"
if has_loop; then
    run "a file, a device, a file system" README.md 4 "Attach the disk"
    tap_is "it is all gone" "$(xsegctl mount)" ""
else
    not_here README.md 4 "Attach the disk" "no front_fuse, no /dev/fuse or no loop devices"
fi
ctl_exits 0 "fsck" volume fsck
ctl_exits 0 "down" down demo
rm -r /var/lib/skerry/demo
tap_note "without ./configure, make and make install: 'make distcheck' is that"
WITHOUT='^\./configure'
run "by hand" README.md 1 "By hand"
not_here README.md 1 "Two commands" "quickstart.sh does that"
not_here README.md 1 "Kill any process: your guest will not notice" "quickstart.sh does that"
not_here README.md 1 "Test it" "this is one of them"

# --- nothing is left out --------------------------------------------------------------------------
for page in README.md $cook; do
    left='' untold=''
    while read -r kind which; do
        case $kind in
        sh) [ -n "${SEEN[$page:$which]:-}" ] || left+="$which; " ;;
        ini | text | xml) ;;
        *) untold+="$which; " ;;
        esac
    done < <(blocks "$page")
    tap_is "$page: every command was run" "$left" ""
    tap_is "$page: every block says what it is" "$untold" ""
done
tap_end
