# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the scenario scripts share: TAP output, a private place to work in, processes that are
# stopped by their own pid on any exit, and a Skerry pipeline in one process or in three.
#
#   . "$(dirname "$0")/lib.sh"
#   scene_begin                         # before anything else; sets $SCENE_DIR
#   scene_stacked demo                  # segment, xsegpeer, volume; or skip when not built
#   tap_run "info answers" nbdinfo "$SCENE_URI"
#   tap_end                             # prints the plan, exits 0, 1, or 77 (all skipped)
#
# Interface (stable):
#   tap_ok NAME, tap_not_ok NAME, tap_skip NAME REASON
#   tap_run NAME CMD...     passes when CMD exits 0 (output shown, as '#' lines, when it does not)
#   tap_fails NAME CMD...   passes when CMD exits 1..123 (a timeout or a signal is not a refusal)
#   tap_exits N NAME CMD... passes when CMD exits exactly N
#   tap_is NAME GOT WANT    tap_like NAME GOT REGEX     compare strings, match an ERE
#   tap_note TEXT           a '#' line
#   tap_skip_all REASON     nothing can be tested here: exits 77
#   tap_end                 prints the plan and exits
#   The last command's output is in $TAP_OUT (stdout and stderr, one file).
#   TAP_LIMIT seconds (default 120) is the time limit of one command.
#
#   scene_own_mounts "$@"   before that, for who mounts something: begins the script anew in a name
#                           space of its own, where that may be. A test that makes one copies all
#                           mounts that it sees, and there they live on when they are unmounted
#   scene_begin [LABEL]     makes SCENE_DIR (files, sockets), SKERRY_RUN_DIR and SKERRY_SHM_DIR of
#                           our own, exports them, finds the binaries, sets the traps
#   scene_at_exit CMDLINE   evaluated on exit, last given first, before processes are stopped
#   scene_spawn NAME CMD... starts CMD in the background, logs to $SCENE_DIR/NAME.{out,err}
#   scene_pid NAME          its pid;  scene_alive NAME;  scene_kill SIGNAL NAME;
#                           scene_freeze PID
#   scene_stop NAME         SIGTERM, SIGKILL after SCENE_GRACE (10) s; returns its exit status
#   scene_wait_line NAME TEXT [S]   until its stdout has that line; fails when it ends
#   scene_wait_socket PATH [S]      until a UNIX socket accepts;  scene_wait_tcp HOST PORT [S]
#   scene_free_port         prints a TCP port of 127.0.0.1 nobody listens on
#   scene_have PROGRAM...   true when all are installed
#   scene_need PROGRAM...   tap_skip_all when one is not
#   scene_has_module ROLE   true when that peer is built; else a reason, and status 1
#   scene_peer NAME ARGS... xsegpeer ARGS..., waits for 'ready'
#   scene_segment NAME [SIZE]       xsegctl segment create; destroyed on exit
#   scene_stacked SEG [FRONT_OPTIONS]   front, volume with its mapper, and store in one process
#   scene_split SEG [FRONT_OPTIONS]     the same as three processes
#       SCENE_BELOW: peers that the store's edges lead to, in its process, space-separated; the
#       mapper asks the last of them: nobody meddles with maps
#       both serve volume $SCENE_VOLUME (disk, of $SCENE_SIZE, 1G) from $SCENE_STORE
#       (blocker_memory; options may follow: blocker_file,dir=...) on $SCENE_SOCKET, set
#       SCENE_URI, and use a segment of $SCENE_SEGMENT_SIZE (1G);
#       processes are named front, volume, store (stacked: only front)
#   scene_io URI [OPTION...]        qemu-io, which says of a wrong pattern only by what it prints
#   scene_module SOURCE     compiles a peer of ours, tests/lib/SOURCE, to be used beside the others
#   XSEGPEER, XSEGCTL, XSEGD: the programs, empty when not found

set -u -o pipefail

