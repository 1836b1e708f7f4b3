#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What is the cache worth, and what does it cost? See cache.sh --help; the work is done in cache.py
# (with Debian's python3, whose libnbd it uses).
exec /usr/bin/python3 -B "$(dirname "$0")/cache.py" "$@"
