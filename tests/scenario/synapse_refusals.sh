#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Who may cross a bridge, and who may not: TLS with certificates of both ends, and what happens to
# whoever has none, a wrong one, speaks something else, or tells lies.

. "$(dirname "$0")/synapse_lib.sh"
blocker_begin "who may cross a bridge" 64M
scene_need jq openssl
scene_has_module synapse_import >"$SCENE_DIR/reason" || tap_skip_all "$(cat "$SCENE_DIR/reason")"
"$XSEGCTL" cert list --help >/dev/null 2>&1 || tap_skip_all "this build has no TLS"

# --- certificates -------------------------------------------------------------------------------
PATH=$PATH:$(dirname "$XSEGCTL")
cert() { xsegctl cert "$1" --dir "$SCENE_DIR/$2" "${@:3}"; } # VERB AUTHORITY ARGUMENTS...
tls() { # AUTHORITY NAME [AUTHORITY OF THE OTHER END]
    local at=$SCENE_DIR/$1/$2
    echo "tls-ca=$SCENE_DIR/${3:-$1}/ca.crt,tls-cert=$at.crt,tls-key=$at.key"
}
tap_run "an authority is planned" cert init ours --dry-run
tap_run "an authority is made" cert init ours
tap_exits 4 "but not a second one in its place" cert init ours
tap_run "a certificate" cert issue ours far --host localhost,127.0.0.1
tap_run "for a client" cert issue ours near --uri skerry://hosts/near
tap_exits 4 "one of each name" cert issue ours near
tap_exits 2 "a name that is none" cert issue ours ../near
tap_run "which is renewed" cert issue ours near --uri skerry://hosts/near --renew
for args in "init theirs" "issue ours other" "issue ours gone --uri skerry://hosts/near" \
    "issue ours late --uri skerry://hosts/near" \
    "issue theirs strange --uri skerry://hosts/near"; do
    # shellcheck disable=SC2086
    tap_run "$args" cert $args
done
# the same for a time that is over
openssl req -new -key "$SCENE_DIR/ours/late.key" -subj /CN=late |
    openssl x509 -req -days -1 -CA "$SCENE_DIR/ours/ca.crt" -CAkey "$SCENE_DIR/ours/ca.key" \
        -CAcreateserial -out "$SCENE_DIR/late.crt" 2>/dev/null
mv "$SCENE_DIR/late.crt" "$SCENE_DIR/ours/late.crt"
tap_is "keys are for their owner only" "$(stat -c %a "$SCENE_DIR"/ours/*.key | sort -u)" 600
tap_is "they are listed" \
    "$(cert list ours --json | jq -c '[.certificates[] | select(.state != "valid").name]')" \
    '["late"]'

# --- what is refused at the start ---------------------------------------------------------------
no="no=synapse_import,port=far,remote"
tap_like "no address" "$(blocker_refusal "$no=here")" "'here': no address of a bridge"
tap_like "no port" "$(blocker_refusal "$no=tcp:here")" "there is no port"
tap_like "another host without TLS" "$(blocker_refusal "$no=tcp:192.0.2.1:7000")" \
    'another host, so it needs TLS'
tap_like "half of TLS" "$(blocker_refusal "$no=tcp:127.0.0.1:7000,tls-ca=$SCENE_DIR/ours/ca.crt")" \
    'needs all three'
tap_like "no such certificate" \
    "$(blocker_refusal "$no=tcp:127.0.0.1:7000,$(tls ours nobody)")" "tls-cert: '.*nobody"
out="out=synapse_export,edge.store=mem,listen"
tap_like "offered to the network without TLS" \
    "$(blocker_refusal "$out=tcp:0.0.0.0:7000" mem=blocker_memory)" 'so it needs TLS'
tap_like "nobody is let in" \
    "$(blocker_refusal "$out=tcp:127.0.0.1:7000,$(tls ours far)" mem=blocker_memory)" \
    'name with allow=URI'
tap_like "allow without TLS" \
    "$(blocker_refusal "$out=tcp:127.0.0.1:7000,allow=x" mem=blocker_memory)" 'allow needs TLS'
tap_like "a port of nothing" "$(blocker_refusal no=synapse_export,listen=tcp:127.0.0.1:7000)" \
    'give one of edge.store'
