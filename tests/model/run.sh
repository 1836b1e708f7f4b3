#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the Spin models of this folder, TAP on stdout. A variant must be free of errors; a mutant
# must be caught, or the model could not see what it is there for. 77 when spin is not installed.
set -u -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-cc}
if ! command -v spin >/dev/null; then
    echo "1..0 # SKIP spin is not installed (apt-get install spin)"
    exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/skerry-model.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

count=0 failed=0
declare -A claim=(
    [bell]="no wake-up is lost"
    [request]="each request is answered once, none comes late, each slot is free in the end"
    [edge]="once the old way is said to be closed nobody takes it"
)

result() { # OK NAME
    count=$((count + 1))
    if [ "$1" = yes ]; then
        echo "ok $count - $2"
    else
        failed=$((failed + 1))
        echo "not ok $count - $2"
        sed 's/^/# /' log
    fi
}

# Explores all states of MODEL with these definitions; sets states, errors, whole. -O0: all that is
# to be explored takes less time than optimising what does it.
explore() { # MODEL FLAGS...
    local model=$1
    shift
    states=0 errors=none whole=no
    rm -f pan pan.*
    # shellcheck disable=SC2086 # the compiler may come with flags
    if ! { spin -a "$@" "$here/$model.pml" &&
        $cc -O0 -w -DSAFETY -DMEMLIM=1024 -o pan pan.c && ./pan -m200000; } >log 2>&1; then
        return
    fi
    states=$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' log)
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' log)
    grep -q 'max search depth too small\|Search not completed' log || whole=yes
}

holds() { # MODEL FLAGS...
    explore "$@"
    local good=no
    [ "$errors" = 0 ] && [ "$whole" = yes ] && good=yes
    result $good "$1 ${*:2}: ${claim[$1]} ($states states)"
}

caught() { # MODEL FLAGS...
    explore "$@"
    local good=no
    [ "$errors" = 1 ] && grep -q 'invalid end state (\|assertion violated' log && good=yes
    result $good "$1 ${*:2}: the mutant is caught"
}

for bell in "" -DFD; do
    # shellcheck disable=SC2086 # no flag is no word
    holds bell $bell
    for mutant in -DNO_FENCE -DSOFT_ARM -DNO_LOOK -DEARLY_LOOK; do
        # shellcheck disable=SC2086
        caught bell $mutant $bell
    done
done
caught bell -DFD -DLATE_DRAIN
holds request
holds request -DCRASHES=3
for mutant in -DNO_WAIT -DKEEP -DNO_AGAIN -DTWICE; do
    caught request $mutant
done
holds edge
caught edge -DNO_GRACE
echo "1..$count"
[ "$failed" = 0 ]
