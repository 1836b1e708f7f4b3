# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Databases in a guest, on top of lib.sh and guest_lib.sh: a golden image, a small system on ext4
# with two sqlite databases, one for each kind of journal; and what a script needs to tell whether
# all that the guest has said to be committed is on a copy of its disk. Needs sqlite3 and mke2fs.
#
#   db_golden FILE           makes the image; in it '/sbin/init write COUNT' commits transactions,
#                            '/sbin/init check DISK' says what it finds
#   db_remember COPY         waits until the guest 'writer' has gone on; what it has committed by
#                            then must be in COPY, which is made next
#   db_check GUEST COPY      what GUEST said of it: whole, and all that was committed is there
#
# db_more TREE, if the script has one, adds to what is in the image.

DB_MODES="delete wal" DB_ACCOUNTS=50 DB_BALANCE=1000

# --- the golden image ----------------------------------------------------------------------------

db_more() { :; }

db_write_system() {
    mkdir -p "$1"/{sbin,bin,var,dev,tmp}
    cat >"$1/sbin/init" <<EOF_SYSTEM
#!/bin/sh
ACCOUNTS=$DB_ACCOUNTS MODES="$DB_MODES"
EOF_SYSTEM
    cat >>"$1/sbin/init" <<'EOF_SYSTEM'
set -f
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
db_copy_programs() {
    local file
    cp -L --parents "$(command -v sqlite3)" "$1" && cp -L /bin/dash "$1/bin/sh" || return
    for file in $(ldd "$(command -v sqlite3)" /bin/dash | grep -oE '(^|\s)/[^ :]+ ' | sort -u); do
        cp -L --parents "$file" "$1" || return
    done
}

db_golden() {
    local tree=$SCENE_DIR/tree mode
    db_write_system "$tree" && db_copy_programs "$tree" && db_more "$tree" || return
    for mode in $DB_MODES; do
        sqlite3 "$tree/var/$mode.db" "PRAGMA journal_mode = $mode;
            CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER);
            CREATE TABLE ledger (n INTEGER PRIMARY KEY, body BLOB, sum BLOB);
            CREATE INDEX by_sum ON ledger (sum);
            WITH RECURSIVE i (n) AS (SELECT 0 UNION SELECT n + 1 FROM i WHERE n < $DB_ACCOUNTS - 1)
                INSERT INTO account SELECT n, $DB_BALANCE FROM i;
            INSERT INTO ledger (n, body) VALUES (1, randomblob(100000));
            UPDATE ledger SET sum = sha3(body);" || return
    done
    mke2fs -q -t ext4 -d "$tree" "$1" 96M
}

# --- what was committed, what is there -----------------------------------------------------------

# The last transaction of a database that the guest has told us of.
db_committed() {
    guest_said writer | grep -aE "^COMMITTED $1 [0-9]+\$" | tail -n 1 | cut -d' ' -f3
}

declare -A DB_BEFORE=() DB_GOAL=([delete]=10 [wal]=10)

db_both_go_on() {
    local mode n
    scene_alive writer || return 0
    for mode in $DB_MODES; do
        n=$(db_committed "$mode")
        [ "${n:-0}" -ge "${DB_GOAL[$mode]}" ] || return
    done
}

# Waits until both have gone on; what they have committed by now must be in what is made next.
db_remember() {
    local mode n
    scene_until 60 db_both_go_on && scene_alive writer ||
        tap_not_ok "the guest writes on before '$1'"
    for mode in $DB_MODES; do
        n=$(db_committed "$mode")
        DB_BEFORE[$1.$mode]=${n:-0} DB_GOAL[$mode]=$((${n:-0} + 10))
    done
}

# One database of a copy: whole, all that was committed is there, and nothing by halves.
db_check_one() { # GUEST COPY MODE
    local verdict count last bad sum n=${DB_BEFORE[$2.$3]}
    read -r _ _ _ verdict count last bad sum < <(guest_said "$1" | grep -a "^FOUND $2 $3 ")
    tap_is "$2: PRAGMA integrity_check of the $3 database" "${verdict:-nothing}" ok
    tap_is "$2: no transaction in between is missing, or there by halves" \
        "${count:-none} ${bad:-?} ${sum:-?}" "${last:-some} 0 $((DB_ACCOUNTS * DB_BALANCE))"
    tap_is "$2: all that were committed before are there" "$((${last:-0} >= n))" 1
    tap_note "$2: $3: $n had been committed, ${last:-none} are there"
    read -r _ _ _ verdict count _ bad sum < <(guest_said "$1" | grep -a "^FOUND $2/after $3 ")
    tap_is "$2: it goes on" "${verdict:-nothing} ${count:-0} ${bad:-?} ${sum:-?}" \
        "ok $((${last:-0} + 5)) 0 $((DB_ACCOUNTS * DB_BALANCE))"
}

db_check() {
    local mode
    for mode in $DB_MODES; do db_check_one "$1" "$2" "$mode"; done
}
