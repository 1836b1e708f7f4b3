#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Adds up the tests that ran:  sum.sh BUILD_DIR[=LABEL]...
#                         or:  sum.sh --slowest N BUILD_DIR[=LABEL]...
#
# Reads the .trs and .log files that automake's test driver left. A log that speaks TAP, Check or
# Criterion counts each of its tests; any other log counts as one. Skips are listed with their
# reason, failures by name; the last line is "N passed, N failed, N skipped" and the exit status
# is 1 when anything failed or nothing ran.

set -u -o pipefail

passed=0 failed=0 skipped=0

# tests/timed.sh's last lines, the longest first.
slowest() {
    local count=$1 arg dir label
    shift
    for arg in "$@"; do
        dir=${arg%%=*} label=
        [ "$dir" = "$arg" ] || label="${arg#*=}: "
        find "$dir" -name '*.log' -not -path '*/skerry-*/*' -exec \
            awk -v dir="$dir/" -v label="$label" '/^# took [0-9]+ ms$/ { took[FILENAME] = $3 }
            END {
                for (file in took) {
                    name = substr(file, length(dir) + 1)
                    sub(/\.log$/, "", name)
                    printf "%8.1f s  %s%s\n", took[file] / 1000, label, name
                }
            }' {} +
    done | sort -rn | sed -n "1,${count}p" # reads all: who writes into nothing has failed
}

if [ "${1:-}" = --slowest ]; then
    slowest "${@:2}"
    exit
fi

# Prints "PASSED FAILED SKIPPED" of one log, then a line "skip|fail<TAB>what" for each of note, and
# "says<TAB>..." for the first remarks on a failure: where nobody keeps the logs, they are all there
# is.
sum_log() {
    awk '
    function keep(kind, line)
    {
        sub(/^(not )?ok [0-9]+ *-? */, "", line)
        note[++n] = kind "\t" line
    }
    /^ok [0-9]+/ && /# *SKIP/ { s++; keep("skip", $0); next }
    /^ok [0-9]+/ { p++; says = 0; next }
    /^not ok [0-9]+/ { f++; keep("fail", $0); says = 8; next }
    /^#/ && says > 0 { says--; keep("says", $0); next }
    /^1\.\.0 # *SKIP/ { why = $0; sub(/^1\.\.0 # *SKIP */, "", why); next }
    /^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+/ {
        gsub(/,/, "")
        p += $3 - $5 - $7
        f += $5 + $7
        next
    }
    /^[^ :]+:[0-9]+:[FE]:/ { keep("fail", $0); next }
    /^\[FAIL\] / { keep("fail", $0); next }
    /Synthesis: Tested: / {
        gsub(/\033\[[0-9;]*m/, "")
        for (i = 1; i < NF; i++) {
            if ($i == "Passing:") p += $(i + 1)
            if ($i == "Failing:" || $i == "Crashing:") f += $(i + 1)
        }
    }
    END {
        print p + 0, f + 0, s + 0
        for (i = 1; i <= n; i++) print note[i]
        if (why != "") print "why\t" why
    }' "$1"
}

# One test: its .trs says how it ended, its log what was in it.
sum_test() {
    local trs=$1 label=$2 log=${1%.trs}.log result name p=0 f=0 s=0 kind text why=
    local -a notes=()
    result=$(sed -n 's/^:global-test-result: //p' "$trs")
    name=${trs#"$label"/}
    name=${name%.trs}
    [ -r "$log" ] && {
        read -r p f s
        while IFS=$'\t' read -r kind text; do
            if [ "$kind" = why ]; then why=$text; else notes+=("$kind"$'\t'"$text"); fi
        done
    } < <(sum_log "$log")
    case $result in
    SKIP)
        if [ "$s" -eq 0 ]; then
            s=1
            notes=("skip"$'\t'"${why:-$(grep -v '^SKIP\|^$' "$log" | tail -n 1)}")
        fi ;;
    PASS) [ $((p + f + s)) -gt 0 ] || p=1 ;;
    *)
        if [ "$f" -eq 0 ]; then f=1; notes+=("fail"$'\t'"ended with ${result:-no result}"); fi ;;
    esac
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    for text in ${notes+"${notes[@]}"}; do
        [ "${text%%$'\t'*}" != says ] || { echo "   ${text#*$'\t'}"; continue; }
        printf '%s: %s: %s\n' "${text%%$'\t'*}" "$3$name" "${text#*$'\t'}"
    done
}

for arg in "$@"; do
    dir=${arg%%=*}
    label=
    [ "$dir" = "$arg" ] || label="${arg#*=}: "
    while read -r trs; do sum_test "$trs" "$dir" "$label"; done \
        < <(find "$dir" -name '*.trs' -not -path '*/skerry-*/*' | sort)
done
[ $((passed + skipped)) -gt 0 ] || failed=$((failed + 1))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
