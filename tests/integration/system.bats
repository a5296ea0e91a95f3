#!/usr/bin/env bats
# The agent's information about itself, readiness, metrics, the lease, and its role as pid 1.
# early

bats_require_minimum_version 1.5.0
load ../lib/agent

setup()
{
    AGENT_DIR=
}

teardown()
{
    stop_agents
}

# with_tools NAME...: makes a directory with links to these programs only, for the agent's PATH.
with_tools()
{
    AGENT_DIR=$(mktemp -d) && AGENT_DIRS+=("$AGENT_DIR")
    TOOLS=$AGENT_DIR/bin
    mkdir "$TOOLS"
    for tool in "$@"; do
        case $tool in
        fd) ln -s "$(command -v fd || command -v fdfind)" "$TOOLS/fd" ;;
        *) ln -s "$(command -v "$tool")" "$TOOLS/$tool" ;;
        esac
    done
}

@test "version and help name what one needs" {
    run "$BELLHOPD" --version
    [[ ${lines[0]} == "bellhopd "*", protocol 1" ]]
    [[ ${lines[1]} == *libmicrohttpd*jansson*libarchive*PCRE2* ]]
    run "$BELLHOPD" --help
    for option in listen unix token-file token-fd auth root user workdir ready-fd init require; do
        [[ $output == *"--$option "* ]] || fail "no --$option"
    done
}

@test "ready line has the addresses, and the agent answers by then" {
    start_agent
    [ "$(jq -r .pid <<<"$AGENT_READY")" = "$AGENT_PID" ]
    [ "$(jq -r '.unix[0]' <<<"$AGENT_READY")" = "$AGENT_SOCKET" ]
    [ "$(jq -r .protocol <<<"$AGENT_READY")" = 1 ]
    curl -sf "$AGENT_URL/v1/health"
}

@test "info says what runs where" {
    start_agent --workdir /tmp
    run rpc System/Info
    [ "$(jq -r .pid <<<"$output")" = "$AGENT_PID" ]
    [ "$(jq -r .workdir <<<"$output")" = /tmp ]
    [ "$(jq -r .root <<<"$output")" = / ]
    [ "$(jq -r .jit <<<"$output")" = true ]
    [ "$(jq -r .platform.arch <<<"$output")" = "$(uname -m)" ]
    [ "$(jq -r '.features | index("exec") != null' <<<"$output")" = true ]
}

@test "ready runs each tool, and says so when one is missing or broken" {
    with_tools fd rg git
    PATH=$TOOLS:/usr/bin:/bin start_agent
    run agent_curl /v1/ready -w '%{http_code}'
    [ "${output##*\}}" = 200 ]
    run rpc System/Ready
    [ "$(jq -r .ready <<<"$output")" = true ]
    [[ $(jq -r '.tools[] | select(.name == "rg") | .version' <<<"$output") == ripgrep* ]]
    [ "$(jq -r '.disk.free_bytes > 0' <<<"$output")" = true ]
    stop_agents

    with_tools fd git
    tools=$TOOLS
    start_agent_with_path "$tools"
    run rpc System/Ready
    [ "$(jq -r .ready <<<"$output")" = false ]
    [ "$(jq -r '.missing | join(" ")' <<<"$output")" = rg ]
    [[ $(jq -r '.tools[] | select(.name == "rg") | .error' <<<"$output") == *"not found"* ]]
    [ "$(agent_status /v1/ready)" = 503 ]
    printf '#!%s\nexit 3\n' "$(command -v sh)" >"$tools/rg"
    chmod 755 "$tools/rg"
    run rpc System/Ready
    [ "$(jq -r '.tools[] | select(.name == "rg") | .error' <<<"$output")" = "exit code 3" ]
    printf '#!%s\nread -r line <> %s/never\n' "$(command -v bash)" "$tools" >"$tools/rg"
    mkfifo "$tools/never"
    run rpc System/Ready
    [[ $(jq -r '.tools[] | select(.name == "rg") | .error' <<<"$output") == *"did not answer"* ]]
}

