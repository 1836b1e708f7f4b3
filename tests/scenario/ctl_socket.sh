#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The control socket: rpc.describe tells the truth about every call; wrong and hostile JSON,
# thousands of connections and pipelined requests cost bounded memory, and others are served
# meanwhile.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "the control socket"
down_at_exit s
export SKERRY_SEGMENT=s
pipeline "$SCENE_DIR/s.conf" s
ctl_exits 0 "up" up "$SCENE_DIR/s.conf"
keeper=$(keeper_pid s)
helper=$(dirname "$0")/ctl_socket_ask.py
check() { tap_run "$1" python3 "$helper" "$SKERRY_RUN_DIR/s/xsegd.sock" "$keeper" "$2"; }
check "rpc.describe: what each call takes is what it accepts" describe
check "what each call gives is what it says" results
check "deep nesting" deep
check "huge strings and long lines" huge
check "invalid UTF-8 and control characters" utf8
check "unknown and strange ids" ids
check "pipelined requests are answered in order" pipelined
check "half lines, byte by byte" halves
check "thousands of connections" crowd
check "many who never read" deaf
check "mutants of good calls" mutants
# who may speak to the keeper: members of its group, by whatever group of theirs
as() { # GROUPS COMMAND...
    setpriv --reuid=65534 --regid=65534 "$1" "${@:2}"
}
if [ "$(id -u)" -eq 0 ] && scene_have setpriv; then
    chmod 0711 "$SCENE_DIR"
    if as --groups=0 "$XSEGCTL" help >/dev/null 2>&1; then
        tap_run "a member of the group, by a further one of his" as --groups=0 \
            "$XSEGCTL" config diff "$SCENE_DIR/s.conf"
        tap_fails "somebody else" as --clear-groups "$XSEGCTL" config diff "$SCENE_DIR/s.conf"
    else
        tap_skip "members of the group" "nobody may not read this build"
    fi
fi
tap_is "it is the same keeper" "$(keeper_pid s)" "$keeper"
ctl_exits 0 "all is well" status
ctl_exits 0 "down" down
tap_end
