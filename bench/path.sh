#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What does the whole path cost? NBD over a UNIX socket, side by side with other servers in the
# same run. See path.sh --help; the work is done in path.py.
exec python3 -B "$(dirname "$0")/path.py" "$@"
