#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The load of bench/: each pattern for a moment, its report, and that it finds what is damaged.

. "$(dirname "$0")/blocker_lib.sh"
blocker_begin "load" 192M
for module in load blocker_lossy blocker_liar; do
    [ -e "$SKERRY_MODULE_DIR/$module.so" ] || tap_skip_all "$module is not built"
done
REPORT=$SCENE_DIR/report.json

# A run with a report: load LANES OPTIONS
load() {
    local lanes=$1
    shift
    rm -f "$REPORT"
    timeout 60 "$XSEGPEER" -s "$SEGMENT" -l "$lanes" "l=load,edge.target=$PEER,report=$REPORT,$*" \
        2>&1 </dev/null
}

# A figure of the report: "read.ops".
figure() {
    python3 - "$REPORT" "$1" <<'PY'
import json, sys
value = json.load(open(sys.argv[1]))
for name in sys.argv[2].split("."):
    value = value[name]
print(value)
PY
}

refusal() { blocker_refusal "l=load,edge.target=x,$1"; }

# --- what there is in it -------------------------------------------------------------------

blocker_peer mem 2 mem=blocker_memory,size=96M || tap_not_ok "it starts"
for pattern in sequential random zipf; do
    for verify in meta full; do
        tap_run "$pattern, verify=$verify" load 1 \
            "pattern=$pattern,verify=$verify,fresh=no,size=4M,count=20000,mix=50,qd=32,flush=1000"
        tap_is "$pattern, $verify: all that it was asked for" "$(figure read.ops) \
$(figure write.ops) $(figure flush.ops)" "$(figure read.ops) \
$((20000 - $(figure read.ops))) 20"
        tap_is "$pattern, $verify: nothing wrong" "$(figure verify_errors) $(figure errors)" "0 0"
    done
done

# each block once: what is written in one round by one is found whole by the next
tap_run "a round, two lanes, writes" load 2 \
    "volume=2,size=24M,mix=0,qd=16,bs=16K,verify=full,donate=no"
tap_is "each block once" "$(figure write.ops) $(figure rounds)" "1536 2"
tap_run "a round, two lanes, reads what has been prepared" load 2 \
    "volume=2,size=24M,fresh=no,prepare=both,qd=16,bs=16K,verify=full,pin=no"
tap_is "each block once" "$(figure read.ops) $(figure read.bytes)" "1536 25165824"
tap_run "many small objects" load 1 "volume=3,size=2M,span=64K,qd=8,verify=full,prepare=write"
tap_is "each block once" "$(figure read.ops)" 512
tap_run "durable writes" load 1 "volume=3,size=1M,mix=0,qd=8,fua=yes,fresh=no,verify=meta,bs=512"
tap_is "each sector once" "$(figure write.ops)" 2048
tap_run "it ends when its time is over" load 1 "volume=3,size=2M,time=50ms,qd=4"
tap_is "and has timed all of a shallow queue" "$(figure read.samples)" "$(figure read.ops)"

# --- traces -------------------------------------------------------------------------------

python3 - "$SCENE_DIR" <<'PY'
import struct, sys
reads = [(0x28, 8 * i % 4096, 4096) for i in range(1000)]
writes = [(0x2a, 8 * i % 8192 + 16384, 8192) for i in range(500)]
all_of = [x for pair in zip(reads, writes) for x in pair]
with open(sys.argv[1] + "/one.csv", "w") as f:
    f.write("version,time,op,size,lbn\n")
    f.writelines(f"1,0,{op:x},{size},{block}\n" for op, block, size in all_of)
with open(sys.argv[1] + "/msr.csv", "w") as f:
    f.writelines(f"128166372,host,0,{'Read' if op == 0x28 else 'Write'},{block * 512},{size},9\n"
                 for op, block, size in all_of)
with open(sys.argv[1] + "/v1.vscsi", "wb") as f:
    for i, (op, block, size) in enumerate(all_of):
        f.write(struct.pack("<IIIHHQQ", i, size, 1, op, 0x100, block, i))
with open(sys.argv[1] + "/v2.vscsi", "wb") as f:
    for i, (op, block, size) in enumerate(all_of):
        f.write(struct.pack("<HHIIIQQQ", op, 0x200, i, size, 1, block, i, 0))
