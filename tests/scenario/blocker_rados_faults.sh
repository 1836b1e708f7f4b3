#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What users of a cluster meet: wrong names and keys, a peer, an OSD or a monitor that is killed, a
# cluster that is paused, a pool that is gone, and a client that is stopped until
# the cluster has shut it out. The OSD keeps its data in a file, so that a kill leaves it.

. "$(dirname "$0")/blocker_lib.sh"
. "$(dirname "$0")/ceph_lib.sh"
blocker_begin "blocker_rados and a cluster with faults" 64M
scene_has_module blocker_rados >"$SCENE_DIR/reason" || tap_skip_all "$(cat "$SCENE_DIR/reason")"
CEPH_AUTH=cephx ceph_need "$SCENE_DIR/ceph" bluestore

store=blocker_rados,pool=skerry,timeout=1m,fence-timeout=1s
ceph_quiet() { timeout 300 ceph "$@" >>"$SCENE_DIR/ceph/log/make" 2>&1; }

# --- who is refused, and told why ---------------------------------------------------------------
refusal() { blocker_refusal "no=blocker_rados,$1"; }
tap_like "a pool that is not there" "$(refusal pool=nowhere)" \
    "pool: 'nowhere': No such file.*osd pool create"
tap_like "a configuration that is not there" "$(refusal pool=skerry,conf=/nowhere)" \
    "conf: '/nowhere'"
tap_like "a name that the cluster does not know" "$(refusal pool=skerry,id=nobody)" \
    'client.nobody in.*id=.*key-file='
other=$SCENE_DIR/other.keyring
ceph-authtool --create-keyring "$other" --gen-key -n client.admin >/dev/null
tap_like "a key that is not the right one" "$(refusal "pool=skerry,key-file=$other")" \
    'does not let client.admin in'
echo "something else" | rados -p skerry -N taken put format -
tap_like "a namespace that is somebody else's" "$(refusal pool=skerry,namespace=taken)" \
    "not of this version"

# --- a user with no more rights than the manual page says ---------------------------------------
user=$SCENE_DIR/user.keyring
ceph auth get-or-create client.user mon 'profile rbd' osd 'allow rwx pool=skerry' >"$user"
blocker_peer small 1 "small=$store,id=user,key-file=$user,namespace=user" || tap_not_ok "it starts"
tap_run "its laws hold" "$CHECK" all "$SEGMENT" small 200
secret=$(sed -n 's/.*key = //p' "$user")
secret_is_hidden small "$secret"
scene_stop small

# --- the peer is killed under load --------------------------------------------------------------
killed_under_load "the peer is killed" "disk=$store"

# --- what is free -----------------------------------------------------------------------------
tap_is "without a manager the monitor does not know what is free" "$(op space 0 0)" EOPNOTSUPP
if command -v ceph-mgr >/dev/null; then
    tap_run "a quota" ceph_quiet osd pool set-quota skerry max_bytes 1073741824
    ceph_mgr_start
    within() { [[ $(op space 0 0) =~ ^1073741824\ [0-9]{9,10}$ ]]; }
    tap_run "with one the pool has its quota" scene_until 120 within
    tap_run "no quota" ceph_quiet osd pool set-quota skerry max_bytes 0
    beyond() { [[ $(op space 0 0) =~ ^[0-9]{10,}\ [0-9]{10,}$ ]] && ! within; }
    tap_run "it has what the cluster has" scene_until 120 beyond
    scene_stop ceph-mgr
else
    tap_skip "what is free in a pool" "ceph-mgr is not installed"
fi

