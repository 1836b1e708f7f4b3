#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# cache list, stats, mode, flush, drop, resize and policy, key by key, what they refuse, and that
# what was set outlives the process; top and status of a cache.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "cache"
"$XSEGPEER" --describe-role cached >/dev/null 2>&1 || tap_skip_all "there is no cached here"
conf=$SCENE_DIR/k.conf
down_at_exit k
keeper_file "$conf" <<'EOC'
[peer cache0]
role = cached
size = 8M
edge.store = file0
EOC
sed -i 's/edge.store = file0/edge.store = cache0/; t' "$conf"
sed -i '/^\[peer cache0\]/,$ s/edge.store = cache0/edge.store = file0/' "$conf"
ctl_exits 3 "no segment, no cache" -s k cache list
ctl_exits 0 "up, with a cache" up "$conf"
ctl volume create disk --size 16M
ctl volume create other --size 16M
uri="nbd+unix:///disk?socket=$socket"

one() { jq -r ".caches[0].$1" <<<"$("$XSEGCTL" cache list --json)"; }
one_is() { [ "$(one "$1")" = "$2" ]; }

# --- list and stats ---------------------------------------------------------------------------
ctl_exits 0 "list" cache list --json
json_is "its keys" '.caches[0] | keys_unsorted | join(" ")' "name phase policy mode ack share size \
used dirty oldest_ns objects objects_max waiting journal lanes health reason error"
json_is "what it says" '.caches[0] | [.name, .phase, .mode, .ack, .size, .health, .reason] |
    map(tostring) | join(" ")' "cache0 caching writeback blocker 8388608 well "
ctl_exits 0 "list as a table" cache list
out_like "a line" $'\ncache0 +caching +writeback +blocker +[a-z0-9]+ +8.0 MiB'
ctl_exits 0 "list as csv" cache list -o csv
tap_run "a client writes and reads" /usr/bin/python3 -c '
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
for i in range(64):
    h.pwrite(bytes([i]) * 4096, i * 4096)
h.flush()
for k in range(4):
    for i in range(64):
        assert bytes(h.pread(4096, i * 4096)) == bytes([i]) * 4096
' "$uri"
ctl_exits 0 "stats" cache stats cache0 --json
json_is "its hits" '.hits >= 256 and .hit_percent > 50 and .hit_percent <= 100' true
json_is "what a flush wrote" '.written >= 262144 and .write_calls >= 1 and .dirty == 0' true
ctl_exits 0 "stats as lines" cache stats cache0
out_like "hits" $'\nhits +[0-9]+'
ctl_exits 0 "stats of volumes" cache stats cache0 --volumes --json
json_is "by name" '[.volumes[] | select(.hits >= 256).volume] | join(" ")' disk
json_is "its keys" '.volumes[0] | keys_unsorted | join(" ")' "volume id mode ack share used dirty \
hit_percent hits misses fills bypasses evictions written write_calls epochs_behind oldest_ns \
bypassing"
ctl_exits 3 "stats of none" cache stats cache7
ctl_exits 2 "stats of what is no cache" cache stats vol0
err_like "says what it is" "no cache but a volume"

# --- top and status ---------------------------------------------------------------------------
ctl_exits 0 "top" top -i 100ms --json
json_is "has the cache" '.peers[] | select(.role == "cached").cache | keys_unsorted | join(" ")' \
    "hit_ratio dirty used size waiting in_bytes_per_s out_bytes_per_s filled_bytes_per_s \
written_bytes_per_s"
json_is "and nobody else has one" '[.peers[] | select(.cache).name] | join(" ")' cache0
json_is "its size" '.peers[] | select(.cache).cache.size' 8388608
ctl_exits 0 "top as a table" top -i 100ms --all
out_like "a line of the cache" $'\nCACHE +HIT % +DIRTY MIB.*\ncache0 '
ctl_exits 0 "status is well" status --json
json_is "and shows the cache" '[.healthy, (.peers[] | select(.cache).cache.health)] |
    map(tostring) | join(" ")' "true well"
tap_run "metrics have its counters" sh -c "'$XSEGCTL' metrics | grep -q 'hits.*cache0'"

# --- mode -------------------------------------------------------------------------------------
ctl_exits 0 "mode" cache mode cache0 writethrough --json
json_is "is changed" '[.mode, .ack, .changed] | map(tostring) | join(" ")' \
    "writethrough blocker true"
ctl_exits 0 "the same again" cache mode cache0 writethrough --json
json_is "is no change" .changed false
ctl_exits 0 "--dry-run" cache mode cache0 writearound --dry-run --json
json_is "says so" '[.mode, .changed, .dry_run] | map(tostring) | join(" ")' "writearound false true"
tap_is "and changes nothing" "$(one mode)" writethrough
ctl_exits 0 "of one volume" cache mode cache0 writearound --volume disk --share 50 --json
json_is "it, and no other" '[.volume, .mode, .share] | map(tostring) | join(" ")' \
    "disk writearound 50"
