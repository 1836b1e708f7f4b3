# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Front, composer and mapper, with a cache plugged in and out, over another store than files: what
# is tested over those under kills, while the cache changes, and while volumes move, holds there as
# well.
#
#   pipeline_over STORE OPTION...   OPTIONs with %: a part of the store of its own for each test
#   PIPELINE_PARTS               of kill, plug, move; plug (a cache in and out) is the longest, and
#                                knows least of the store
#   pipeline_over_one PART STORE OPTION...

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export TAP_LIMIT=1500 # a whole script is one command here
PIPELINE_PARTS='kill plug move'

pipeline_over_one() {
    local here part=$1 store=$2 lines
    here=$(dirname "${BASH_SOURCE[0]}")
    shift 2
    lines=$(printf 'role = %s\n' "$store" && printf '%s\n' "${@//%/$part}")
    case $part in
    kill)
        KILL_STORE=$store$(printf ',%s' "${@//%/$part}") \
            tap_run "$store: peers are killed, nothing is lost" bash "$here/kill_all.sh"
        ;;
    plug)
        KEEPER_STORE=$lines tap_run "$store: a cache is plugged in and out under load" \
            bash "$here/ctl_plug.sh"
        ;;
    move)
        MOVE_STORE=$lines tap_run "$store: volumes are moved there and back" \
            bash "$here/volume_move.sh"
        ;;
    esac
}

pipeline_over() {
    local part
    for part in $PIPELINE_PARTS; do pipeline_over_one "$part" "$@"; done
}
