#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# An exported function begins with the stem of its file, so that its name says where it is:
# volume_open.c defines volume_open() and volume_open_admit(). The stem of the header that declares
# it will do, too, but not that of a room's general header, which says nothing (cache.h). The room's
# name may be left out (core_job.c: job_fail()). What include/xseg/ and include/peer/ declare may
# begin with xseg_ and peer_. Of several builds of one thing (nbd_tls_none.c) the last word is left
# out.

. "$(dirname "$0")/lint.sh"

lint_need ctags
if ! ctags --version | grep -q Universal; then
    echo '1..0 # SKIP ctags is not Universal Ctags'
    exit 77
fi

check_names() {
    (cd "$1" && lint_files "$1" '*.c' '*.h' | grep -E '^(include|xseg|peers|tools)/' |
        xargs -r ctags -f - --sort=no --languages=C --langmap=C:.c.h --kinds-C=fp --fields=+Kn \
            --excmd=number 2>/dev/null |
        awk -F '\t' '
        function stem_of(path) {
            sub(/.*\//, "", path); sub(/(_priv)?\.[ch]$/, "", path)
            return path
        }
        function begins(name, stem) {
            return name == stem || index(name, stem "_") == 1
        }
        function fits(name, stem) {
            if (begins(name, stem)) return 1
            if (sub(/_none$/, "", stem) && begins(name, stem)) return 1
            return sub(/^(core|xseg|cache|volume)_/, "", stem) && begins(name, stem)
        }
        $4 == "prototype" && $2 ~ /\.h$/ { declared[$1] = declared[$1] " " $2; next }
        $4 == "function" && $2 ~ /\.c$/ && $0 !~ /\tfile:/ && $1 != "main" {
            line = 0
            for (i = 4; i <= NF; i++) if ($i ~ /^line:/) line = substr($i, 6)
            name[++count] = $1; file[count] = $2; at[count] = line
        }
        END {
            for (i = 1; i <= count; i++) {
                good = fits(name[i], stem_of(file[i]))
                n = split(declared[name[i]], headers, " ")
                for (h = 1; h <= n && !good; h++) {
                    if (headers[h] ~ /\/(core|cache|nbd|mapper|volume|ctl|keeper)\.h$/ &&
                        headers[h] !~ /^include\//) continue
                    good = fits(name[i], stem_of(headers[h])) ||
                        headers[h] ~ /^include\/(xseg|peer)\// && name[i] ~ /^(xseg|peer)_/
                }
                if (!good)
                    print file[i] ":" at[i] ": " name[i] "() does not begin with " \
                        stem_of(file[i]) "_"
            }
        }')
}

expect() { lint_expect "check_$1" "${@:2}"; }

self_test() {
    expect names peers/volume/volume_open.c 'int volume_find(void)\n{\n}\n' 'volume_open_'
    expect names peers/volume/volume_open.c 'int volume_open_find(void)\n{\n}\n' ''
    expect names peers/volume/volume_open.c 'static int find(void)\n{\n}\n' ''
    expect names peers/core/core_job.c 'int job_fail(void)\n{\n}\n' ''
    expect names peers/front/nbd_tls_none.c 'int nbd_tls_open(void)\n{\n}\n' ''
    expect names tools/ctl/ctl_top.c 'int top(void)\n{\n}\n' 'ctl_top_'
}

lint_main "$@"
