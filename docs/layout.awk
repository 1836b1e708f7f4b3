# SPDX-License-Identifier: Apache-2.0
#
# Reads the headers that say what lies in a segment and prints a C program; that program, compiled
# against the same headers, prints docs/segment-layout.md with the offsets and sizes that the
# compiler gave to each field.
#
#   awk -f docs/layout.awk include/xseg/layout.h include/xseg/op.h >x.c && cc -Iinclude x.c && ./a.out

function quoted(s)
{
    gsub(/\\/, "\\\\\\\\", s)
    gsub(/"/, "\\\\\"", s)
    gsub(/%/, "%%", s)
    return s
}

function say(s) { print "\tprintf(\"" quoted(s) "\\n\");" }

function cell(s)
{
    gsub(/\|/, "\\&#124;", s)
    return quoted(s)
}

function trim(s)
{
    sub(/^[ \t]+/, "", s)
    sub(/[ \t]+$/, "", s)
    return s
}

# The words between /* and */ on this line; a comment that goes on takes its next lines too.
function comment_of(line,    text, more)
{
    if (!match(line, /\/\*/)) return ""
    text = substr(line, RSTART + 2)
    while (text !~ /\*\// && (getline more) > 0) text = text " " trim(more)
    sub(/\*\/.*/, "", text)
    gsub(/[ \t]+/, " ", text)
    return trim(text)
}

function code_of(line)
{
    sub(/\/\*.*/, "", line)
    return trim(line)
}

# A block comment before a struct or enum: pictures stay as they are, prose becomes a paragraph.
function tell_comment()
{
    if (block == "") return
    if (block ~ /-->|\n  /) {
        say("")
        say("```")
        n = split(block, lines, "\n")
        for (i = 1; i <= n; i++) say(lines[i])
        say("```")
    } else {
        gsub(/\n/, " ", block)
        say("")
        say(trim(block))
    }
    block = ""
}

function heading(title)
{
    say("")
    say("### `" title "`")
    tell_comment()
    say("")
}

function field(declaration, note,    names, count, i, name, type)
{
    sub(/;.*/, "", declaration)
    gsub(/_Alignas\([^)]*\)/, "", declaration)
    gsub(/_Atomic/, "atomic", declaration)
    declaration = trim(declaration)
    type = declaration
    sub(/[ \t]+[A-Za-z_0-9]+(\[[^\]]*\])*([ \t]*,.*)?$/, "", type)
    count = split(substr(declaration, length(type) + 1), names, ",")
    for (i = 1; i <= count; i++) {
        name = trim(names[i])
        sub(/\[.*/, "", name)
        printf "\tprintf(\"| %%zu | %%zu | `%s` | %s | %s |\\n\", offsetof(struct %s, %s), " \
            "sizeof(((struct %s *)0)->%s));\n", cell(trim(names[i])), cell(type), cell(note),
            within, name, within, name
    }
}

function constant(name, note)
{
    printf "\tprintf(\"| `%s` | %%llu | %s |\\n\", (unsigned long long)(%s));\n", name, cell(note), name
}

# "A, B = 1, C" of an enum, with one note for all names of the line.
function values(text, note,    names, count, i, name)
{
    gsub(/[{};]/, "", text)
    count = split(text, names, ",")
    for (i = 1; i <= count; i++) {
        name = names[i]
        sub(/=.*/, "", name)
        name = trim(name)
        if (name != "") constant(name, note)
    }
}

BEGIN {
    print "#include <stddef.h>\n#include <stdio.h>\n#include <xseg/layout.h>\n\nint main(void)\n{"
    say("<!-- Generated from include/xseg/layout.h and op.h by docs/layout.awk; do not edit. -->")
    say("# Segment layout")
    say("")
    say("What lies in a segment. Offsets and sizes are bytes, as this build's compiler laid them out;")
    say("integers have the byte order of the host. There are no pointers.")
}

FNR == 1 {
    source = FILENAME
    sub(/^.*include\//, "", source)
    say(""); say("## " source); defines = 0; top = 1
}

within != "" && /^};/ { within = ""; next }
within != "" {
    if (code_of($0) == "") next
    declaration = code_of($0)
    field(declaration, comment_of($0))
    next
}
listing && /^};/ { listing = 0; next }
listing {
    text = code_of($0)
    if (text != "") values(text, comment_of($0))
    next
}

/^struct [a-z_0-9]+ \{/ {
    within = $2
    heading("struct " within)
    printf "\tprintf(\"%%zu bytes.\\n\\n\", sizeof(struct %s));\n", within
    say("| offset | size | field | type | |")
    say("|---:|---:|---|---|---|")
    defines = 0
    next
}
/^enum( [a-z_0-9]+)? \{/ {
    heading($2 == "{" ? "flags" : "enum " $2)
    say("| name | value | |")
    say("|---|---:|---|")
    defines = 0
    if (/};/) { text = code_of($0); sub(/^[^{]*/, "", text); values(text, comment_of($0)) }
    else listing = 1
    next
}
/^#define [A-Z_0-9]+ +[^ ]/ {
    name = $2
    if (!defines) {
        say("")
        say("| constant | value | |")
        say("|---|---:|---|")
        defines = 1
    }
    constant(name, comment_of($0))
    next
}
/^\/\*/ {
    if ($0 ~ /SPDX/) next
    text = $0
    sub(/^\/\*/, "", text)
    block = ""
    while (text !~ /\*\//) {
        if (text != "") block = block (block == "" ? "" : "\n") text
        if ((getline text) <= 0) break
        if (text ~ /^ \*\//) break
        sub(/^ \* ?/, "", text)
    }
    sub(/\*\/.*/, "", text)
    if (trim(text) != "") block = block (block == "" ? "" : "\n") trim(text)
    if (top) { defines = 0; tell_comment(); top = 0 }
    next
}
/^$/ { next }
{ block = "" }

END { print "\treturn 0;\n}" }
