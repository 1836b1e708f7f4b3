#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Databases in a guest: two sqlite databases on an ext4 on a clone of a golden image are written to
# by a Linux kernel; snapshots and a clone are taken from under it; composer, mapper, cache and
# store are killed; in the end the guest's power is cut. Each clone then boots, and its own programs
# find databases that are whole, with every transaction that was committed before it was made.
#
# The guest is User-Mode Linux, which is up in seconds wherever tests run. An emulated machine
# would go the same way (ext4, block layer, NBD), in minutes.

# shellcheck source-path=SCRIPTDIR source=kill_lib.sh
. "$(dirname "$0")/kill_lib.sh"
# shellcheck source-path=SCRIPTDIR source=guest_lib.sh
. "$(dirname "$0")/guest_lib.sh"
guest_addresses 10.119.0
MODES="delete wal" ACCOUNTS=50 BALANCE=1000

# --- the golden image: a small system whose init writes to databases, and checks them ----------

write_system() {
    mkdir -p "$1"/{sbin,bin,var,dev,tmp}
    cat >"$1/sbin/init" <<EOF_SYSTEM
#!/bin/sh
ACCOUNTS=$ACCOUNTS MODES="$MODES"
EOF_SYSTEM
    cat >>"$1/sbin/init" <<'EOF_SYSTEM'
db() { sqlite3 -batch -bail "$@"; }
# Money goes from one account to another; what is said to be committed is in the file for good.
# (EXTRA: the directory as well, or a journal that was removed could come back.)
transactions() { # FIRST LAST MODE
    n=$1
    echo "PRAGMA synchronous = EXTRA; PRAGMA wal_autocheckpoint = 60;"
    while [ "$n" -le "$2" ]; do
        echo "BEGIN IMMEDIATE;
            UPDATE account SET balance = balance - $n % 97 WHERE id = $n % $ACCOUNTS;
            UPDATE account SET balance = balance + $n % 97 WHERE id = ($n * 7 + 1) % $ACCOUNTS;
            INSERT INTO ledger (n, body) VALUES ($n, randomblob(100 + $n * 131 % 6000));
            UPDATE ledger SET sum = sha3(body) WHERE n = $n;
            COMMIT;"
        echo ".print COMMITTED $3 $n"
        n=$((n + 1))
    done
}
rows() { db "/var/$1.db" 'SELECT max(n) FROM ledger'; }
write() { # COUNT
    for mode in $MODES; do
        had=$(rows $mode)
        transactions $((had + 1)) $((had + $1)) $mode | db /var/$mode.db &
    done
    wait
}
check() { # DISK
    for mode in $MODES; do
        echo FOUND "$1" $mode $(db -separator ' ' /var/$mode.db 'PRAGMA integrity_check;
            SELECT count(*), max(n) FROM ledger;
            SELECT count(*) FROM ledger WHERE sum IS NOT sha3(body);
            SELECT sum(balance) FROM account')
    done
}
cd /
"$@"
EOF_SYSTEM
    chmod +x "$1/sbin/init"
}

# A shell and sqlite3, with all libraries that they need.
copy_programs() {
    local file
    cp -L --parents "$(command -v sqlite3)" "$1" && cp -L /bin/dash "$1/bin/sh" || return
    for file in $(ldd "$(command -v sqlite3)" /bin/dash | grep -oE '(^|\s)/[^ :]+ ' | sort -u); do
        cp -L --parents "$file" "$1" || return
    done
}

make_golden() {
    local tree=$SCENE_DIR/tree mode
    write_system "$tree" && copy_programs "$tree" || return
    for mode in $MODES; do
        sqlite3 "$tree/var/$mode.db" "PRAGMA journal_mode = $mode;
            CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER);
            CREATE TABLE ledger (n INTEGER PRIMARY KEY, body BLOB, sum BLOB);
            CREATE INDEX by_sum ON ledger (sum);
            WITH RECURSIVE i (n) AS (SELECT 0 UNION SELECT n + 1 FROM i WHERE n < $ACCOUNTS - 1)
                INSERT INTO account SELECT n, $BALANCE FROM i;
            INSERT INTO ledger (n, body) VALUES (1, randomblob(100000));
            UPDATE ledger SET sum = sha3(body);" || return
    done
    mke2fs -q -t ext4 -d "$tree" "$SCENE_DIR/golden.raw" 96M
}

