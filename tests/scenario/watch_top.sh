#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# top, stats --watch, trace, log level and segment fsck, beside a load that never stops.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "watching"
here=$(dirname "$0")
SCENE_SEGMENT_SIZE=128M SCENE_SIZE=4M scene_split w || tap_skip_all "no pipeline"
scene_spawn load python3 "$here/watch_load.py" "$SCENE_URI" until="$SCENE_DIR/enough"
moves() { [ "$("$XSEGCTL" -s w stats nbd0 --json | jq '.peers[0].counters.reads')" -gt 100 ]; }
scene_until 20 moves || exit 99

# --- top ------------------------------------------------------------------------------------
ctl_exits 0 "top, one look" -s w top -i 300ms --json
json_is "its keys" 'keys_unsorted | join(" ")' \
    'schema_version segment interval_ns pages requests peers volumes lanes'
json_is "of a peer" '.peers[0] | keys_unsorted | join(" ")' \
    'name role pid state queued served sent waits_per_s slow_turns_per_s errors_per_s ops'
json_is "of an op" '.peers[0].ops.read | keys_unsorted | join(" ")' \
    'iops bytes_per_s p50_ns p99_ns p99_9_ns'
json_is "the front reads" '.peers[] | select(.name == "nbd0") | .ops.read.iops > 0' true
json_is "bytes fit the requests" '.peers[] | select(.name == "nbd0") | .ops.read |
    .bytes_per_s / .iops | . > 3900 and . < 4300' true # one may end between two counters
json_is "the volume has a name" '[.volumes[].name] | join(",")' disk
json_is "and reads of its own" '.volumes[0].ops.read.iops > 0' true
json_is "latencies between processes are not nothing" '.volumes[0].ops.read |
    .p50_ns > 0 and .p50_ns <= .p99_ns and .p99_ns <= .p99_9_ns' true
json_is "lanes are shared out" '[.lanes[] | .busy_percent + .looking_percent + .asleep_percent |
    . > 99.9 and . < 100.1] | all' true
json_is "each says whose it is" '[.lanes[].peers] | sort | join(" ")' 'nbd0 store0 vol0,map0'
ctl_exits 0 "top as a table" -s w top -i 200ms
out_like "peers" $'\nPEER +OP +IOPS'
out_like "volumes" $'\ndisk +read +[0-9.]+'
out_like "lanes" $'\nLANE +PID +PEERS'
ctl_exits 0 "top again and again" -s w top -i 50ms -n 3 -o jsonl
tap_is "a line each" "$(jq -s 'map(select(.schema_version == 1)) | length' <<<"$OUT")" 3
timeout -s INT -k 5 1 "$XSEGCTL" -s w top --batch -i 100ms -o jsonl >"$SCENE_DIR/batch"
tap_is "until ^C, which is no error" $? 124
tap_run "and whole lines until then" jq -e . "$SCENE_DIR/batch"
ctl_exits 2 "an interval that is none" -s w top -i soon
cat >"$SCENE_DIR/screen.py" <<'EOF'
"""A terminal of 80 columns and so many rows: types keys when something has come, prints all."""
import fcntl, os, pty, struct, sys, termios, time
rows, keys = int(sys.argv[1]), sys.argv[2].split()
pid, fd = pty.fork()
if pid == 0:
    time.sleep(0.2)
    os.environ["TERM"] = "xterm"
    os.execvp(sys.argv[3], sys.argv[3:])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
while True:
    try:
        seen = os.read(fd, 65536)
    except OSError:
        break
    sys.stdout.buffer.write(seen)
    wanted, _, key = keys[0].partition(":") if keys else ("", "", "")
    if keys and wanted.encode() in seen:
        os.write(fd, {"end": b"\x1bOF"}.get(key, key.encode()))
        keys.pop(0)
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
EOF
on_screen() { # ROWS KEYS ARGS...: "WHAT:KEY" presses KEY when WHAT has come
    timeout -k 5 60 python3 "$SCENE_DIR/screen.py" "$1" "$2" "$XSEGCTL" -s w top "${@:3}" \
        >"$SCENE_DIR/screen"
}
on_screen 60 PEER:q -i 100ms
tap_is "on a terminal, q ends it" $? 0
tap_is "it takes the whole screen, and gives it back" \
    "$(grep -oE $'\033\\[\\?1049[hl]' "$SCENE_DIR/screen" | tr -d '\033\n')" '[?1049h[?1049l'
