#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# C is laid out as .clang-format says. `clang-format -i FILE` repairs it.

. "$(dirname "$0")/lint.sh"

lint_need clang-format
STYLE=$LINT_TOP/.clang-format

check_layout() {
    (cd "$1" && lint_files "$1" '*.[ch]' | xargs -r clang-format --style="file:$STYLE" --dry-run \
        -Werror --ferror-limit=3 2>&1 | grep -E '^[^ ]+:[0-9]+:[0-9]+: ' |
        sed -E 's/error: (.*) \[-W.*/\1: run clang-format -i/')
}

self_test() {
    lint_expect check_layout xseg/a.c 'int f(void)\n{\n  g( );\n}\n' 'should be clang-formatted'
    lint_expect check_layout xseg/a.c 'static int a;\n' ''
}

lint_main "$@"
