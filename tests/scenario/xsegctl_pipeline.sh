#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# up and down: what is wrong with a file is said with its line; a pipeline comes up whole or not at
# all; two keepers never keep one segment.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "xsegctl up and down"

conf=$SCENE_DIR/p.conf
run=$SKERRY_RUN_DIR/p
down_at_exit p

nothing_left() { # NAME
    tap_is "$1: no segment is left" "$(ls -A "$SKERRY_SHM_DIR")" ''
    tap_is "$1: no socket, lock or bell is left" \
        "$(find "$SKERRY_RUN_DIR" -mindepth 2 ! -name '*.log' ! -name 'events.jsonl*' | head -3)" ''
}

# --- files with mistakes ----------------------------------------------------------------------
wrong() { # LINE NAME REGEX, the file on stdin
    cat >"$conf"
    ctl_exits 2 "$2" up "$conf"
    err_like "$2: says where and what" "p.conf:$1: .*$3"
    nothing_left "$2"
}
head='[segment]
name = p
size = 64M
'
wrong 4 "an unknown section" "unknown section \[pear x\]; did you mean 'peer'" \
    <<<"${head}[pear x]"
wrong 4 "an unknown key of the segment" "unknown key 'sise' in \[segment\]; did you mean 'size'" \
    <<<"${head}sise = 1G"
wrong 5 "an unknown key of a host" "unknown key 'lane'.*did you mean 'lanes'" \
    <<<"${head}[host h]
lane = 2"
wrong 5 "an unknown role" "unknown role 'blocker_memori'; did you mean 'blocker_memory'" \
    <<<"${head}[peer mem0]
role = blocker_memori"
wrong 7 "an unknown option" "role volume has no option 'object-sise'; did you mean 'object-size'" \
    <<<"${head}[peer vol0]
role = volume
# a comment
object-sise = 4M
edge.store = mem0
edge.map = mem0
[peer mem0]
role = blocker_memory"
wrong 6 "an unknown edge" "no edge 'edge.stor'; did you mean 'edge.store'" <<<"${head}[peer vol0]
role = volume
edge.stor = mem0
[peer mem0]
role = blocker_memory"
wrong 6 "an edge to nobody" "leads to 'mem1', but there is no such peer; did you mean 'mem0'" \
    <<<"${head}[peer vol0]
role = volume
edge.store = mem1
[peer mem0]
role = blocker_memory"
wrong 6 "a bad value" "option 'object-size'" <<<"${head}[peer vol0]
role = volume
object-size = 12
edge.store = mem0
edge.map = map0
[peer mem0]
role = blocker_memory
[peer map0]
role = mapperd
edge.store = mem0"
wrong 4 "an edge that is missing" "needs edge.store=PEER" <<<"${head}[peer vol0]
role = volume"
wrong 4 "a required option that is missing" "needs option 'dir'" <<<"${head}[peer f]
role = blocker_file"
wrong 4 "no role" "has no role" <<<"${head}[peer f]
host = x"
wrong 9 "a circle" "closes a circle: it leads back to 'a'" <<<"${head}[peer a]
role = volume
edge.store = b
[peer b]
role = volume
edge.store = a"
wrong 4 "a line that is none" "neither a key nor a section" <<<"${head}what is this"
wrong 1 "a key before any section" "before any section" <<<'name = p'
wrong 3 "a size that is none" "not a segment size" <<<'[segment]
name = p
size = lots'
wrong 6 "a role twice" "role is given twice, first in line 5" <<<"${head}[peer a]
role = blocker_null
role = blocker_memory"
wrong 4 "a host that nobody lives in" "no peer lives in host 'h'" <<<"${head}[host h]
lanes = 2
[peer a]
role = blocker_null"
wrong 4 "a peer of the keeper's name" "the keeper's own name" <<<"${head}[peer xsegd]
role = blocker_null"
wrong 5 "a host with too many lanes" "1 to 16" <<<"${head}[host h]
lanes = 99"
printf '%s[peer a]\nrole = %05000d\n' "$head" 0 | wrong 5 "a line without end" "longer than"
ctl_exits 2 "an empty file" up /dev/null
ctl_exits 3 "no such file" up "$SCENE_DIR/none.conf"
ctl_exits 2 "no file" up
printf '[segment]\nsize=64M\n[peer m]\nrole=blocker_memory\n' >"$conf"
ctl_exits 2 "a file without a name" up "$conf"
err_like "says so" "does not say which segment"
rm -f "$conf"

# FILE.d is read, too: a key there replaces, an unknown one is found there
mkdir "$conf.d"
pipeline "$conf" p
printf '[peer mem0]\nrole = blocker_nul\n' >"$conf.d/10-x.conf"
ctl_exits 2 "a mistake in FILE.d" up "$conf"
err_like "it is named" "conf.d/10-x.conf:2: unknown role 'blocker_nul'"
mv "$conf.d" "$SCENE_DIR/conf.d"
ctl_exits 2 "one for all files beside it" up "$conf"
err_like "is told where to go" "move its files to '$conf.d'"
rm -r "$SCENE_DIR/conf.d"

# --- up, and up again -------------------------------------------------------------------------
pipeline "$conf" p
ctl_exits 0 "up" up "$conf" --json
json_is "it is healthy, changed, and the keeper runs" \
    '[.healthy, .changed, .keeper.state, .schema_version] | @csv' 'true,true,"running",1'
json_is "all peers serve" '[.peers[] | "\(.name) \(.state) \(.health)"] | sort | join(",")' \
    'map0 serving ok,mem0 serving ok,nbd0 serving ok,vol0 serving ok'
json_is "edges lead where the file says" '[.edges[] | "\(.name)>\(.to)"] | sort | join(",")' \
    'map0:store>mem0,nbd0:volume>vol0,vol0:map>map0,vol0:store>mem0'
