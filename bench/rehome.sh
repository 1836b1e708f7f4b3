#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# How long do clients wait when a volume goes to another host? See rehome.sh --help; rehome.py does
# the work.
exec /usr/bin/python3 -B "$(dirname "$0")/rehome.py" "$@"
