#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A cache that comes below somebody who has a volume already - plugged in at an exporter, started
# anew with its host, or put below another cache - hears whose it is before it takes a write: else
# the store would refuse what it writes back, as of a term from before the last owner. To the store,
# which hosts could share, the far host comes back as another segment: with a term that it had, or
# that whoever is above says to another far host.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "whose a volume is, for caches that come later"
ctl_need mapperd volume front_nbd cached synapse_import synapse_export blocker_file
scene_need qemu-io
cd "$SCENE_DIR" || exit 1

far_conf() { # STORE
    cat <<END
[segment]
name=far
size=256M

[peer file0]
role=blocker_file
dir=$SCENE_DIR/files
shared=yes

[peer cache0]
role=cached
size=32M
edge.store=file0

[peer out0]
role=synapse_export
listen=unix:$SCENE_DIR/far.link
state=$SCENE_DIR/state
edge.store=$1
END
}
near_conf() { # SEGMENT
    cat <<END
[segment]
name=$1
size=256M

[peer nbd0]
role=front_nbd
listen=unix:$SCENE_DIR/$1.sock
edge.volume=vol0

[peer vol0]
role=volume
edge.store=cache0
edge.map=map0

[peer map0]
role=mapperd
edge.store=far0

[peer cache0]
role=cached
size=32M
edge.store=far0

[peer far0]
role=synapse_import
remote=unix:$SCENE_DIR/far.link
END
}
uri_of() { echo "nbd+unix:///disk?socket=$SCENE_DIR/$1.sock"; } # SEGMENT
reads() { scene_io "$(uri_of b)" -c "read -P $1 0 1M" -c "read -P 9 8M 4k"; } # PATTERN
dirty() { xsegctl stats -s "$1" --json "$2" | jq '[.peers[].counters.dirty] | add'; }
to_far() { xsegctl cache flush -s a cache0; }
PATH=$PATH:$(dirname "$XSEGCTL")
far_conf file0 | awk -v RS= -v ORS='\n\n' '!/^\[peer cache0\]/' >far.conf
far_conf cache0 >cached.conf
for host in a b; do
    near_conf "$host" >"$host.conf"
    down_at_exit "$host"
done
down_at_exit far

tap_run "the far host" xsegctl up far.conf
tap_run "a near one" xsegctl up a.conf
tap_run "... has a volume" xsegctl volume create disk --size 64M -s a
tap_run "... which it writes to" scene_io "$(uri_of a)" -c 'write -P 1 0 1M' -c flush
tap_run "... and ends" xsegctl down a
tap_run "another one" xsegctl up b.conf
tap_run "... has it after it" scene_io "$(uri_of b)" -c 'write -P 9 8M 4k' -c flush
tap_run "... and ends" xsegctl down b
tap_run "the first one again" xsegctl up a.conf
client_attach "$(uri_of a)"
tap_run "... has it open, in a later term than it had it first" say 'write -f -P 2 0 1M'
tap_run "a cache is plugged in on the far host" xsegctl plug cached --at out0:store -s far
tap_run "... is written through to" say 'write -f -P 3 0 1M'
tap_run "... and comes out with all at the store" xsegctl unplug cache0 -s far
tap_run "one is plugged in below the near one's" xsegctl plug cached --at cache0:store -s a
tap_run "... is written to" say 'write -f -P 4 0 1M'
tap_run "... by the cache above" to_far
tap_run "... and comes out with all at the store" xsegctl unplug cache1 -s a
ctl_exits 0 "the far host goes down below who has it open" down far
tap_run "... and comes back with a cache" xsegctl up cached.conf
tap_run "... which is written to" say 'write -f -P 5 0 1M'
tap_run "... by the cache above" to_far
tap_run "... and writes to the store" xsegctl cache flush -s far cache0
tap_is "... all that it has" "$(dirty far cache0)" 0
ctl_exits 0 "it goes down again" down far
sed 's,^state=.*,&2,' cached.conf >other.conf
tap_run "... and another one comes in its place, which has not heard of it" xsegctl up other.conf
tap_run "... is written to" say 'write -f -P 6 0 1M'
tap_run "... by the cache above" to_far
tap_run "... and writes to the store" xsegctl cache flush -s far cache0
tap_is "... all that it has" "$(dirty far cache0)" 0
client_leave
ctl_exits 0 "the near one ends" down a
ctl_exits 0 "the far host, too, with nothing left" down far
tap_run "without a cache" xsegctl up far.conf
tap_run "... the other one" xsegctl up b.conf
tap_run "... reads what was written last" reads 6
ctl_exits 0 "it ends" down b
ctl_exits 0 "as does the far host" down far
tap_end
