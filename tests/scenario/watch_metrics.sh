#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The metrics page: strict OpenMetrics, with numbers that are right; printed and served.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "metrics"
here=$(dirname "$0")
SCENE_SEGMENT_SIZE=128M SCENE_SIZE=4M scene_stacked m || tap_skip_all "no pipeline"
python3 "$here/watch_load.py" "$SCENE_URI" reads=300 writes=200 >"$SCENE_DIR/load" || exit 99
tap_is "the load ran" "$(<"$SCENE_DIR/load")" "reads=300 writes=200"

# --- the page -------------------------------------------------------------------------------
ctl_exits 0 "metrics" -s m metrics
cp "$SCENE_DIR/ctl.out" "$SCENE_DIR/page"
tap_run "it is OpenMetrics" python3 "$here/watch_metrics_parse.py" "$SCENE_DIR/page"
cp "$TAP_OUT" "$SCENE_DIR/page.json"
tap_is "each says of which segment" "$(grep -v '^#' "$SCENE_DIR/page" | grep -vc 'segment="m"')" 0
if scene_have promtool; then
    ctl_exits 0 "as Prometheus' older format" -s m metrics --prometheus
    tap_run "promtool finds nothing to say" promtool check metrics <"$SCENE_DIR/ctl.out"
    tap_is "nothing at all" "$(<"$TAP_OUT")" ""
else
    tap_skip "promtool" "it is not installed"
fi
tap_run "damaged ones are refused" \
    python3 "$here/watch_metrics_parse.py" --self-test "$SCENE_DIR/page"
value() { # NAME LABELS-AS-JSON, all but the segment
    jq -r --arg name "$1" --argjson labels "$2" \
        '[.[].samples[] | select(.[0] == $name and .[1] == $labels + {segment: "m"}) |
            .[2]][0]' \
        "$SCENE_DIR/page.json"
}
tap_is "reads of a peer" "$(value skerry_requests_total '{"peer":"nbd0","op":"read"}')" 300
tap_is "writes of a peer" "$(value skerry_requests_total '{"peer":"vol0","op":"write"}')" 200
tap_is "bytes of a peer" \
    "$(value skerry_request_bytes_total '{"peer":"vol0","op":"write"}')" 819200
tap_is "latencies of a peer" \
    "$(value skerry_request_duration_seconds_count '{"peer":"nbd0","op":"read"}')" 300
tap_is "reads of a volume, by name" \
    "$(value skerry_volume_duration_seconds_count '{"volume":"disk","op":"read"}')" 300
tap_is "bytes of a volume" \
    "$(value skerry_volume_bytes_total '{"volume":"disk","op":"write"}')" 819200
tap_is "errors of a volume" "$(value skerry_volume_errors_total '{"volume":"disk"}')" 0
tap_is "a role's own counter" "$(value skerry_nbd_reads_total '{"peer":"nbd0"}')" 300
tap_is "with the help of its table" \
    "$(jq -r '.skerry_nbd_reads.help' "$SCENE_DIR/page.json")" "READ requests taken"
tap_is "and its unit" "$(jq -r '.skerry_nbd_bytes_in_bytes.unit' "$SCENE_DIR/page.json")" bytes
tap_is "what goes up and down is a gauge" \
    "$(jq -r '.skerry_jobs.type' "$SCENE_DIR/page.json")" gauge
tap_is "pages add up" "$(jq '[.skerry_pages_free, .skerry_pages_held, .skerry_pages_stored,
    .skerry_pages_kept, .skerry_pages_retired | .samples[0][2]] | add' "$SCENE_DIR/page.json")" \
    "$(jq '.skerry_pages.samples[0][2]' "$SCENE_DIR/page.json")"

