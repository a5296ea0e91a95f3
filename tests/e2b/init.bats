#!/usr/bin/env bats
# E2B's routes for the operator of the box: /health, /init, /envs, /metrics; and the routes that the token protects.

load ../lib/e2b

teardown()
{
    stop_agents
}

# code METHOD PATH [CURL OPTION...]: the status, with the body in $AGENT_DIR/body.
code()
{
    local method=$1 path=$2

    shift 2
    curl -sS --max-time 120 -o "$AGENT_DIR/body" -D "$AGENT_DIR/head" -w '%{http_code}' -X "$method" \
        "$@" "$AGENT_URL$path"
}

init()
{
    code POST /init -d "$1"
}

message()
{
    jq -r .message "$AGENT_DIR/body"
}

now()
{
    date -u +%Y-%m-%dT%H:%M:%S.%NZ
}

@test "e2b: an open agent is closed by the first /init with a token, native API too" {
    start_e2b
    [ "$(code GET /health)" = 204 ]
    [ "$(code GET /v1/ready)" != 401 ]
    [ "$(init '')" = 204 ]
    grep -qi '^x-envd-version: 0\.' "$AGENT_DIR/head"
    [ "$(init '{"accessToken":""}')" = 400 ]
    [ "$(init '{"accessToken":"secret"}')" = 204 ]
    for path in /envs /metrics /process.Process/List /files/compose /v1/ready /v1/files//etc/passwd; do
        [ "$(code GET "$path")" = 401 ] || [ "$(code POST "$path")" = 401 ]
    done
    [ "$(code GET /envs)" = 401 ]
    [ "$(jq -c . "$AGENT_DIR/body")" = '{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}' ]
    [ "$(code POST /process.Process/List -H 'Content-Type: application/json' -d '{}')" = 401 ]
    [ "$(jq .code "$AGENT_DIR/body")" = 401 ]
    [ "$(code GET /health)" = 204 ]
    [ "$(code GET /envs -H 'X-Access-Token: secret')" = 200 ]
    [ "$(code GET /envs -H 'X-Access-Token: secreT')" = 401 ]
    [ "$(init '{}')" = 401 ]
    [ "$(message)" = 'access token reset not authorized' ]
    [ "$(init '{"accessToken":"other"}')" = 401 ]
    [ "$(message)" = 'access token validation failed' ]
    [ "$(init '{"accessToken":"secret","envVars":{"A":"b"}}')" = 204 ]
    [ "$(code GET /envs -H 'X-Access-Token: secret')" = 200 ]
    [ "$(jq -c . "$AGENT_DIR/body")" = '{"E2B_SANDBOX":"true","A":"b"}' ]
}