# --- the two guests ----------------------------------------------------------------------------

# Writes until its power is cut.
writer_init() {
    guest_init "$SCENE_DIR/init.writer" <<'EOF_GUEST'
main() {
    step "load the nbd module" module nbd && step "bring the network up" network || return
    step "attach the clone" attach vm1 || return
    step "its file system is clean" fsck.ext4 -fn /dev/nbd0
    mkdir -p /run/mnt
    step "it is mounted" mount -t ext4 /dev/nbd0 /run/mnt || return
    mount -t devtmpfs dev /run/mnt/dev
    chroot /run/mnt /sbin/init write 1000000
}
EOF_GUEST
}

# Each disk boots, is looked at, goes on, and is whole afterwards.
reader_init() {
    guest_init "$SCENE_DIR/init.reader" "DISKS=$*" <<'EOF_GUEST'
boot() { chroot /run/mnt /sbin/init "$@"; }
one() { # DISK DEVICE
    step "$1: attach" attach "$1" "$2" || return
    step "$1: mount, the journal is replayed" mount -t ext4 "/dev/$2" /run/mnt || return
    mount -t devtmpfs dev /run/mnt/dev
    boot check "$1"
    step "$1: it writes" boot write 5
    boot check "$1/after"
    umount /run/mnt/dev
    step "$1: unmount" umount /run/mnt
    step "$1: the file system is clean" fsck.ext4 -fn "/dev/$2"
    step "$1: detach" nbd-client -d "/dev/$2"
}
main() {
    local disk number=0
    step "load the nbd module" module nbd && step "bring the network up" network || return
    mkdir -p /run/mnt
    for disk in $DISKS; do one "$disk" nbd$((number++)); done
    step "no I/O error in the kernel's log" no_error
}
EOF_GUEST
}

# --- what they have said -----------------------------------------------------------------------

said() { tr -d '\r' <"$SCENE_DIR/$1.out"; }

report() {
    local verdict line
    while read -r _ verdict line; do
        case $verdict in
        ok) tap_ok "$1: $line" ;;
        failed) tap_not_ok "$1: $line" ;;
        log) tap_note "  $line" ;;
        esac
    done < <(said "$1" | grep -a '^STEP ')
}

# The last transaction of a database that the guest has told us of.
committed() { said writer | grep -aE "^COMMITTED $1 [0-9]+\$" | tail -n 1 | cut -d' ' -f3; }

declare -A BEFORE=() GOAL=([delete]=2 [wal]=2)

# shellcheck disable=SC2317  # called by scene_until
both_go_on() {
    local mode n
    for mode in $MODES; do
        n=$(committed "$mode")
        [ "${n:-0}" -ge "${GOAL[$mode]}" ] || return
    done
}

# Waits until both have gone on; what they have committed by now must be in what is made next.
remember() { # DISK
    local mode n
    scene_until 60 both_go_on || tap_not_ok "the guest writes on before '$1'"
    for mode in $MODES; do
        n=$(committed "$mode")
        BEFORE[$1.$mode]=${n:-0} GOAL[$mode]=$((${n:-0} + 10))
    done
}

