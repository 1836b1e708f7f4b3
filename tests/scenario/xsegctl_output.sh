#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What every command has in common: help, typing errors, formats, error objects, man page,
# completion; status and stats, key by key.

. "$(dirname "$0")/xsegctl_lib.sh"
ctl_begin "xsegctl output"

# --- typing errors ----------------------------------------------------------------------------
ctl_exits 2 "no command"
ctl_exits 2 "an unknown noun" volum list
err_like "a near one" "unknown command 'volum'; did you mean 'volume'\?"
ctl_exits 2 "an unknown verb" volume lst
err_like "a near one" "unknown verb 'volume lst'; did you mean 'list'\?"
ctl_exits 2 "a near one that would take something away" segment destory x
err_like "is not suggested" "unknown verb 'segment destory'; it has create, destroy"
closed_reader() { # a pipe whose reader is gone before anything is written
    python3 -c "
import os, subprocess, sys
r, w = os.pipe(); os.close(r)
p = subprocess.run(sys.argv[1:], stdout=w, stderr=subprocess.PIPE)
print(p.returncode, p.stderr.decode())" "$XSEGCTL" help volume
}
tap_is "a reader that has gone is no error" "$(closed_reader)" "0 "
tap_is "a full disk is one" "$("$XSEGCTL" help volume 2>&1 >/dev/full)" \
    "xsegctl: stdout cannot be written"
ctl_exits 2 "no verb" volume
err_like "lists them" "it has create, rm, list, info, clone, .*, import, export"
ctl_exits 2 "an unknown option" volume create x --sise 1G
err_like "a near one" "unknown option '--sise'; did you mean '--size'\?"
ctl_exits 2 "an unknown option in front" --jason status
err_like "a near one" "did you mean '--json'\?"
ctl_exits 2 "an unknown letter" status -q
err_like "says which" "unknown option '-q'"
ctl_exits 2 "an option of another verb" volume list --size 1
ctl_exits 2 "an option without its value" volume create x --size
err_like "says so" "'--size' needs a value"
ctl_exits 2 "a switch with a value" status --json=yes
err_like "says so" "'--json' takes no value"
ctl_exits 2 "an unknown format" status -o yaml
err_like "says what there is" "table, json, jsonl or csv"
ctl_exits 2 "a time that is none" status --timeout soon
ctl_exits 2 "a name that is none" -s 'a b' status

# --- error objects ----------------------------------------------------------------------------
for format in "--json" "-o json" "-o jsonl"; do
    # shellcheck disable=SC2086
    ctl_exits 3 "an error with $format" $format -s nix status
    tap_is "it is an object on stderr" \
        "$(jq -c '[.schema_version, (.error | keys_unsorted), .error.code, .error.name,
            .error.object]' <<<"$ERR")" \
        '[1,["code","name","message","hint","object"],3,"not-found","nix"]'
    tap_is "and nothing on stdout" "$OUT" ''
done
ctl_exits 2 "a typing error, too" segment create x --sise 1 --json
tap_is "with its hint" "$(jq -r .error.hint <<<"$ERR")" "did you mean '--size'?"

# --- help, man, completion --------------------------------------------------------------------
ctl_exits 0 "help" --help
nouns=$(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' <<<"$OUT" | sort -u)
tap_is "it lists the nouns" "$(tr '\n' ' ' <<<"$nouns")" \
    "bridge cache cert client completion config down edge evacuate events job log metrics mount \
peer plug rehome segment stats status swap tape top trace umount unplug up volume "
while read -r noun verb rest; do
    case $verb in [a-z]*) ;; *) verb='' ;; esac
    # shellcheck disable=SC2086
    ctl_exits 0 "help $noun $verb" help $noun $verb
    out_like "it begins with how to use it" "^usage: xsegctl $noun"
    # shellcheck disable=SC2086
    ctl_exits 0 "$noun $verb --help" $noun $verb --help
done < <("$XSEGCTL" --help | sed -n '/^Commands:/,/^$/s/^  //p' | sed '/^$/d' | cut -c1-36)
ctl_exits 2 "help of nothing" help nix
ctl_exits 0 "version" --version
out_like "says it" '^xsegctl \(skerry\) [0-9]'
ctl_exits 0 "the man page" --man
for noun in $nouns; do grep -q "^\*$noun" "$SCENE_DIR/ctl.out" || break; done
tap_is "it has every noun" $? 0
if scene_have scdoc; then
    tap_run "scdoc takes it" sh -c "scdoc <'$SCENE_DIR/ctl.out' >'$SCENE_DIR/xsegctl.1'"
    "$XSEGD" --man >"$SCENE_DIR/xsegd.scd"
    tap_run "and xsegd's" sh -c "scdoc <'$SCENE_DIR/xsegd.scd' >'$SCENE_DIR/xsegd.8'"
    if scene_have man; then
        tap_is "man has no complaint" \
            "$(man --warnings -l "$SCENE_DIR/xsegctl.1" 2>&1 >/dev/null)" ''
    fi
