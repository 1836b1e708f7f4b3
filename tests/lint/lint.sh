# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the lints share. A lint is a script with functions called check_*; each prints one line
# "FILE:LINE: what is wrong" for each fault in the tree below $1, and is silent otherwise.
# A lint also has one self_test that proves, on small trees made for it, that each rule fails
# when it is broken and is silent when it is kept.
#
#   lint_files ROOT PATTERN...   files of the tree that match, relative to ROOT, without built ones
#   lint_need PROGRAM            exits 77 when it is not installed
#   lint_expect CHECK PATH TEXT WANT   writes TEXT to PATH in an empty tree, runs CHECK there:
#                                WANT is a part of the line it must print, or "" for silence
#   lint_main "$@"               runs the self-test, then every check_* on the source tree;
#                                '--self-test' stops after the first, '--root DIR' looks elsewhere

set -u -o pipefail
export LC_ALL=C.UTF-8

LINT_FAILED=0
LINT_TOP=${abs_top_srcdir:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}

lint_files() {
    local root=$1 pattern
    local -a names=()
    shift
    for pattern in "$@"; do names+=(-o -name "$pattern"); done
    (cd "$root" && find . \( -path ./.git -o -path ./build -o -path ./build-aux -o -path ./m4 \
        -o -path ./autom4te.cache -o -name __pycache__ -o -path './skerry-*' -o -path './_build*' \
        -o -name 'confdefs.h' -o -path ./config.h \) -prune \
        -o -type f \( "${names[@]:1}" \) -printf '%P\n' | sort)
}

lint_need() {
    command -v "$1" >/dev/null && return
    echo "1..0 # SKIP $1 is not installed"
    exit 77
}

lint_expect() {
    local check=$1 path=$2 text=$3 want=$4 tree got
    tree=$(mktemp -d)
    mkdir -p "$tree/$(dirname "$path")"
    printf '%b' "$text" >"$tree/$path"
    got=$("$check" "$tree")
    rm -rf "$tree"
    if [ -z "$want" ] && [ -z "$got" ]; then return; fi
    if [ -n "$want" ] && [[ $got == *"$want"* ]]; then return; fi
    echo "self-test of $check on '$path': want '${want:-nothing}', got '${got:-nothing}'"
    LINT_FAILED=1
}

lint_run() {
    local root=$1 check out count=0
    for check in $(declare -F | awk '$3 ~ /^check_/ { print $3 }'); do
        count=$((count + 1))
        out=$("$check" "$root")
        if [ -z "$out" ]; then
            echo "ok $count - ${check#check_}"
            continue
        fi
        LINT_FAILED=1
        echo "not ok $count - ${check#check_}"
        printf '%s\n' "$out" | sed 's/^/  /'
    done
    echo "1..$((count + 1))"
    LINT_COUNT=$count
}

lint_main() {
    local root=$LINT_TOP only_self=no
    while [ $# -gt 0 ]; do
        case $1 in
        --self-test) only_self=yes ;;
        --root) root=$2 && shift ;;
        *) echo "usage: $0 [--self-test] [--root DIR]" >&2 && exit 2 ;;
        esac
        shift
    done
    self_test
    [ "$only_self" = no ] || exit $LINT_FAILED
    local self_failed=$LINT_FAILED
    lint_run "$root"
    if [ "$self_failed" -eq 0 ]; then
        echo "ok $((LINT_COUNT + 1)) - each rule can fail"
    else
        echo "not ok $((LINT_COUNT + 1)) - each rule can fail"
    fi
    exit $LINT_FAILED
}
