#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the fuzzers with clang in a folder of their own and lets each run for FUZZ_SECONDS (60),
# as many at once as there are CPUs, from the corpora kept here. What breaks one is shown in hex.
#
# usage: run.sh BUILD [FUZZER...]
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
mkdir -p "${1:?usage: run.sh BUILD [FUZZER...]}"
BUILD=$(cd "$1" && pwd)
shift
SECONDS_EACH=${FUZZ_SECONDS:-60}
STRICT=-fno-sanitize-recover=undefined
# what the log of a failure has to say: the error, and where in our files
TELLING='ERROR|must\(\)|runtime error|SUMMARY|^ *#[0-9]+ .* in [a-z_]+ .*/(xseg|peers|tools|tests)/'
ALL=(nbd vhost bridge control pipeline segment map mapper)
[ $# -eq 0 ] || ALL=("$@")

export ASAN_OPTIONS=abort_on_error=0
export UBSAN_OPTIONS=print_stacktrace=1

# clang without its runtime library compiles all of it, and then cannot link any.
runtime() {
    local major
    echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' >"$BUILD/probe.c"
    if "${FUZZ_CC:-clang}" -fsanitize=fuzzer,address "$BUILD/probe.c" -o "$BUILD/probe" \
        2>"$BUILD/probe.log"; then return; fi
    major=$("${FUZZ_CC:-clang}" -dumpversion 2>/dev/null | cut -d. -f1) || major=
    echo "error: ${FUZZ_CC:-clang} cannot link a fuzzer; apt-get install clang" \
        "libclang-rt-${major:-14}-dev"
    cat "$BUILD/probe.log"
    return 1
}

build() {
    if [ ! -e "$BUILD/config.status" ]; then
        (cd "$BUILD" && "$ROOT/configure" CC="${FUZZ_CC:-clang}" \
            CFLAGS="-g -O1 -fsanitize=fuzzer-no-link,address,undefined $STRICT")
    fi
    make -C "$BUILD" -j"$(nproc)" "${ALL[@]/#/fuzz_}"
}

# Seeds that are text lie there as files; those that are not, one a line in hex.
corpus() {
    local name=$1 to=$2
    mkdir -p "$to"
    if [ -d "$HERE/corpus/$name" ]; then cp "$HERE/corpus/$name"/* "$to"; fi
    if [ -e "$HERE/corpus/$name.hex" ]; then
        python3 - "$HERE/corpus/$name.hex" "$to" <<'END'
import sys
lines = [l.split('#')[0].strip() for l in open(sys.argv[1])]
for i, line in enumerate(l for l in lines if l):
    open(f'{sys.argv[2]}/kept-{i:03}', 'wb').write(bytes.fromhex(line))
END
    fi
    if [ "$name" = nbd ]; then "$BUILD/fuzz_nbd" --seeds "$to"; fi
}

options() {
    case $1 in
    nbd) echo -max_len=8192 ;;
    vhost) echo "-max_len=1024 -len_control=0" ;;
    # leaks are looked for once, at the end: after each input it takes longer than the input
    control) echo "-max_len=8192 -detect_leaks=0 -dict=$HERE/control.dict" ;;
    pipeline) echo "-max_len=4096 -dict=$HERE/pipeline.dict" ;;
    map) echo "-max_len=128" ;;
    mapper) echo "-max_len=512 -len_control=0 -detect_leaks=0 -timeout=100" ;;
    segment) echo "-max_len=2048 -len_control=20 -detect_leaks=0" ;;
    esac
}

show() {
    local name=$1 found
    for found in "$BUILD/found/$name-"*; do
        [ -e "$found" ] || continue
        echo "fuzz_$name: input that breaks it (kept as $found):"
        od -An -v -tx1 "$found" | tr -d ' \n'
        echo
    done
}

# No input: fuzzes; one: what it says, again.
run() {
    local name=$1 log=$BUILD/$1.log before=$SECONDS
    local -a options
    read -ra options <<<"$(options "$name")"
    rm -rf "$BUILD/work/$name" "$BUILD/found/$name-"*
    mkdir -p "$BUILD/found"
    corpus "$name" "$BUILD/work/$name" >"$log" 2>&1
    # who refuses a wild segment by ending itself leaves its memory to the system
    if ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=$([ "$name" = segment ] && echo 0 || echo 1) \
        "$BUILD/fuzz_$name" -max_total_time="$SECONDS_EACH" -timeout=20 -rss_limit_mb=2048 \
        -artifact_prefix="$BUILD/found/$name-" -print_final_stats=1 "${options[@]}" \
        "$BUILD/work/$name" >>"$log" 2>&1 </dev/null; then
        awk -v name="$name" -v took=$((SECONDS - before)) '
            /stat::number_of_executed_units/ { runs = $2 }
            / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
            END { printf "fuzz_%s: %d runs in %d s, %d edges, nothing found\n",
                name, runs, took, cov }' "$log"
        return 0
    fi
    grep -aE "$TELLING" "$log" | head -n 30
    show "$name"
    echo "fuzz_$name: FAILED; the whole log is $log"
    return 1
}

command -v "${FUZZ_CC:-clang}" >/dev/null || { echo "no clang"; exit 77; }
runtime
build
failed=0
at_once=$(nproc)
for name in "${ALL[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n || failed=1; done
    run "$name" &
done
while [ -n "$(jobs -p)" ]; do wait -n || { [ $? -eq 127 ] && break; failed=1; }; done
exit $failed
