#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The keeper: deaths are seen, a killed keeper's successor adopts, peers and edges change at run
# time, and its socket takes nothing amiss.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "xsegctl keeper, peer and edge"

conf=$SCENE_DIR/k.conf
run=$SKERRY_RUN_DIR/k
sock=$run/xsegd.sock
down_at_exit k
export SKERRY_SEGMENT=k

# One line out, one line back.
rpc() {
    python3 - "$sock" "$1" <<'PY'
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(sys.argv[1])
s.sendall(sys.argv[2].encode("utf-8", "surrogateescape") + b"\n")
line = s.makefile().readline()
print(line, end="")
PY
}
rpc_is() { tap_is "$1" "$(rpc "$2" | jq -r "$3")" "$4"; }

# --- calls without a keeper -------------------------------------------------------------------
ctl segment create k --size 64M
ctl_exits 6 "peer start without a keeper" peer start m=blocker_memory
err_like "says how to start one" "the keeper of segment 'k' is away.*xsegctl up"
ctl_exits 6 "edge set without a keeper" edge set a:b c
ctl_exits 6 "down without a keeper" down
ctl_exits 0 "status without a keeper" status
out_like "says so" "keeper: away"
ctl_exits 0 "stats without a keeper" stats
ctl_exits 0 "peer list without a keeper" peer list --json
json_is "nobody is there" '.peers | length' 0
ctl segment destroy k --yes

# --- a keeper is killed, its successor adopts -------------------------------------------------
pipeline "$conf" k
# here who dies stays dead; tests/scenario/keeper_*.sh see them come back
printf '\n[host front]\nrestart = never\n\n[host mem0]\nrestart = never\n' >>"$conf"
ctl_exits 0 "up" up --unguarded "$conf"
front=$(peer_pid k nbd0) store=$(peer_pid k mem0) keeper=$(keeper_pid k)
ctl_exits 0 "a volume" volume create disk --size 32M
kill -s KILL "$keeper"
scene_until 5 gone "$keeper"
ctl_exits 0 "status reads the segment itself" status --json
json_is "the keeper is away, all is well" '[.keeper.state, .healthy] | @csv' '"away",true'
ctl_exits 0 "volumes work meanwhile" volume list --json
json_is "it is there" '.volumes[0].name' disk
tap_run "peers go on" scene_connects "$SCENE_DIR/k.sock"
ctl_exits 6 "peer stop needs the keeper" peer stop nbd0
ctl_exits 0 "up once more" up --unguarded "$conf" --json
json_is "there is a keeper again" .keeper.state running
tap_is "the front is the same process" "$(peer_pid k nbd0)" "$front"
tap_is "the store, too" "$(peer_pid k mem0)" "$store"
ctl_exits 0 "the volume is as it was" volume info disk

# a keeper that died in the middle of a start: the rest is started
kill -s KILL "$(keeper_pid k)"
kill -s TERM "$front"
scene_until 10 gone "$front"
ctl_exits 0 "up with half of it running" up --unguarded "$conf"
tap_is "the store runs on" "$(peer_pid k mem0)" "$store"
tap_run "the front is back" scene_connects "$SCENE_DIR/k.sock"

# --- a peer dies ------------------------------------------------------------------------------
front=$(peer_pid k nbd0)
kill -s KILL "$front"
scene_until 5 gone "$front"
seen_dead() {
    "$XSEGCTL" status --json |
        jq -e '.peers[] | select(.name == "nbd0").state == "dead"'
}
scene_until 5 seen_dead
ctl_exits 1 "status of a pipeline with a dead peer" status --json
json_is "says which and how" \
    '.peers[] | select(.name == "nbd0") | "\(.state) \(.health) \(.reason)" | .[0:33]' \
    'dead failed killed by SIGKILL: fr'
json_is "others are well" '.peers[] | select(.name == "mem0").health' ok
ctl_exits 0 "peer start brings it back" peer start nbd0 --json
json_is "it serves" '[.name, .state, .changed] | @csv' '"nbd0","serving",true'
ctl_exits 0 "all is well again" status
ctl_exits 0 "peer start of what serves" peer start nbd0 --json
json_is "changes nothing" .changed false
store=$(peer_pid k mem0)
kill -s KILL "$store"
scene_until 5 gone "$store"
ctl_exits 1 "status with a dead store" status --json
json_is "the one above it is not well either" \
    '.peers[] | select(.name == "vol0") | "\(.health): \(.reason)"' \
    "failed: edge store leads to 'mem0', which does not serve"
ctl_exits 0 "the store comes back" peer start mem0
ctl_exits 0 "all is well again" status