on_screen 8 'arrows:end to:q' -i 100ms
tap_is "in a small one keys move in it" $? 0
tap_is "to its end" "$(grep -c 'LANE' "$SCENE_DIR/screen")" 1
on_screen 24 '' --once
tap_is "it fits 80 columns" "$(awk '{ sub(/\r$/, "") } length > 80' "$SCENE_DIR/screen" | wc -l)" 0

# --- stats --watch --------------------------------------------------------------------------
ctl_exits 0 "stats --watch" -s w stats store0 --watch 100ms -n 2 --json
tap_is "two looks" "$(jq -s 'length' <<<"$OUT")" 2
tap_is "of one peer" "$(jq -rs '[.[].peers[].name] | unique | join(",")' <<<"$OUT")" store0
tap_is "a rate, not a sum" \
    "$(jq -s '.[1] | .peers[0].counters.reads > 0 and .interval_ns >= 100000000' <<<"$OUT")" true
ctl_exits 0 "--watch=TIME" -s w stats --watch=50ms -n 1
out_like "a table" $'\nnbd0 +reads +[0-9.]+'
ctl_exits 3 "of nobody" -s w stats nix --watch -n 1
ctl_exits 2 "a time that is none" -s w stats --watch=soon
ctl_exits 2 "two peers" -s w stats nbd0 vol0

ctl_exits 0 "by volume" -s w stats --volumes --json
json_is "its keys" '.volumes[0] | keys_unsorted | join(" ")' 'volume id errors bytes latency'
json_is "of an op" '.volumes[0].latency.read_ns | keys_unsorted | join(" ")' \
    'unit count mean p50 p90 p99 p99_9'
json_is "bytes fit the requests" '.volumes[0] | .bytes.read / .latency.read_ns.count' 4096
ctl_exits 0 "as a table" -s w stats --volumes
out_like "with its name" $'\ndisk +read_ns +[0-9]+'

# --- trace ----------------------------------------------------------------------------------
ctl_exits 0 "trace" -s w trace -n 20 -t 20s --json
json_is "as many as were asked for" '.requests | length' 20
json_is "its keys" '.requests[0] | keys_unsorted | join(" ")' \
    'request state owner client op volume offset length age_ns hops result'
json_is "of a hop" '[.requests[] | select(.hops | length > 0)][0].hops[0] | keys_unsorted |
    join(" ")' 'hop to from lane op object offset length time_ns since_submit_ns stayed_ns'
json_is "all from the front" '[.requests[].client] | unique | join(",")' nbd0
json_is "the first hop is the volume" '[.requests[].hops[0].to] | unique | join(",")' vol0
json_is "time goes on from hop to hop" \
    '[.requests[].hops | [.[].time_ns] | . == sort] | all' true
json_is "oldest first" '[.requests[].age_ns] | . == (sort | reverse)' true
ctl_exits 0 "of a volume" -s w trace --volume disk -n 5 -t 20s --json
json_is "only of it" '[.requests[].volume] | unique | join(",")' disk
ctl_exits 0 "through a peer" -s w trace --peer store0 -n 5 -t 20s --json
json_is "only through it" \
    '[.requests[] | [.hops[].to] | index("store0") != null] | all' true
ctl_exits 0 "of another volume there is none" -s w trace --volume nix --json
json_is "none" '.requests | length' 0
ctl_exits 0 "none is a minute old" -s w trace --slow 1m --json
json_is "none" '.requests | length' 0
ctl_exits 3 "of nobody" -s w trace --peer nix