declare -A SCENE_PIDS=()
declare -a SCENE_EXITS=()
SCENE_DIR=${SCENE_DIR:-}
TAP_COUNT=0 TAP_FAILED=0 TAP_SKIPPED=0 TAP_OUT=/dev/null
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1

# --- TAP -----------------------------------------------------------------------------------

tap_note() { printf '# %s\n' "$*"; }

tap_ok() {
    TAP_COUNT=$((TAP_COUNT + 1))
    printf 'ok %d - %s\n' "$TAP_COUNT" "$1"
}

tap_not_ok() {
    TAP_COUNT=$((TAP_COUNT + 1)) TAP_FAILED=$((TAP_FAILED + 1))
    printf 'not ok %d - %s\n' "$TAP_COUNT" "$1"
}

tap_skip() {
    TAP_COUNT=$((TAP_COUNT + 1)) TAP_SKIPPED=$((TAP_SKIPPED + 1))
    printf 'ok %d - %s # SKIP %s\n' "$TAP_COUNT" "$1" "$2"
}

tap_skip_all() {
    printf '1..0 # SKIP %s\n' "$*"
    exit 77
}

# Functions run here, programs under a time limit; stdin is never the terminal.
tap_exec() {
    case $(type -t -- "$1") in
    function | builtin) "$@" ;;
    *) timeout -k 5 "${TAP_LIMIT:-120}" "$@" ;;
    esac >"$TAP_OUT" 2>&1 </dev/null
}

# The end of what a command said; of a whole test, what failed in it.
tap_show() {
    if grep -q '^not ok' -- "$TAP_OUT"; then
        grep -A 6 '^not ok' -- "$TAP_OUT"
    else
        tail -n "${TAP_LINES:-40}" -- "$TAP_OUT"
    fi | sed 's/^/#   /'
}

tap_run() {
    local name=$1 rc=0
    shift
    tap_exec "$@" || rc=$?
    if [ "$rc" -eq 0 ]; then tap_ok "$name"; return 0; fi
    tap_not_ok "$name"
    tap_note "exit $rc: $*"
    tap_show
    return 1
}

tap_fails() {
    local name=$1 rc=0
    shift
    tap_exec "$@" || rc=$?
    if [ "$rc" -ge 1 ] && [ "$rc" -le 123 ]; then tap_ok "$name"; return 0; fi
    tap_not_ok "$name"
    tap_note "exit $rc, expected a failure (1..123): $*"
    tap_show
    return 1
}

tap_exits() {
    local want=$1 name=$2 rc=0
    shift 2
    tap_exec "$@" || rc=$?
    if [ "$rc" -eq "$want" ]; then tap_ok "$name"; return 0; fi
    tap_not_ok "$name"
    tap_note "exit $rc, expected $want: $*"
    tap_show
    return 1
}

tap_is() {
    if [ "$2" = "$3" ]; then tap_ok "$1"; return 0; fi
    tap_not_ok "$1"
    tap_note "got:  $2"
    tap_note "want: $3"
    return 1
}

tap_like() {
    if [[ $2 =~ $3 ]]; then tap_ok "$1"; return 0; fi
    tap_not_ok "$1"
    tap_note "got:  $2"
    tap_note "want: /$3/"
    return 1
}

tap_end() {
    if [ "$TAP_COUNT" -eq 0 ]; then tap_skip_all "no test ran"; fi
    printf '1..%d\n' "$TAP_COUNT"
    [ "$TAP_FAILED" -eq 0 ] || exit 1
    [ "$TAP_SKIPPED" -lt "$TAP_COUNT" ] || exit 77
    exit 0
}

# --- a place to work in, left as it was found ------------------------------------------------

