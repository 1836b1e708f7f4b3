#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# xsegctl killed in the middle of any command, at random times, its worker too now and then:
# nothing half is left, the guest notices nothing, and in the end everything is as it was.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "xsegctl killed in the middle"
conf=$SCENE_DIR/k.conf other=$SCENE_DIR/other.conf img=$SCENE_DIR/img
down_at_exit k
seconds=${CTL_KILL_SECONDS:-15}
RANDOM=${CTL_KILL_SEED:-42}

keeper_file "$conf" </dev/null
{ cat "$conf"; printf '[peer m]\nrole = blocker_memory\n'; } |
    sed 's/^role = volume/&\nobject-size = 1M/' >"$other"
head -c 24M /dev/urandom >"$img"
ctl_exits 0 "up" up "$conf"
ctl volume create disk --size 32M
ctl volume import "$img" stays
load_start load

commands=(
    "volume create v --size 1M" "volume rm v --yes" "volume import $img w" "volume rm w --yes"
    "volume export stays $SCENE_DIR/out --yes" "peer start n=blocker_memory" "peer stop n"
    "peer restart file0" "peer restart vol0" "edge set vol0:store file0" "config apply $other"
    "config apply $conf" "config save $SCENE_DIR/saved.conf --yes" "segment reap" "job list"
    "job tidy" "status" "up $conf" "volume list" "segment create x --size 8M"
    "segment destroy x --yes")
kills=0 count=0
end=$((SECONDS + seconds))
while [ $SECONDS -lt "$end" ]; do
    for command in "${commands[@]}"; do
        # shellcheck disable=SC2086  # words
        "$XSEGCTL" $command >/dev/null 2>&1 &
        client=$!
        sleep "0.$(printf '%03d' $((RANDOM % 60)))"
        if kill -s KILL $client 2>/dev/null; then kills=$((kills + 1)); fi
        if [ $((RANDOM % 3)) = 0 ]; then
            # the processes of its jobs, by the pids of their records
            for pid in $("$XSEGCTL" job list --json | jq -r '.jobs[] |
                select(.state == "running" and (.detail.keeper | not)).pid'); do
                kill -s KILL "$pid" 2>/dev/null
                kills=$((kills + 1))
            done
        fi
        wait $client 2>/dev/null
        count=$((count + 1))
    done
done
tap_note "$count commands, $kills processes killed"
tap_run "some were hit" test "$kills" -gt 20

settled() {
    "$XSEGCTL" job list --json |
        jq -e '[.jobs[].state | . == "running" or . == "lost"] | any | not'
}
tap_run "no job is left under way" scene_until 20 settled
load_end load "the guest saw no error"
if "$XSEGCTL" segment list --json | jq -e '.segments[] | select(.name == "x")' >/dev/null; then
    ctl_exits 0 "a segment whose maker was killed can be destroyed" segment destroy x --yes
fi
ctl_exits 0 "the configuration can be applied" config apply "$conf"
ctl_exits 0 "it is what runs" config diff "$conf"
ctl_exits 0 "all is well" status
ctl_exits 0 "what was not touched is whole" volume export stays "$SCENE_DIR/whole"
tap_run "byte by byte" cmp "$img" "$SCENE_DIR/whole"
ctl volume list --json
json_is "none is half, but what was being imported" \
    '[.volumes[] | select(.state != "ready" and .name != "w").name] | join(" ")' ''
ctl volume info w --json
if [ "$RC" = 0 ] && [ "$(jq -r .state "$SCENE_DIR/ctl.out")" = importing ]; then
    ctl_exits 0 "that is gone on with" volume import "$img" w
fi
if [ "$RC" = 0 ]; then
    ctl_exits 0 "an import that was reported whole" volume export w "$SCENE_DIR/w"
    tap_run "is" cmp "$img" "$SCENE_DIR/w"
fi
if [ -e "$SCENE_DIR/out" ]; then
    tap_run "an export with its name is whole" cmp "$img" "$SCENE_DIR/out"
fi
tap_is "no half file lies about" "$(find "$SCENE_DIR" -maxdepth 1 -name '.out*')" ''
"$XSEGCTL" config check "$SCENE_DIR/saved.conf" >/dev/null 2>&1 || [ ! -e "$SCENE_DIR/saved.conf" ]
tap_is "a saved file is whole" $? 0
ctl_exits 0 "nothing waits for a reaper" segment reap --json
json_is "pending" .pending 0
ctl_exits 0 "fsck" segment fsck
ctl_exits 0 "down" down
tap_end
