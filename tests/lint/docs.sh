#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The documents tell the truth about the code: every `file.c:function()` they name is there, every
# link leads somewhere, and the generated page of the segment's layout has every struct and enum.

. "$(dirname "$0")/lint.sh"

# "DOCUMENT:LINE:FILE:FUNCTION" for each `file:function` in the documents of a tree.
named_functions() {
    (cd "$1" && lint_files "$1" '*.md' '*.scd' |
        xargs -r grep -noHE '`[A-Za-z0-9_/.-]+\.[ch]:[A-Za-z0-9_]+(\(\))?`' |
        sed -E 's/^([^:]*:[0-9]+):`([^:]*):([A-Za-z0-9_]+).*/\1:\2:\3/')
}

# Is there a definition (not only a call) of a function, or a macro of that name?
defines() {
    awk -v name="$2" '
        $0 ~ "^[A-Za-z_].*[ *]" name "\\(" || $0 ~ "^" name "\\(" { if ($0 !~ /;$/) found = 1 }
        $0 ~ "^#define " name "[ (]" { found = 1 }
        $0 ~ "^(UNIT[A-Z_]*|Theory|Test)\\(.*" name { found = 1 }
        END { exit !found }' "$1"
}

check_functions() {
    local doc line file function
    while IFS=: read -r doc line file function; do
        if [ ! -f "$1/$file" ]; then
            echo "$doc:$line: there is no $file"
        elif ! defines "$1/$file" "$function"; then
            echo "$doc:$line: $file has no $function()"
        fi
    done < <(named_functions "$1")
}

# Files named alone, `dir/file.c`, and relative links [text](file).
check_files() {
    local doc line name
    (cd "$1" && lint_files "$1" '*.md' | xargs -r grep -noHE \
        '`(xseg|peers|include|tools|tests|bench|docs)/[A-Za-z0-9_/.-]+\.[a-z]+`|\]\([^)#:]+[)#]' |
        sed -E 's/`//g; s/\]\(//; s/[)#]$//' | while IFS=: read -r doc line name; do
        [ -e "$name" ] || [ -e "$(dirname "$doc")/$name" ] || case $name in
        *segment-layout.md) ;; # generated
        *) echo "$doc:$line: there is no $name" ;;
        esac
    done)
}

# xsegpeer(1) is written by hand: it must have every option and every counter of the core's tables.
check_page() {
    local page="$1/docs/man/xsegpeer.1.scd" name
    [ -e "$1/peers/core/core_main.c" ] || return
    sed -nE 's/^\t\{"([a-z-]+)", (no|required)_argument.*/--\1/p' "$1/peers/core/core_main.c" |
        while read -r name; do
            grep -qF -- "*$name*" "$page" || echo "${page#"$1"/}:1: does not tell of option $name"
        done
    sed -nE 's/^\t\[CORE_[A-Z_]+\] = \{"([a-z_]+)".*/\1/p' "$1/peers/core/core_shard.c" |
        while read -r name; do
            grep -qF -- "*$name*" "$page" || echo "${page#"$1"/}:1: does not tell of counter $name"
        done
}