fi
ctl_exits 0 "completion" completion bash
cp "$SCENE_DIR/ctl.out" "$SCENE_DIR/completion"
complete_at() {
    bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _xsegctl
        echo "${COMPREPLY[*]}"' _ "$SCENE_DIR/completion" "$@"
}
tap_is "completes nouns" "$(complete_at xsegctl vol)" volume
tap_is "completes verbs" "$(complete_at xsegctl volume i)" "info import"
tap_is "completes options" "$(complete_at xsegctl -s demo volume create x --ob)" --object-size
tap_is "completes values" "$(complete_at xsegctl status --output js)" "json jsonl"
tap_is "of verbs that stand alone" "$(complete_at xsegctl up f --fo)" --foreground
ctl_exits 2 "completion for another shell" completion fish

# --- which segment ----------------------------------------------------------------------------
ctl segment create one --size 8M
ctl_exits 0 "the only segment is meant" segment dump
ctl segment create two --size 8M
ctl_exits 2 "of two one must be named" segment dump
err_like "says which there are" "several segments \(one, two\); say which with --segment"
SKERRY_SEGMENT=two ctl_exits 0 "SKERRY_SEGMENT names it" status --json
json_is "it is that one" .segment.name two
SKERRY_SEGMENT=two ctl_exits 0 "-s comes first" -s one status --json
json_is "it is that one" .segment.name one
ctl segment destroy one --yes
ctl segment destroy two --yes

# --- status and stats -------------------------------------------------------------------------
pipeline "$SCENE_DIR/o.conf" o
down_at_exit o
ctl up --unguarded "$SCENE_DIR/o.conf"
ctl volume create disk --size 8M
truncate -s 8M "$SCENE_DIR/img"
dd if=/dev/urandom of="$SCENE_DIR/img" bs=1M count=2 conv=notrunc status=none
ctl volume import "$SCENE_DIR/img" data
ctl volume export data "$SCENE_DIR/out"

status_keys='[keys_unsorted, (.segment | keys_unsorted), (.segment.pages | keys_unsorted),
    (.segment.requests | keys_unsorted), (.keeper | keys_unsorted),
    (.peers | map(keys_unsorted) | unique), (.edges | map(keys_unsorted) | unique)]'
golden='[["schema_version","healthy","segment","keeper","peers","edges"],'
golden+='["name","path","size","overhead","lanes","huge","uuid","boot_id","created_ns",'
golden+='"layout_version","pages","requests"],["total","free","held","stored","kept","retired"],'
golden+='["total","free","owned","submitted","taken","done"],["state","pid","pipeline","hash"],'
golden+='[["name","role","pid","state","lanes","inflight","health","reason","host","log",'
golden+='"restarts"]],'
golden+='[["name","peer","edge","to","generation","state"]]]'
ctl_exits 0 "status" status --json
tap_is "its keys, golden" "$(jq -c "$status_keys" <<<"$OUT")" "$golden"
json_is "pages add up" '.segment.pages | .free + .held + .stored + .kept + .retired == .total' true
json_is "data lies in stored pages" '.segment.pages.stored >= 512' true
ctl_exits 0 "status as a table" status
out_like "has a line for each peer" $'\nmem0 +blocker_memory +[0-9]+ serving +1 +0 +ok'
ctl_exits 0 "status as CSV" status -o csv
tap_is "its head" "$(head -1 <<<"$OUT")" name,role,pid,state,lanes,inflight,health,reason
ctl_exits 0 "peer list as lines" peer list -o jsonl
tap_is "an object each" "$(jq -s 'map(select(.schema_version == 1)) | length' <<<"$OUT")" 4
ctl_exits 0 "stats" stats --json
# and a page or two of the volume's map
json_is "counters count" '.peers[] | select(.name == "mem0") | .counters.write_bytes |
    . >= 2097152 and . < 2200000' true
json_is "what was written was read" \
    '.peers[] | select(.name == "vol0") | .counters.read_bytes' 2097152
json_is "units are told" '.peers[] | select(.name == "vol0") | .units.read_bytes' B
json_is "quantiles are in order" \
    '[.peers[].histograms[] | .p50 <= .p90 and .p90 <= .p99 and .p99 <= .p99_9] | all' true
json_is "a histogram counts what the counter does" \
    '.peers[] | select(.name == "vol0") | .counters.writes == .histograms.write_ns.count' true
json_is "all fields are there" \
    '.peers[0].histograms | to_entries[0].value | keys_unsorted | join(" ")' \
    'unit count mean p50 p90 p99 p99_9'
ctl_exits 0 "stats of one" stats mem0 --json
json_is "only it" '[.peers[].name] | join(",")' mem0
ctl_exits 3 "stats of nobody" stats nix
kill_keeper o
ctl_exits 0 "stats without a keeper" stats vol0 --json
json_is "the same" '.peers[0].counters.read_bytes' 2097152
ctl_exits 3 "stats of nobody without a keeper" stats nix
ctl up --unguarded "$SCENE_DIR/o.conf"

# a reader that is not there any more
"$XSEGCTL" status 1>&- 2>"$SCENE_DIR/ctl.err"
tap_is "stdout that is closed is an error" $? 1
if [ -e /dev/full ]; then
    "$XSEGCTL" status >/dev/full 2>"$SCENE_DIR/ctl.err"
    tap_is "stdout that is full is an error" $? 1
fi
ctl_exits 0 "down" down
tap_end
