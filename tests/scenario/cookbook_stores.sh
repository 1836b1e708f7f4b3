#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# docs/cookbook-redis.md, cookbook-s3.md and cookbook-tape.md, as they stand: their blocks are run,
# with servers of ours in place of those that they name.

. "$(dirname "$0")/xsegctl_lib.sh"
. "$(dirname "$0")/redis_lib.sh"
. "$(dirname "$0")/s3_lib.sh"
. "$(dirname "$0")/tape_lib.sh"
ctl_begin "volumes on Redis, S3 and tape, by the cookbook"
ctl_need mapperd volume front_nbd cached
scene_need qemu-io
docs=$(cd "$(dirname "$0")/../../docs" && pwd)
cd "$SCENE_DIR" || exit 1

block() { # KIND: of $PAGE, with $CHANGES
    awk -v fence="^\`\`\`[a-z]+ $1\$" '/^```$/ { on = 0 } on; $0 ~ fence { on = 1 }' \
        "$docs/cookbook-$PAGE.md" |
        sed "s|/run/skerry|$SCENE_DIR|; s|^size=4G|size=256M|; s|--size 100G|--size 1G|
            s|^role=cached|&\nsize=64M|; $CHANGES"
}
recipe() { block "$1" | PATH="$(dirname "$XSEGCTL"):$PATH" timeout 120 bash -eu; }
io() { scene_io "nbd+unix:///disk?socket=$SCENE_DIR/$NAME/nbd.sock" "$@"; }

follow() { # PAGE NAME CHANGES: data goes in, and is there after a restart
    PAGE=$1 NAME=$2 CHANGES=$3
    mkdir -p "$SCENE_DIR/$NAME"
    block pipeline >"$NAME.conf"
    down_at_exit "$NAME"
    tap_run "$PAGE: the pipeline is up and has a volume" recipe use
    tap_run "$PAGE: data goes into it" io -c 'write -P 7 3M 2M' -c 'write -P 8 100M 4k' -c flush
    ctl_exits 0 "$PAGE: it stops" down "$NAME"
    tap_run "$PAGE: it is up again" "$XSEGCTL" up "$NAME.conf"
    tap_run "$PAGE: and the data is there" io -c 'read -P 7 3M 2M' -c 'read -P 8 100M 4k' \
        -c 'read -P 0 0 1M'
    ctl_exits 0 "$PAGE: it stops again" down "$NAME"
}

reason=$SCENE_DIR/reason
if { scene_has_module blocker_redis && redis_have &&
    redis_start "$SCENE_DIR/redis"; } >"$reason"; then
    redis_ask config set requirepass "secret-$$" >/dev/null
    echo "secret-$$" >"$SCENE_DIR/password"
    follow redis quick "s|^socket=.*|socket=$REDIS_SOCKET|
        s|^password-file=.*|password-file=$SCENE_DIR/password|"
else
    tap_skip "redis" "$(tail -n 1 "$reason")"
fi
if { scene_has_module blocker_s3 && s3_have && s3_start "$SCENE_DIR/s3"; } >"$reason"; then
    follow s3 cold "s|^endpoint=.*|endpoint=$S3_URL|; s|^region=.*|region=us-east-1|
        s|^bucket=.*|bucket=skerry|; s|^key-file=.*|key-file=$S3_DIR/keys|"
    tap_like "s3: it is in the bucket" \
        "$(s3_ask GET '/skerry/?list-type=2&prefix=skerry%2Fo%2F')" '<Key>skerry/o/'
else
    tap_skip "s3" "$(tail -n 1 "$reason")"
fi
if { scene_has_module blocker_tape && tape_have &&
    tape_start "$SCENE_DIR/tape" 3 512; } >"$reason"; then
    follow tape archive "s|^drive=.*|${TAPE_OPTIONS%%,*}|; s|^changer=.*|${TAPE_OPTIONS#*,}|
        s|^index=.*|index=$SCENE_DIR/index|"
else
    tap_skip "tape" "$(tail -n 1 "$reason")"
fi
tap_end
