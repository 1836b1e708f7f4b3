#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs one test, and says in its log's last line how long that took; tests/sum.sh collects it. One
# that hangs is ended after SKERRY_TEST_LIMIT seconds with all its processes, so that the others run
# and its log tells where it was: that is no check of how fast anything is.

limit=${SKERRY_TEST_LIMIT:-3000}
begin=${EPOCHREALTIME/[.,]/}
set -m # a group of its own, which SIGINT reaches
timeout -k 60 "$limit" "$@" &
trap 'kill -s TERM "$!"' HUP INT TERM
wait "$!"
rc=$?
while kill -s 0 "$!" 2>/dev/null; do # a signal to us has gone on to it
    wait "$!"
    rc=$?
done
[ "$rc" -ne 124 ] || echo "not ok 0 - it hung: ended after $limit s"
echo "# took $(((${EPOCHREALTIME/[.,]/} - begin) / 1000)) ms"
exit $rc
