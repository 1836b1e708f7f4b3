# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Hosts, each a network name space with segments and run folders of its own, and cables between
# them, on top of xsegctl_lib.sh. Host H is H.example.net to those who know it.
#
#   hosts_begin HOST...       they are there; tap_skip_all where there are no name spaces.
#                             HOSTS_FOLDER=yes: they share a blocker_file's folder, whose writers
#                             must see each other's segments; else each has segments of its own
#   hosts_link A B N          a cable: 10.77.N.1 at A, interface toB; 10.77.N.2 at B, toA
#   hosts_know HOST LINE...   what is in its /etc/hosts besides itself
#   hosts_cut A B, hosts_mend A B     the cable
#   on HOST COMMAND...        there, four minutes at most
#   hosts_die HOST            all its processes do, at once
#   hosts_certs [HOST...]     an authority in $TLS, a certificate for each

. "$(dirname "${BASH_SOURCE[0]}")/xsegctl_lib.sh"

TLS=''

hosts_begin() {
    local host
    scene_need qemu-io jq ip
    for host in "$@"; do
        ip netns add "$host$$" 2>/dev/null || tap_skip_all "no network name spaces here"
        scene_at_exit "ip netns pids $host$$ | xargs -r kill -9; ip netns del $host$$
            rm -rf /etc/netns/$host$$; rmdir /etc/netns 2>/dev/null"
        mkdir -p "$SCENE_DIR/$host/run" "$SKERRY_SHM_DIR/$host" "/etc/netns/$host$$"
        ip -n "$host$$" link set lo up
        hosts_know "$host"
    done
}
hosts_link() {
    ip link add "to$2" netns "$1$$" type veth peer name "to$1" netns "$2$$" &&
        ip -n "$1$$" addr add "10.77.$3.1/24" dev "to$2" && ip -n "$1$$" link set "to$2" up &&
        ip -n "$2$$" addr add "10.77.$3.2/24" dev "to$1" && ip -n "$2$$" link set "to$1" up ||
        tap_skip_all "no cables between name spaces here"
}
# In place: a name space's processes have the file itself in the place of /etc/hosts.
hosts_know() {
    printf '%s\n' '127.0.0.1 localhost' "127.0.0.1 $1.example.net" "${@:2}" \
        >"/etc/netns/$1$$/hosts"
}
hosts_cut() { ip -n "$1$$" link set "to$2" down; }
hosts_mend() { ip -n "$1$$" link set "to$2" up; }
on() {
    local segments=$SKERRY_SHM_DIR/$1
    [ -z "${HOSTS_FOLDER:-}" ] || segments=$SKERRY_SHM_DIR
    SKERRY_RUN_DIR=$SCENE_DIR/$1/run SKERRY_SHM_DIR=$segments \
        timeout -k 5 240 ip netns exec "$1$$" "${@:2}" </dev/null
}
hosts_die() { # a keeper that lives a moment longer starts another one
    local pids
    while pids=$(ip netns pids "$1$$") && [ -n "$pids" ]; do
        xargs kill -9 <<<"$pids" 2>/dev/null
    done
}
hosts_certs() {
    local host
    "$XSEGCTL" cert list --help >/dev/null 2>&1 || tap_skip_all "this build has no TLS"
    TLS=$SCENE_DIR/tls
    tap_run "an authority" "$XSEGCTL" cert init --dir "$TLS"
    for host in "$@"; do
        tap_run "a certificate for $host" "$XSEGCTL" cert issue "$host" --dir "$TLS" \
            --host "$host.example.net" --uri "skerry://hosts/$host"
    done
}