@test "ready reports a tool whose name its error cuts within a character" {
    local name

    name=x$(printf '\303\244%.0s' $(seq 120)) # of 241 bytes, of which the message has 200
    with_tools git
    start_agent_with_path "$TOOLS" --require "$name"
    run rpc System/Ready
    [ "$(jq -r '.missing | join(" ")' <<<"$output")" = "$name" ]
    [[ $(jq -r '.tools[] | select(.ok == false and .required) | .error' <<<"$output") == "program 'x"*"not found in PATH" ]]
}

# Starts the agent with this PATH, and these options; the test's helpers keep theirs.
start_agent_with_path()
{
    local path=$1

    shift
    printf '#!/bin/sh\nPATH=%s exec %s "$@"\n' "$path" "$BELLHOPD" >"$path/../agent"
    chmod 755 "$path/../agent"
    BELLHOPD=$path/../agent start_agent "$@"
}

# fake NAME OUTPUT [ARGUMENT]: makes a tool that prints OUTPUT and counts its runs in the file runs.
fake()
{
    printf '#!/bin/sh\n[ "$1" = %s ] || exit 2\necho run >>%s/../runs\necho "%s"\n' "${3:---version}" "$TOOLS" "$2" >"$TOOLS/$1"
    chmod 755 "$TOOLS/$1"
}

@test "ready knows each tool by its own ways, and an older name does as well" {
    with_tools rg git
    fake fdfind 'fdfind 8.6'
    fake convert 'Version: ImageMagick 6.9'
    fake ffmpeg 'ffmpeg version 5.1' -version
    for tool in python3 pip3 node; do fake "$tool" "$tool 1.2.3"; done
    start_agent_with_path "$TOOLS"
    run rpc System/Ready
    [ "$(jq -r .ready <<<"$output")" = true ]
    tool() { jq -c ".tools[] | select(.name == \"$1\") | [.ok, .program, .version]" <<<"$output"; }
    [ "$(tool fd)" = '[true,"fdfind","fdfind 8.6"]' ]
    [ "$(tool magick)" = '[true,"convert","Version: ImageMagick 6.9"]' ]
    [ "$(tool ffmpeg)" = '[true,null,"ffmpeg version 5.1"]' ]
    [ "$(tool pip)" = '[true,"pip3","pip3 1.2.3"]' ]
    [ "$(tool node)" = '[true,null,"node 1.2.3"]' ]
    [ "$(tool curl)" = '[false,null,null]' ]
    [ -z "$(tool convert)" ]
    fake magick 'Version: ImageMagick 7.1'
    run rpc System/Ready '{"fresh":true}'
    [ "$(tool magick)" = '[true,null,"Version: ImageMagick 7.1"]' ]
    [ -z "$(tool convert)" ]
}

@test "ready runs nothing again for a moment after all was well, unless asked to" {
    with_tools rg git
    fake fd 'fd 8.6'
    start_agent_with_path "$TOOLS"
    runs() { wc -l <"$TOOLS/../runs"; }
    # The report is kept for three seconds: on a busy machine these can be over before the next call.
    is_kept()
    {
        rm -f "$TOOLS/../runs"
        [ "$(rpc System/Ready '{"fresh":true}' | jq '[.ready, .age_ms]' -c)" = '[true,0]' ] &&
            [ "$(rpc System/Ready | jq '.ready and .age_ms > 0')" = true ] &&
            [ "$(agent_status /v1/ready)" = 200 ] && [ "$(runs)" = 1 ]
    }
    wait_until 10 is_kept
    rm "$TOOLS/fd"
    [ "$(agent_status '/v1/ready?fresh=1')" = 503 ]
    [ "$(agent_status /v1/ready)" = 503 ]
    fake fd 'fd 8.6'
    [ "$(agent_status /v1/ready)" = 200 ]
}

