#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What does a bridge cost, and what does distance? See bridge.sh --help; bridge.py does the work.
exec /usr/bin/python3 -B "$(dirname "$0")/bridge.py" "$@"
