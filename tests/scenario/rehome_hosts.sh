#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Three hosts, each a network name space, over one store: a volume goes round while clients of all
# of them use it. Cables are cut, processes and a whole host die, and a clock is wrong meanwhile.
# Each sector that anybody reads says whether a write was lost, or came late.
#
# REHOME_ROUNDS: so many disturbed moves (9). REHOME_CUT: the long cut's seconds (5).

. "$(dirname "$0")/rehome_lib.sh"
. "$(dirname "$0")/hosts_lib.sh"
ctl_begin "re-homing among three hosts"
rehome_need
/usr/bin/python3 -c 'import nbd' 2>/dev/null ||
    tap_skip_all "libnbd's Python module is not installed"
HOSTS=(a b c) HOSTS_FOLDER=yes
hosts_begin "${HOSTS[@]}"
hosts_link a b 1
hosts_link b c 2
hosts_link c a 3
hosts_know a '10.77.1.2 b.example.net' '10.77.3.1 c.example.net'
hosts_know b '10.77.1.1 a.example.net' '10.77.2.2 c.example.net'
hosts_know c '10.77.2.1 b.example.net' '10.77.3.2 a.example.net'
hosts_certs "${HOSTS[@]}"

others() { echo "${HOSTS[@]/$1/}"; }
certs() { printf 'tls-ca=%s/ca.crt\ntls-cert=%s/%s.crt\ntls-key=%s/%s.key\n' \
    "$TLS" "$TLS" "$1" "$TLS" "$1"; }
conf() { # HOST
    local other edges='' suffix=''
    for other in $(others "$1"); do
        edges+="edge.volume-to$suffix=far-$other"$'\n' suffix=2
        printf '[peer far-%s]\nrole=synapse_import\nremote=tcp:%s.example.net:7071\n' \
            "$other" "$other" >>"$SCENE_DIR/$1.far"
        printf 'timeout=0\nsilence=2s\n%s\n\n' "$(certs "$1")" >>"$SCENE_DIR/$1.far"
    done
    host "$1" home0
    printf '\n[peer home0]\nrole=rehome\nedge.volume=vol0\ncommit-timeout=2s\n%s\n' "$edges"
    cat "$SCENE_DIR/$1.far"
    printf '[peer out0]\nrole=synapse_export\nlisten=tcp:0.0.0.0:7071\nallow=skerry://hosts/*\n'
    printf 'edge.volume=home0\n%s\n' "$(certs "$1")"
}
for host in "${HOSTS[@]}"; do
    conf "$host" >"$SCENE_DIR/$host.conf"
    tap_run "host $host comes up" on "$host" "$XSEGCTL" up "$SCENE_DIR/$host.conf" || tap_end
done
xsegctl() { on "$1" "$XSEGCTL" -s "$1" "${@:2}"; } # HOST WORD...
moves() { xsegctl "$1" rehome disk --to "far-$2" --timeout 60s; } # FROM TO
bridged() {
    local host
    for host in "${HOSTS[@]}"; do
        [ "$(xsegctl "$host" bridge list --json |
            jq '[.bridges[] | select(.end == "import" and .state == "up")] | length')" = 2 ] ||
            return
    done
}
to() { # HOST: behind which bridge it is
    xsegctl "$1" rehome status --json | jq -r '.volumes[] | select(.name == "disk").to'
}
all_know() { # OWNER
    local host want
    for host in "${HOSTS[@]}"; do
        [ "$host" = "$1" ] && want=home || want=away
        [ "$(state "$host") $(owner "$host")" = "$want $1" ] || return
    done
}
stamps() { # HOST
    rm -f "$SCENE_DIR/$1.stop"
    scene_spawn "$1" /usr/bin/python3 "$(dirname "$0")/rehome_stamps.py" \
        "nbd+unix:///disk?socket=$SCENE_DIR/$1.sock" "$SCENE_DIR/board" \
        "$(expr index abc "$1" - 1)" 3 "$SCENE_DIR/$1.stop" && scene_wait_line "$1" started 60
}
# Since `before`, the board as it was, somebody has written.
goes_on() { [ "$(cksum <"$SCENE_DIR/board")" != "$before" ]; }
ends() { load_ends "$1" "the client of $1's saw all that was written, and no error"; }

tap_run "they are connected" scene_until 60 bridged || tap_end
tap_run "a volume" xsegctl a volume create disk --size 32M
head -c 6144 /dev/zero >"$SCENE_DIR/board"
for host in "${HOSTS[@]}"; do tap_run "a client of $host's" stamps "$host"; done