# Messages quoted in the tables of docs/failure.md are messages of the programs. Words in capitals
# stand for something else, so the pieces between them are looked for.
check_messages() {
    local doc=docs/failure.md line piece strings
    [ -e "$1/$doc" ] || return
    strings=$(cd "$1" && lint_files "$1" '*.c' | grep -v '^tests/' | xargs -r cat | tr -d '\n\t' |
        sed -E 's/" *"//g')
    while IFS=: read -r line piece; do
        piece=${piece#"${piece%%[! ]*}"}
        [ ${#piece} -lt 9 ] || grep -qF -- "$piece" <<<"$strings" ||
            echo "$doc:$line: no program says \"$piece\""
    done < <(grep -n '^| `' "$1/$doc" | sed -E 's/^([0-9]+):\| ([^|]*)\|.*/\1:\2/' |
        awk -F : '{
            line = $1; sub(/^[0-9]+:/, "")
            gsub(/`, `|[A-Z][A-Z]+|[A-Z]\47|\47[A-Z]|\47|`|: \.\.\.|\.\.\.| [A-Z] /, "\n")
            count = split($0, pieces, "\n")
            for (i = 1; i <= count; i++) print line ":" pieces[i]
        }')
}

# A block that quotes code, "```c FILE", has the file's lines in the file's order.
check_quotes() {
    local doc
    (cd "$1" && lint_files "$1" '*.md' | while read -r doc; do
        awk -v doc="$doc" '
            /^```c [a-z]/ { file = $2; next }
            /^```/ { if (file) close(file); file = ""; next }
            file {
                while ((status = (getline line <file)) > 0 && line != $0) { }
                if (status > 0) next
                print doc ":" FNR ": " file " has no such line (there): " $0
                close(file)
                file = ""
            }' "$doc"
    done)
}

# Everything that has a layout has a heading, and each field a row, on the generated page.
check_layout() {
    local header kind name program
    (cd "$1" && lint_files "$1" layout.h op.h | grep '^include/xseg/') | while read -r header; do
        program=$(awk -f "$LINT_TOP/docs/layout.awk" "$1/$header")
        sed -nE 's/^(typedef )?(struct|enum) ([a-z_0-9]+) *(\{.*)?$/\2 \3/p' "$1/$header" |
            while read -r kind name; do
                grep -qF "### \`$kind $name\`" <<<"$program" ||
                    echo "$header:1: $kind $name is not on the generated page"
            done
        sed -E 's/\/\*.*//; s/_Alignas\([0-9]+\)//' "$1/$header" |
            sed -nE '/^(typedef )?struct/,/^\}/s/^[ \t].*[ *]([a-z_0-9]+)(\[[^]]*\])*;.*/\1/p' |
            while read -r name; do
                grep -qE "offsetof\(struct [a-z_0-9]+, $name\)" <<<"$program" ||
                    echo "$header:1: field $name is not on the generated page"
            done
    done
}

expect() { lint_expect "check_$1" "${@:2}"; }

self_test() {
    local c='peers/volume/volume.c' tree
    expect functions docs/a.md 'see `peers/volume/volume.c:volume_read()`\n' 'there is no peers'
    expect files docs/a.md 'see [this](other.md) and more\n' 'there is no other.md'
    expect files docs/a.md 'see `xseg/nothing.c`\n' 'there is no xseg/nothing.c'
    expect files docs/a.md 'see [this](a.md#x) and [that](https://example.org/x)\n' ''
    tree=$(mktemp -d)
    mkdir -p "$tree/docs" "$tree/${c%/*}"
    printf 'static void volume_read(struct a *b)\n{\n\tvolume_write(b);\n}\n' >"$tree/$c"
    printf '`%s:volume_read()` `%s:volume_write`\n' "$c" "$c" >"$tree/docs/a.md"
    [ "$(check_functions "$tree")" = "docs/a.md:1: $c has no volume_write()" ] || {
        echo "self-test of check_functions: $(check_functions "$tree")"
        LINT_FAILED=1
    }
    rm -rf "$tree"
    expect quotes docs/a.md '```c docs/b.c\nnot there\n```\n' 'no such line'
    expect quotes docs/a.md 'first\nthird\n```c docs/a.md\nfirst\nthird\n```\n' ''
    tree=$(mktemp -d)
    mkdir -p "$tree/docs"
    printf 'f("\x27%%s\x27 is not "\n\t"a segment");\n' >"$tree/a.c"
    printf "| message | |\n| \`'FILE' is not a segment\` | |\n" >"$tree/docs/failure.md"
    [ -z "$(check_messages "$tree")" ] || LINT_FAILED=1
    printf "| \`'FILE' is not a sandwich\` | |\n" >"$tree/docs/failure.md"
    [[ $(check_messages "$tree") == *'no program says "is not a sandwich'* ]] || LINT_FAILED=1
    rm -rf "$tree"
    tree=$(mktemp -d)
    mkdir -p "$tree/peers/core" "$tree/docs/man"
    printf '\t{"lanes", required_argument, NULL, 0},\n' >"$tree/peers/core/core_main.c"
    printf '\t[CORE_READS] = {"reads", "", ""},\n' >"$tree/peers/core/core_shard.c"
    printf '*reads*\n' >"$tree/docs/man/xsegpeer.1.scd"
    [[ $(check_page "$tree") == *'option --lanes' ]] || LINT_FAILED=1
    printf '*--lanes*\n' >"$tree/docs/man/xsegpeer.1.scd"
    [[ $(check_page "$tree") == *'counter reads' ]] || LINT_FAILED=1
    rm -rf "$tree"
    expect layout include/xseg/layout.h 'struct xseg_a {\n\tint b;\n\tint c, d[2];\n};\n' ''
    expect layout include/xseg/layout.h 'struct xseg_a\n{\n\tint b;\n};\n' 'struct xseg_a is not'
    expect layout include/xseg/layout.h 'typedef struct xseg_a {\n\tint b;\n} a;\n' 'field b is not'
    expect layout include/xseg/op.h 'enum xseg_a\n{ B };\n' 'enum xseg_a is not'
}

lint_main "$@"