# A store that stands still: its requests stay, and can be looked at.
scene_freeze "$(scene_pid store)"
ctl_exits 0 "slow ones" -s w trace --slow 200ms -n 1 -t 20s --json
json_is "are with the store" '.requests[0].owner' store0
json_is "two hops" '[.requests[0].hops[].to] | join(" ")' 'vol0 store0'
json_is "and stay there" '.requests[0].hops[1].stayed_ns > 150000000' true
request=$(jq -r '.requests[0].request' <<<"$OUT")
ctl_exits 0 "one of them" -s w trace "$request" --json
json_is "it is that one" .request "$request"
json_is "with its pages" '.extents[0].count' 1
ctl_exits 0 "as a table" -s w trace "${request%.*}"
out_like "with its hops" "1 +vol0,map0 +store0"
ctl_exits 3 "one that has ended" -s w trace "${request%.*}.1"
ctl_exits 2 "one that cannot be" -s w trace 99999999
ctl_exits 0 "its queue is seen by top" -s w top -i 100ms --json
json_is "requests wait" '.peers[] | select(.name == "store0") | .queued + .served > 0' true
json_is "and are the volume's" '.volumes[0].sent > 0' true
ctl_exits 0 "who stands still is no damage" -s w segment fsck
scene_kill CONT store

# --- fsck -----------------------------------------------------------------------------------
dirty=0
for _ in 1 2 3 4 5 6 7 8 9 10; do
    ctl -s w segment fsck --json
    [ "$RC" -eq 0 ] || dirty=$((dirty + 1))
done
tap_is "ten looks at a busy segment: clean" "$dirty" 0
json_is "its keys" 'keys_unsorted | join(" ")' "schema_version segment clean looks took_ns \
lanes_alive pages requests submitted_to owners problem_count kinds problems"
json_is "every page is somewhere" \
    '.pages | .free + .held + .kept + .stored + .retired + .bad == .total' true
json_is "every request" \
    '.requests | .free + .owned + .submitted + .taken + .done + .bad == .total' true

# --- log level ------------------------------------------------------------------------------
ctl_exits 0 "the level" -s w log level vol0 --json
json_is "as it was started" '[.level, .asked] | join(" ")' 'info as started'
ctl_exits 0 "another" -s w log level vol0 debug --json
json_is "holds" '[.level, .asked, .changed] | join(" ")' 'debug debug true'
ctl_exits 0 "again" -s w log level vol0 debug --json
json_is "nothing to do" .changed false
ctl_exits 0 "others keep theirs" -s w log level nbd0 --json
json_is "info" .level info
ctl_exits 0 "back" -s w log level vol0 default --json
json_is "as it was" .level info
ctl_exits 2 "a level that is none" -s w log level vol0 debuk
err_like "a near one" "did you mean 'debug'"
ctl_exits 3 "of nobody" -s w log level nix debug

# --- after a death --------------------------------------------------------------------------
touch "$SCENE_DIR/enough"
wait "$(scene_pid load)"
tap_is "the load saw no error" $? 0
tap_like "and did something" "$(<"$SCENE_DIR/load.out")" '^reads=[1-9][0-9]+ '
ctl -s w log level store0 warning
scene_kill KILL store
wait "$(scene_pid store)"
ctl_exits 1 "fsck after a death" -s w segment fsck --json
json_is "says what is wrong" '.clean, .kinds["lane-dead"], (.kinds["page-leaked"] > 0)' \
    $'false\n1\ntrue'
json_is "and shows so many of a kind" '[.problems[] | select(.kind == "page-leaked")] |
    length <= 50' true
ctl_exits 0 "repaired" -s w segment fsck --repair --json
json_is "it is clean" '.clean, (.repaired.pages_freed > 0)' $'true\ntrue'
ctl_exits 0 "and stays so" -s w segment fsck
out_like "says so" 'clean: everything is in one state'
scene_peer store2 -s w "store0=blocker_memory"
ctl_exits 0 "a successor of that name" -s w log level store0 --json
json_is "has its log level" '[.level, .asked] | join(" ")' 'warning warning'
tap_end
