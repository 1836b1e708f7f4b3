#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The program that hosts peers: what it says and how it ends. Command line, start, signals, stops.

. "$(dirname "$0")/lib.sh"
scene_begin "xsegpeer"
scene_need_skerry

out() { cat -- "$TAP_OUT"; }
refused() {
    local name=$1 want=$2
    shift 2
    tap_exits 2 "$name" "$XSEGPEER" "$@"
    tap_like "$name: says so" "$(out)" "$want"
    tap_is "$name: in one line" "$(out | wc -l)" 1
}

# --- words ----------------------------------------------------------------------------------
tap_exits 0 "--help" "$XSEGPEER" --help
tap_like "help shows the use" "$(out)" 'Usage: xsegpeer -s SEGMENT'
tap_exits 0 "--version" "$XSEGPEER" --version
tap_exits 0 "--list" "$XSEGPEER" --list
for role in blocker_null mapperd blocker_memory blocker_pattern volume front_nbd; do
    tap_like "the list has $role" "$(out)" "(^|"$'\n'")$role  "
done
tap_exits 0 "--help-role" "$XSEGPEER" --help-role volume
tap_like "its edges are there" "$(out)" 'edge\.store=PEER'
tap_exits 3 "--help-role of a role that is not" "$XSEGPEER" --help-role blocker_nul
tap_like "the nearest is named" "$(out)" "did you mean 'blocker_null'"
for role in $("$XSEGPEER" --list | cut -d' ' -f1); do
    tap_run "man page of $role" "$XSEGPEER" --man "$role"
    if scene_have scdoc; then
        scdoc <"$TAP_OUT" >"$SCENE_DIR/page" 2>&1
        tap_is "scdoc takes it" $? 0
    fi
done

# --- the command line -------------------------------------------------------------------------
refused "no segment" 'no segment is named' a=blocker_null
refused "no peer" 'no peer is named' -s demo
refused "no lanes" '--lanes takes 1 to 16' -s demo -l 0 a=blocker_null
refused "too many lanes" '--lanes takes 1 to 16' -s demo -l 17 a=blocker_null
refused "workers" '--workers takes 1 to 64' -s demo --workers x a=blocker_null
refused "a time of no known unit" 'a time such as' -s demo --drain-limit 5d a=blocker_null
refused "a log level" 'error, warning, info or debug' -s demo --log-level loud a=blocker_null
refused "a role that is not" "did you mean 'blocker_memory'" -s demo a=blocker_memroy
refused "an option that is not" "has no option 'sice'" -s demo a=blocker_memory,sice=4
refused "an edge that is not" "did you mean 'edge.store'" -s demo a=volume,edge.stor=b
refused "a name twice" "is named twice" -s demo a=blocker_null a=blocker_null
refused "a bad name" "is not a peer's name" -s demo a/b=blocker_null

# --- a segment that is not ----------------------------------------------------------------------
tap_exits 1 "no such segment" "$XSEGPEER" -s nosuch a=blocker_null
tap_like "says how to make it" "$(out)" "segment 'nosuch' does not exist; create it with"
scene_segment demo 64M
tap_exits 1 "an edge that leads nowhere" "$XSEGPEER" -s demo v=volume
tap_like "names the edge" "$(out)" "peer 'v': its edge 'store' leads nowhere"

# --- serving, and a clean stop --------------------------------------------------------------------
scene_peer first -s demo -l 2 v=volume,edge.store=m,edge.map=p \
    p=mapperd,edge.store=m m=blocker_memory
tap_is "it is ready" $? 0
tap_exits 1 "a name that is taken" "$XSEGPEER" -s demo m=blocker_memory
tap_like "says so" "$(out)" "peer 'm' is running already in segment 'demo'"
tap_run "it serves" "$XSEGCTL" -s demo volume create disk --size 4M
private=$(awk '/^Private_(Clean|Dirty)/ { sum += $2 } END { print sum }' \
    "/proc/$(scene_pid first)/smaps_rollup")
