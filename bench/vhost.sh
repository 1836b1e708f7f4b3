#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What does a vhost-user-blk disk cost? See vhost.sh --help; the work is done in vhost.py.
exec /usr/bin/python3 -B "$(dirname "$0")/vhost.py" "$@"