# --- a chain ------------------------------------------------------------------------------------
tap_run "a has it, and the others know" scene_until 30 all_know a
tap_run "it goes to b" moves a b
tap_is "a's requests go there" "$(to a)" far-b
tap_run "and on to c" moves b c
leads() { [ "$(to "$1")" = "$2" ]; }
tap_run "a finds it there" scene_until 30 leads a far-c
hosts_cut a b
hosts_cut b c
before=$(cksum <"$SCENE_DIR/board")
tap_run "with b cut off it is written by a" io a -c 'write -P 7 30M 64k' -c flush
tap_run "... and read by c" io c -c 'read -P 7 30M 64k'
tap_run "... and others go on" scene_until 30 goes_on
hosts_mend a b
hosts_mend b c
tap_run "and back to a" moves c a
tap_run "all know" scene_until 60 all_know a

# --- round and round, with something wrong each time ----------------------------------------------
agree() { # one has it, and all know
    [[ $(owner a) = [abc] ]] && all_know "$(owner a)"
}
kills() { # HOST: one of its processes
    local pids
    mapfile -t pids < <(xsegctl "$1" status --json | jq -r '.peers[].pid')
    kill -s KILL "${pids[RANDOM % ${#pids[@]}]}"
}
any() { echo "${HOSTS[RANDOM % 3]}"; }
disturbs() { # ROUND FROM TO
    sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
    case $(($1 % 3)) in
    0) hosts_cut "$2" "$3" && sleep 3 && hosts_mend "$2" "$3" ;;
    1) kills "$(any)" ;;
    2) kills "$2" && kills "$3" ;;
    esac
}
for ((round = 0; round < ${REHOME_ROUNDS:-9}; round++)); do
    from=$(owner a)
    read -ra hosts < <(others "$from")
    to=${hosts[RANDOM % 2]} rc=0
    disturbs "$round" "$from" "$to" >"$SCENE_DIR/null" 2>&1 &
    disturber=$!
    moves "$from" "$to" >"$SCENE_DIR/moves" 2>&1 || rc=$?
    wait "$disturber"
    tap_run "round $round, from $from to $to (exit $rc): all agree whose it is" \
        scene_until 120 agree || tap_note "$(cat "$SCENE_DIR/moves")"
done

# --- a host dies, and is another one when it is back ----------------------------------------------
goes_to() { # HOST
    [ "$(owner a)" = "$1" ] || moves "$(owner a)" "$1" && all_know "$1"
}
tap_run "it goes to c" scene_until 120 goes_to c
ends b
hosts_die b
before=$(cksum <"$SCENE_DIR/board")
tap_run "b dies; the others go on" scene_until 60 goes_on
rm -rf "$SKERRY_SHM_DIR/xseg.b" "$SCENE_DIR/b/run/b" # as after a boot
shim=$SCENE_BUILD/.libs/wrong_clock.so ahead=()
if [ -e "$shim" ] && ! [[ $(ldd "$XSEGPEER") =~ lib[atu]+san ]]; then
    ahead=(env LD_PRELOAD="$shim" WRONG_CLOCK=86400)
fi
tap_run "b is started anew, and a day ahead" on b "${ahead[@]}" "$XSEGCTL" up "$SCENE_DIR/b.conf"
tap_run "its client is led to c" stamps b
other() { echo "nbd+unix:///other?socket=$SCENE_DIR/$1.sock"; } # HOST
tap_run "another volume" xsegctl b volume create other --size 8M
ahead_of_us() { # it was made on b tomorrow
    local made
    made=$(xsegctl b volume info other --json | jq '.created_ns / 1000000000 | floor')
    test "$made" -gt $(($(date +%s) + 43200))
}
[ ${#ahead[@]} -eq 0 ] || tap_run "by a clock that is wrong" ahead_of_us
client_attach "$(other b)"
tap_run "which b has" say 'write -P 3 0 64k'
led() { scene_io "$(other a)" -c 'read -P 3 0 64k' -c 'write -P 4 0 64k' -c flush; }
tap_run "a's client is led there: it knows that b is another one" scene_until 30 led
tap_run "and seen there" say 'read -P 4 0 64k'
client_leave
tap_run "it goes to b" scene_until 120 goes_to b
tap_run "and to a" scene_until 120 goes_to a

# --- a long cut -----------------------------------------------------------------------------------
hosts_cut a b
hosts_cut c a
xsegctl a rehome disk --to far-b --timeout 3s >"$SCENE_DIR/moves" 2>&1
tap_run "cut off from both it stays" test "$?" -ne 0 -a "$(owner a)" = a
sleep "${REHOME_CUT:-5}"
hosts_mend a b
hosts_mend c a
tap_run "all agree" scene_until 120 agree
tap_run "it goes to b" scene_until 120 goes_to b
for host in "${HOSTS[@]}"; do ends "$host"; done
for host in "${HOSTS[@]}"; do tap_run "$host goes" xsegctl "$host" down "$host" --yes; done
tap_end
