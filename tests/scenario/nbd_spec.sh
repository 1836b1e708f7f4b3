#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# NBD conformance of Skerry, all rules: a plain, a read-only and a TLS front of one volume; then
# the rules about data again with three processes.

. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
SCENE_SIZE=64M SCENE_SEGMENT_SIZE=512M

# A CA, and certificates for server and client, good for a day.
certificates() {
    local who key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
    cd "$1" && openssl req -x509 "${key[@]}" -keyout ca-key.pem -out ca.pem -days 1 \
        -subj /CN=test-ca -addext basicConstraints=critical,CA:TRUE \
        -addext keyUsage=critical,keyCertSign || return
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nkeyUsage=digitalSignature\n' >extensions
    printf 'extendedKeyUsage=serverAuth,clientAuth\n' >>extensions
    for who in server client; do
        openssl req "${key[@]}" -keyout $who-key.pem -out $who.csr -subj "/CN=$who" &&
            openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 1 \
                -extfile extensions -out $who.pem || return
    done
}

# TAP of another program, counted as ours.
relay() {
    local rc line skip
    "$@" >"$SCENE_DIR/relayed" 2>&1
    rc=$?
    while IFS= read -r line; do
        case $line in
        "ok "*" # SKIP "*)
            skip=${line#* # SKIP }
            line=${line#ok * - }
            tap_skip "$PREFIX${line% # SKIP *}" "$skip"
            ;;
        "ok "*) tap_ok "$PREFIX${line#ok * - }" ;;
        "not ok "*) tap_not_ok "$PREFIX${line#not ok * - }" ;;
        1..*) ;;
        *) tap_note "${line#\# }" ;;
        esac
    done <"$SCENE_DIR/relayed"
    [ "$rc" -le 1 ] || tap_not_ok "$PREFIX: exit $rc"
}

fronts() {
    local pki=$SCENE_DIR/pki tls
    tls="tls=require,tls-cert=$pki/server.pem,tls-key=$pki/server-key.pem,tls-ca=$pki/ca.pem"
    mkdir "$pki"
    (certificates "$pki") >"$SCENE_DIR/pki.log" 2>&1 || { cat "$SCENE_DIR/pki.log"; return 1; }
    PORT=$(scene_free_port)
    scene_peer readonly -s "$1" \
        "nbd1=front_nbd,listen=unix:$SCENE_DIR/ro.sock,read-only=yes,edge.volume=vol0" &&
        scene_peer tls -s "$1" "nbd2=front_nbd,listen=tcp:127.0.0.1:$PORT,edge.volume=vol0,$tls"
}

scene_begin
scene_need_skerry
scene_need openssl
segment=spec$$
if scene_stacked "$segment" && "$XSEGCTL" -s "$segment" volume create other --size 16M >/dev/null &&
    fronts "$segment"; then
    PREFIX=''
    relay python3 "$HERE/nbd_conform.py" "$SCENE_URI" "$((64 << 20))" \
        --read-only-uri "nbd+unix:///$SCENE_VOLUME?socket=$SCENE_DIR/ro.sock" \
        --tls-uri "nbds://127.0.0.1:$PORT/$SCENE_VOLUME" --ca "$SCENE_DIR/pki/ca.pem" \
        --cert "$SCENE_DIR/pki/client.pem" --key "$SCENE_DIR/pki/client-key.pem" \
        --tls-required --cert-required
    tap_run "every front still runs" scene_alive front
    tap_run "the read-only front still runs" scene_alive readonly
    tap_run "the TLS front still runs" scene_alive tls
else
    tap_not_ok "a pipeline with three fronts starts"
fi
for name in readonly tls front; do
    scene_stop "$name"
    tap_is "$name stops cleanly" "$?" 0
done
if scene_split "$segment-three"; then
    PREFIX='three processes: '
    relay python3 "$HERE/nbd_conform.py" "$SCENE_URI" "$((64 << 20))" --data
    for name in front volume store; do
        scene_stop "$name"
        tap_is "$name stops cleanly" "$?" 0
    done
else
    tap_not_ok "three processes start"
fi
tap_end
