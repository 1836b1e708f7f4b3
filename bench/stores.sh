#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What does a store cost more than its client library alone? See stores.sh --help. It starts a
# cluster of its own, in memory, as the tests do.

# shellcheck source-path=SCRIPTDIR/../tests/scenario
. "$(dirname "$0")/../tests/scenario/lib.sh"
# shellcheck source-path=SCRIPTDIR/../tests/scenario
. "$(dirname "$0")/../tests/scenario/ceph_lib.sh"
[ "${1:-}" != --help ] || exec /usr/bin/python3 -B "$(dirname "$0")/stores.py" --help
scene_begin ''
ceph_need "$SCENE_DIR/ceph"
env -u SKERRY_SHM_DIR -u SKERRY_RUN_DIR /usr/bin/python3 -B "$(dirname "$0")/stores.py" "$@"