tap_run "the front listens" scene_connects "$SCENE_DIR/p.sock"
tap_is "its socket is for its group" "$(stat -c %a "$run/xsegd.sock")" 660
pid=$(keeper_pid p)
ctl_exits 0 "up again is fine" up "$conf" --json
json_is "nothing changed" .changed false
tap_is "it is the same keeper" "$(keeper_pid p)" "$pid"
sed 's/64M/65M/' "$conf" >"$SCENE_DIR/other.conf"
ctl_exits 4 "another file for it is not" up "$SCENE_DIR/other.conf"
tap_exits 4 "a second xsegd refuses" "$XSEGD" p "$conf"
tap_like "it says who is first" "$(cat "$TAP_OUT")" "has a keeper already \(pid $pid\)"
ctl_exits 5 "the segment is not destroyed under it" segment destroy p --yes
ctl_exits 0 "down --dry-run" down --dry-run
tap_run "it runs on" kill -0 "$pid"
ctl_exits 0 "down" down p --json
json_is "all was stopped" '[.stopped_count, .segment_destroyed] | @csv' '2,true'
tap_run "the keeper has ended" scene_until 30 gone "$pid"
nothing_left "down"
ctl_exits 3 "down of what is not up" down p

# two at once: one keeper, and neither fails for any other reason
"$XSEGCTL" up "$conf" >"$SCENE_DIR/a" 2>&1 &
first=$!
ctl up "$conf"
second=$RC
wait "$first"
first=$?
tap_like "two at once: one is up, the other up, too, or second" "$first $second" \
    '^(0 0|0 [45]|[45] 0)$'
ctl_exits 0 "it is well" -s p status
ctl_exits 0 "down" down

# a segment that was there before stays
ctl segment create p --size 64M
ctl_exits 0 "up in a segment of somebody else" up "$conf"
ctl_exits 0 "down" down --json
json_is "the segment stays" .segment_destroyed false
ctl_exits 0 "it is his to destroy" segment destroy p --yes
ctl segment create p --size 32M
ctl_exits 4 "a segment of another size" up "$conf"
ctl segment destroy p --yes

# --- peers that do not start ------------------------------------------------------------------
fails() { # CODE NAME REGEX
    ctl_exits "$1" "$2" up "$conf" --timeout 10s
    err_like "$2: says why" "$3"
    nothing_left "$2"
}
pipeline "$conf" p 'role = blocker_file' "dir = $SCENE_DIR/p.conf/below"
fails 1 "a store without its folder" "'mem0' does not start: .*(Not a directory|below)"
err_like "the log is named" "its log is $run/mem0.log"

port=$(scene_free_port)
scene_spawn taken python3 -c "
import socket, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', $port)); s.listen(); print('ready', flush=True); time.sleep(600)"
scene_wait_line taken ready
pipeline "$conf" p
sed -i "s|^listen = .*|listen = tcp:127.0.0.1:$port|" "$conf"
fails 1 "a port in use" "'front' does not start: .*(in use|$port)"
tap_like "the store that had started is stopped" "$(tail -n 4 "$run/xsegd.log")" \
    "'mem0' \(pid [0-9]+\) has stopped"
scene_stop taken

# one that never gets ready: a program that only looks like xsegpeer
cat >"$SCENE_DIR/lazy" <<SH
#!/bin/sh
case \$* in *--list*|*--describe-role*|*--check*) exec $XSEGPEER "\$@" ;; esac
exec sleep 600
SH
chmod +x "$SCENE_DIR/lazy"
pipeline "$conf" p
SKERRY_XSEGPEER=$SCENE_DIR/lazy ctl_exits 7 "one that is not ready in time" up "$conf" --timeout 1s
err_like "says so" "'mem0' does not start: it was not ready within"
nothing_left "one that is not ready in time"
SKERRY_XSEGPEER=$SCENE_DIR/none ctl_exits 1 "no xsegpeer" up "$conf"
nothing_left "no xsegpeer"
SKERRY_MODULE_DIR=$SCENE_DIR ctl_exits 1 "no roles" up "$conf"

# ^C while it starts
SKERRY_XSEGPEER=$SCENE_DIR/lazy scene_spawn up "$XSEGCTL" up "$conf"
scene_until 10 test -S "$run/xsegd.sock"
scene_kill INT up
wait "$(scene_pid up)"
tap_is "^C while it comes up" "$?" 1
nothing_left "^C"

# a disk that is full when the segment is made
full=$SCENE_DIR/full
mkdir "$full"
if mount -t tmpfs -o size=4M none "$full" 2>/dev/null; then
    scene_at_exit "umount '$full'"
    SKERRY_SHM_DIR=$full ctl_exits 1 "up on a full disk" up "$conf"
    tap_is "nothing is left on it" "$(ls -A "$full")" ''
else
    tap_skip "up on a full disk" "no tmpfs can be mounted here"
fi
: >"$SCENE_DIR/file"
SKERRY_RUN_DIR=$SCENE_DIR/file ctl_exits 1 "a run folder that is a file" up "$conf"
err_like "says how to move it" "SKERRY_RUN_DIR"

# --- in the foreground ------------------------------------------------------------------------
scene_spawn keeper "$XSEGCTL" up "$conf" --foreground
keeper_runs() { "$XSEGCTL" -s p status | grep -q 'keeper: running'; }
scene_until 20 keeper_runs
ctl_exits 0 "up --foreground serves" -s p status
scene_stop keeper
tap_is "SIGTERM takes it down" "$?" 0
nothing_left "SIGTERM"
tap_exits 0 "xsegd --check" "$XSEGD" --check "$conf"
nothing_left "--check"
tap_end
