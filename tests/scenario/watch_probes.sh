#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# USDT probes are in the program, and the bpftrace scripts know them.

. "$(dirname "$0")/lib.sh"
scene_begin "probes"
scene_need_skerry
scene_need readelf
here=$(dirname "$0")
top=$(cd "$here/../.." && pwd)
readelf -n "$XSEGPEER" >"$SCENE_DIR/notes" 2>/dev/null
grep -A1 'Provider: skerry' "$SCENE_DIR/notes" | sed -n 's/.*Name: //p' | sort -u \
    >"$SCENE_DIR/there"
if [ ! -s "$SCENE_DIR/there" ]; then
    grep -q 'SKERRY_PROBES' "$SCENE_BUILD/Makefile" 2>/dev/null &&
        tap_not_ok "configured with probes, but there are none" && tap_end
    tap_skip_all "built without sys/sdt.h (apt-get install systemtap-sdt-dev)"
fi

# --- there ----------------------------------------------------------------------------------
for probe in submit accept forward respond receive sleep wake ring reap page_wait slot_wait; do
    tap_run "probe $probe" grep -qx "$probe" "$SCENE_DIR/there"
done
tap_is "and no others" "$(wc -l <"$SCENE_DIR/there")" 11
arguments() {
    grep -A4 "Name: $1\$" "$SCENE_DIR/notes" | sed -n 's/.*Arguments: //p' | head -1 | wc -w
}
tap_is "submit tells slot, lane and port" "$(arguments submit)" 3
tap_is "accept tells the hop, too" "$(arguments accept)" 4
for probe in $(<"$SCENE_DIR/there"); do
    grep -q "^| \`$probe\` " "$top/docs/watching.md" || tap_not_ok "docs/watching.md has $probe"
done

# --- the scripts ----------------------------------------------------------------------------
used() { sed -n 's/^usdt:\*:skerry:\([a-z_]*\).*/\1/p' "$1" | sort -u; }
for script in "$top"/tools/bpftrace/*.bt; do
    name=$(basename "$script")
    tap_is "$name uses probes that there are" "$(used "$script" | comm -23 - "$SCENE_DIR/there")" ''
    if scene_have bpftrace; then
        sed "s#usdt:\*#usdt:$XSEGPEER#" "$script" >"$SCENE_DIR/$name"
        tap_run "bpftrace understands $name" bpftrace -d "$SCENE_DIR/$name" 1000
    else
        tap_skip "bpftrace understands $name" "bpftrace is not installed"
    fi
done
if scene_have bpftrace; then
    sed 's/hist(/histo(/' "$SCENE_DIR/skerry-hops.bt" >"$SCENE_DIR/bad.bt"
    tap_fails "and would say if not" bpftrace -d "$SCENE_DIR/bad.bt"
fi

# --- alive ----------------------------------------------------------------------------------
SCENE_SEGMENT_SIZE=64M SCENE_SIZE=4M scene_stacked p || tap_skip_all "no pipeline"
program='usdt:*:skerry:submit { @n = count(); } usdt:*:skerry:receive { @m = count(); }
    interval:ms:100 { printf("up\n"); } interval:s:60 { exit(); }'
if scene_have bpftrace && timeout 60 bpftrace -e 'BEGIN { exit(); }' >/dev/null 2>&1; then
    scene_spawn bpftrace bpftrace -p "$(scene_pid front)" -e "$program"
    attached() { grep -q up "$SCENE_DIR/bpftrace.out" || ! scene_alive bpftrace; }
    scene_until 20 attached
    python3 "$here/watch_load.py" "$SCENE_URI" reads=500 writes=500 >/dev/null
    scene_alive bpftrace && scene_kill INT bpftrace
    wait "$(scene_pid bpftrace)"
    submits=$(sed -n 's/^@n: //p' "$SCENE_DIR/bpftrace.out")
    if [ -z "$submits" ] && ! grep -q up "$SCENE_DIR/bpftrace.out"; then
        tap_skip "the probes fire" "$(tail -1 "$SCENE_DIR/bpftrace.err")"
    else
        tap_run "the probes fire" test "${submits:-0}" -ge 1000
        # the client has gone: what its going makes may be on its way when bpftrace ends
        receives=$(sed -n 's/^@m: //p' "$SCENE_DIR/bpftrace.out")
        tap_run "what was submitted is received" test "${receives:-0}" -ge 1000
        tap_run "and nothing else" test "${receives:-0}" -le "${submits:-0}"
    fi
else
    tap_skip "the probes fire" "no bpftrace that may look into the kernel"
fi
tap_end