tap_like "volumes of a store" "$(blocker_refusal \
    "$out=tcp:127.0.0.1:7000,$(tls ours far),allow=skerry://hosts/near disk" mem=blocker_memory)" \
    'only a composer .edge.volume. knows volumes by name'
tap_like "an address that is none of ours" \
    "$(blocker_refusal "$out=tcp:192.0.2.1:7000,clear-text=yes" mem=blocker_memory)" \
    "listen: '192.0.2.1'"

# --- by certificates ----------------------------------------------------------------------------
synapse_far "$(tls ours far)" "tls-crl=$SCENE_DIR/ours/crl.pem" allow=skerry://hosts/near
near() { # NAME OPTIONS: an importing end; it starts whatever the other one says
    blocker_peer "$1" 1 "$1=synapse_import,$REMOTE${2:+,$2}" || tap_not_ok "it starts"
}
near good "$(tls ours near)"
tap_is "whoever is named comes in" "$(op write 7 0 0 4096 1)" ok
tap_run "large data go through TLS, too" "$CHECK" some "$SEGMENT" good 300
stays_out() { # LABEL NAME OPTIONS WORDS: it gets nothing done, and somebody says why
    near "$2" "timeout=1s${3:+,$3}"
    tap_like "$1: nothing is done" "$(op read 7 0 0 4096 1)" '^(EIO|error 5)'
    tap_like "$1: it is said" "$(cat "$SCENE_DIR/$2.err" "$SCENE_DIR/far.err")" "$4"
    scene_stop "$2"
}
stays_out "one that is not named" other "$(tls ours other)" "no 'allow' of this port names"
stays_out "signed by somebody else" strange "$(tls theirs strange ours)" 'TLS: |alert unknown ca'
stays_out "expired" late "$(tls ours late)" 'certificate has expired'
near gone "$(tls ours gone)"
tap_is "one that is to be revoked comes in" "$(op read 7 0 0 4096 1)" ok
scene_stop gone
tap_run "it is to be revoked" cert revoke ours gone --dry-run
tap_run "it is revoked" cert revoke ours gone
tap_run "... once" test "$(cert revoke ours gone --json | jq .changed)" = false
stays_out "revoked meanwhile" gone "$(tls ours gone)" 'certificate revoked'
stays_out "clear text" plain "" 'TLS: '
stays_out "another authority" wrong "$(tls ours near theirs)" 'self-signed certif|unable to get'
stays_out "another name" named "$(tls ours near),tls-name=elsewhere" 'hostname mismatch'
tap_is "the one that is named is still there" "$(PEER=good op read 7 0 0 4096 1)" ok
scene_stop good

# --- under another's name -------------------------------------------------------------------------
# Two that say that they are the same segment.
cert issue ours all --uri skerry://hosts/all >/dev/null
shop=$(scene_free_port)
scene_peer shop -s "$FAR" "shop=synapse_export,listen=tcp:127.0.0.1:$shop,edge.store=store,$(
    tls ours far),allow=skerry://hosts/*"
for name in near all; do
    blocker_peer "as-$name" 1 "as-$name=synapse_import,remote=tcp:127.0.0.1:$shop,$(tls ours $name)"
done
tap_is "one has a volume" "$(PEER=as-near op fence 50 3)" ok
tap_is "... and writes to it" "$(PEER=as-near op write 50 0 0 4096 1)" ok
tap_is "the same segment with another certificate may not" \
    "$(PEER=as-all op write 50 0 0 4096 2)" ESTALE
tap_is "... unless it takes the volume" "$(PEER=as-all op fence 50 4)" ok
tap_is "... from the other one" "$(PEER=as-near op write 50 0 0 4096 3)" ESTALE
for name in as-near as-all shop; do scene_stop "$name"; done