@test "ready tells the disk, the clock, the users and what the kernel lets it do" {
    start_agent --workdir /tmp
    run rpc System/Ready "{\"now_ms\":$(($(date +%s%3N) + 3600000))}"
    [ "$(jq -c '.disk | [.path, .ok, .read_only, .free_inodes > 0, .total_inodes >= .free_inodes]' <<<"$output")" = \
        '["/tmp",true,false,true,true]' ]
    [ "$(jq '.clock | .offset_ms > 3590000 and .offset_ms <= 3600000 and .boottime_ms >= .monotonic_ms' <<<"$output")" = true ]
    [ "$(jq -c '.users | [.uid, .uid_map[0]]' <<<"$output")" = "[$(id -u),$(awk 'NR == 1 {print "[" $1 "," $2 "," $3 "]"}' /proc/self/uid_map)]" ]
    [ "$(jq -r .kernel.release <<<"$output")" = "$(uname -r)" ]
    [ "$(jq -c '.kernel | [.jit, .openat2, .pidfd]' <<<"$output")" = '[true,true,true]' ]
    # Exactly the limits that it reports can be enforced.
    for limit in memory:memory_bytes:268435456 pids:pids:64 cpu:cpu_millis:500; do
        IFS=: read -r name field value <<<"$limit"
        status=$(rpc_status Exec/Run "{\"argv\":[\"true\"],\"limits\":{\"$field\":$value}}")
        [ "$status" = "$(jq -r "if .kernel.limits.$name then 200 else 501 end" <<<"$output")" ] || fail "$name: $status"
    done
    [ "$(rpc System/Ready '{"now_ms":-1}' | jq -r .field)" = now_ms ]
}

@test "what is required can be chosen" {
    with_tools git
    start_agent_with_path "$TOOLS"
    [ "$(agent_status /v1/ready)" = 503 ]
    stop_agents
    with_tools git
    printf '#!/bin/sh\nPATH=%s exec %s "$@" --require git\n' "$TOOLS" "$BELLHOPD" >"$AGENT_DIR/agent"
    chmod 755 "$AGENT_DIR/agent"
    BELLHOPD=$AGENT_DIR/agent start_agent
    [ "$(agent_status /v1/ready)" = 200 ]
}

metric()
{
    agent_curl /v1/metrics | sed -n "s/^$1 //p"
}

# metric_is NAME VALUE: a request is counted when its connection is done with it, which may be after its reply is read.
metric_is()
{
    is_so() { [ "$(metric "$1")" = "$2" ]; }
    wait_until 10 is_so "$1" "$2" || fail "$1 is $(metric "$1"), not $2"
}

@test "metrics' counters move" {
    start_agent
    [ -z "$(metric 'bellhop_requests_total{route="Exec\/Run",code="200"}')" ]
    rpc Exec/Run '{"argv":["true"]}' -o /dev/null
    rpc Exec/Run '{"argv":["true"]}' -o /dev/null
    rpc Exec/Run '{"argv":["no-such-program-here"]}' -o /dev/null
    metric_is 'bellhop_requests_total{route="Exec\/Run",code="200"}' 2
    metric_is 'bellhop_requests_total{route="Exec\/Run",code="404"}' 1
    received=$(metric bellhop_received_bytes_total)
    sent=$(metric bellhop_sent_bytes_total)
    agent_curl "/v1/files/$AGENT_DIR/f" -X PUT --data-binary 0123456789 -o /dev/null
    agent_curl "/v1/files/$AGENT_DIR/f" -o /dev/null
    metric_is bellhop_received_bytes_total $((received + 10))
    has_sent() { [ "$(metric bellhop_sent_bytes_total)" -ge $((sent + 10)) ]; }
    wait_until 10 has_sent
    runs() { [ "$(metric bellhop_commands_running)" = 1 ]; }
    ask_and_leave Exec/Start '{"argv":["sleep","30"],"id":"m"}' /dev/null runs
    runs
    [ "$(metric process_resident_memory_bytes)" -gt 0 ]
    [ "$(metric bellhop_connections)" -ge 1 ]
    agent_curl /v1/metrics -o /dev/null -D - | grep -qi '^content-type: text/plain; version=0.0.4'
}

