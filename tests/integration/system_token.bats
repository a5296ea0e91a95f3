#!/usr/bin/env bats
# A hostile command can't read the agent's token; where it can, the docs say so.

bats_require_minimum_version 1.5.0
load ../lib/agent

setup()
{
    [ "$(id -u)" = 0 ] || skip "needs root"
    AGENT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-agent-XXXXXX")
    AGENT_DIRS+=("$AGENT_DIR")
    AGENT_TOKEN=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
    cp "$BELLHOPD" "$BATS_TEST_DIRNAME/../lib/hostile.py" "$AGENT_DIR/"
    chmod 755 "$AGENT_DIR" "$AGENT_DIR/bellhopd"
    chmod 644 "$AGENT_DIR/hostile.py"
}

teardown()
{
    stop_agents
}

# start_as 'SETPRIV OPTIONS' OPTION...: starts the agent with those privileges. The token is in the file `token`.
start_as()
{
    local privileges=$1

    shift
    (umask 077 && printf '%s' "$AGENT_TOKEN" >"$AGENT_DIR/token")
    [[ $privileges != *reuid* ]] || chown -R 65534:65534 "$AGENT_DIR"
    printf '#!/bin/sh\nexec setpriv %s %s/bellhopd "$@"\n' "$privileges" "$AGENT_DIR" >"$AGENT_DIR/start"
    chmod 755 "$AGENT_DIR/start"
    BELLHOPD=$AGENT_DIR/start run_agent --listen 127.0.0.1:0 --unix "$AGENT_DIR/agent.sock" "$@"
}

# attack: prints the secrets that the hostile child could read.
attack()
{
    local digest

    digest=$(printf %s "$AGENT_TOKEN" | sha256sum | cut -d ' ' -f 1)
    rpc Exec/Run "$(jq -nc --arg dir "$AGENT_DIR" --arg pid "$AGENT_PID" --arg digest "$digest" \
        '{argv: ["python3", $dir + "/hostile.py", $pid, $digest, $dir + "/token", $dir + "/log", $dir + "/start"]}')" |
        jq -r '.stdout.text + .stderr.text'
}

NOBODY='--reuid 65534 --regid 65534 --clear-groups'
WEAK_ROOT='--bounding-set -sys_ptrace --inh-caps -sys_ptrace'

@test "token is out of reach for a command of the agent's own user" {
    start_as "$NOBODY" --token-file "$AGENT_DIR/token" --token-once
    [ ! -e "$AGENT_DIR/token" ]
    run attack
    [ "$output" = done ] || fail "$output"
}

@test "token is out of reach for a command of root without CAP_SYS_PTRACE" {
    start_as "$WEAK_ROOT" --token-file "$AGENT_DIR/token" --token-once
    run attack
    [ "$output" = done ] || fail "$output"
}

@test "token is out of reach for a command of another user, also in a file that stays" {
    start_as "$WEAK_ROOT" --token-file "$AGENT_DIR/token" --user 65534
    [ -e "$AGENT_DIR/token" ]
    run attack
    [ "$output" = done ] || fail "$output"
}

@test "token that came by a descriptor is out of reach" {
    (umask 077 && printf '%s' "$AGENT_TOKEN" >"$AGENT_DIR/token")
    start_as "$NOBODY" --token-fd 5 5<"$AGENT_DIR/token"
    rm "$AGENT_DIR/token"
    [ "$(rpc_status System/Info)" = 200 ]
    run attack
    [ "$output" = done ] || fail "$output"
}

@test "token file that stays can be read by a command of its owner, and the agent says so" {
    start_as "$NOBODY" --token-file "$AGENT_DIR/token"
    run attack
    [ "$output" = $'file token\ndone' ]
    grep -q 'can read it: see --token-once' "$AGENT_LOG"
}

@test "token file that --init can't remove is told of, too" {
    local kept

    kept=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-agent-XXXXXX")
    AGENT_DIRS+=("$kept")
    chmod 755 "$kept"
    (umask 077 && printf '%s' "$AGENT_TOKEN" >"$kept/token")
    chown 65534 "$kept/token"
    start_as "$NOBODY" --token-file "$kept/token" --init
    [ -e "$kept/token" ]
    grep -q 'can read it: see --token-once' "$AGENT_LOG"
}

# The security model's statement about root: if this fails, reality is better than the statement.
@test "root with CAP_SYS_PTRACE can't be kept out" {
    start_as "" --token-file "$AGENT_DIR/token" --token-once
    run attack
    [[ $output == *"proc mem"* && $output == *done ]]
}

@test "sockets are of no use without the token" {
    start_as "$NOBODY" --token-file "$AGENT_DIR/token" --token-once --hold-socket "$AGENT_DIR/hold.sock"
    for how in "http://127.0.0.1:$AGENT_PORT" "--unix-socket $AGENT_DIR/agent.sock http://x"; do
        run rpc Exec/Run "$(jq -nc --arg how "$how" '{shell:
            "for p in /bellhop.v1.System/Info /v1/files//etc/hostname /v1/metrics /v1/ready /v1/proxy/1/ /v1/tunnel/1 /v1/archive
            do curl -s -o /dev/null -w \"%{http_code} \" -X $([ ${p#/bell} = $p ] && echo GET || echo POST) \($how)$p; done"}')"
        [ "$(jq -r .stdout.text <<<"$output")" = "401 401 401 401 401 401 401 " ] || fail "$output"
    done
    # The socket that needs no token gives access to holds alone.
    run rpc Exec/Run "{\"shell\":\"curl -s --unix-socket $AGENT_DIR/hold.sock http://x/v1/health; echo \$?\"}"
    [ "$(jq -r .stdout.text <<<"$output")" = 1 ] || fail "$output"
}

@test "option token-once is refused where it means nothing" {
    run -2 "$BELLHOPD" --listen 127.0.0.1:0 --auth=open --token-once
    [[ $output == *"--token-once goes with --token-file"* ]]
}
