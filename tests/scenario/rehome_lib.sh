# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Two hosts over one folder, on top of xsegctl_lib.sh.
#
#   rehome_need               tap_skip_all where something is not built
#   host SEGMENT VOLUME_EDGE  a pipeline file: front, composer, mapper, cache, store
#   out SEGMENT [LINE]        the same, its second part: a re-homer (LINE: of its section), and
#                             an exporting end of a bridge that leads to it
#   owner SEGMENT, state SEGMENT
#                             the home of 'disk', as that host knows it; 'home', 'away', ...

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/xsegctl_lib.sh"

rehome_need() {
    ctl_need mapperd volume front_nbd cached synapse_import synapse_export blocker_file rehome
}

host() { # SEGMENT VOLUME_EDGE
    cat <<END
[segment]
name=$1
size=512M

[peer nbd0]
role=front_nbd
listen=unix:$SCENE_DIR/$1.sock
edge.volume=$2

[peer vol0]
role=volume
edge.store=cache0
edge.map=map0

[peer map0]
role=mapperd
edge.store=file0

[peer cache0]
role=cached
edge.store=file0
size=16M

[peer file0]
role=blocker_file
dir=$SCENE_DIR/store
shared=yes
END
}
out() { # SEGMENT [LINE]
    cat <<END

[peer home0]
role=rehome
edge.volume=vol0
commit-timeout=2s
${2-}

[peer out0]
role=synapse_export
listen=unix:$SCENE_DIR/$1.out
edge.volume=home0
END
}
owner() { "$XSEGCTL" -s "$1" volume info disk --json | jq -r '.home.host' | sed 's|.*/||'; }
state() {
    "$XSEGCTL" rehome status -s "$1" --json | jq -r '.volumes[] | select(.name == "disk").state'
}