@test "e2b: an agent with a token takes an /init that carries it, and no other" {
    start_e2b_secured
    [ "$(init '{}')" = 401 ]
    [ "$(init '{"accessToken":"guess"}')" = 401 ]
    [ "$(init "{\"accessToken\":\"$AGENT_TOKEN\",\"defaultWorkdir\":\"/tmp\"}")" = 204 ]
    [ "$(code GET /envs)" = 401 ]
    [ "$(code GET /envs -H "X-Access-Token: $AGENT_TOKEN")" = 200 ]
}

@test "e2b: /init sets variables, user and directory of later commands; an older one is ignored" {
    local new old

    start_e2b
    old=$(now)
    new=$(now)
    run_started()
    {
        local m='{"process":{"cmd":"sh","args":["-c","id -un; pwd; echo $A-$B"]}}'

        printf '\0\0\0\0%b%s' "\\x$(printf %02x ${#m})" "$m" |
            curl -sS --max-time 120 -H 'Content-Type: application/connect+json' --data-binary @- \
                "$AGENT_URL/process.Process/Start" | grep -ao '"stdout":"[^"]*' | cut -d'"' -f4 | base64 -d
    }
    [ "$(run_started)" = "$(printf 'user\n/home/user\n-')" ]
    [ "$(init "{\"timestamp\":\"$new\",\"envVars\":{\"A\":\"1\",\"B\":\"2\"},\"defaultUser\":\"root\",\"defaultWorkdir\":\"/tmp\",\"unknown\":1}")" = 204 ]
    [ "$(run_started)" = "$(printf 'root\n/tmp\n1-2')" ]
    [ "$(init "{\"timestamp\":\"$old\",\"envVars\":{\"A\":\"old\"},\"accessToken\":\"old\"}")" = 204 ]
    [ "$(run_started)" = "$(printf 'root\n/tmp\n1-2')" ]
    [ "$(init '{"envVars":{"B":"3"},"defaultUser":""}')" = 204 ]
    [ "$(run_started)" = "$(printf 'root\n/tmp\n-3')" ]
    for bad in '{' '[]' '{"envVars":{"A":1}}' '{"timestamp":"noon"}' '{"envVars":[]}' '{"defaultUser":7}'; do
        [ "$(init "$bad")" = 400 ]
    done
    [ "$(init '{"accessToken":"no token","envVars":{"B":"4"}}')" = 400 ]
    [ "$(init '{"volumeMounts":[{"nfs_target":"x","path":"/y"}]}')" = 501 ]
    [ "$(run_started)" = "$(printf 'root\n/tmp\n-3')" ]
}

# started SCRIPT: what a command of E2B's API writes.
started()
{
    local m="{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"$1\"]}}"

    printf '\0\0\0\0%b%s' "\\x$(printf %02x ${#m})" "$m" |
        curl -sS --max-time 120 -H 'Content-Type: application/connect+json' --data-binary @- \
            "$AGENT_URL/process.Process/Start" | grep -ao '"stdout":"[^"]*' | cut -d'"' -f4 | base64 -d
}

envs()
{
    [ "$(code GET /envs)" = 200 ] && jq -c . "$AGENT_DIR/body"
}

@test "e2b: an /init with the time of the last one is done once more" {
    local t

    start_e2b
    t=$(now)
    [ "$(init "{\"timestamp\":\"$t\",\"envVars\":{\"A\":\"1\"}}")" = 204 ]
    [ "$(init "{\"timestamp\":\"$t\",\"envVars\":{\"A\":\"2\"}}")" = 204 ]
    [ "$(envs)" = '{"E2B_SANDBOX":"true","A":"2"}' ]
}

@test "e2b: /envs tells what commands get: E2B's own variables are not changed by /init" {
    start_e2b
    [ "$(init '{"envVars":{"E2B_SANDBOX":"no","A":"b","E2B_EVENTS_ADDRESS":"http://evil"}}')" = 204 ]
    [ "$(envs)" = '{"E2B_SANDBOX":"true","A":"b"}' ]
    [ "$(started 'echo $E2B_SANDBOX-$A-$E2B_EVENTS_ADDRESS')" = true-b- ]
    curl -sS --max-time 120 -H 'Content-Type: application/json' -d '{"set":{"E2B_SANDBOX":"no"}}' \
        "$AGENT_URL/bellhop.v1.System/Env" | jq -e .env
    [ "$(envs)" = '{"E2B_SANDBOX":"true","A":"b"}' ]
    [ "$(started 'echo $E2B_SANDBOX')" = true ]
}

@test "e2b: hyperloopIP is the address of events.e2b.local and in E2B_EVENTS_ADDRESS, or refused with nothing done" {
    local hosts

    start_e2b
    hosts="/proc/$AGENT_PID/root/etc/hosts"
    printf '127.0.0.1 localhost\n10.9.9.9 keep events.e2b.local # ours\n' >"$hosts"
    [ "$(init '{"hyperloopIP":"192.0.2.1","envVars":{"A":"b"}}')" = 204 ]
    [ "$(cat "$hosts")" = "$(printf '127.0.0.1 localhost\n10.9.9.9\tkeep # ours\n192.0.2.1\tevents.e2b.local')" ]
    [ "$(started 'echo $E2B_EVENTS_ADDRESS-$A')" = http://192.0.2.1-b ]
    [ "$(init '{"hyperloopIP":"fd00::7","envVars":{}}')" = 204 ]
    [ "$(tail -n 2 "$hosts")" = "$(printf '192.0.2.1\tevents.e2b.local\nfd00::7\tevents.e2b.local')" ]
    [ "$(envs)" = '{"E2B_SANDBOX":"true","E2B_EVENTS_ADDRESS":"http://[fd00::7]"}' ]
    [ "$(init '{"hyperloopIP":"192.0.2.9 evil","envVars":{"A":"c"}}')" = 400 ]
    [ "$(message)" = "hyperloopIP: '192.0.2.9 evil' is no IP address" ]
    [ "$(init '{"hyperloopIP":""}')" = 204 ]
    nsenter -t "$AGENT_PID" -m mount -o remount,bind,ro /etc/hosts
    [ "$(init '{"hyperloopIP":"192.0.2.9","envVars":{"A":"d"},"accessToken":"secret","defaultUser":"root"}')" != 204 ]
    [[ $(message) = 'hyperloopIP: '*'read-only file system'* ]]
    [ "$(envs)" = '{"E2B_SANDBOX":"true","E2B_EVENTS_ADDRESS":"http://[fd00::7]"}' ]
    [ "$(started 'id -un')" = user ]
    # A value that is right already is not written.
    [ "$(init '{"hyperloopIP":"192.0.2.1"}')" = 204 ]
    [ "$(envs)" = '{"E2B_SANDBOX":"true","E2B_EVENTS_ADDRESS":"http://192.0.2.1"}' ]
}

@test "e2b: an agent that may not write /etc/hosts says so to an /init with hyperloopIP" {
    start_e2b --read-only
    [ "$(init '{"hyperloopIP":"192.0.2.1"}')" = 403 ]
    [[ $(message) = 'hyperloopIP: '*read-only ]]
    [ "$(init '{"envVars":{"A":"b"}}')" = 204 ]
    stop_agents
    AGENT_DIR=
    start_e2b --root /home/user
    [ "$(init '{"hyperloopIP":"192.0.2.1"}')" = 403 ]
    [[ $(message) = 'hyperloopIP: '* ]]
}

@test "e2b: an unknown default user is named by what fails for it" {
    start_e2b
    [ "$(init '{"defaultUser":"nobodyhere"}')" = 204 ]
    for verb in GET POST; do
        [ "$(code "$verb" '/files?path=x' -H 'Content-Type: application/octet-stream')" = 401 ]
        [ "$(message)" = "error looking up user 'nobodyhere': user: unknown user nobodyhere" ]
    done
    [ "$(code POST /filesystem.Filesystem/Stat -H 'Content-Type: application/json' -d '{"path":"x"}')" = 401 ]
    [ "$(message)" = "invalid default user: 'nobodyhere'" ]
}

# The agent may not set the clock here: strace records the call and refuses it, and with -D does not get the signal
# that ends the agent. A leak sanitizer can't trace a traced process.
@test "e2b: /init sets a clock that is behind or far ahead, and leaves one that is right; where it may not, all else is done" {
    local before

    require_root
    printf '#!/bin/sh\nexport ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0"\nexec strace -D -f -qq -o "%s/trace" \\\n    %s "%s" "$@"\n' \
        "$BATS_TEST_TMPDIR" '-e trace=clock_settime -e inject=clock_settime:error=EPERM' \
        "$(realpath "$BELLHOPD")" >"$BATS_TEST_TMPDIR/agent"
    chmod +x "$BATS_TEST_TMPDIR/agent"
    E2B_AGENT=$BATS_TEST_TMPDIR/agent start_e2b
    before=$(date +%s)
    # On a busy machine the request may arrive seconds late, with a time other than the agent's.
    is_left_alone()
    {
        : >"$BATS_TEST_TMPDIR/trace"
        [ "$(init "{\"timestamp\":\"$(now)\"}")" = 204 ] && [ ! -s "$BATS_TEST_TMPDIR/trace" ]
    }
    wait_until 60 is_left_alone
    # A refused /init changes nothing: the corrected one, with the same time, is new.
    [ "$(init '{"timestamp":"2099-01-02T03:04:05Z","envVars":{"1":"one"},"defaultWorkdir":"/"}')" = 400 ]
    [ "$(init '{"timestamp":"2099-01-02T03:04:05Z","envVars":{"A":"one"}}')" = 204 ]
    [ "$(code GET /envs)" = 200 ]
    [ "$(jq -r .A "$AGENT_DIR/body")" = one ]
    [ "$(init '{"timestamp":"2100-01-02T03:04:05.678Z","envVars":{"A":"b"}}')" = 204 ]
    grep -aq 'clock_settime(CLOCK_REALTIME, {tv_sec=4102542245, tv_nsec=678' "$BATS_TEST_TMPDIR/trace"
    [ "$(code GET /envs)" = 200 ]
    [ "$(jq -r .A "$AGENT_DIR/body")" = b ]
    [ "$(($(date +%s) - before))" -lt 3600 ]
}

@test "e2b: what strangers send to /init is bounded in memory" {
    start_e2b_secured --unix "$BATS_TEST_TMPDIR/socket"
    timeout 200 python3 - "$BATS_TEST_TMPDIR/socket" 3>&- <<'EOF'
import array, fcntl, socket, sys, termios, time

def begin():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(sys.argv[1])
    s.sendall(b"POST /init HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n" + b" " * 1000000)
    return s

def unread(s):
    n = array.array("i", [0])
    fcntl.ioctl(s, termios.TIOCOUTQ, n)
    return n[0]

all = [begin() for _ in range(9)]  # more than 8 MB, and none is whole
deadline = time.monotonic() + 60
while any(map(unread, all)):
    assert time.monotonic() < deadline, "the agent does not read"
    time.sleep(0.01)
refused = 0
for s in all:
    s.sendall(b" " * 48576)
    refused += b" 429 " in s.recv(1000)
assert 1 <= refused < 9, refused
EOF
    [ "$(init "{\"accessToken\":\"$AGENT_TOKEN\"}")" = 204 ]
}

@test "e2b: /metrics is JSON of the machine, and ours as text for who asks for that" {
    start_e2b
    [ "$(code GET /metrics)" = 200 ]
    jq -e '.cpu_count >= 1 and .cpu_used_pct >= 0 and .mem_total > .mem_used and .disk_total > .disk_used and
        .mem_total_mib > 0 and .ts > 1700000000' "$AGENT_DIR/body"
    [ "$(code GET /metrics -H 'Accept: text/plain')" = 200 ]
    grep -q '^bellhop_' "$AGENT_DIR/body"
}
