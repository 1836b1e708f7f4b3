#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The control socket: rpc.describe tells the truth about every call; wrong and hostile JSON,
# thousands of connections and pipelined requests cost bounded memory, and others are served
# meanwhile.

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
# who may speak to the keeper: members of its group, by whatever group of theirs. setpriv itself
# still gets into folders that are closed to them; env, which it runs, does not
as() { # GROUPS COMMAND...
    setpriv --reuid=65534 --regid=65534 "$1" env "${@:2}"
}
if [ "$(id -u)" -eq 0 ] && scene_have setpriv; then
    chmod 0711 "$SCENE_DIR"
    if as --groups=0 "$XSEGCTL" help >/dev/null 2>&1 &&
        as --groups=0 "$XSEGD" --version >/dev/null 2>&1; then
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

# as the user of libvirt's machines, whose numbers these are in Debian
machine() { setpriv --reuid=64055 --regid=64055 --clear-groups env "$@"; }
if [ "$(id -u)" -eq 0 ] && scene_have setpriv && scene_have nbdinfo &&
    machine "$XSEGCTL" help >/dev/null 2>&1 && machine "$XSEGD" --version >/dev/null 2>&1; then
    sed -i 's/^size = 64M$/&\nsocket-group = 64055/; s/^listen = .*/&\nsocket-group = 64055/' \
        "$SCENE_DIR/s.conf"
    ctl_exits 0 "up, with sockets for a group" up "$SCENE_DIR/s.conf"
    ctl_exits 0 "a volume" volume create disk --size 4M
    chmod 0711 "$SCENE_DIR"
    tap_run "a machine's user reaches its disk" machine nbdinfo --size \
        "nbd+unix:///disk?socket=$SCENE_DIR/s.sock"
    tap_run "and the keeper" machine "$XSEGCTL" config diff "$SCENE_DIR/s.conf"
    tap_fails "somebody else does not: the disk" as --clear-groups nbdinfo --size \
        "nbd+unix:///disk?socket=$SCENE_DIR/s.sock"
    tap_fails "nor the keeper" as --clear-groups "$XSEGCTL" config diff "$SCENE_DIR/s.conf"
    tap_fails "nor jobs" as --clear-groups "$XSEGCTL" job list
    tap_like "which is said" "$(<"$TAP_OUT")" "may not be asked by this user"
    tap_fails "nor what else is there" as --clear-groups ls "$SKERRY_RUN_DIR/s"
    kill -s KILL "$(ctl status --json; jq .keeper.guard_pid "$SCENE_DIR/ctl.out")" "$(keeper_pid s)"
    ctl_exits 0 "the next keeper" up "$SCENE_DIR/s.conf"
    tap_run "lets it in, too" machine "$XSEGCTL" config diff "$SCENE_DIR/s.conf"
    ctl_exits 0 "down" down
    sed -i 's/^socket-group = 64055$/socket-group = no-such-group/' "$SCENE_DIR/s.conf"
    ctl_exits 2 "a group that is none" up "$SCENE_DIR/s.conf"
    err_like "is said" "socket-group='no-such-group': there is no such group"
else
    tap_skip "a machine's user" "not root, or that user may not read this build"
fi
tap_end
