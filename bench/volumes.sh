#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What do maps, snapshots and clones cost? See volumes.sh --help; the work is done in volumes.py.
exec /usr/bin/python3 -B "$(dirname "$0")/volumes.py" "$@"
