# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
STORE_SHARED=shared=yes
store_variants() {
    local io
    for io in uring threads; do
        echo "1 dir=$STORE_DIR/$io,io=$io"
        echo "2 dir=$STORE_DIR/$io,io=$io,fds=16,depth=3"
    done
}
store_stopped() { # OPTIONS
    local dir=${1#dir=}
    dir=${dir%%,*}
    tap_is "... and leaves no object" "$(find "$dir/objects" -type f | wc -l)" 0
    tap_run "... and says that it left all durable" test -e "$dir/clean"
}
