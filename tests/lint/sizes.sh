#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# How large things may grow: a function 70 lines, a .c file 800, the two smallest peers what one
# reads in a sitting, a line 100 columns (tabs are 8).

. "$(dirname "$0")/lint.sh"

FUNCTION_LINES_MAX=70
FILE_LINES_MAX=800
COLUMNS_MAX=100

lint_need ctags
if ! ctags --version | grep -q Universal; then
    echo '1..0 # SKIP ctags is not Universal Ctags'
    exit 77
fi

check_functions() {
    (cd "$1" && lint_files "$1" '*.c' '*.h' | xargs -r ctags -f - --sort=no --languages=C \
        --langmap=C:.c.h --kinds-C=f --fields=+ne --excmd=number 2>/dev/null |
        awk -F '\t' -v max="$FUNCTION_LINES_MAX" '{
            end = 0; start = 0
            for (i = 3; i <= NF; i++) {
                if ($i ~ /^end:/) end = substr($i, 5)
                if ($i ~ /^line:/) start = substr($i, 6)
            }
            if (end && end - start + 1 > max)
                print $2 ":" start ": " $1 "() has " end - start + 1 " lines, " max " at most"
        }')
}

check_files() {
    (cd "$1" && lint_files "$1" '*.c' | while read -r file; do
        lines=$(wc -l <"$file")
        case $file in
        */blocker_null.c) max=45 ;;
        */blocker_memory.c) max=100 ;;
        *) max=$FILE_LINES_MAX ;;
        esac
        [ "$lines" -le "$max" ] || echo "$file:$lines: has $lines lines, $max at most"
    done)
}

check_columns() {
    (cd "$1" && lint_files "$1" '*.[ch]' '*.sh' '*.py' '*.pml' quickstart | while read -r file; do
        expand "$file" | awk -v file="$file" -v max="$COLUMNS_MAX" \
            'length > max { print file ":" FNR ": has " length " columns, " max " at most" }'
    done)
}

expect() { lint_expect "check_$1" "${@:2}"; }

self_test() {
    local lines long
    lines=$(printf '\\tx();\\n%.0s' {1..68})
    expect functions xseg/a.c "int f(void)\n{\n${lines}}\n" '71 lines'
    expect functions xseg/a.c "int f(void)\n{\n${lines#*;\\n}}\n" ''
    expect files xseg/a.c "$(printf '\\n%.0s' {1..801})" '801 lines'
    expect files xseg/a.c "$(printf '\\n%.0s' {1..800})" ''
    expect files peers/blocker/blocker_null.c "$(printf '\\n%.0s' {1..46})" '46 lines'
    expect files peers/blocker/blocker_memory.c "$(printf '\\n%.0s' {1..101})" '101 lines'
    long=$(printf 'x%.0s' {1..93})
    expect columns xseg/a.c "\t${long}\n" '101 columns'
    expect columns xseg/a.c "\t${long%x}\n" ''
}

lint_main "$@"
