# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Two hosts on one store, on top of xsegctl_lib.sh: segments with a front, a composer, a mapper and
# a blocker each, all of a host in one process, the blockers on one folder; with
# TWO_HOSTS_STORE=rados on one pool of a cluster of our own, with redis on one server; with bridge
# on files of a third host, with bridged_cache behind a cache there.
#
#   hosts_begin LABEL [CACHE]   ctl_begin and what is needed; CACHE: options of a cache between
#                               composer and blocker, %h in it is
#                               the host's name, %d the scene's folder
#   host NAME                   makes its segment and starts it;  host_starts NAME: the latter alone
#                               HOSTS_APART=1: composer (NAME), front (NAME-front) and store in
#                               processes of their own;  composer_starts NAME
#   host_crashes NAME           killed, and its segment with it;  host NAME boots it again
#   uri HOST VOLUME             for NBD clients
#   on HOST WANT NAME VERB...   xsegctl volume VERB there ends with WANT
#   io HOST VOLUME COMMAND...   qemu-io;  reads NAME HOST VOLUME COMMAND...: as a test, verified
#   guest NAME HOST VOLUME      qemu-io in the background;  tell NAME COMMAND;  says NAME TEXT TEST;
#                               leaves NAME

. "$(dirname "${BASH_SOURCE[0]}")/xsegctl_lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/ceph_lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/redis_lib.sh"

LEASE=3s
below=file0 bottom='' cache=()

hosts_begin() { # LABEL [CACHE]
    local module store=blocker_${TWO_HOSTS_STORE:-file}
    ctl_begin "$1"
    scene_need qemu-io nbdinfo
    store=${store/#blocker_bridge*/synapse_import}
    for module in mapperd volume front_nbd "$store"; do
        [ -e "$SKERRY_MODULE_DIR/$module.so" ] || tap_skip_all "$module is not built"
    done
    if [ -n "${2:-}" ]; then
        [ -e "$SKERRY_MODULE_DIR/cached.so" ] || tap_skip_all "cached is not built"
        below=cache0 cache=("cache0=cached,edge.store=file0,${2//%d/$SCENE_DIR}")
    fi
    case ${TWO_HOSTS_STORE:-file} in
    rados)
        ceph_need "$SCENE_DIR/ceph"
        bottom=blocker_rados,pool=skerry,fence-timeout=1s
        ;;
    redis)
        redis_need "$SCENE_DIR/redis"
        bottom=blocker_redis,socket=$REDIS_SOCKET
        ;;
    bridge*)
        scene_segment third 64M || exit 99
        scene_peer third -s third "out0=synapse_export,listen=unix:$SCENE_DIR/bridge,edge.store=$(
            [ "$TWO_HOSTS_STORE" = bridge ] && echo file0 || echo cache0)" \
            "file0=blocker_file,dir=$SCENE_DIR/store" \
            cache0=cached,edge.store=file0,mode=writeback,ack=blocker,size=8M || exit 99
        bottom=synapse_import,remote=unix:$SCENE_DIR/bridge,port=out0
        ;;
    *)
        mkdir "$SCENE_DIR/store"
        bottom=blocker_file,dir=$SCENE_DIR/store,shared=yes
        ;;
    esac
}

host() { # NAME: its segment, and all of it in one process
    local name=$1
    scene_segment "$name" 64M || exit 99
    host_starts "$name"
}
composer_starts() {
    scene_peer "$1" -s "$1" "vol0=volume,edge.store=$below,edge.map=map0" || exit 99
}
host_starts() {
    local name=$1 peers front
    peers=("file0=$bottom"
        "map0=mapperd,edge.store=file0,settle=0,lease=$LEASE,host=host-$name"
        "${cache[@]//%h/$name}")
    front=nbd0=front_nbd,listen=unix:$SCENE_DIR/$name.sock,edge.volume=vol0
    if [ -n "${HOSTS_APART:-}" ]; then
        scene_peer "$name-store" -s "$name" "${peers[@]}" || exit 99
        composer_starts "$name"
        scene_peer "$name-front" -s "$name" "$front" || exit 99
    else
        scene_peer "$name" -s "$name" "${peers[@]}" \
            "vol0=volume,edge.store=$below,edge.map=map0" "$front" || exit 99
    fi
    scene_wait_socket "$SCENE_DIR/$name.sock" || exit 99
}
host_crashes() { # nothing of its memory is left
    scene_kill KILL "$1"
    { wait "$(scene_pid "$1")"; } 2>/dev/null
    unset "SCENE_PIDS[$1]"
    rm -- "$SKERRY_SHM_DIR/xseg.$1"
}
uri() { echo "nbd+unix:///$2?socket=$SCENE_DIR/$1.sock"; } # HOST VOLUME
on() { # HOST WANT NAME VERB ARGS...
    local host=$1 want=$2 name=$3
    shift 3
    ctl_exits "$want" "$name" -s "$host" volume "$@"
}
io() { # HOST VOLUME COMMAND...
    local host=$1 volume=$2 args=() command
    shift 2
    for command in "$@"; do args+=(-c "$command"); done
    timeout -k 5 120 qemu-io -f raw "${args[@]}" "$(uri "$host" "$volume")"
}
# A client that leaves says nothing to its server: the other host may have it only a moment later.
io_when_free() {
    local rc=0 tries
    for ((tries = 0; tries < 600; tries++)); do
        io "$@" >"$SCENE_DIR/io.out" 2>&1 && rc=0 || rc=$?
        grep -q 'is open for writing on host' "$SCENE_DIR/io.out" || break
        sleep 0.1
    done
    cat "$SCENE_DIR/io.out"
    return "$rc"
}
reads() { # NAME HOST VOLUME COMMAND: qemu-io says so also by what it prints
    local name=$1
    shift
    tap_run "$name" io_when_free "$@"
    if grep -q 'verification failed' "$TAP_OUT"; then
        tap_not_ok "$name: it is what was written"
        tap_show
    fi
}

# A guest that has the volume open, and writes when it is told: a number of 4 KiB of the byte.
# qemu-io makes each write durable before it answers, but with GUEST_CACHE=writeback.
guest() { # NAME HOST VOLUME
    rm -f "$SCENE_DIR/$1.in"
    mkfifo "$SCENE_DIR/$1.in"
    # shellcheck disable=SC2016
    scene_spawn "$1" bash -c 'exec qemu-io ${3:+-t "$3"} -f raw "$1" <"$2"' guest \
        "$(uri "$2" "$3")" "$SCENE_DIR/$1.in" "${GUEST_CACHE:-}"
    exec {fd}>"$SCENE_DIR/$1.in"
    eval "IN_$1=$fd"
}
# One at a time: qemu-io does not look at a second line that came with the first.
tell() { # NAME COMMAND; what it answers is in its .out
    local in="IN_$1"
    echo "$2" >&"${!in}"
}
says() { # NAME TEXT TEST
    if scene_until 60 grep -q "$2" "$SCENE_DIR/$1.out"; then tap_ok "$3"; else tap_not_ok "$3"; fi
}
leaves() { # by a word: what was started since may have its pipe open, too
    local in="IN_$1" fd
    fd=${!in}
    tell "$1" quit
    exec {fd}>&-
    wait "$(scene_pid "$1")"
    unset "SCENE_PIDS[$1]"
}
