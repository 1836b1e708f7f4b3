#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What does memory cost that is a volume? `bench_region` on a pipeline of its own: a front_region in
# a process of its own (as `./quickstart` would have it), or with --together in that of the others;
# composer, mapper, a write-back cache that holds all of it and a memory store.
set -eu
build=${SKERRY_BUILD:-$(cd "$(dirname "$0")/.." && pwd)/build}
host=fronts flags=()
for word in "$@"; do
    case $word in
    --together) host=volumes ;;
    *) flags+=("$word") ;;
    esac
done
dir=$(mktemp -d)
export SKERRY_RUN_DIR=$dir/run SKERRY_MODULE_DIR=$build/.libs SKERRY_SEGMENT=bench-region
trap '"$build/xsegctl" down --yes >/dev/null 2>&1 || :; rm -rf "$dir"' EXIT
cat >"$dir/pipeline.conf" <<END
[segment]
name = bench-region
size = 1G

[host volumes]

[host fronts]

[peer region0]
role = front_region
host = $host
memory = 512M
edge.volume = vol0

[peer vol0]
role = volume
host = volumes
edge.store = cache0
edge.map = map0

[peer map0]
role = mapperd
host = volumes
edge.store = store0

[peer cache0]
role = cached
host = volumes
size = 400M
edge.store = store0

[peer store0]
role = blocker_memory
host = volumes
END
[ "$host" = fronts ] || sed -i '/^\[host fronts\]/d' "$dir/pipeline.conf"
"$build/xsegctl" up --unguarded "$dir/pipeline.conf" >/dev/null
"$build/xsegctl" volume create disk --size 256M >/dev/null
BENCH_SEGMENT=$SKERRY_SEGMENT BENCH_VOLUME=disk "$build/bench_region" "${flags[@]}"
