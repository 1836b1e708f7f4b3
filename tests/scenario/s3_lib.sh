# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# An S3 server of our own on the loopback interface: $SKERRY_S3, or the first that is installed of
# versitygw and minio (over a folder) and Ceph's radosgw (over a cluster of its own in memory).
#   s3_have                or a reason why not, and status 1
#   s3_start DIR           $S3_URL, bucket "skerry", $S3_OPTIONS for blocker_s3; it is the scene's
#                          process s3, and ends with it
#   s3_serve               again after a kill
#   s3_need DIR            the same, or all is skipped with the reason
#   s3_quota COUNT         radosgw: no more objects than that
#   s3_ask METHOD PATH [CURL OPTIONS...]   as its owner

. "$(dirname "${BASH_SOURCE[0]}")/ceph_lib.sh"

S3_DIR='' S3_URL='' S3_PORT='' S3_OPTIONS=''

s3_kind() {
    local kind
    for kind in ${SKERRY_S3:-versitygw minio}; do
        if command -v "$kind" >/dev/null; then echo "$kind" && return; fi
    done
    echo radosgw
}

s3_have() {
    scene_have curl || { echo "curl is not installed" && return 1; }
    [ "$(s3_kind)" != radosgw ] && return
    scene_have radosgw radosgw-admin ||
        { echo "none of versitygw, minio and radosgw is installed" && return 1; }
    ceph_have
}

s3_ask() {
    local method=$1 path=$2
    shift 2
    printf 'user = "%s"\n' "$(paste -sd: "$S3_DIR/keys")" |
        timeout 300 curl -sS --fail-with-body -K - --aws-sigv4 aws:amz:us-east-1:s3 -X "$method" \
            -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "$@" "$S3_URL$path"
}
s3_is_up() { curl -s -o "$S3_DIR/answer" "$S3_URL/"; }

s3_serve() {
    local user secret
    user=$(head -n 1 "$S3_DIR/keys")
    secret=$(tail -n 1 "$S3_DIR/keys")
    case $(s3_kind) in
    versitygw)
        VGW_VIRTUAL_DOMAIN=localhost ROOT_ACCESS_KEY=$user ROOT_SECRET_KEY=$secret \
            scene_spawn s3 versitygw --port "127.0.0.1:$S3_PORT" --keep-alive --quiet \
            posix "$S3_DIR/files"
        ;;
    minio)
        MINIO_DOMAIN=localhost MINIO_ROOT_USER=$user MINIO_ROOT_PASSWORD=$secret \
            MINIO_BROWSER=off MINIO_UPDATE=off HOME=$S3_DIR \
            scene_spawn s3 minio server --quiet --address "127.0.0.1:$S3_PORT" "$S3_DIR/files"
        ;;
    radosgw)
        scene_spawn s3 radosgw -c "$CEPH_CONF" -n client.admin --rgw-dns-name localhost \
            --rgw-data "$S3_DIR" --rgw-frontends "beast endpoint=127.0.0.1:$S3_PORT" \
            --log-file "$S3_DIR/log" --admin-socket '' --pid-file '' --rgw-enable-apis s3 -f
        ;;
    esac
    scene_until 180 s3_is_up || { echo "the S3 server did not start" && return 1; }
}

s3_cluster() {
    CEPH_AUTH=cephx CEPH_POOL='' ceph_start "$S3_DIR/ceph" || return
    timeout 600 radosgw-admin -c "$CEPH_CONF" user create --uid=t --display-name=t \
        --access-key="$(head -n 1 "$S3_DIR/keys")" --secret-key="$(tail -n 1 "$S3_DIR/keys")" \
        >"$S3_DIR/user" 2>&1 || { echo "radosgw-admin makes no user" && return 1; }
}

s3_quota() {
    timeout 600 radosgw-admin -c "$CEPH_CONF" quota set --uid=t --quota-scope=bucket \
        --max-objects="$1" &&
        timeout 600 radosgw-admin -c "$CEPH_CONF" quota enable --uid=t --quota-scope=bucket
}

s3_start() {
    S3_DIR=$1/$(s3_kind) S3_PORT=$(scene_free_port)
    S3_URL=http://127.0.0.1:$S3_PORT
    mkdir -p "$S3_DIR/files"
    printf 'access-%s\nsecret-%s-%s\n' "$$" "$$" "$RANDOM" >"$S3_DIR/keys"
    [ "$(s3_kind)" != radosgw ] || s3_cluster || return
    s3_serve || return
    scene_until 240 s3_ask PUT /skerry >"$S3_DIR/bucket" 2>&1 ||
        { echo "no bucket: $(cat "$S3_DIR/bucket")" && return 1; }
    S3_OPTIONS=endpoint=$S3_URL,bucket=skerry,key-file=$S3_DIR/keys
}

s3_need() {
    s3_have >"$SCENE_DIR/reason" && s3_start "$@" >"$SCENE_DIR/reason" ||
        tap_skip_all "$(tail -n 1 "$SCENE_DIR/reason")"
}