# --- the OSD is killed --------------------------------------------------------------------------
tap_is "a write" "$(op write 1 0 0 65536 1)" ok
# one that waits for 5 s and no longer, for what must fail
blocker_peer hasty 1 "hasty=blocker_rados,pool=skerry,timeout=5s" || tap_not_ok "it starts"
scene_kill KILL ceph-osd
scene_stop ceph-osd
tap_is "without an OSD a read fails in time" "$(op read 1 0 0 65536 1)" ETIMEDOUT
tap_is "and a write" "$(op write 1 1 0 4096 1)" ETIMEDOUT
tap_is "the log says so once" "$(grep -c 'failed.*timed out' "$SCENE_DIR/hasty.err")" 1
ceph_osd_start
PEER=disk
tap_run "it is back: what was written is there" comes read 1 0 0 65536 1
tap_is "and more can be" "$(op write 1 1 0 4096 2)" ok

# --- the monitor is killed ----------------------------------------------------------------------
scene_kill KILL ceph-mon
scene_stop ceph-mon
tap_is "without a monitor a write goes on" "$(op write 1 2 0 4096 3)" ok
ceph_mon_start
tap_run "it is back" ceph_quiet osd stat

# --- a cluster that is paused -------------------------------------------------------------------
tap_run "the cluster takes no requests" ceph_quiet osd set pause
held() { [ "$(op write 1 3 0 4096 1)" = ETIMEDOUT ]; }
PEER=hasty
tap_run "a write fails in time" scene_until 60 held
PEER=disk
tap_run "it takes them again" ceph_quiet osd unset pause
tap_run "a write goes on" comes write 1 3 0 4096 2

# --- one that is stopped, while another takes a volume of its -----------------------------------
tap_is "it claims two volumes" "$(op fence 31 5) $(op fence 32 5)" "ok ok"
tap_is "and writes" "$(op write 31 0 0 4096 1) $(op write 32 0 0 4096 1)" "ok ok"
one=$SEGMENT
SEGMENT=$one-b
blocker_segment 32M
blocker_peer second 1 "second=$store" || tap_not_ok "it starts"
tap_is "another asks for one of them: it is let go of" "$(op fence 32 6)" ok
SEGMENT=$one PEER=disk
tap_like "the first may not write to it" "$(op write 32 0 0 4096 2)" ESTALE
tap_is "and was not shut out" "$(op write 31 0 0 4096 2)" ok
scene_freeze "$(scene_pid life)"
scene_spawn late "$CHECK" write "$SEGMENT" disk 31 0 0 4096 3
SEGMENT=$one-b PEER=second
tap_is "it is stopped: another takes the other one" "$(op fence 31 6)" ok
tap_is "and writes" "$(op write 31 0 0 4096 4)" ok
scene_kill CONT life
tap_run "it goes on: its write is answered" scene_until 60 grep -q . "$SCENE_DIR/late.out"
tap_like "and refused" "$(cat "$SCENE_DIR/late.out")" ESTALE
tap_is "nothing of it arrived" "$(op read 31 0 0 4096 4)" ok
SEGMENT=$one PEER=disk
tap_is "the cluster had shut it out; it is in again" "$(op fence 33 1) $(op write 33 0 0 4096 1)" \
    "ok ok"
tap_run "which it says" grep -q 'had shut us out; we are in again' "$SCENE_DIR/life.err"
scene_stop second

# --- the pool is deleted under it ---------------------------------------------------------------
tap_run "the pool is deleted" ceph_quiet osd pool delete skerry skerry \
    --yes-i-really-really-mean-it
gone() { [ "$(op read 1 0 0 65536 0)" = EIO ]; }
tap_run "what was there does not read as zeros" scene_until 60 gone
tap_run "it stops all the same" scene_stop life

# --- and comes back without its data ------------------------------------------------------------
ceph_quiet osd pool create skerry 8
blocker_peer life 1 "disk=$store" || tap_not_ok "it starts on a new pool"
scene_kill KILL life
scene_stop life
ceph_quiet osd pool delete skerry skerry --yes-i-really-really-mean-it
ceph_quiet osd pool create skerry 8
tap_like "a successor of one that was killed does not serve it" \
    "$(blocker_refusal "disk=$store")" 'has lost its data'
scene_stop hasty
tap_end
