#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs one test, and says in its log's last line how long that took; tests/sum.sh collects it.

begin=${EPOCHREALTIME/[.,]/}
"$@"
rc=$?
echo "# took $(((${EPOCHREALTIME/[.,]/} - begin) / 1000)) ms"
exit $rc
