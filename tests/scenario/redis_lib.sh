# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A Redis server of our own, on a UNIX socket; by TLS on a port, too, where it is asked for.
#   redis_have               or a reason why not, and status 1
#   redis_start DIR [WORD..] appendfsync always; the words are options more; $REDIS_SOCKET; it is
#                            the scene's process redis, and ends with it; again after a kill
#   redis_need DIR [WORD..]  the same, or all is skipped with the reason
#   redis_tls DIR            words for redis_start in $REDIS_TLS, options for blocker_redis in
#                            $REDIS_TLS_OPTIONS; clients need a certificate, the server's is for
#                            "localhost"
#   redis_ask WORD...        redis-cli

REDIS_SOCKET='' REDIS_TLS=() REDIS_TLS_OPTIONS=''

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

redis_tls() {
    local port
    port=$(scene_free_port)
    mkdir -p "$1"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
        -subj /CN=redis -addext subjectAltName=DNS:localhost -keyout "$1/tls.key" \
        -out "$1/tls.crt" 2>"$1/tls.err" || return
    REDIS_TLS=(--tls-port "$port" --tls-cert-file "$1/tls.crt" --tls-key-file "$1/tls.key"
        --tls-ca-cert-file "$1/tls.crt")
    REDIS_TLS_OPTIONS=host=localhost,port=$port,tls=yes,tls-ca=$1/tls.crt,tls-cert=$1/tls.crt
    REDIS_TLS_OPTIONS+=,tls-key=$1/tls.key
}

redis_need() {
    redis_have >"$SCENE_DIR/reason" && redis_start "$@" >"$SCENE_DIR/reason" ||
        tap_skip_all "$(tail -n 1 "$SCENE_DIR/reason")"
}