# promtool of Debian's prometheus, kept in build/cache: the package would start a service.
promtool()
{
    local dir=$BATS_TEST_DIRNAME/../../build/cache/promtool

    if [ ! -x "$dir/promtool" ]; then
        mkdir -p "$dir"
        (cd "$AGENT_DIR" && { apt-get download prometheus || { apt-get update && apt-get download prometheus; }; } &&
            dpkg-deb -x prometheus_*.deb promtool && cp promtool/usr/bin/promtool "$dir/promtool.$$" &&
            mv "$dir/promtool.$$" "$dir/promtool" && rm -rf promtool prometheus_*.deb) >&2 || return 1
    fi
    "$dir/promtool" "$@"
}

@test "metrics are in order, says promtool" {
    start_agent --init
    rpc System/Lease '{"expires_in_ms":600000}' -o /dev/null
    rpc System/Hold '{}' -o /dev/null
    rpc Exec/Run '{"argv":["sh","-c","head -c 3000000 /dev/zero; kill -9 $$"]}' -o /dev/null
    rpc Exec/Run '{"argv":["sleep","9"],"timeout_ms":20,"kill_grace_ms":20}' -o /dev/null
    rpc Exec/Run '{"argv":["sh","-c","echo x >&2"]}' -o /dev/null
    echo needle >"$AGENT_DIR/file"
    rpc Search/Grep "{\"pattern\":\"needle\",\"path\":\"$AGENT_DIR/file\"}" -o /dev/null
    agent_curl "/v1/archive?path=$AGENT_DIR&format=tar" -o /dev/null
    agent_curl /v1/nothing -o /dev/null
    metric_is 'bellhop_requests_total{route="none",code="404"}' 1
    metric_is 'bellhop_request_duration_seconds_count{route="Exec\/Run"}' 3
    agent_curl /v1/metrics >"$AGENT_DIR/metrics"
    if [ -z "${BELLHOP_IN_BOX:-}${TEST_OFFLINE:-}" ]; then # the download needs the network
        promtool --version >/dev/null
        run promtool check metrics <"$AGENT_DIR/metrics"
        echo "$output"
        [ "$status" = 0 ]
        [ -z "$output" ]
    fi
    value() { sed -n "s/^$1 //p" "$AGENT_DIR/metrics"; }
    [ "$(value 'bellhop_commands_ended_total{reason="exited"}')" = 1 ]
    [ "$(value 'bellhop_commands_ended_total{reason="signaled"}')" = 1 ]
    [ "$(value 'bellhop_commands_ended_total{reason="timeout"}')" = 1 ]
    [ "$(value bellhop_stdout_bytes_total)" = 3000000 ]
    [ "$(value bellhop_stderr_bytes_total)" = 2 ]
    [ "$(value bellhop_output_bytes_dropped_total)" = $((3000000 - 2 * 512 * 1024)) ]
    [ "$(value bellhop_holds)" = 1 ]
    [ "$(value bellhop_searched_bytes_total)" = 7 ]
    [ "$(value bellhop_lease_seconds)" -gt 500 ]
    [ "$(value 'bellhop_route_sent_bytes_total{route="archive"}')" -gt 1024 ]
    [ "$(value 'bellhop_request_duration_seconds_count{route="Exec\/Run"}')" = 3 ]
    [ "$(value 'bellhop_request_duration_seconds_bucket{route="Exec\/Run",le="+Inf"}')" = 3 ]
    [ "$(value 'bellhop_requests_total{route="none",code="404"}')" = 1 ]
    [ "$(value process_open_fds)" -gt 3 ]
}

