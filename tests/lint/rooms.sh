#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Who may include what. The floors, from below: xseg/base, xseg, peers/core, then the rooms of
# peers/ and tools/, then tests/ and bench/. A file includes its own folder, and include/ of its own
# floor or below; a foreign library has its rooms; inside xseg/ there is a staircase.

. "$(dirname "$0")/lint.sh"

# Headers of the C library and the kernel: anyone may.
SYSTEM='assert ctype dirent dlfcn elf endian errno fcntl fnmatch getopt glob grp inttypes
langinfo libgen limits mntent locale math netdb poll pthread pwd sched setjmp signal stdalign
stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string strings syslog
termios time unistd uchar wchar cpuid immintrin nmmintrin x86intrin malloc semaphore
spawn ucontext execinfo ftw'

# Foreign libraries and the places (prefixes of paths) that may include them.
LIBRARIES='
sanitizer/       tests/fuzz/
urcu/            xseg/ peers/core/
urcu.h           xseg/ peers/core/
event2/          peers/core/ peers/front/ peers/synapse/ tools/
fuse3/           peers/front/files
event2/          peers/blocker/redis/ peers/blocker/s3/
event2/          peers/blocker/file/file_uring
liburing.h       peers/blocker/blocker_file peers/blocker/file/
openssl/         peers/core/core_tls peers/blocker/s3/ peers/blocker/redis/redis_tunnel
openssl/         tools/ctl/ctl_cert
lz4.h            peers/synapse/
zstd.h           peers/synapse/
curl/            peers/blocker/s3/ bench/bench_s3
jansson.h        tools/ peers/blocker/rados/
ini.h            tools/
libsmartcols/    tools/
xxhash.h         xseg/ peers/volume/ peers/map/ peers/blocker/ peers/core/ tools/
jemalloc/        peers/core/
systemd/         peers/core/ tools/
rados/           peers/blocker/rados/ bench/bench_rados
hiredis/         peers/blocker/redis/
check.h          tests/
criterion/       tests/
ncurses.h        tools/ctl/ctl_screen
libnbd.h         tests/ bench/ tools/ctl/ctl_volume_image
lmdb.h           docs/examples/ peers/blocker/tape/
iscsi/           peers/blocker/tape/ bench/bench_tape
'

# The staircase inside xseg/: a step uses only itself and what stands left of it.
STAIRS='segment resident page ring request bell registry port stats lane region'
# Files that belong to a step by another name. Making a segment lays out the table of every step.
STEP_OF='op:segment layout:segment map:segment create:lane usage:lane data:lane reap:lane'

# "FILE:LINE:KIND:NAME" for each include; KIND is < or ".
includes_of() {
    (cd "$1" && lint_files "$1" '*.[ch]' | grep -E "${2:-.}" |
        xargs -r grep -nHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]' |
        sed -E 's/^([^:]*):([0-9]+):[^<"]*([<"])([^>"]*)[>"].*/\1:\2:\3:\4/')
}

