#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# docs/cookbook-s3.md, as it stands: its blocks are run, with a server of ours in place of Amazon's.

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/xsegctl_lib.sh"
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/s3_lib.sh"
ctl_begin "volumes on S3, by the cookbook"
ctl_need mapperd volume front_nbd cached blocker_s3
scene_need qemu-io
s3_need "$SCENE_DIR/s3"
page=$(cd "$(dirname "$0")/../../docs" && pwd)/cookbook-s3.md

block() { # KIND
    awk -v fence="^\`\`\`[a-z]+ $1\$" '/^```$/ { on = 0 } on; $0 ~ fence { on = 1 }' "$page" |
        sed "s|/run/skerry/cold|$SCENE_DIR/cold|; s|^size=4G|size=256M|; s|--size 100G|--size 1G|
            s|^role=cached|&\nsize=64M|; s|^endpoint=.*|endpoint=$S3_URL|
            s|^region=.*|region=us-east-1|; s|^bucket=.*|bucket=skerry|
            s|^key-file=.*|key-file=$S3_DIR/keys|"
}
mkdir -p "$SCENE_DIR/cold"
block pipeline >"$SCENE_DIR/cold.conf"
down_at_exit cold
cd "$SCENE_DIR" || exit 1
uri="nbd+unix:///archive?socket=$SCENE_DIR/cold/nbd.sock"
# shellcheck disable=SC2317
recipe() { block "$1" | PATH="$(dirname "$XSEGCTL"):$PATH" timeout 120 bash -eu; }
# shellcheck disable=SC2317
io() { timeout 120 qemu-io -f raw "$uri" "$@" && ! grep -q rror "$TAP_OUT"; }

tap_run "the pipeline is up and has a volume" recipe use
tap_run "data goes into it" io -c 'write -P 7 3M 2M' -c 'write -P 8 100M 4k' -c flush
tap_like "and is in the bucket" "$(s3_ask GET '/skerry/?list-type=2&prefix=skerry%2Fo%2F')" \
    '<Key>skerry/o/'
ctl_exits 0 "it stops" down cold
tap_run "it is up again" "$XSEGCTL" up cold.conf
tap_run "and the data is there" io -c 'read -P 7 3M 2M' -c 'read -P 8 100M 4k' -c 'read -P 0 0 1M'
ctl_exits 0 "it stops" down cold
tap_end
