# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
store_variants() {
    echo "1 dir=$STORE_DIR/one"
    echo "3 dir=$STORE_DIR/three"
}