# DISK MODE: whole, all that was committed is there, and nothing by halves
check_found() {
    local verdict count last bad sum n=${BEFORE[$1.$2]}
    read -r _ _ _ verdict count last bad sum < <(said reader | grep -a "^FOUND $1 $2 ")
    tap_is "$1: PRAGMA integrity_check of the $2 database" "${verdict:-nothing}" ok
    tap_is "$1: no transaction in between is missing, or there by halves" \
        "${count:-none} ${bad:-?} ${sum:-?}" "${last:-some} 0 $((ACCOUNTS * BALANCE))"
    tap_is "$1: all that were committed before are there" "$((${last:-0} >= n))" 1
    tap_note "$1: $2: $n had been committed, ${last:-none} are there"
    read -r _ _ _ verdict count _ bad sum < <(said reader | grep -a "^FOUND $1/after $2 ")
    tap_is "$1: it goes on" "${verdict:-nothing} ${count:-0} ${bad:-?} ${sum:-?}" \
        "ok $((${last:-0} + 5)) 0 $((ACCOUNTS * BALANCE))"
}

# --- the host ----------------------------------------------------------------------------------

v() { tap_run "volume $*" "$XSEGCTL" -s "$SEGMENT" volume "$@"; }

start_host() {
    guest_network_up || { tap_not_ok "the host's side of the network"; tap_end; }
    SCENE_STORE=cached,edge.store=file0,size=24M
    SCENE_BELOW=file0=blocker_file,dir=$SKERRY_SHM_DIR/store
    SCENE_VOLUME=other SCENE_SIZE=4M SCENE_SEGMENT_SIZE=192M
    scene_split "$SEGMENT" "listen=tcp:$ADDRESS:$PORT,tls=off" && return
    tap_not_ok "the pipeline starts"
    tap_end
}

# What the guest must not notice: snapshots, a clone, and that everything below the front dies.
under_load() {
    remember monday
    v snapshot vm1 monday
    remember kill
    kill_again volume
    kill_again store
    remember tuesday
    v snapshot vm1 tuesday
    remember live
    v clone vm1 live
    remember vm1
    guest_power_cut writer
}

# Nobody has told the host that the guest is gone: its connection is still there.
disks_of_snapshots() {
    v rename monday monday.snap
    v rename tuesday tuesday.snap
    v clone monday.snap monday
    v clone tuesday.snap tuesday
}

# What went on in the guests is nowhere but in their clones.
afterwards() {
    local name
    nbdcopy "nbd://$ADDRESS:$PORT/golden" "$SCENE_DIR/golden.after" &&
        tap_run "the golden image is as it was" \
            cmp "$SCENE_DIR/golden.raw" "$SCENE_DIR/golden.after"
    for name in monday tuesday monday.snap live; do v rm "$name" --yes; done
    v gc --wait
    v fsck
}

main() {
    local disk mode name
    start_host
    v import "$SCENE_DIR/golden.raw" golden --progress=none
    v clone golden vm1
    writer_init
    scene_spawn writer guest_boot "$SCENE_DIR/init.writer"
    under_load
    report writer
    disks_of_snapshots
    reader_init monday tuesday live vm1
    scene_spawn reader guest_boot "$SCENE_DIR/init.reader"
    guest_end reader || tap_not_ok "the second guest ends in time"
    report reader
    tap_like "the second guest comes to its end" "$(said reader | grep -a '^STEP ' | tail -n 1)" end
    for disk in monday tuesday live vm1; do
        for mode in $MODES; do check_found "$disk" "$mode"; done
    done
    afterwards
    for name in "${!SCENE_PIDS[@]}"; do scene_stop "$name"; done
}

# All of it runs in name spaces of its own.
if [ "${1:-}" != --inside ]; then
    if ! unshare -nmp --fork true 2>/dev/null; then tap_skip_all "no name spaces here"; fi
    exec unshare -nmp --fork --kill-child=TERM --mount-proc "$0" --inside
fi
scene_begin "databases in a guest, on clones"
scene_need_skerry
guest_need sqlite3 mke2fs fsck.ext4 nbdcopy ldd
make_golden >"$SCENE_DIR/golden.log" 2>&1 || { tap_not_ok "a golden image is made"; tap_end; }
main
tap_end
