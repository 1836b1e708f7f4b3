# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Against a server of our own, on a UNIX socket.
STORE_SHARED=timeout=60s
. "$(dirname "${BASH_SOURCE[0]}")/../scenario/redis_lib.sh"
store_begin() {
    scene_has_module blocker_redis && redis_have && redis_start "$STORE_DIR"
}
store_variants() {
    echo "1 socket=$REDIS_SOCKET,prefix=one"
    echo "3 socket=$REDIS_SOCKET,prefix=three,flush=memory"
}
store_end() { scene_stop redis; }
