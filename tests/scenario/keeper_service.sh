#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The keeper as a service: readiness, watchdog, descriptors stored and handed over, activation; and
# the units that we install.

. "$(dirname "$0")/keeper_lib.sh"
keeper_begin "the keeper as a service"

conf=$SCENE_DIR/k.conf
keeper_file "$conf" <<'END'
[peer nbd1]
role = front_nbd
listen = systemd:nbd
edge.volume = vol0
END
down_at_exit k
export XSEGCTL
timeout -k 5 100 python3 "$(dirname "$0")/keeper_service_run.py" "$SCENE_DIR" "$XSEGD" "$conf" \
    >"$SCENE_DIR/checks" 2>"$SCENE_DIR/checks.err"
tap_is "the service manager had nothing to complain of" "$? $(<"$SCENE_DIR/checks.err")" "0 "
while read -r line; do
    case $line in
    "ok "*) tap_ok "${line#ok }" ;;
    *) tap_not_ok "${line#not ok }" ;;
    esac
done <"$SCENE_DIR/checks"
tap_is "all checks were made" "$(wc -l <"$SCENE_DIR/checks")" 18

# --- the units ------------------------------------------------------------------------------------
units=$(cd "$(dirname "$0")/../../systemd" && pwd)
verify() { SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no "$1"; }
if scene_have systemd-analyze && systemd-analyze --version >/dev/null 2>&1; then
    mkdir "$SCENE_DIR/units"
    sed -e "s|@sbindir@/xsegd|$XSEGD|" -e "s|@sysconfdir@|/etc|" "$units/xsegd@.service.in" \
        >"$SCENE_DIR/units/xsegd@.service"
    cp "$units/xsegd-nbd@.socket" "$SCENE_DIR/units"
    # verify wants instances, and templates beside them
    cp "$SCENE_DIR/units/xsegd@.service" "$SCENE_DIR/units/xsegd@demo.service"
    cp "$SCENE_DIR/units/xsegd-nbd@.socket" "$SCENE_DIR/units/xsegd-nbd@demo.socket"
    export SYSTEMD_UNIT_PATH=$SCENE_DIR/units:
    tap_run "xsegd@.service is sound" verify "$SCENE_DIR/units/xsegd@demo.service"
    tap_is "without a warning" "$(<"$TAP_OUT")" ""
    tap_run "xsegd-nbd@.socket is sound" verify "$SCENE_DIR/units/xsegd-nbd@demo.socket"
    exposed() { # THRESHOLD UNIT: of 100; the score of systemd-analyze security is a tenth of it
        systemd-analyze security --offline=yes --threshold="$1" "$2"
    }
    if systemd-analyze security --help 2>&1 | grep -q -- --offline; then
        tap_run "it is exposed by less than 3" exposed 30 "$SCENE_DIR/units/xsegd@demo.service"
        sed '/^\(User\|Protect\|Capability\|Restrict\|SystemCall\)/d' \
            "$SCENE_DIR/units/xsegd@demo.service" >"$SCENE_DIR/units/bare@demo.service"
        tap_fails "a bare one is not" exposed 30 "$SCENE_DIR/units/bare@demo.service"
    else
        tap_skip "exposure" "this systemd-analyze cannot look at files"
    fi
    echo 'Type=nonsense' >>"$SCENE_DIR/units/xsegd@demo.service"
    sed -i 's/^ExecStart=.*/ExecStart=nowhere/' "$SCENE_DIR/units/xsegd@demo.service"
    tap_fails "and verify can fail" verify "$SCENE_DIR/units/xsegd@demo.service"
else
    tap_skip "the units are sound" "systemd-analyze is not installed"
fi
tap_end
