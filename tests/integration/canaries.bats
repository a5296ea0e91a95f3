#!/usr/bin/env bats
# The agent signals only processes that its commands started: with missing programs, clients that leave in every
# way, and reused process numbers. Each test runs in a pid namespace of its own, with unrelated processes.
# early

load ../lib/agent
load ../lib/runsc

teardown() { stop_in_runsc; }

# A hundred thousand equal answers are not recorded.
canaries()
{
    unshare -m -p -f --mount-proc true 2>/dev/null || skip "no pid namespaces here"
    env -u WIRE_DIR timeout 300 unshare -m -p -f --mount-proc --kill-child \
        python3 "$BATS_TEST_DIRNAME/../lib/canaries.py" "$BELLHOPD" "$1" 3>&- 4>&-
}

@test "canaries live while clients ask for Ready and leave" {
    canaries ready
}

@test "canaries live while clients ask for Run and Start of what is not there, and leave" {
    canaries run_and_start
}

@test "canaries live while trees are signalled of commands whose program is not there" {
    canaries signal_tree
}

@test "canaries live while E2B's SendSignal goes to commands whose program is not there" {
    canaries e2b_signal
}

@test "canaries that have a command's number live through its time-out" {
    canaries number_timeout
}

@test "canaries that have a command's number live when its client leaves" {
    canaries number_leave
}

@test "canaries that have a command's number live when its end ends the others" {
    canaries number_kill_on_exit
}

@test "canaries that have a command's number live when its tree is signalled after its end" {
    canaries number_signal
}

@test "canaries that have a command's number live when E2B signals its descendants" {
    canaries number_e2b
}

@test "canaries that have a command's number live when the agent stops" {
    canaries number_stop
}

@test "canaries that have a command's number are not told as the command's" {
    canaries number_told
}

@test "canaries live with an agent whose caller ignores SIGCHLD" {
    canaries ignored_sigchld
}

@test "what a command left is ended by an agent within another agent's command" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    canaries nested
}

# gVisor has no pidfds, and refuses one of the two limits that mark the processes of a command.
box_rpc()
{
    curl -sS --max-time 120 --unix-socket "$RUNSC_BOX/in/s" -H "Authorization: Bearer $RUNSC_TOKEN" \
        -H 'Content-Type: application/json' --data-binary "$2" "http://box/bellhop.v1.$1"
}
# Counts the processes `sleep $1`.
n_in_box()
{
    local script='for p in /proc/[0-9]*; do tr "\\0" " " <$p/cmdline; echo; done 2>/dev/null | grep -cx "sleep '$1' "'

    box_rpc Exec/Run "$(jq -n --arg s "$script" '{shell: $s}')" | jq -r .stdout.text
}
has_in_box() { [ "$(n_in_box "$1")" = "$2" ]; }

@test "a command's tree is ended in runsc, also after its first process, and nothing else" {
    local leaver='setsid sleep 1234 & (setsid sh -c "trap : TERM; while :; do sleep 1234; done" &); sleep 0.1'

    start_in_runsc
    box_rpc Exec/Start '{"argv":["sleep","4321"],"id":"canary"}' >"$RUNSC_BOX/canary" 3>&- &
    box_rpc Exec/Run "$(jq -n --arg s "$leaver" '{shell: $s, id: "after"}')" | jq -e '.exit.reason == "exited"'
    wait_until 10 has_in_box 1234 2
    box_rpc Exec/Signal '{"id":"after","signal":"KILL","tree":true}'
    wait_until 10 has_in_box 1234 0
    box_rpc Exec/Run "$(jq -n --arg s "$leaver; sleep 1234" '{shell: $s, timeout_ms: 1500, kill_grace_ms: 300}')" |
        jq -e '.exit.reason == "timeout" and .exit.tree != "left"'
    wait_until 10 has_in_box 1234 0
    has_in_box 4321 1
    box_rpc Exec/Get '{"id":"canary"}' | jq -e '.state == "running"'
}

@test "a canary that has the number of a machine that is gone lives when that is stopped" {
    local run=$BATS_TEST_TMPDIR/run canary

    sleep 1000 3>&- &
    canary=$!
    mkdir "$run"
    mkfifo "$run/monitor.in"
    echo "$canary" >"$run/pid"
    "$BATS_TEST_DIRNAME/../../image/qemu.sh" stop "$run" 1
    kill "$canary" # it is there
    wait "$canary" || true
}