# --- peers start and stop ---------------------------------------------------------------------
ctl_exits 0 "a second store" peer start mem1=blocker_memory,restart=never
ctl_exits 4 "a second one of that name" peer start mem1=blocker_null
ctl_exits 1 "an unknown role" peer start x=blocker_nix
err_like "says so" "'x' does not start: .*blocker_nix"
ctl_exits 1 "a bad option" peer start y=blocker_memory,colour=red
err_like "names it" "has no option 'colour'"
ctl_exits 0 "what did not start is forgotten" status
ctl_exits 2 "no role" peer start z=
ctl_exits 3 "a peer that is not there" peer start mem7
err_like "a near one is named" "did you mean 'mem"
ctl_exits 3 "an edge to nobody" peer start v=volume,edge.store=nix
ctl_exits 5 "stop what is in use" peer stop mem0
err_like "says by whom" "'mem0' is in use by vol0 \(edge store\)"
ctl_exits 5 "stop one of a shared process" peer stop vol0
err_like "says who else is in it" "shares its process with nbd0"
ctl_exits 0 "peer stop --dry-run" peer stop mem1 --dry-run
ctl_exits 0 "it serves on" peer list --json
json_is "mem1 serves" '.peers[] | select(.name == "mem1").state' serving

# --- edges ------------------------------------------------------------------------------------
ctl_exits 0 "edge set" edge set vol0:store mem1 --json
json_is "says where it led" '[.name, .from, .to, .changed] | @csv' '"vol0:store","mem0","mem1",true'
ctl_exits 0 "edge set again" edge set vol0:store mem1 --json
json_is "changes nothing" .changed false
ctl_exits 0 "the way leads there" edge list -o csv
out_like "edge list shows it" "vol0:store,mem1"
ctl_exits 0 "requests go the new way" volume create there --size 4M
ctl_exits 3 "an unknown edge" edge set vol0:stor mem1
err_like "a near one is named" "did you mean 'vol0:store'"
ctl_exits 3 "to an unknown peer" edge set vol0:store nix
ctl_exits 2 "to what does not answer it" edge set vol0:store nbd0
err_like "says so" "a front_nbd answers no 'store' requests"
ctl_exits 5 "the new one is in use now" peer stop mem1
ctl_exits 0 "back" edge set vol0:store mem0
ctl_exits 0 "and it can be stopped" peer stop mem1 --json
json_is "it is stopped" '[.state, .changed] | @csv' '"stopped",true'
ctl_exits 0 "what was stopped on request is well" status
ctl_exits 0 "peer stop again" peer stop mem1 --json
json_is "changes nothing" .changed false
ctl_exits 0 "start it once more" peer start mem1
pid=$(peer_pid k mem1)
kill -s KILL "$pid"
scene_until 5 gone "$pid"
mem1_dead() {
    "$XSEGCTL" peer list --json | jq -e '.peers[] | select(.name == "mem1").state == "dead"'
}
scene_until 5 mem1_dead
ctl_exits 1 "dead, it is not well" status
ctl_exits 0 "peer stop says that it is not wanted back" peer stop mem1 --json
json_is "it is stopped" '[.state, .health, .changed] | @csv' '"stopped","ok",true'
ctl_exits 0 "and all is well" status
ctl_exits 0 "the whole front" peer stop nbd0 --host
tap_fails "its socket is gone" scene_connects "$SCENE_DIR/k.sock"
ctl_exits 0 "and back" peer start nbd0
tap_run "its socket is there" scene_connects "$SCENE_DIR/k.sock"

# a peer started by hand holds the segment
scene_peer hand -s k hand=blocker_null
ctl_exits 5 "down with a peer of somebody else" down
err_like "says whose" "hand \(pid $(scene_pid hand)\)"
scene_stop hand

# --- the socket -------------------------------------------------------------------------------
call='{"jsonrpc":"2.0","id":7,"method":"%s","params":%s}'
# shellcheck disable=SC2059
ask() { printf "$call" "$1" "$2"; }
rpc_is "rpc.describe lists its calls" "$(ask rpc.describe '{}')" \
    '[.result.methods[].name] | sort | join(" ")' \
    "config.apply config.diff config.get down edge.list edge.set job.cancel job.list job.show \
peer.forget peer.list peer.restart peer.start peer.stop rpc.describe segment.reap stats status"
rpc_is "with their parameters" "$(ask rpc.describe '{}')" \
    '.result.methods[] | select(.name == "edge.set").params | map("\(.name):\(.type)") |
     join(" ")' \
    'edge:string to:string cache_passes:boolean dry_run:boolean'
rpc_is "an unknown call" "$(ask statu '{}')" '[.error.code, .error.data.hint, .id] | @csv' \
    "-32601,\"did you mean 'status'?\",7"
rpc_is "an unknown parameter" "$(ask stats '{"pear":"x"}')" \
    '[.error.code, .error.data.hint] | @csv' \
    "-32602,\"did you mean 'peer'?\""
