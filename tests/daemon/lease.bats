#!/usr/bin/env bats
# `bellhop daemon --lease` as the first process of a process namespace, beside the Leases of an API server that is none:
# tests/engines/kubernetes-daemon.bats has a real one.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    box_setup
    SOCKET=$BOX_TMP/d.sock
    LEASES=$BOX_TMP/leases
    mkdir "$LEASES"
    "$BATS_TEST_DIRNAME/../lib/fake_leases.py" "$BOX_TMP/kube.sock" "$LEASES" 2>"$BOX_TMP/leases.log" 3>&- &
    SERVER=$!
    wait_for 20 test -S "$BOX_TMP/kube.sock"
}

teardown()
{
    [ -n "${BOX_TMP:-}" ] || return 0
    [ -n "${BATS_TEST_COMPLETED:-}" ] || cat "$BOX_TMP"/*.log >&2 || true
    for pid in "${FIRST:-}" "${SERVER:-}"; do
        [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true
        [ -z "$pid" ] || wait "$pid" 2>/dev/null || true
    done
    daemon_stop
    box_teardown
}

# start_candidate: FIRST is the first process of its namespace, OUTER the parent, which ends with its status.
start_candidate()
{
    KUBECONFIG=proxy:$BOX_TMP/kube.sock unshare --pid --fork --kill-child --mount-proc \
        "$BELLHOP" daemon --socket "$SOCKET" --lease one "$@" 2>"$BOX_TMP/daemon.log" 3>&- &
    OUTER=$!
    wait_for 20 eval 'FIRST=$(pgrep -P "$OUTER" | head -n 1) && [ "$(cat "/proc/$FIRST/comm")" = bellhop-daemon ]'
    FIRST=$(pgrep -P "$OUTER" | head -n 1)
}

hold_by() # HOLDER
{
    jq -n --arg holder "$1" '{metadata: {name: "one"}, spec: {holderIdentity: $holder, leaseDurationSeconds: 15}}' \
        >"$LEASES/.other"
    mv "$LEASES/.other" "$LEASES/one.json"
}

holder() { jq -r .spec.holderIdentity "$LEASES/one.json"; }
answers() { curl -sf -m 10 -o /dev/null --unix-socket "$SOCKET" http://bellhop/v1/health; }

# ended STATUS: with everything in the namespace.
ended()
{
    local code=0

    wait "$OUTER" || code=$?
    FIRST=
    run ! answers
    [ "$code" -eq "$1" ]
}

@test "a candidate takes the Lease, serves, and gives it up when it is asked to end" {
    start_candidate
    wait_for 60 answers
    [[ "$(holder)" = "$(hostname)"_* ]]
    kill "$FIRST"
    ended 0
    [ "$(holder)" = '' ]
    [ -e "$BELLHOP_STATE_DIR/store.db" ]
}

@test "a standby does not serve, and leaves the store and the Lease alone" {
    hold_by other
    start_candidate
    wait_for 60 grep -q "standby: 'other' holds the Lease 'one'" "$BOX_TMP/daemon.log"
    run ! answers
    kill "$FIRST"
    ended 0
    [ "$(holder)" = other ]
    [ ! -e "$LEASES/holders" ]
    [ ! -e "$BELLHOP_STATE_DIR/store.db" ]
}

@test "a standby leads when the Lease is given up" {
    hold_by other
    start_candidate
    wait_for 60 grep -q 'standby:' "$BOX_TMP/daemon.log"
    hold_by ''
    wait_for 60 answers
    kill "$FIRST"
    ended 0
}

@test "a standby leads when the Lease is not renewed" {
    hold_by other
    start_candidate
    wait_for 120 answers
    [[ "$(holder)" = "$(hostname)"_* ]]
}

@test "a leader whose Lease another has taken ends with a failure, and leaves it alone" {
    start_candidate
    wait_for 60 answers
    hold_by other
    ended 1
    grep -q "held by 'other'" "$BOX_TMP/daemon.log"
    [ "$(holder)" = other ]
}

@test "a leader that gets no answer of the API server ends with a failure, and all of its processes" {
    start_candidate
    wait_for 60 answers
    kill -STOP "$SERVER"
    ended 1
    kill -CONT "$SERVER"
    [ -z "$(pgrep -f -- "--socket $SOCKET" || true)" ]
}

@test "when its daemon is killed, the leader gives the Lease up and ends with a failure" {
    start_candidate
    wait_for 60 answers
    kill -9 "$(pgrep -P "$FIRST" | head -n 1)"
    ended 1
    [ "$(holder)" = '' ]
}

@test "'daemon stop' ends a leader, and the Lease is given up" {
    start_candidate
    wait_for 60 answers
    kill "$(pgrep -P "$FIRST" | head -n 1)" # as the command in the container does it
    ended 0
    [ "$(holder)" = '' ]
}

# kill_monitor BOX: and its guard.
kill_monitor()
{
    local dir monitor guard

    dir=$BELLHOP_STATE_DIR/boxes/$(bellhop status "$1" --json | jq -r .id)
    monitor=$(cut -d ' ' -f 1 "$dir/monitor.lock")
    guard=$(sed 's/.*) //' "/proc/$monitor/stat" | cut -d ' ' -f 2)
    end_now "$guard" "$monitor"
}

has_new_monitor() { [ "$(cut -d ' ' -f 1 "$1/monitor.lock")" != "$2" ]; }

@test "a new leader starts the monitors of boxes that run, and marks those that have ended" {
    local dir before pid

    for name in runs ended; do
        bellhop up --provider process --agent none --empty --name "$name" >/dev/null 2>&1
    done
    dir=$BELLHOP_STATE_DIR/boxes/$(bellhop status runs --json | jq -r .id)
    pid=$(bellhop exec ended -- sh -c 'echo $PPID')
    before=$(cut -d ' ' -f 1 "$dir/monitor.lock")
    kill_monitor runs
    kill_monitor ended
    end_now "$pid"
    daemon_start --take-over
    wait_for 60 grep -q 'runs: its monitor is restarted' "$BOX_TMP/daemon.log"
    wait_for 60 grep -q 'ended: had ended, marked as stopped' "$BOX_TMP/daemon.log"
    wait_for 60 has_new_monitor "$dir" "$before"
    [ "$(bellhop exec runs -- echo hello)" = hello ]
    [ "$(bellhop status ended --json --daemon none | jq -r .state)" = stopped ]
    daemon_stop
}