# what lies in the segment may count as private while one process alone has touched it
anonymous=$(awk '/^RssAnon/ { print $2 }' "/proc/$(scene_pid first)/status")
tap_note "private ${private} KiB, anonymous ${anonymous} KiB"
tap_is "its own memory is under 16 MiB" "$([ "$anonymous" -lt 16384 ] && echo yes)" yes
scene_kill USR1 first
scene_until 5 grep -q 'lane 1' "$SCENE_DIR/first.err"
tap_like "SIGUSR1 shows lanes and peers" "$(cat "$SCENE_DIR/first.err")" 'peer m \(blocker_memory\)'
scene_stop first
tap_is "SIGTERM: it ends with 0" $? 0
tap_is "nothing was logged" "$(grep -c '<[34]>' "$SCENE_DIR/first.err")" 0
tap_is "no lane is left" "$("$XSEGCTL" segment destroy demo --yes >/dev/null 2>&1; echo $?)" 0
scene_segment demo 64M

# --- dump file, notify, parent -----------------------------------------------------------
cat >"$SCENE_DIR/notify.py" <<'PY'
import os, signal, socket, subprocess, sys
path, *command = sys.argv[1:]
PATIENCE = 60  # for what has to come, however busy the machine is
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(path)


def heard(seconds):
    s.settimeout(seconds)
    try:
        return s.recv(4096)
    except TimeoutError:
        return b""


def check(p):
    ready, alive = heard(PATIENCE), [heard(PATIENCE)]
    for _ in range(10 * PATIENCE):  # a signal in between puts the next one not off
        p.send_signal(signal.SIGUSR1)
        alive += filter(None, [heard(0.1)])
        if len(alive) == 2:
            break
    p.send_signal(signal.SIGSTOP)
    os.waitpid(p.pid, os.WUNTRACED)
    while heard(0.1):  # from before
        pass
    silent = not heard(3)
    p.send_signal(signal.SIGCONT)
    p.terminate()
    stopping = heard(PATIENCE)
    while b"WATCHDOG" in stopping:
        stopping = heard(PATIENCE)
    return (b"READY=1" in ready and alive == [b"WATCHDOG=1"] * 2 and silent and
            b"STOPPING=1" in stopping and p.wait(PATIENCE) == 0)


env = dict(os.environ, NOTIFY_SOCKET=path, WATCHDOG_USEC="3000000")
with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as peer:
    try:
        ok = check(peer)
    finally:
        peer.kill()
sys.exit(not ok)
PY
tap_run "the service manager is told: ready, alive, stopping" python3 "$SCENE_DIR/notify.py" \
    "$SCENE_DIR/notify" \
    "$XSEGPEER" -s demo --die-with-parent n=blocker_null
scene_peer second -s demo --dump-file "$SCENE_DIR/dump" n=blocker_null
scene_kill USR1 second
tap_run "the dump goes to a file" scene_until 5 grep -q 'peer n' "$SCENE_DIR/dump"
scene_stop second
# shellcheck disable=SC2016
scene_spawn parent bash -c '"$@" & echo $! >"$0"; wait' "$SCENE_DIR/child" \
    "$XSEGPEER" -s demo --die-with-parent n=blocker_null
scene_wait_line parent ready
child=$(cat "$SCENE_DIR/child")
scene_kill KILL parent
tap_run "it ends with its parent" scene_until 10 test ! -e "/proc/$child/stat"

# --- a stop that cannot end -----------------------------------------------------------
if scene_module blocker_stuck.c; then
    hang() { # NAME OPTIONS...: serves, with a question on its way that nobody answers
        local name=$1
        shift
        scene_peer "$name" -s demo "$@" v=volume,edge.store=s,edge.map=p \
            p=mapperd,edge.store=s s=blocker_stuck
        timeout 2 "$XSEGCTL" -s demo volume list >/dev/null 2>&1
    }
    hang third --drain-limit 1s
    scene_stop third
    tap_is "the drain limit ends it with 1" $? 1
    tap_like "it says what is left" "$(cat "$SCENE_DIR/third.err")" 'job: '
    hang fourth
    scene_kill TERM fourth
    sleep 0.5
    tap_run "it waits for what is in flight" scene_alive fourth
    SCENE_GRACE=5 scene_stop fourth
    tap_is "a second SIGTERM ends it with 1" $? 1
    # its successor finds what was left in the segment, and clients go on
    scene_peer fifth -s demo v=volume,edge.store=m,edge.map=p \
    p=mapperd,edge.store=m m=blocker_memory
    tap_run "the segment serves on" "$XSEGCTL" -s demo volume create disk --size 4M
    scene_stop fifth
else
    tap_skip "stops that cannot end" "no compiler"
fi

tap_end
