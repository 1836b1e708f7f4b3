#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What do many volumes and many connections cost? See many.sh --help; the work is done in many.py.
exec /usr/bin/python3 -B "$(dirname "$0")/many.py" "$@"
