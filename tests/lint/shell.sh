#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shell scripts pass shellcheck, each by itself: followed into what it sources, the same libraries
# are read a hundred times, which takes four times as long. So it is not asked about variables that
# another file sets or uses (SC2154, SC2034), nor what it sources (SC1090); `set -u` finds those
# that nobody sets.

. "$(dirname "$0")/lint.sh"

lint_need shellcheck

check_shell() {
    (cd "$1" && lint_files "$1" '*.sh' quickstart run | xargs -r -n 16 -P "$(nproc)" shellcheck \
        --exclude=SC1090,SC2034,SC2154 --severity=warning --format=gcc 2>&1)
}

self_test() {
    lint_expect check_shell a.sh '#!/bin/bash\ncd /tmp\nrm -r $1/*\n' 'cd'
    lint_expect check_shell a.sh '#!/bin/bash\necho "$1"\n' ''
}

lint_main "$@"