with open(sys.argv[1] + "/numbers.trace", "wb") as f:
    f.writelines(struct.pack("<I", block // 8) for op, block, size in all_of)
PY
for trace in one.csv msr.csv v1.vscsi v2.vscsi; do
    tap_run "$trace" load 1 "pattern=trace,trace=$SCENE_DIR/$trace,size=0,verify=full,fresh=no,qd=8"
    tap_is "$trace: its reads and writes" \
        "$(figure read.ops) $(figure read.bytes) $(figure write.ops) $(figure write.bytes)" \
        "500 2048000 500 4096000"
done
tap_run "numbers of blocks, two lanes" load 2 \
    "pattern=trace,trace=$SCENE_DIR/numbers.trace,size=0,verify=full,fresh=no,mix=50,qd=8"
DATA=${SKERRY_TRACES:-/nonexistent}
for trace in cloudphysics-io.csv.xz cloudphysics-w106.trace.xz; do
    if [ -r "$DATA/$trace" ] && scene_have xz; then
        tap_run "$trace" load 1 "pattern=trace,trace=$DATA/$trace,size=64M,count=20000,\
fresh=no,verify=meta,qd=32"
    else
        tap_skip "$trace" "SKERRY_TRACES does not say where it is"
    fi
done
echo 'hello,there' >"$SCENE_DIR/none.csv"
tap_like "what is no trace is refused" "$(refusal "pattern=trace,trace=$SCENE_DIR/none.csv")" \
    'no block trace that we know'
tap_like "nor a trace that is not there" "$(refusal "pattern=trace,trace=/nonexistent/x")" \
    'No such file'

# --- it finds what is wrong ------------------------------------------------------------------

blocker_peer lossy 1 lossy=blocker_lossy,every=300,edge.store=mem || tap_not_ok "it starts"
for verify in meta full; do
    tap_exits 1 "lost writes are found by verify=$verify" load 1 \
        "volume=9,fresh=no,size=2M,count=20000,mix=50,qd=8,verify=$verify"
    tap_is "and counted, sector by sector" "$(($(figure verify_errors) % 8)) $(($(figure \
        verify_errors) > 0))" "0 1"
done
tap_run "without verify nobody sees them" load 1 "volume=9,size=2M,count=20000,mix=50,qd=8"
for lie in old tear swap place; do
    blocker_peer "liar_$lie" 1 "l_$lie=blocker_liar,lie=$lie,every=50,edge.store=mem" ||
        tap_not_ok "it starts"
    tap_exits 1 "a store that lies is found: $lie" load 1 \
        "volume=10,fresh=no,size=2M,prepare=write,count=20000,mix=50,qd=8,pin=no,verify=full"
done
blocker_peer liar_error 1 l_error=blocker_liar,lie=error,every=50,edge.store=mem ||
    tap_not_ok "it starts"
tap_exits 1 "errors are no success" load 1 "volume=11,fresh=no,size=2M,count=2000,mix=50,qd=8"
tap_is "they are counted" "$(($(figure errors) > 0))" 1

# --- on one lane with its target; what makes no sense ------------------------------------------

tap_run "stacked, two lanes" timeout 60 "$XSEGPEER" -s "$SEGMENT" -l 2 \
    "l=load,edge.target=own,size=16M,mix=50,qd=32,count=20000,verify=full,report=$REPORT" \
    own=blocker_memory,size=32M
tap_is "all of it" "$(($(figure read.ops) + $(figure write.ops)))" 20000
tap_like "bs" "$(refusal bs=1000)" 'multiple of 512'
tap_like "span" "$(refusal bs=12K)" 'multiple of 512'
tap_like "theta" "$(refusal pattern=zipf,theta=no)" 'theta is above 0'
tap_like "a trace without its pattern" "$(refusal trace=x)" 'go together'
tap_like "a pattern without its trace" "$(refusal pattern=trace)" 'go together'
scene_spawn waits "$XSEGPEER" -s "$SEGMENT" "l=load,edge.target=nobody" || tap_not_ok "it starts"
scene_wait_line waits ready
tap_exits 1 "told to end before the target is there" scene_stop waits
tap_end