# Which of include/{base,xseg,peer} and which own folders a file may name, as one regex.
allowed_of() {
    case $1 in
    include/base/*) echo '<:base/' ;;
    include/xseg/*) echo '<:(base|xseg)/' ;;
    include/peer/*) echo '<:(base|xseg|peer)/' ;;
    xseg/base/*) echo '<:base/|":xseg/base/' ;;
    xseg/*) echo '<:(base|xseg)/|":xseg/' ;;
    peers/*/*) echo "<:(base|xseg|peer)/|\":$(cut -d/ -f1,2 <<<"$1")/" ;;
    tools/report/*) echo '<:(base|xseg|peer)/|":tools/report/' ;;
    tools/pipeline/*) echo '<:(base|xseg|peer)/|":tools/(pipeline|report)/' ;;
    tools/*/*)
        echo "<:(base|xseg|peer)/|\":tools/($(cut -d/ -f2 <<<"$1")|pipeline|report)/"
        ;;
    tests/* | bench/*) echo '<:(base|xseg|peer)/|":' ;;
    docs/examples/*) echo '<:(base|xseg|peer)/' ;;
    *) echo 'nothing' ;;
    esac
}

is_ours() {
    [[ $1 == '"' || $2 =~ ^(base|xseg|peer|peers|tools|tests|bench)/ ]]
}

is_system() {
    [[ $1 =~ ^(sys|linux|netinet|arpa|net|asm|bits)/ ]] ||
        [[ " ${SYSTEM//$'\n'/ } " == *" ${1%.h} "* ]]
}

check_floors() {
    local file line kind name allowed last=''
    while IFS=: read -r file line kind name; do
        is_ours "$kind" "$name" || continue
        [ "$file" = "$last" ] || allowed=$(allowed_of "$file")
        last=$file
        [[ "$kind:$name" =~ ^($allowed) ]] && continue
        [ "$name" = config.h ] && continue
        echo "$file:$line: may not include $name (own folder, and include/ of its floor or below)"
    done < <(includes_of "$1")
}

# The places a library has, or nothing when it is unknown.
rooms_of() {
    local prefix places
    while read -r prefix places; do
        [ -n "$prefix" ] && [[ $1 == "$prefix"* ]] && echo "$places"
    done <<<"$LIBRARIES"
}

check_libraries() {
    local file line kind name rooms place
    local -A known=()
    while IFS=: read -r file line kind name; do
        if is_ours "$kind" "$name" || is_system "$name"; then continue; fi
        [ -n "${known[$name]+set}" ] || known[$name]=$(rooms_of "$name")
        rooms=${known[$name]}
        if [ -z "$rooms" ]; then
            echo "$file:$line: unknown library $name: give it a room in tests/lint/rooms.sh"
            continue
        fi
        case $file in tests/* | bench/*) continue ;; esac
        for place in $rooms; do [[ $file == "$place"* ]] && continue 2; done
        echo "$file:$line: $name has no room here (only in: $rooms)"
    done < <(includes_of "$1")
}

# Number of the step a name stands on: 1, 2, ...; nothing when it is not on the stairs.
step_of() {
    local name=$1 pair step n=0
    for pair in $STEP_OF; do [ "${pair%%:*}" = "$name" ] && name=${pair#*:}; done
    for step in $STAIRS; do
        n=$((n + 1))
        [[ $name == "$step" || $name == "${step}_"* ]] && echo "$n" && return
    done
}

check_staircase() {
    local file line kind name from to
    while IFS=: read -r file line kind name; do
        [[ $name =~ ^xseg/([a-z_]+)\.h$ ]] || continue
        to=$(step_of "${BASH_REMATCH[1]#xseg_}")
        from=$(basename "$file")
        from=${from%.[ch]}
        from=$(step_of "${from#xseg_}")
        if [ -z "$from" ]; then
            echo "$file:$line: stands on no step of the staircase: $STAIRS"
        elif [ -n "$to" ] && [ "$to" -gt "$from" ]; then
            echo "$file:$line: may not include $name: it stands right of it on the staircase"
        fi
    done < <(includes_of "$1" '^(include/xseg|xseg)/[^/]*$')
}

# An #if between the braces of a function or struct. Comments, strings and macros are not code.
check_conditionals() {
    (cd "$1" && lint_files "$1" '*.[ch]' | xargs -r awk '
        function strip(s) {
            gsub(/\\./, "", s); gsub(/"[^"]*"/, "", s); gsub(/\047[^\047]*\047/, "", s)
            while (match(s, /\/\*[^*]*\*+([^\/*][^*]*\*+)*\//))
                s = substr(s, 1, RSTART - 1) " " substr(s, RSTART + RLENGTH)
            sub(/\/\/.*/, "", s)
            return s
        }
        FNR == 1 { comment = macro = depth = 0 }
        comment { if (!match($0, /\*\//)) next; $0 = substr($0, RSTART + 2); comment = 0 }
        macro { macro = /\\$/; next }
        /^[ \t]*#/ {
            if (depth > 0 && /^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else)/)
                print FILENAME ":" FNR ": an #if inside a function or a struct: an option is a file"
            macro = /\\$/; next
        }
        {
            s = strip($0)
            if (match(s, /\/\*/)) { comment = 1; s = substr(s, 1, RSTART - 1) }
            if (s ~ /extern "?C?"? *\{/) next
            depth += gsub(/\{/, "", s) - gsub(/\}/, "", s)
        }')
}

# The licence in the first lines of everything that people write.
check_licence() {
    (cd "$1" && lint_files "$1" '*.[ch]' '*.sh' '*.py' '*.mk' '*.am' '*.ac' '*.scd' '*.md' '*.pml' \
        '*.fio' '*.ini' '*.awk' quickstart run | while read -r file; do
        one='' two='' three=''
        { read -r one && read -r two && read -r three; } <"$file"
        case $file in
        *.[ch]) [ "$one" = '/* SPDX-License-Identifier: Apache-2.0 */' ] ;;
        *) [[ "$one $two $three" == *'SPDX-License-Identifier: Apache-2.0'* ]] ;;
        esac || echo "$file:1: no SPDX-License-Identifier line at its top"
    done)
}

