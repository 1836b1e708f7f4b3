# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A Ceph cluster of our own: one monitor and one OSD on the loopback interface, on ports of their
# own, without a manager.
#   ceph_have              or a reason why not, and status 1
#   ceph_start DIR [STORE] memstore (default: in memory) or bluestore (in a file, survives a kill);
#                          pool "skerry", or CEPH_POOL; $CEPH_CONF is exported; a reason and
#                          status 1 if it fails
#   ceph_need DIR [STORE]  ceph_start, or all is skipped with the reason
#   ceph_mon_start, ceph_osd_start    again, after scene_stop or SIGKILL; they are the scene's
#                          processes ceph-mon and ceph-osd, and end with it

CEPH_DIR=''

ceph_have() {
    local program
    for program in ceph ceph-mon ceph-osd monmaptool rados; do
        command -v "$program" >/dev/null || { echo "$program is not installed" && return 1; }
    done
}

ceph_conf() { # FSID STORE PORT
    cat <<EOF
[global]
fsid = $1
mon host = v2:127.0.0.1:$3/0,v1:127.0.0.1:$(($3 + 1))/0
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind ipv6 = false
ms bind port min = $(($3 + 2))
ms bind port max = $(($3 + 40))
auth cluster required = ${CEPH_AUTH:-none}
auth service required = ${CEPH_AUTH:-none}
auth client required = ${CEPH_AUTH:-none}
keyring = $CEPH_DIR/keyring
auth allow insecure global id reclaim = false
run dir = $CEPH_DIR/run
admin socket = $CEPH_DIR/run/\$name.asok
log file = $CEPH_DIR/log/\$name.log
log to stderr = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon allow pool delete = true
osd crush chooseleaf type = 0
mon data avail crit = 1
mon data avail warn = 2
mon osd down out interval = 0
[client]
admin socket =
log file = $CEPH_DIR/log/client.log
[mon.a]
mon data = $CEPH_DIR/mon
[osd]
osd data = $CEPH_DIR/osd
mgr data = $CEPH_DIR/mgr
mgr initial modules =
osd objectstore = $2
memstore device bytes = 2147483648
bluestore block size = ${CEPH_BYTES:-4294967296}
bluestore block create = true
osd memory target = 939524096
osd memory cache min = 134217728
osd class load list = *
osd class default list = *
EOF
}

# Three of one kind; ours alone, so that two tests may run at once.
ceph_port() {
    local port=$((20000 + ($$ % 400) * 50))
    while ss -Hltn "sport >= $port and sport < $((port + 50))" | grep -q .; do
        port=$((port + 50))
    done
    echo "$port"
}

ceph_keys() {
    local file=$CEPH_DIR/keyring
    ceph-authtool --create-keyring "$file" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool "$file" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
    ceph-authtool "$file" --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *'
    ceph-authtool "$file" --gen-key -n mgr.x --cap mon 'allow profile mgr' --cap osd 'allow *'
}

ceph_mon_start() { scene_spawn ceph-mon ceph-mon -c "$CEPH_CONF" -i a -f; }
ceph_osd_start() { scene_spawn ceph-osd ceph-osd -c "$CEPH_CONF" -i 0 -f; }
ceph_mgr_start() { # it counts what pools have
    mkdir -p "$CEPH_DIR/mgr" && scene_spawn ceph-mgr ceph-mgr -c "$CEPH_CONF" -i x -f
}

ceph_ask() { timeout 300 ceph "$@"; }

ceph_make() { # STORE
    local id port keys=()
    id=$(cat /proc/sys/kernel/random/uuid) port=$(ceph_port)
    mkdir -p "$CEPH_DIR"/{mon,osd,run,log}
    ceph_conf "$id" "$1" "$port" >"$CEPH_DIR/ceph.conf"
    export CEPH_CONF=$CEPH_DIR/ceph.conf
    monmaptool --create --clobber --fsid "$id" \
        --addv a "[v2:127.0.0.1:$port,v1:127.0.0.1:$((port + 1))]" "$CEPH_DIR/monmap" || return
    if [ -n "${CEPH_AUTH:-}" ]; then
        ceph_keys || return
        keys=(--keyring "$CEPH_DIR/keyring")
    fi
    ceph-mon -c "$CEPH_CONF" --mkfs -i a --monmap "$CEPH_DIR/monmap" "${keys[@]}" || return
    ceph_mon_start
    id=$(cat /proc/sys/kernel/random/uuid)
    ceph_ask osd new "$id" 0 || return
    ceph-osd -c "$CEPH_CONF" -i 0 --mkfs --osd-uuid "$id" || return
    ceph_ask osd crush add 0 1.0 root=default host=here || return
    ceph_osd_start
    [ -z "${CEPH_POOL-skerry}" ] || ceph_ask osd pool create "${CEPH_POOL-skerry}" 8
}

ceph_start() {
    CEPH_DIR=$1
    mkdir -p "$CEPH_DIR/log"
    if ! ceph_make "${2:-memstore}" >"$CEPH_DIR/log/make" 2>&1; then
        echo "no cluster: $(tail -n 1 "$CEPH_DIR/log/make")"
        return 1
    fi
    scene_until 120 ceph_is_up >>"$CEPH_DIR/log/make" 2>&1 || { echo "no OSD came up" && return 1; }
}
ceph_is_up() { timeout 60 ceph osd stat | grep -q ' 1 up'; }

ceph_need() {
    mkdir -p "$1"
    { ceph_have && ceph_start "$@"; } >"$1/reason" || tap_skip_all "$(tail -n 1 "$1/reason")"
}
