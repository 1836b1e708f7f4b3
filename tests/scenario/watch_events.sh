#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# events: read from what the keeper writes, whole or damaged, once or as it grows.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "events"
dir=$SKERRY_RUN_DIR/e
file=$dir/events.jsonl
mkdir -p "$dir"
ctl_exits 3 "no events yet" -s e events
err_like "says who writes them" 'the keeper writes it'

event() { # TIME KIND PEER [MORE]
    printf '{"time":"%s","event":"%s","peer":"%s","pid":7%s}\n' "$1" "$2" "$3" "${4:-}"
}
event 2026-01-01T10:00:00.000Z peer_started a >"$file.1"
{
    event 2026-01-02T10:00:00.000Z peer_died a ',"reason":"signal 9 (SIGKILL)"'
    printf 'not JSON at all\n{"time":12,"event":"x"}\n[]\n'
    event 2026-01-03T10:00:00.000Z peer_started b
} >"$file"
ctl_exits 0 "events" -s e events --json
json_is "the old file first, damaged lines left out" \
    '[.events[] | .event + " " + .peer] | join(",")' \
    'peer_started a,peer_died a,peer_started b'
ctl_exits 0 "as a table" -s e events
out_like "with reasons" 'peer_died +a +7 +signal 9 \(SIGKILL\)'
ctl_exits 0 "since a day" -s e events --since 2026-01-02 --json
json_is "two" '.events | length' 2
ctl_exits 0 "since a moment" -s e events --since '2026-01-02 10:00:00.001' --json
json_is "one" '.events | length' 1
ctl_exits 0 "since a while" -s e events --since 1h --json
json_is "none" '.events | length' 0
ctl_exits 0 "of a peer" -s e events --peer b --json
json_is "its own" '[.events[].peer] | join(",")' b
ctl_exits 0 "of a kind" -s e events --event peer_died -o jsonl
tap_is "its own" "$(jq -r .reason <<<"$OUT")" 'signal 9 (SIGKILL)'
ctl_exits 2 "since when?" -s e events --since yesterday

# --- following ------------------------------------------------------------------------------
follows() { [ "$(wc -l <"$SCENE_DIR/follow.out")" -ge "$1" ]; }
scene_spawn follow "$XSEGCTL" -s e events --follow -o jsonl
tap_run "what there is" scene_until 10 follows 3
printf '{"time":"2026-01-04T10:00:00.000Z","event":"half' >>"$file"
event 2026-01-01T00:00:00.000Z rotated c >"$SCENE_DIR/new"
printf '_line","peer":"c"}\n' >>"$file"
tap_run "a line is shown when it is whole" scene_until 10 follows 4
tap_is "that one" "$(tail -1 "$SCENE_DIR/follow.out" | jq -r .event)" half_line
event 2026-01-05T10:00:00.000Z last_of_old c >>"$file"
mv "$file" "$file.1"
event 2026-01-06T10:00:00.000Z first_of_new c >"$file"
tap_run "a new file is followed, the old one read to its end" scene_until 10 follows 6
tap_is "both" "$(tail -2 "$SCENE_DIR/follow.out" | jq -r .event | tr '\n' ' ')" \
    'last_of_old first_of_new '
scene_kill INT follow
wait "$(scene_pid follow)"
tap_is "^C is no error" $? 0

# --- a command for each -------------------------------------------------------------------------
ctl_exits 2 "a command for those of the past" -s e events --run true
err_like "needs --follow" '--follow'
ran() { [ "$(wc -l <"$SCENE_DIR/ran")" -ge "$1" ]; }
: >"$SCENE_DIR/ran"
scene_spawn runs "$XSEGCTL" -s e events --follow --since 2026-01-05 --run \
    "echo \"\$SKERRY_EVENT \$SKERRY_PEER \$SKERRY_REASON\" >>$SCENE_DIR/ran; exit 3"
tap_run "those since then" scene_until 10 ran 2
tap_is "have had it run for them" "$(cut -d' ' -f1,2 "$SCENE_DIR/ran" | tr '\n' ' ')" \
    'last_of_old c first_of_new c '
scene_kill TERM runs
scene_spawn later "$XSEGCTL" -s e events --follow --run "echo \"\$SKERRY_EVENT\" >>$SCENE_DIR/ran"
comes() {
    event "$(date -u +%Y-%m-%dT%H:%M:%S.000Z -d '1 minute')" now c >>"$file"
    ran 3
}
tap_run "without --since those that come" scene_until 10 comes
tap_is "and no others" "$(tail -n +3 "$SCENE_DIR/ran" | sort -u)" now
scene_kill TERM later

# --- the keeper's own -----------------------------------------------------------------------
pipeline "$SCENE_DIR/k.conf" k
down_at_exit k
ctl_exits 0 "up" up "$SCENE_DIR/k.conf"
happened() {
    "$XSEGCTL" -s k events --json | jq -e --arg e "$1" '.events[] | select(.event == $e)'
}
tap_run "the keeper has written" scene_until 10 happened keeper_started
kill -s KILL "$(peer_pid k mem0)"
tap_run "and writes of deaths" scene_until 10 happened peer_died
ctl_exits 0 "which peer" -s k events --event peer_died --json
json_is "that one" '.events[0].peer' mem0
json_is "and why" '.events[0].reason | length > 0' true
ctl down k
tap_end