scene_cleanup() {
    local rc=$? name i
    trap '' EXIT HUP INT TERM
    for ((i = ${#SCENE_EXITS[@]} - 1; i >= 0; i--)); do
        eval "${SCENE_EXITS[i]}" >/dev/null 2>&1 </dev/null
    done
    for name in "${!SCENE_PIDS[@]}"; do scene_stop "$name" 2>/dev/null; done
    if [ -n "${SCENE_KEEP:-}" ]; then
        echo "# kept: $SCENE_DIR" >&2
    else
        rm -rf -- "$SCENE_DIR" "$SKERRY_SHM_DIR"
    fi
    exit "$rc"
}

# First match in the build tree; libtool's wrapper scripts exec, so pids stay ours.
scene_find() {
    local dir name=$1
    for dir in "$SCENE_BUILD" "$SCENE_BUILD/tools" "$SCENE_BUILD/peers/core"; do
        if [ -x "$dir/$name" ]; then echo "$dir/$name"; return; fi
    done
    command -v "$name"
}

scene_find_modules() {
    local dir
    for dir in "$SCENE_BUILD/modules/.libs" "$SCENE_BUILD/modules" "$SCENE_BUILD/.libs"; do
        if compgen -G "$dir/blocker_*.so" >/dev/null; then echo "$dir"; return; fi
    done
}

scene_find_build() {
    local here dir
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    for dir in "${SKERRY_BUILD:-}" "${abs_top_builddir:-}" "${top_builddir:-}" "${builddir:-}" \
        "$PWD" "$here/build" "$here"; do
        [ -n "$dir" ] || continue
        if [ -x "$dir/xsegpeer" ] || [ -x "$dir/tools/xsegpeer" ]; then
            (cd "$dir" && pwd)
            return
        fi
    done
    echo "${SKERRY_BUILD:-/nonexistent}"
}

scene_own_mounts() {
    [ -z "${SCENE_OWN_MOUNTS:-}" ] || return 0
    export SCENE_OWN_MOUNTS=tried
    if unshare -m true 2>/dev/null; then exec unshare -m bash "$0" "$@"; fi
}

scene_begin() {
    local modules
    SCENE_DIR=$(mktemp -d "${TMPDIR:-/tmp}/scene.XXXXXX") || exit 99
    export SKERRY_SHM_DIR
    SKERRY_SHM_DIR=$(mktemp -d /dev/shm/scene.XXXXXX) || exit 99
    trap scene_cleanup EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    export SKERRY_RUN_DIR=$SCENE_DIR/run
    mkdir -p "$SKERRY_RUN_DIR"
    TAP_OUT=$SCENE_DIR/tap.out
    : >"$TAP_OUT"
    SCENE_BUILD=$(scene_find_build)
    XSEGPEER=$(scene_find xsegpeer) XSEGCTL=$(scene_find xsegctl) XSEGD=$(scene_find xsegd)
    modules=$(scene_find_modules)
    if [ -z "${SKERRY_MODULE_DIR:-}" ] && [ -n "$modules" ]; then
        export SKERRY_MODULE_DIR=$modules
    fi
    [ -z "${1:-}" ] || tap_note "$1"
}

scene_at_exit() { SCENE_EXITS+=("$1"); }

scene_has_module() {
    [ -e "${SKERRY_MODULE_DIR:-/nowhere}/$1.so" ] || { echo "$1 is not built" && return 1; }
}

scene_have() {
    local p
    for p in "$@"; do command -v "$p" >/dev/null || [ -x "/usr/sbin/$p" ] || return 1; done
}

scene_need() {
    local p
    for p in "$@"; do scene_have "$p" || tap_skip_all "$p is not installed"; done
}

# --- processes -------------------------------------------------------------------------------

scene_spawn() {
    local name=$1
    shift
    # what one of that name said before must not be read as this one's
    : >"$SCENE_DIR/$name.out"
    "$@" >"$SCENE_DIR/$name.out" 2>"$SCENE_DIR/$name.err" </dev/null &
    SCENE_PIDS[$name]=$!
}

scene_pid() { echo "${SCENE_PIDS[$1]}"; }

# Still our child? The shell takes note of a child's end by itself, and another test's process may
# have its pid by then.
scene_is_child() { # PID
    [ -n "$1" ] && grep -qE "^PPid:[[:space:]]+($$|$BASHPID)\$" "/proc/$1/status" 2>/dev/null
}

scene_alive() { scene_is_child "${SCENE_PIDS[$1]:-}"; }

scene_gone() { ! scene_alive "$1"; }

scene_kill() { scene_alive "$2" && kill -s "$1" "${SCENE_PIDS[$2]}"; }

scene_frozen() { [ -z "$(grep -LE '^State:.[TtZX]' /proc/"$1"/task/*/status 2>/dev/null)" ]; }

# SIGSTOP, until it is true: on a busy machine other threads go on until the first has seen it.
scene_freeze() { # PID
    kill -s STOP "$1" && scene_until 60 scene_frozen "$1"
}

scene_stop() {
    local name=$1 pid=${SCENE_PIDS[$1]:-} tries rc
    [ -n "$pid" ] || return 0
    unset "SCENE_PIDS[$name]"
    scene_is_child "$pid" && kill -s TERM "$pid" 2>/dev/null
    for ((tries = ${SCENE_GRACE:-10} * 20; tries > 0; tries--)); do
        scene_is_child "$pid" || break
        sleep 0.05
    done
    if [ "$tries" -eq 0 ]; then kill -s KILL "$pid" 2>/dev/null; fi
    wait "$pid" 2>/dev/null
    rc=$?
    return "$rc"
}

# Hundredths of a second since the boot: whoever sets the clock does not end anybody's patience.
scene_now() {
    local up
    read -r up _ </proc/uptime
    echo "${up/./}"
}

# Polls CMD, from every 20 ms on to five times a second the longer it takes: whoever is waited for
# needs the CPU, too. SECONDS are those of an idle machine; a busy one has SCENE_PATIENCE times
# as many, since a test is not to fail for being slow.
scene_until() {
    local begin now nap end
    begin=$(scene_now)
    end=$((begin + $1 * 100 * ${SCENE_PATIENCE:-6}))
    shift
    until "$@" >/dev/null 2>&1; do
        now=$(scene_now)
        [ "$now" -lt "$end" ] || return 1
        nap=$(((now - begin) / 8))
        printf -v nap '0.%02d' $((nap < 2 ? 2 : nap > 20 ? 20 : nap))
        sleep "$nap"
    done
}

scene_has_line_or_ended() { grep -qxF -- "$2" "$SCENE_DIR/$1.out" || ! scene_alive "$1"; }

scene_wait_line() {
    scene_until "${3:-20}" scene_has_line_or_ended "$1" "$2"
    grep -qxF -- "$2" "$SCENE_DIR/$1.out" && return 0
    echo "# $1 did not say '$2':" >&2
    tail -n 20 "$SCENE_DIR/$1.err" "$SCENE_DIR/$1.out" | sed 's/^/#   /' >&2
    return 1
}

scene_connects() {
    python3 - "$@" <<'PY'
import socket, sys
try:
    if len(sys.argv) == 2:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(2)
        s.connect(sys.argv[1])
    else:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
except OSError:
    sys.exit(1)
PY
}

scene_wait_socket() {
    scene_until "${2:-20}" test -S "$1" && scene_until "${2:-20}" scene_connects "$1"
}

scene_wait_tcp() { scene_until "${3:-20}" scene_connects "$1" "$2"; }

# None of those that the kernel gives to whoever connects somewhere: a server that is killed gets
# its port again.
scene_free_port() {
    python3 -c 'import random, socket
low = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
while True:
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", random.randrange(10240, low) if low > 20480 else 0))
    except OSError:
        continue
    print(s.getsockname()[1])
    break'
}

# --- a Skerry pipeline -----------------------------------------------------------------------

scene_need_skerry() {
    if [ -z "$XSEGPEER" ] || [ -z "$XSEGCTL" ]; then
        tap_skip_all "xsegpeer and xsegctl are not built; say where with SKERRY_BUILD"
    fi
}

scene_segment() {
    "$XSEGCTL" segment create "$1" --size "${2:-1G}" >"$SCENE_DIR/segment.$1.log" 2>&1 || {
        sed 's/^/#   /' "$SCENE_DIR/segment.$1.log" >&2
        return 1
    }
    # Processes first: a segment in use is not destroyed.
    scene_at_exit "for n in \"\${!SCENE_PIDS[@]}\"; do scene_stop \"\$n\"; done
        '$XSEGCTL' segment destroy '$1' --yes"
}

scene_peer() {
    local name=$1
    shift
    scene_spawn "$name" "$XSEGPEER" "$@"
    scene_wait_line "$name" ready
}

scene_io() {
    local said
    said=$(timeout 240 qemu-io -f raw "$@" 2>&1)
    local status=$?
    printf '%s\n' "$said"
    [ $status -eq 0 ] && [[ ! $said =~ rror|ailed ]]
}

scene_module() {
    local top from=${SKERRY_MODULE_DIR:-} name=${1%.c}
    top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    mkdir -p "$SCENE_DIR/modules"
    # shellcheck disable=SC2086  # CC may hold options
    ${CC:-cc} -std=gnu17 -D_GNU_SOURCE -O2 -shared -fPIC -fvisibility=hidden -I"$top/include" \
        -I"$top" -o "$SCENE_DIR/modules/$name.so" "$top/tests/lib/$1" || return
    if [ "$from" != "$SCENE_DIR/modules" ]; then ln -sf "$from"/*.so "$SCENE_DIR/modules"; fi
    export SKERRY_MODULE_DIR=$SCENE_DIR/modules
}

scene_parts() {
    SCENE_VOLUME=${SCENE_VOLUME:-disk} SCENE_SIZE=${SCENE_SIZE:-1G}
    SCENE_SOCKET=$SCENE_DIR/$1.sock
    SCENE_URI="nbd+unix:///$SCENE_VOLUME?socket=$SCENE_SOCKET"
    SCENE_FRONT="nbd0=front_nbd,listen=unix:$SCENE_SOCKET,edge.volume=vol0${2:+,$2}"
    SCENE_COMPOSER="vol0=volume,edge.store=store0,edge.map=map0"
    SCENE_BOTTOM="store0=${SCENE_STORE:-blocker_memory}" SCENE_BELOW=${SCENE_BELOW:-}
    local bottom=${SCENE_BELOW:-store0}
    bottom=${bottom##* }
    SCENE_MAPPER="map0=mapperd,edge.store=${bottom%%=*}"
}

scene_volume() {
    "$XSEGCTL" -s "$1" volume create "$SCENE_VOLUME" --size "$SCENE_SIZE" \
        >"$SCENE_DIR/volume.log" 2>&1 || {
        sed 's/^/#   /' "$SCENE_DIR/volume.log" >&2
        return 1
    }
}

# shellcheck disable=SC2086  # SCENE_BELOW is several words
scene_stacked() {
    scene_need_skerry
    scene_parts "$@"
    scene_segment "$1" "${SCENE_SEGMENT_SIZE:-1G}" &&
        scene_peer front -s "$1" "$SCENE_FRONT" "$SCENE_COMPOSER" "$SCENE_MAPPER" "$SCENE_BOTTOM" \
            $SCENE_BELOW &&
        scene_volume "$1" && scene_wait_socket "$SCENE_SOCKET"
}

# shellcheck disable=SC2086
scene_split() {
    scene_need_skerry
    scene_parts "$@"
    scene_segment "$1" "${SCENE_SEGMENT_SIZE:-1G}" &&
        scene_peer store -s "$1" "$SCENE_BOTTOM" $SCENE_BELOW &&
        scene_peer volume -s "$1" "$SCENE_COMPOSER" "$SCENE_MAPPER" &&
        scene_peer front -s "$1" "$SCENE_FRONT" &&
        scene_volume "$1" && scene_wait_socket "$SCENE_SOCKET"
}
