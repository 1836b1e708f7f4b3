#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The faults that can be tried within three minutes. All of them: `make crash`.

export PYTHONDONTWRITEBYTECODE=1
here=$(cd "$(dirname "$0")" && pwd)
exec /usr/bin/python3 "$here/crash.py" --ci "$@"
