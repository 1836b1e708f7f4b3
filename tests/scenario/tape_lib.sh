# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Cartridges of our own: images, or a library behind an iSCSI target (tgt: a drive, a changer and
# slots from 101 on) on the loopback interface.
#   tape_images DIR COUNT          T1.tap, T2.tap, ...: blank
#   tape_have                      or a reason why not, and status 1
#   tape_start DIR COUNT MIB       $TAPE_OPTIONS for blocker_tape, $TAPE_URL its target; it is the
#                                  scene's process tgtd, and ends with it
#   tape_serve                     again after a kill, with the cartridges where they were at first
#   tape_chap USER PASSWORD        it asks for them from now on

TAPE_DIR='' TAPE_PORT='' TAPE_COUNT=0 TAPE_URL='' TAPE_OPTIONS=''
TAPE_TARGET=iqn.2026-11.skerry:tapes

tape_images() {
    local i
    mkdir -p "$1"
    for ((i = 1; i <= $2; i++)); do : >"$1/T$i.tap"; done
}

tape_have() {
    scene_have tgtd tgtadm tgtimg || { echo "tgt is not installed" && return 1; }
}

tape_adm() { TGT_IPC_SOCKET=$TAPE_DIR/control timeout 60 tgtadm -C 9 --lld iscsi "$@"; }
tape_is_up() { tape_adm --mode target --op show; }
tape_lun() { tape_adm --mode logicalunit --tid 1 "$@"; }
tape_set() { tape_lun --op update --lun 2 --params "$1"; }

tape_serve() {
    local i
    TGT_IPC_SOCKET=$TAPE_DIR/control scene_spawn tgtd tgtd -f -C 9 -p "$TAPE_DIR/pid" \
        --iscsi "portal=127.0.0.1:$TAPE_PORT"
    scene_until 60 tape_is_up || { echo "tgtd did not start" && return 1; }
    {
        tape_adm --mode target --op new --tid 1 -T "$TAPE_TARGET" &&
            tape_lun --op new --lun 1 -b "$TAPE_DIR/none" --device-type tape &&
            tape_lun --op update --lun 1 --params online=0 &&
            tape_lun --op new --lun 2 -b "$TAPE_DIR/changer" --device-type changer &&
            tape_set "media_home=$TAPE_DIR" &&
            tape_set element_type=4,start_address=1,quantity=1 &&
            tape_set element_type=4,address=1,tid=1,lun=1 &&
            tape_set element_type=1,start_address=90,quantity=1 &&
            tape_set "element_type=2,start_address=101,quantity=$TAPE_COUNT"
        for ((i = 1; i <= TAPE_COUNT; i++)); do
            tape_set "element_type=2,address=$((100 + i)),barcode=SKT00$i,sides=1"
        done
        tape_adm --mode target --op bind --tid 1 -I ALL
    } >"$TAPE_DIR/log" 2>&1 || { tail -n 1 "$TAPE_DIR/log" && return 1; }
}

tape_chap() {
    tape_adm --mode account --op new --user "$1" --password "$2" &&
        tape_adm --mode account --op bind --tid 1 --user "$1"
}

tape_new() { # FILE BARCODE MIB
    tgtimg --op new --device-type tape --barcode "$2" --size "$3" --type data --file "$1" \
        --thin-provisioning >"$TAPE_DIR/log" 2>&1
}

tape_start() {
    local i
    TAPE_DIR=$1 TAPE_COUNT=$2 TAPE_PORT=$(scene_free_port)
    TAPE_URL=iscsi://127.0.0.1:$TAPE_PORT/$TAPE_TARGET
    mkdir -p "$TAPE_DIR"
    truncate -s 1K "$TAPE_DIR/changer"
    tape_new "$TAPE_DIR/none" NONE 1
    for ((i = 1; i <= TAPE_COUNT; i++)); do tape_new "$TAPE_DIR/SKT00$i" "SKT00$i" "$3"; done
    TAPE_OPTIONS=drive=$TAPE_URL/1,changer=$TAPE_URL/2
    tape_serve
}
