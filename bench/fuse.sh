#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What does a volume as a file cost? See fuse.sh --help; the work is done in fuse.py.
exec /usr/bin/python3 -B "$(dirname "$0")/fuse.py" "$@"
