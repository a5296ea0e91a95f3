#!/usr/bin/env bats
# Commands with --daemon that the provider `process` cannot do: isolated boxes, snapshots, a terminal.
# needs: image

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    mkdir "$BOX_TMP/project"
    echo 'a line' >"$BOX_TMP/project/file"
    daemon_start
}

teardown()
{
    daemon_stop
    box_teardown
}

at_daemon()
{
    bellhop --daemon "unix:$DAEMON_SOCKET" "$@"
}

@test "snapshots are made, listed, restored, forked and removed through the daemon, and a shell has a terminal" {
    at_daemon up --agent none --name one "$BOX_TMP/project" >/dev/null 2>&1
    at_daemon snapshot one --name first --json | jq -e '.name == "first" and .box == "one"'
    at_daemon snapshots ls --json | jq -e '.snapshots | length == 1 and .[0].name == "first"'
    at_daemon snapshots verify first
    at_daemon exec one -- rm file
    at_daemon restore one first
    [ "$(at_daemon cat one :file)" = 'a line' ]
    at_daemon fork one two >/dev/null 2>&1
    [ "$(at_daemon cat two :file)" = 'a line' ]
    at_daemon up --agent none --from first --name three >/dev/null 2>&1
    [ "$(at_daemon cat three :file)" = 'a line' ]
    run at_daemon snapshots rm first
    [ "$status" -eq 4 ]
    # shellcheck disable=SC2016 # the box's shell
    (echo 'echo $((6 * 7)); exit 4' | script -qec "'$BELLHOP' --daemon 'unix:$DAEMON_SOCKET' shell one" /dev/null || echo "status $?") \
        >"$BOX_TMP/shell"
    grep -q '42' "$BOX_TMP/shell"
    grep -q '^status 4' "$BOX_TMP/shell"
    at_daemon rm one two three
    at_daemon snapshots rm first
    [ "$(bellhop snapshots ls --json | jq '.snapshots | length')" -eq 0 ]
}
