#!/usr/bin/env bats
# The daemon killed with -9 before a system call that changes something, at work on a call that changes a box or an
# access. Afterwards the next daemon serves, the call repeated has one effect, and nothing is left. A sample; `make
# test-kill` takes every call of the system (KILL_POINTS=all) and of the daemon (KILL_CALLS).

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    # Of its own: what is killed half-way there is not for other tests, and their runtimes are not probed anew here.
    export BELLHOP_CACHE_DIR=$BOX_TMP/cache
}

teardown()
{
    end_tracer
    daemon_stop
    box_teardown
}

# System calls that change something: files, locks, processes, messages.
CHANGES=mkdir,mkdirat,pwrite64,write,fdatasync,ftruncate,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,symlink
CHANGES+=,chmod,fchmod,clone,clone3,vfork,fork,execve,kill,pidfd_send_signal,connect,sendto,sendmsg,flock,mount,umount2

end_tracer()
{
    [ -n "${TRACER:-}" ] || return 0
    kill "$TRACER" 2>/dev/null || true
    wait "$TRACER" 2>/dev/null || true
    TRACER=
}

# trace_daemon STRACE_OPTION...: all of its threads, and what it starts.
trace_daemon()
{
    strace -f -p "$DAEMON_PID" "$@" 2>"$BOX_TMP/tracer" 3>&- &
    TRACER=$!
    wait_for 20 grep -q attached "$BOX_TMP/tracer"
}

# CALL: its request. CODE gets the status, 000 if the daemon was killed.
send_call()
{
    local verb=POST path=/v1/boxes/one/$1 data=(--json '{}')

    case $1 in
    create) path=/v1/boxes data=(--json "{\"name\":\"one\",\"provider\":\"$PROVIDER\",\"agent\":\"none\",\"no_upload\":true}") ;;
    destroy) verb=DELETE path=/v1/boxes/one data=() ;;
    keep) data=(--json '{"for_ms":7200000}') ;;
    snapshot) path=/v1/boxes/one/snapshots ;;
    restore) data=(--json '{"snapshot":"s"}') ;;
    esac
    CODE=$(curl -sS --max-time 120 --unix-socket "$DAEMON_SOCKET" -X "$verb" -o "$BOX_TMP/answer" -w '%{http_code}' \
        -H 'Idempotency-Key: k' "${data[@]}" "http://bellhop$path" 2>/dev/null) || true
}

# prepare CALL: the box as the call needs it.
prepare()
{
    rm -f "$BELLHOP_STATE_DIR"/answers/* # each call is a new one
    [ "$1" = create ] || { send_call create; [ "$CODE" = 201 ]; }
    case $1 in
    start) send_call stop ;;
    resume) send_call pause ;;
    restore) bellhop snapshot one --name s >/dev/null ;;
    esac
    rm -f "$BELLHOP_STATE_DIR"/answers/*
}

clean_up()
{
    local name

    for name in $(bellhop ls -q); do
        bellhop rm -f "$name" >/dev/null 2>&1 || true
    done
    bellhop gc >/dev/null
    for name in $(bellhop snapshots ls --json | jq -r '.snapshots[].name'); do
        bellhop snapshots rm "$name" >/dev/null 2>&1 || true
    done
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ] || fail "a directory is left"
    wait_for 10 no_traces || fail "left: $(traces | head -n 1)"
}

# The calls of the system that a call makes: "NAME N", for the N-th of that name in a thread.
list_points()
{
    daemon_start
    prepare "$1"
    trace_daemon -e "trace=?${CHANGES//,/,?}" -o "$BOX_TMP/calls"
    send_call "$1"
    end_tracer
    [[ "$CODE" = 2* ]] || fail "$1: $CODE"
    sed -n 's/^\([0-9]*\) *\([a-z0-9_]*\)(.*/\1 \2/p' "$BOX_TMP/calls" | awk '{ p = $2 " " ++n[$1, $2] } !seen[p]++ { print p }'
    daemon_stop
    clean_up
}

is_reply() { jq -e --arg s "$1" '.state == $s' "$BOX_TMP/answer" >/dev/null; }

