#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shell scripts pass shellcheck.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lint.sh"

lint_need shellcheck

check_shell() {
    (cd "$1" && lint_files "$1" '*.sh' quickstart run | xargs -r -n 16 -P "$(nproc)" shellcheck \
        --external-sources --severity=warning --format=gcc 2>&1)
}

self_test() {
    lint_expect check_shell a.sh '#!/bin/bash\ncd /tmp\nrm -r $1/*\n' 'cd'
    lint_expect check_shell a.sh '#!/bin/bash\necho "$1"\n' ''
}

lint_main "$@"