tap_is "the default stays" "$(one mode)" writethrough
ctl_exits 0 "shown" cache stats cache0 --volumes --json
json_is "with the volume" '.volumes[] | select(.volume == "disk") | "\(.mode) \(.share)"' \
    "writearound 50"
ctl_exits 0 "only the ack" cache mode cache0 --volume other --ack volatile --json
json_is "the mode stays" '"\(.mode) \(.ack)"' "writethrough volatile"
ctl_exits 2 "a mode that is none" cache mode cache0 writeonce
ctl_exits 2 "an ack that is none" cache mode cache0 writeback --ack never
ctl_exits 2 "a share beyond all" cache mode cache0 writeback --share 101
ctl_exits 3 "of no volume" cache mode cache0 writeback --volume nix
ctl cache mode cache0 --ack journal
tap_is "a journal that there is not" "$((RC != 0))" 1

# --- flush and drop ---------------------------------------------------------------------------
ctl cache mode cache0 writeback --volume disk
ctl_exits 0 "flush" cache flush cache0 --json
json_is "says what was dirty" '.dirty | type' number
ctl_exits 0 "flush of a volume" cache flush cache0 --volume disk --json
json_is "is clean by now" '[.volume, .dirty, .changed] | map(tostring) | join(" ")' "disk 0 false"
tap_is "really" "$(one dirty)" 0
ctl_exits 0 "drop --dry-run" cache drop cache0 --dry-run --json
json_is "would drop all" '.dropped > 0 and (.changed | not)' true
ctl_exits 0 "drop" cache drop cache0 --json
json_is "did" '.dropped > 0 and .changed' true
tap_is "really" "$(one used)" 0
ctl_exits 0 "drop of nothing" cache drop cache0 --json
json_is "is no change" '[.dropped, .changed] | map(tostring) | join(" ")' "0 false"
ctl_exits 3 "flush of none" cache flush cache7

# --- resize and policy ------------------------------------------------------------------------
ctl_exits 0 "resize" cache resize cache0 4M --json
json_is "is changed" '[.from, .size, .changed] | map(tostring) | join(" ")' "8388608 4194304 true"
tap_is "really" "$(one size)" 4194304
ctl_exits 0 "the same again" cache resize cache0 4M --json
json_is "is no change" .changed false
ctl_exits 0 "--dry-run" cache resize cache0 6M --dry-run
tap_is "changes nothing" "$(one size)" 4194304
ctl_exits 2 "more than there may be" cache resize cache0 1G
ctl_exits 2 "no size" cache resize cache0 much
ctl_exits 0 "policy" cache policy cache0 lru --json
json_is "is changed" '[.from, .policy, .changed] | map(tostring) | join(" ")' "clock2q lru true"
ctl_exits 2 "a policy that is none" cache policy cache0 mru
ctl_exits 2 "half a command" cache policy cache0

# --- killed -----------------------------------------------------------------------------------
old=$(pid_of cache0)
kill_peer cache0
tap_run "killed, it is back" back cache0 "$old"
tap_is "with what it was told" "$(one size) $(one policy) $(one mode)" "4194304 lru writethrough"
ctl cache stats cache0 --volumes --json
json_is "of volumes, too" '.volumes[] | select(.volume == "disk").share' 50

# --- a flush that a death cuts off goes on --------------------------------------------------------
ctl cache mode cache0 writeback --volume disk
stopped=$(pid_of file0)
tap_run "dirty pages, and a store that does not move" /usr/bin/python3 -c '
import nbd, os, signal, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
h.pwrite(bytes(4096), 0)
h.flush()
os.kill(int(sys.argv[2]), signal.SIGSTOP)
tasks = f"/proc/{sys.argv[2]}/task"
while any(open(f"{tasks}/{t}/stat").read().rsplit(")", 1)[1].split()[0] != "T"
          for t in os.listdir(tasks)):
    pass
for i in range(64):
    h.pwrite(bytes([i + 1]) * 4096, i * 4096)
os._exit(0)
' "$uri" "$stopped"
scene_spawn flush "$XSEGCTL" cache flush cache0 --json
sleep 0.5 # so that it is under way as a rule
tap_run "a flush waits" scene_alive flush
old=$(pid_of cache0)
kill_peer cache0
tap_run "the cache is killed, and back" back cache0 "$old"
kill -s CONT "$stopped"
tap_run "the flush ends well" wait "$(scene_pid flush)"
tap_is "and nothing is dirty" "$(one dirty)" 0
tap_run "all of it is at the store" /usr/bin/python3 -c '
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
assert all(bytes(h.pread(4096, i * 4096)) == bytes([i + 1]) * 4096 for i in range(64))
' "$uri"

stopped=$(pid_of cache0)
scene_at_exit '[ -z "$stopped" ] || kill -s CONT "$stopped"'
scene_freeze "$stopped"
ctl_exits 1 "one that does not move: status" status --timeout 200ms --json
json_is "says so" '.peers[] | select(.name == "cache0") | "\(.health): \(.reason)"' \
    "degraded: it does not answer"
ctl_exits 7 "and a command" cache flush cache0 --timeout 200ms
kill -s CONT "$stopped"
stopped=''
ctl_exits 0 "down" down k
tap_end