rpc_is "a parameter of the wrong type" "$(ask stats '{"peer":1}')" .error.code -32602
rpc_is "a parameter that is missing" \
    "$(ask edge.set '{"edge":"a:b"}')" .error.code -32602
rpc_is "parameters in a list" "$(ask stats '["x"]')" .error.code -32602
rpc_is "no JSON" 'hello' '[.error.code, .id] | @csv' -32700,
rpc_is "a batch" '[]' .error.code -32600
rpc_is "another version" '{"jsonrpc":"1.0","id":1,"method":"status"}' .error.code -32600
rpc_is "a key twice" '{"jsonrpc":"2.0","id":1,"id":2,"method":"status"}' .error.code -32700
rpc_is "an error of the matter" "$(ask edge.set '{"edge":"a:b","to":"c"}')" \
    '[.error.code, .error.data.code, .error.data.name] | @csv' '-32000,3,"not-found"'

hostile() {
    python3 - "$sock" <<'PY'
import json, os, random, socket, sys, time
path = sys.argv[1]
random.seed(7)
def connect():
    s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(path); return s
call = b'{"jsonrpc":"2.0","id":1,"method":"status"}\n'
# those who never end a line, never read, or never speak
silent = [connect() for _ in range(20)]
half = connect(); half.sendall(b'{"jsonrpc":"2.0",')
deaf = connect(); deaf.setblocking(False)
try:
    for _ in range(20000): deaf.send(call)
except (BlockingIOError, BrokenPipeError): pass
# a line without end
endless = connect()
try:
    for _ in range(64): endless.sendall(b"x" * 65536)
except OSError: pass
endless.close()
# garbage of all kinds, mutants of a good call, and partings in the middle
for i in range(300):
    s = connect()
    data = bytearray(call if i % 3 else os.urandom(random.randrange(1, 2000)))
    for _ in range(random.randrange(4)): data[random.randrange(len(data))] = random.randrange(256)
    try:
        s.sendall(bytes(data) + (b"\n" if i % 2 else b""))
        if i % 10 == 1: s.settimeout(0.2); s.recv(4096)
    except OSError: pass
    s.close()
deep = connect(); deep.sendall(b"[" * 60000 + b"\n"); deep.recv(4096)
# all that while, others are served
start = time.monotonic()
s = connect(); s.sendall(call)
reply = json.loads(s.makefile().readline())
assert reply["result"]["segment"]["name"] == "k", reply
assert time.monotonic() - start < 5, "a slow answer"
# more clients than it takes: the last one is told
many = []
while len(many) < 70:
    try: many.append(connect())
    except BlockingIOError: time.sleep(0.01)
line = many[-1].makefile().readline()
assert json.loads(line)["error"]["data"]["name"] == "busy", line
PY
}
keeper=$(keeper_pid k)
tap_run "hostile clients" hostile
tap_run "the keeper lives" kill -0 "$keeper"
ctl_exits 0 "and answers" status

# --- one keeper for each segment, wherever it is started ----------------------------------------
other=$SCENE_DIR/elsewhere
mkdir "$other"
SKERRY_RUN_DIR=$other ctl_exits 4 "another keeper from another run folder" up --unguarded "$conf"
err_like "is told who has it, and where" \
    "has a keeper already: process $keeper, run folder '$SKERRY_RUN_DIR'"
tap_is "nothing of it is left" "$(find "$other" -name 'xsegd.*' ! -name xsegd.log)" ""
ctl_exits 0 "the first one goes on" status
tap_run "without the variable the segment says where its keeper is" env -u SKERRY_RUN_DIR \
    "$XSEGCTL" -s k config diff "$conf"
if [ "$(id -u)" = 0 ] && scene_have setpriv && [ -x /usr/bin/python3 ]; then
    chmod 777 "$sock" "$run" "$SKERRY_RUN_DIR" "$SCENE_DIR"
    tap_like "others are refused, whatever the mode" \
        "$(setpriv --reuid nobody --regid nogroup --clear-groups /usr/bin/python3 -c "
import socket
s = socket.socket(socket.AF_UNIX); s.connect('$sock'); s.settimeout(5)
print(s.makefile().readline())")" 'for root and the keeper'
else
    tap_skip "others are refused" "only root can become somebody else"
fi

# --- a process that does not drain is killed, and that is said -----------------------------------
store=$(peer_pid k mem0)
scene_freeze "$store"
ctl_exits 8 "down with one that does not stop" down --timeout 1s
err_like "says which" "killed: mem0"
tap_run "it is gone" scene_until 30 gone "$store"
tap_is "no segment is left" "$(ls -A "$SKERRY_SHM_DIR")" ''
tap_end
