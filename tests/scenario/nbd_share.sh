#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A volume that is limited to one request a second has 40 clients with all that they may send. What
# waits for it holds pages and request slots; another volume of the same segment goes on.

. "$(dirname "$0")/lib.sh"
SCENE_SIZE=64M SCENE_SEGMENT_SIZE=64M SCENE_VOLUME=slow
scene_begin
scene_need_skerry
/usr/bin/python3 -c 'import nbd' 2>/dev/null || tap_skip_all "libnbd's Python module is missing"

load() { # URI_OF_SLOW URI_OF_FAST
    /usr/bin/python3 - "$@" <<'PYTHON'
import sys
import nbd

def dial(uri):
    handle = nbd.NBD()
    handle.connect_uri(uri)
    return handle

slow, done = [dial(sys.argv[1]) for _ in range(40)], []
data = nbd.Buffer.from_bytearray(bytearray(256 << 10))

def ended(_error):
    done.append(1)
    return 1

for number in range(16):
    for handle in slow:
        handle.aio_pwrite(data, number << 20, completion=ended)
for _ in range(50):
    for handle in slow:
        handle.poll(0)
fast = dial(sys.argv[2])
before = len(done)
for number in range(2000):
    fast.pwrite(bytes([number % 251]) * 65536, number % 256 * 65536)
    for handle in slow:
        handle.poll(0)
print(f"{len(done) - before} requests of the limited volume ended meanwhile")
if len(done) - before > 1000:
    sys.exit("the other volume's requests waited for those of the limited one")
PYTHON
}

name=share$$
if scene_split "$name"; then
    "$XSEGCTL" -s "$name" volume create fast --size 64M >/dev/null
    "$XSEGCTL" -s "$name" volume limit slow --iops 1 >/dev/null
    tap_run "2000 writes beside 640 that wait" timeout 300 bash -c "$(declare -f load)
        load '$SCENE_URI' '${SCENE_URI/slow/fast}'"
    tap_show
    for peer in front volume store; do scene_kill KILL "$peer"; done
else
    tap_not_ok "it starts"
fi
tap_end
