# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Cases of tests/crash about the cache, in their short form. `make crash` has the long one.
#
#   cache_cases CASE...     TAP of them

cache_cases() {
    local here
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../crash" && pwd)
    export PYTHONDONTWRITEBYTECODE=1
    exec /usr/bin/python3 "$here/crash.py" --ci "$@"
}
