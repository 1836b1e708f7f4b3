# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Images: many small files and cartridges, so that all ends of them are met; then a drive and a
# changer behind a target of our own, where there is one.
. "$(dirname "${BASH_SOURCE[0]}")/../scenario/tape_lib.sh"
store_begin() {
    scene_has_module blocker_tape && tape_have && tape_start "$STORE_DIR/target" 3 256
}
store_variants() {
    tape_images "$STORE_DIR/one" 1
    tape_images "$STORE_DIR/many" 8
    echo "1 drive=image:$STORE_DIR/one,index=$STORE_DIR/index1"
    echo "3 drive=image:$STORE_DIR/many,capacity=24M,file=1M,index=$STORE_DIR/index2,window=1"
    echo "2 $TAPE_OPTIONS,index=$STORE_DIR/index3,file=8M"
}
store_end() { scene_stop tgtd; }
