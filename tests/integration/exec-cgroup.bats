#!/usr/bin/env bats
# An agent in a cgroup of its own: it survives a command that uses up the memory and a fork bomb, reports which it
# was, and enforces per-command limits. On cgroup v1, or v2 if it has the controllers; elsewhere each test
# prints why it can't run.
# early

load ../lib/agent

CGROUP=/sys/fs/cgroup
NAME=bellhop-test-$$

setup()
{
    [ "$(id -u)" = 0 ] || skip "needs root"
    GROUPS_MADE=()
}

teardown()
{
    stop_agents
    for group in "${GROUPS_MADE[@]}"; do
        wait_until 5 rmdir "$group" || true
    done
}

# group CONTROLLER: makes a group with this controller; sets group.
group()
{
    if [ -e $CGROUP/cgroup.controllers ]; then
        group=$CGROUP/$NAME
        grep -qw "$1" $CGROUP/cgroup.controllers || skip "cgroup v2 has no $1 controller here"
        echo "+$1" >$CGROUP/cgroup.subtree_control 2>/dev/null || skip "the $1 controller can't be given on here"
    else
        group=$CGROUP/$1/$NAME
        [ -d "$CGROUP/$1" ] || skip "there is no $1 cgroup here"
    fi
    mkdir -p "$group" 2>/dev/null || skip "cgroups can't be made here"
    GROUPS_MADE+=("$group")
}

limit() # FILE-V1 FILE-V2 VALUE
{
    if [ -e $CGROUP/cgroup.controllers ]; then echo "$3" >"$group/$2"; else echo "$3" >"$group/$1"; fi
}

# start_in_group COMMAND: starts an agent in $group, so that it finds that group when it starts.
start_in_group()
{
    printf '#!/bin/sh\necho $$ >%s/cgroup.procs\n%s "$@"\n' "$group" "$1" >"$BATS_TEST_TMPDIR/agent"
    chmod +x "$BATS_TEST_TMPDIR/agent"
    BELLHOPD=$BATS_TEST_TMPDIR/agent start_agent
}

# In every image's base.
hog_script='my $n = 400000000; my $x = "a" x $n'
hog=$(jq -nc --arg s "$hog_script" '{argv: ["perl", "-e", $s]}')

@test "exec the agent survives the OOM of a command in its own cgroup, and tells it from a kill" {
    group memory
    limit memory.limit_in_bytes memory.max 150000000
    start_in_group "exec $BELLHOPD"
    rpc Exec/Run "$hog" | jq -e '.exit.reason == "oom" and .exit.oom == true and .exit.signal == "SIGKILL"'
    rpc Exec/Run '{"shell":"kill -9 $$"}' | jq -e '.exit.reason == "signaled" and .exit.oom == false'
    rpc Exec/Run '{"argv":["sleep","60"],"timeout_ms":50,"kill_grace_ms":0}' | jq -e '.exit.reason == "timeout" and .exit.oom == false'
    kill -0 "$AGENT_PID"
}

@test "exec the agent survives a fork bomb in its own cgroup, and ends it" {
    local begin end

    group pids
    limit pids.max pids.max 200
    start_in_group "exec $BELLHOPD"
    begin=$(date +%s)
    rpc Exec/Run '{"id":"bomb","shell":"b() { b | b & b; }; b","timeout_ms":2000,"kill_grace_ms":200}' --max-time 180 |
        jq -e '.exit.reason == "timeout" or .exit.reason == "exited"'
    end=$(date +%s)
    [ $((end - begin)) -lt 120 ]
    rpc Exec/Signal '{"id":"bomb","signal":"KILL","tree":true}'
    is_calm() { [ "$(cat "$group/pids.current")" -lt 60 ]; }
    wait_until 10 is_calm
    rpc Exec/Run '{"argv":["true"]}' | jq -e '.exit.code == 0'
}

@test "exec a command's own limits are kept, its end says so, and its group is gone after it" {
    group memory
    start_agent
    rpc Exec/Run "$(jq -c '.limits = {memory_bytes: 67108864}' <<<"$hog")" >"$AGENT_DIR/reply"
    jq -e '.code == "unimplemented"' "$AGENT_DIR/reply" && skip "the agent can't make groups here"
    jq -e '.exit.reason == "oom" and .exit.oom == true and .exit.tree == "gone" and .usage.tree_peak_bytes <= 67108864
        and .usage.tree_peak_bytes > 50000000' "$AGENT_DIR/reply"
    # The OOM killer hit a child of the first process: that is reported as well, and the code is the shell's.
    rpc Exec/Run "$(jq -nc --arg s "perl -e '$hog_script'; exit 5" '{shell: $s, limits: {memory_bytes: 67108864}}')" |
        jq -e '.exit.reason == "exited" and .exit.code == 5 and .exit.oom == true'
    rpc Exec/Run '{"shell":"b() { b | b & b; }; b","limits":{"pids":20},"timeout_ms":1000,"kill_grace_ms":100}' |
        jq -e '.exit.tree == "gone"'
    rpc Exec/Run '{"shell":"i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done","limits":{"cpu_millis":200},"timeout_ms":60000}' |
        jq -e '.exit.code == 0 and .usage.wall_ms > 2.5 * (.usage.user_ms + .usage.system_ms)'
    no_groups() { [ -z "$(find $CGROUP -maxdepth 3 -type d -name "bellhop-cmd-$AGENT_PID-*")" ]; }
    wait_until 10 no_groups
}

@test "exec the kernel log says who was killed when no cgroup can be read" {
    [ "$(stat -L -c %i /proc/self/ns/pid)" = 4026531836 ] || skip "not in the first pid namespace"
    head -c 1 /dev/kmsg >/dev/null 2>&1 || dd if=/dev/kmsg of=/dev/null bs=8192 count=1 status=none || skip "the kernel log can't be read"
    group memory
    limit memory.limit_in_bytes memory.max 150000000
    start_in_group "exec unshare -m sh -c 'mount -t tmpfs tmpfs /sys/fs/cgroup && exec $BELLHOPD \"\$@\"' sh" ||
        skip "can't unshare here"
    rpc Exec/Run "$hog" | jq -e '.exit.reason == "oom" and .exit.oom == true'
    rpc Exec/Run '{"shell":"kill -9 $$"}' | jq -e '.exit.reason == "signaled" and .exit.oom == "unknown"'
    rpc Exec/Run '{"argv":["true"],"limits":{"pids":5}}' | jq -e '.code == "unimplemented" and .field == "limits.pids"'
}
