#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# How long until the first answer after a SIGKILL, and what watching costs. See recovery.sh --help;
# the work is done in recovery.py (with Debian's python3, whose libnbd it uses).
exec /usr/bin/python3 -B "$(dirname "$0")/recovery.py" "$@"