# --- by volumes ---------------------------------------------------------------------------------
if reason=$(scene_has_module volume && scene_has_module front_nbd) && command -v qemu-io >/dev/null
then
    door=$(scene_free_port)
    scene_peer composer -s "$FAR" "composer=volume,edge.store=store,fixed=mine:8M,fixed=theirs:8M"
    door_start() {
        scene_peer door -s "$FAR" "door=synapse_export,listen=tcp:127.0.0.1:$door,$(tls ours far),$(
        )edge.volume=composer,allow=skerry://hosts/near mine,allow=skerry://hosts/*"
    }
    door_start
    attached() { # NAME CERTIFICATE: a front that has the composer behind the door
        scene_peer "$1" -s "$SEGMENT" -l 1 "$1.in=synapse_import,remote=tcp:127.0.0.1:$door,$(
            tls ours "$2")" "$1=front_nbd,listen=unix:$SCENE_DIR/$1.nbd,edge.volume=$1.in"
    }
    io() { scene_io "nbd+unix:///$2?socket=$SCENE_DIR/$1.nbd" -c "$3"; } # FRONT VOLUME COMMAND
    attached some near
    tap_run "a volume that the certificate may use" io some mine 'write -P 5 0 1M'
    tap_exits 1 "one that it may not" io some theirs 'read 0 1M'
    tap_is "not by a number, either" "$(PEER=some.in op read 7 0 0 4096 1)" EPERM
    tap_run "... which is counted" test "$(counter door denied "$FAR")" -gt 1
    scene_kill KILL door
    scene_stop door
    door_start
    tap_run "with the door new the front goes on" io some mine 'read -P 5 0 1M'
    tap_exits 1 "... and still may not" io some theirs 'read 0 1M'
    attached any all
    tap_run "a certificate without volumes may use all" io any theirs 'read 0 1M'
    # the same certificates at an NBD front
    nbds=$(scene_free_port)
    scene_peer front -s "$FAR" "front=front_nbd,listen=tcp:127.0.0.1:$nbds,edge.volume=composer,$(
        tls ours far),tls-crl=$SCENE_DIR/ours/crl.pem"
    for name in near gone; do
        mkdir "$SCENE_DIR/client-$name"
        cp "$SCENE_DIR/ours/ca.crt" "$SCENE_DIR/client-$name/ca-cert.pem"
        cp "$SCENE_DIR/ours/$name.crt" "$SCENE_DIR/client-$name/client-cert.pem"
        cp "$SCENE_DIR/ours/$name.key" "$SCENE_DIR/client-$name/client-key.pem"
    done
    nbd_info() {
        timeout 60 nbdinfo "nbds://localhost:$nbds/mine?tls-certificates=$SCENE_DIR/client-$1"
    }
    tap_run "an NBD client with a certificate" nbd_info near
    tap_exits 1 "... and one whose certificate was revoked" nbd_info gone
    tap_like "... which the log says" "$(cat "$SCENE_DIR/front.err")" 'certificate revoked'
    for name in some any front door composer; do scene_stop "$name"; done
else
    tap_skip "volumes by certificates" "${reason:-there is no qemu-io}"
fi

export SEED=${SEED:-$RANDOM$RANDOM}
tap_note "SEED=$SEED"

# --- what is no bridge --------------------------------------------------------------------------
scene_stop far
FAR_OPTIONS=()
far_start
near clear ''
tap_is "clear text on this host" "$(op write 7 0 0 4096 2)" ok
REMOTE=${REMOTE/port=far/port=nothing}
stays_out "a port that is not offered" portless '' 'no port of that name is offered here'
REMOTE=${REMOTE/port=nothing/port=far}
tell() { # PYTHON: frames to the exporting end; prints what comes back
    timeout 60 python3 "$(dirname "$0")/../lib/bridge_liar.py" "$FAR_PORT" "$1" 2>&1
}
for lie in noise header length version twice window request huge random; do
    tap_like "a client that lies: $lie" "$(tell "$lie")" '^(refused|ended)'
done
tap_is "none of which has harmed it" "$(PEER=clear op read 7 0 0 4096 2)" ok
scene_stop clear
liar=$(scene_free_port)
for lie in noise length unasked window version twice random; do
    scene_spawn liar python3 "$(dirname "$0")/../lib/bridge_liar.py" --serve "$liar" "$lie"
    scene_wait_tcp 127.0.0.1 "$liar"
    blocker_peer fooled 1 "fooled=synapse_import,timeout=1s,remote=tcp:127.0.0.1:$liar,port=far"
    # it may say what it likes, but for the data that was written elsewhere; and one that answers
    # for somebody else has left this one out: it is the client who gives up
    tap_like "an exporting end that lies: $lie" "$(op read 7 0 0 4096 2)" '^(E[A-Z]+|error|wrong)'
    tap_run "... is survived" scene_alive fooled
    scene_stop fooled
    scene_stop liar
done
tap_end
