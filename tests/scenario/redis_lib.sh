# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A Redis server of our own, on a UNIX socket and no port.
#   redis_have               or a reason why not, and status 1
#   redis_start DIR [WORD..] appendfsync always; the words are options more; $REDIS_SOCKET; it is
#                            the scene's process redis, and ends with it; again after a kill
#   redis_need DIR [WORD..]  the same, or all is skipped with the reason
#   redis_ask WORD...        redis-cli

REDIS_SOCKET=''

redis_have() {
    command -v redis-server >/dev/null || { echo "redis-server is not installed" && return 1; }
}

redis_ask() { timeout 60 redis-cli -s "$REDIS_SOCKET" "$@"; }
redis_is_up() { [ "$(redis_ask ping 2>&1)" = PONG ]; }

redis_start() {
    local dir=$1
    shift
    mkdir -p "$dir"
    REDIS_SOCKET=$dir/redis.sock
    scene_spawn redis redis-server --port 0 --unixsocket "$REDIS_SOCKET" --dir "$dir" --save '' \
        --appendonly yes --appendfsync always --maxmemory-policy noeviction --maxmemory 1gb "$@"
    scene_until 120 redis_is_up || { echo "redis-server did not start" && return 1; }
}

redis_need() {
    redis_have >"$SCENE_DIR/reason" && redis_start "$@" >"$SCENE_DIR/reason" ||
        tap_skip_all "$(tail -n 1 "$SCENE_DIR/reason")"
}
