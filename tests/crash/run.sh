#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds with crash points in a folder of its own, then does to it what crash.py is told:
#   run.sh BUILD_DIR [CRASH_PY_ARGS...]

set -euo pipefail
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=$1
shift
mkdir -p "$BUILD"
cd "$BUILD"
[ -e config.status ] || "$TOP/configure" --enable-crash-points >configure.log
make -s -j"$(nproc)" all step stamp crash_shim.la blocker_liar.la blocker_meddle.la \
    blocker_record.la >make.log
[ $# -gt 0 ] || ./step --all
export SKERRY_BUILD=$BUILD PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 "$TOP/tests/crash/crash.py" "$@"