# --- served ---------------------------------------------------------------------------------
http() { # ADDRESS METHOD PATH: status line, then headers and body
    python3 - "$@" <<'PY'
import http.client, socket, sys
where, method, path = sys.argv[1:]
connection = http.client.HTTPConnection("127.0.0.1", timeout=10)
if where.startswith("/"):
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(where)
else:
    connection.port = int(where)
connection.request(method, path)
answer = connection.getresponse()
body = answer.read().decode()
print(answer.status, answer.getheader("Content-Type"))
print(body, end="")
PY
}
scene_spawn exporter "$XSEGCTL" -s m metrics --listen "unix:$SCENE_DIR/metrics.sock"
scene_wait_line exporter "listening on unix:$SCENE_DIR/metrics.sock" || exit 99
http "$SCENE_DIR/metrics.sock" GET /metrics >"$SCENE_DIR/served"
tap_is "served over a UNIX socket" "$(head -1 "$SCENE_DIR/served")" \
    "200 application/openmetrics-text; version=1.0.0; charset=utf-8"
tail -n +2 "$SCENE_DIR/served" >"$SCENE_DIR/served.page"
tap_run "it is OpenMetrics" python3 "$here/watch_metrics_parse.py" "$SCENE_DIR/served.page"
tap_like "another page is not there" "$(http "$SCENE_DIR/metrics.sock" GET / | sed -n 1p)" '^404'
tap_like "nothing can be put" "$(http "$SCENE_DIR/metrics.sock" PUT /metrics | sed -n 1p)" '^501'
tap_is "not for everybody" "$(stat -c %a "$SCENE_DIR/metrics.sock")" 660
ctl_exits 4 "a second one at the same place" -s m metrics --listen "unix:$SCENE_DIR/metrics.sock"
scene_kill KILL exporter
scene_until 5 scene_gone exporter
scene_spawn again "$XSEGCTL" -s m metrics --listen "unix:$SCENE_DIR/metrics.sock"
tap_run "a socket that a killed one left is taken over" \
    scene_wait_line again "listening on unix:$SCENE_DIR/metrics.sock"
scene_stop again
tap_is "it ends well" $? 0
tap_is "and takes its socket away" "$(ls "$SCENE_DIR/metrics.sock" 2>/dev/null)" ''
port=$(scene_free_port)
scene_spawn tcp "$XSEGCTL" -s m metrics --listen "tcp:127.0.0.1:$port"
scene_wait_line tcp "listening on http://127.0.0.1:$port/metrics" || exit 99
tap_like "served over loopback" "$(http "$port" GET /metrics | sed -n 1p)" '^200'
ctl_exits 2 "not beyond this host" -s m metrics --listen tcp:0.0.0.0:0
err_like "says why" "not of this host alone"
ctl_exits 2 "nowhere" -s m metrics --listen 9464
ctl_exits 2 "no port" -s m metrics --listen tcp:127.0.0.1

# --- the segment goes, and comes again ------------------------------------------------------
scene_stop front
ctl segment destroy m --yes
tap_like "without a segment" "$(http "$port" GET /metrics | sed -n 1p)" '^503'
ctl segment create m --size 16M
http "$port" GET /metrics >"$SCENE_DIR/served"
tap_is "a new one is found" \
    "$(awk '$1 ~ /^skerry_segment_bytes\{/ { print $2 }' "$SCENE_DIR/served")" 16777216
scene_stop tcp
scene_spawn early "$XSEGCTL" -s later metrics --listen "unix:$SCENE_DIR/early.sock"
scene_wait_line early "listening on unix:$SCENE_DIR/early.sock" || exit 99
tap_like "it may be there first" "$(http "$SCENE_DIR/early.sock" GET /metrics | sed -n 1p)" '^503'
ctl segment create later --size 16M
tap_like "and finds the segment" "$(http "$SCENE_DIR/early.sock" GET /metrics | sed -n 1p)" '^200'
scene_stop early
ctl_exits 3 "printed once there must be one" -s nix metrics
ctl segment destroy later --yes
ctl segment destroy m --yes
tap_end