@test "OpenAPI document names every method and route" {
    start_agent
    run agent_curl /v1/openapi.json
    [ "$(jq -r .openapi <<<"$output")" = 3.1.0 ]
    for path in $(sed -n 's/^R("\([A-Za-z]*\)", "\([A-Za-z]*\)".*/\/bellhop.v1.\1\/\2/p' \
        "$BATS_TEST_DIRNAME/../../guest/common/wire/rpc.def") /v1/health '/v1/files/{path}' /v1/archive; do
        jq -e --arg p "$path" '.paths[$p]' <<<"$output" >/dev/null || fail "no $path"
    done
    [ "$(jq -r '.paths | map(.[] | objects | .operationId) | (length == (unique | length))' <<<"$output")" = true ]
}

@test "lease is told, set, extended, and shortened only by force; its end ends the agent" {
    start_agent --init
    [ "$(rpc System/Lease | jq -r .expires_in_ms)" = null ]
    left=$(rpc System/Lease '{"expires_in_ms":60000}' | jq -r .expires_in_ms)
    [ "$left" -gt 55000 ]
    [ "$left" -le 60000 ]
    left=$(rpc System/Lease '{"expires_in_ms":1000}' | jq -r .expires_in_ms)
    [ "$left" -gt 50000 ]
    left=$(rpc System/Lease '{"expires_in_ms":120000}' | jq -r .expires_in_ms)
    [ "$left" -gt 100000 ]
    [ "$(rpc System/Lease '{"expires_in_ms":-1}' | jq -r .field)" = expires_in_ms ]
    [ "$(rpc System/Lease '{"expires_in_ms":"x"}' | jq -r .code)" = invalid_argument ]
    ask_and_leave Exec/Start '{"argv":["sleep","600"]}' "$AGENT_DIR/out" grep -q '"start"' "$AGENT_DIR/out"
    pid=$(jq -r '.start.pid // empty' "$AGENT_DIR/out")
    [ -n "$pid" ]
    rpc System/Lease '{"expires_in_ms":100,"force":true}' -o /dev/null || true # it may end before its output is read
    wait_gone "$AGENT_PID" 10
    wait_gone "$pid" 2
}

@test "agent that is not init has no lease to give" {
    start_agent
    [ "$(rpc System/Lease | jq -r .expires_in_ms)" = null ]
    [ "$(rpc System/Lease '{"expires_in_ms":1000}' | jq -r .code)" = failed_precondition ]
}

@test "init reads its token once and removes the file" {
    start_agent --init
    [ ! -e "$AGENT_DIR/token" ]
    [ "$(rpc_status System/Info)" = 200 ]
}

@test "pid 1 reaps what is left to it and ends everything when told" {
    unshare -p -f --mount-proc true 2>/dev/null || skip "no pid namespaces here"
    AGENT_DIR=$(mktemp -d) && AGENT_DIRS+=("$AGENT_DIR")
    printf '#!/bin/sh\nexec unshare -p -f --mount-proc --kill-child %s "$@"\n' "$BELLHOPD" >"$AGENT_DIR/agent"
    chmod 755 "$AGENT_DIR/agent"
    BELLHOPD=$AGENT_DIR/agent start_agent --init
    [ "$(rpc System/Info | jq -r .pid)" = 1 ]
    # Double fork: the orphan becomes pid 1's child and ends as a zombie of it.
    rpc Exec/Run '{"argv":["sh","-c","(sh -c \"exit 7\" & ) ; true"]}' -o /dev/null
    no_zombies()
    {
        [ "$(rpc Exec/Run '{"argv":["sh","-c","cat /proc/[0-9]*/stat | grep -c \") Z \""]}' |
            jq -r .stdout.text)" = 0 ]
    }
    wait_until 5 no_zombies
    rpc Exec/Run '{"argv":["sh","-c","setsid sleep 61.'$$' >/dev/null 2>&1 & true"]}' -o /dev/null
    inner=$(cat "/proc/$AGENT_PID/task/$AGENT_PID/children")
    kill -TERM $inner
    wait_gone "$AGENT_PID" 10
    wait "$AGENT_PID"
    ! pgrep -fx "sleep 61.$$" >/dev/null
}
