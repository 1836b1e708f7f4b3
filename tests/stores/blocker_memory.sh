# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
store_variants() {
    echo "1"
    echo "3"
}