expect() { lint_expect "check_$1" "${@:2}"; }

self_test() {
    local ok='/* SPDX-License-Identifier: Apache-2.0 */\n'
    expect floors peers/volume/volume.c '#include "peers/front/front.h"\n' 'may not include'
    expect floors peers/volume/volume.c '#include "peers/volume/volume.h"\n' ''
    expect floors peers/volume/volume.c '#include "volume.h"\n' 'may not include'
    expect floors xseg/xseg_page.c '#include <peer/job.h>\n' 'may not include'
    expect floors xseg/base/log.c '#include <xseg/page.h>\n' 'may not include'
    expect floors include/base/log.h '#include <xseg/page.h>\n' 'may not include'
    expect floors include/peer/job.h '#include <xseg/page.h>\n#include <peer/peer.h>\n' ''
    expect floors include/xseg/page.h '#include <peer/peer.h>\n' 'may not include'
    expect floors tools/ctl/ctl.c '#include "peers/core/core.h"\n' 'may not include'
    expect floors tools/ctl/ctl.c '#include "tools/keeper/keeper.h"\n' 'may not include'
    expect floors tools/ctl/ctl.c '#include "tools/report/fault.h"\n' ''
    expect floors tests/unit/t.c '#include "peers/core/core.h"\n' ''
    expect libraries tools/ctl.c '#include <liburing.h>\n' 'has no room here'
    expect libraries tools/ctl.c '#include <jansson.h>\n#include <sys/un.h>\n' ''
    expect libraries xseg/xseg_page.c '#include <event2/event.h>\n' 'has no room here'
    expect libraries peers/blocker/blocker_file.c '#include <liburing.h>\n' ''
    expect libraries peers/blocker/blocker_null.c '#include <liburing.h>\n' 'has no room'
    expect libraries tools/ctl.c '#include <glib.h>\n' 'unknown library'
    expect staircase xseg/xseg_page.c '#include <xseg/ring.h>\n' 'right of it'
    expect staircase xseg/xseg_lane.c '#include <xseg/ring.h>\n' ''
    expect staircase include/xseg/bell.h '#include <xseg/registry.h>\n' 'right of it'
    expect staircase xseg/xseg_other.c '#include <xseg/ring.h>\n' 'no step'
    expect conditionals xseg/a.c 'int f(void)\n{\n#ifdef X\n\tg();\n#endif\n}\n' 'inside'
    expect conditionals xseg/a.h 'struct a {\n#if X\n\tint b;\n#endif\n};\n' 'inside'
    expect conditionals xseg/a.c '/* { */\n#ifdef X\nint f(void) { }\n#endif\n' ''
    expect conditionals xseg/a.c '#define A {\n#if X\n#endif\nchar b[] = "{";\n#if Y\n#endif\n' ''
    expect licence xseg/a.c 'int a;\n' 'no SPDX'
    expect licence xseg/a.c "$ok" ''
    expect licence tests/a.sh '#!/bin/sh\n' 'no SPDX'
    expect licence tests/a.sh '#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n' ''
}

lint_main "$@"