# After a daemon that was killed: the next one serves, and the call again has its effect, once.
check_after()
{
    local state names

    daemon_start || fail "the next daemon does not start: $DAEMON_READY"
    bellhop audit verify >"$BOX_TMP/audit" 2>&1 || fail "audit: $(cat "$BOX_TMP/audit")"
    send_call "$1"
    names=$(bellhop ls -q | sort | tr '\n' ' ')
    state=$(bellhop status one --json 2>/dev/null | jq -r .state)
    case $1 in
    destroy) [[ "$CODE" =~ ^(2..|404)$ && "$names" = '' ]] || fail "$CODE, and there is '$names'" ;;
    *) [[ "$CODE" = 2* ]] || fail "$CODE: $(cat "$BOX_TMP/answer")" ;;
    esac
    case $1 in
    create | fork | start | resume) is_reply running || fail "$(cat "$BOX_TMP/answer")" ;;
    stop) is_reply stopped || fail "$(cat "$BOX_TMP/answer")" ;;
    pause) is_reply paused || fail "$(cat "$BOX_TMP/answer")" ;;
    destroy) return 0 ;;
    esac
    case $1 in
    fork) [[ "$names" =~ ^'box-'[0-9a-f]+' one '$ ]] || fail "there is '$names'" ;;
    snapshot) [ "$(bellhop snapshots ls --json | jq '.snapshots | length')" = 1 ] || fail "$(bellhop snapshots ls)" ;;
    *) [ "$names" = 'one ' ] || fail "there is '$names'" ;;
    esac
    [ "$(bellhop events one --json | jq -r '[.events[] | select(.after)] | last.after')" = "$state" ] || fail "'$state' is not the last event's"
    [ "$(bellhop exec one -- echo alive)" = alive ] || fail "the box is not alive"
}

kill_at() # CALL NAME N
{
    daemon_start
    prepare "$1"
    trace_daemon -o /dev/null -e "trace=$2" -e "inject=$2:signal=KILL:when=$3"
    send_call "$1"
    kill -9 "$DAEMON_PID" 2>/dev/null || true
    wait "$DAEMON_PID" 2>/dev/null || true
    DAEMON_PID=
    end_tracer
    echo "# $1 killed at $2 $3: $CODE"
    check_after "$1"
    daemon_stop
    clean_up
}

# sample N: that many lines of the input, evenly, or all.
sample()
{
    awk -v k="$1" '{ line[NR] = $0 } END { for (i = 1; i <= NR; i++) if (k == "all" || int(i * k / NR) != int((i - 1) * k / NR)) print line[i] }'
}

kill_calls() # CALL...
{
    local call name n

    for call in "$@"; do
        list_points "$call" >"$BOX_TMP/points.$call"
        [ "$(wc -l <"$BOX_TMP/points.$call")" -ge 3 ]
        while read -r name n <&9; do
            kill_at "$call" "$name" "$n" 9<&-
        done 9< <(sample "${KILL_POINTS:-2}" <"$BOX_TMP/points.$call")
    done
}

@test "a daemon killed at work on a call leaves what the next one finishes" {
    # shellcheck disable=SC2086 # words
    PROVIDER=process kill_calls ${KILL_CALLS:-create stop}
    # shellcheck disable=SC2086 # words
    [ -z "${KILL_CALLS:-}" ] || PROVIDER=oci kill_calls $KILL_CALLS snapshot restore fork
}

@test "tokens and quotas are whole after a command that was killed while it changed them" {
    local command name n

    daemon_start --listen 127.0.0.1:0
    for command in 'token create -q --scope use --name t' 'quota set ann --boxes 3' 'token revoke t'; do
        [ "$command" != 'token revoke t' ] || "$BELLHOP" token ls -q | grep -q . || "$BELLHOP" token create -q --scope use --name t
        # shellcheck disable=SC2086 # words
        strace -o "$BOX_TMP/calls" -e "trace=?${CHANGES//,/,?}" "$BELLHOP" $command >/dev/null 2>&1 || true
        sed -n 's/^\([a-z0-9_]*\)(.*/\1/p' "$BOX_TMP/calls" | awk '{ print $1, ++n[$1] }' >"$BOX_TMP/points"
        [ -s "$BOX_TMP/points" ]
        while read -r name n <&9; do
            # shellcheck disable=SC2086 # words
            strace -o /dev/null -e "trace=$name" -e "inject=$name:signal=KILL:when=$n" "$BELLHOP" $command >/dev/null 2>&1 || true
            "$BELLHOP" token ls --json | jq -e '.tokens | all(.scope == "use" and .name == "t")' >/dev/null
            "$BELLHOP" quota ls --json | jq -e '.quotas | all(.owner == "ann" and .boxes == 3)' >/dev/null
            expect 200 .boxes GET /v1/boxes
        done 9< <(sample "${KILL_POINTS:-2}" <"$BOX_TMP/points")
    done
}
