#!/usr/bin/env bats
# Commands through a daemon that need more than the boxes' life: coding agents and their prompts, boxes that somebody else
# runs, keys. With the provider `process` and an agent of a few lines. Each case runs without a daemon, through the one
# that 'auto' finds, and over TCP.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/agent
load ../lib/daemon

setup()
{
    box_setup
    cd "$BOX_TMP"
    mkdir project recipes
    echo 'a line' >project/file
    export BELLHOP_RECIPES=$BOX_TMP/recipes
    jq -nc --arg dir "$BOX_TMP/recipes" '{options: {recipe_dir: $dir}}' >options
    recipe
    daemon_start --listen 127.0.0.1:0 --options-fd 7 7<options
    URL=http://$(jq -r '.tcp[0]' <<<"$DAEMON_READY")
    token admin
}

teardown()
{
    cd /
    [ -z "${PROMPT_PID:-}" ] || kill "$PROMPT_PID" 2>/dev/null || true
    daemon_stop
    stop_agents
    box_teardown
}

recipe() # [JQ CHANGE]: the agent 'mine', of conversation_agent.py
{
    jq -n --rawfile body "$BATS_TEST_DIRNAME/../lib/conversation_agent.py" --argjson port "$(free_port)" '{
        name: "mine", description: "a test", version: "1.0", port: $port, conversation: "opencode",
        files: [{path: "${home}/server.py", content: $body, mode: "0600"}],
        start: {argv: ["python3", "${home}/server.py", "${port}", "${password}"], mode: "server"},
        health: {http: {path: "/h", expect: {ok: true}, username: "user"}, attempt_ms: 2000, total_ms: 120000}
    }' | jq "${1:-.}" >recipes/mine.json
}

token() # SCOPE [OPTION...]: writes the file $BOX_TMP/SCOPE, and waits until the daemon knows it
{
    local scope=$1

    shift
    bellhop token create -q --scope "$scope" "$@" >"$BOX_TMP/$scope"
    wait_for 10 knows_token "$BOX_TMP/$scope"
}

knows_token() # FILE
{
    curl -sf --max-time 5 -H "Authorization: Bearer $(cat "$1")" "$URL/v1/openapi.json" >/dev/null
}

at() # MODE WORD...: the command in one of the modes
{
    local mode=$1

    shift
    case $mode in
    none) bellhop --daemon none "$@" ;;
    auto) bellhop "$@" ;;
    tcp) bellhop --daemon "$URL" --token-file "$BOX_TMP/admin" "$@" ;;
    esac
}

kinds() # BOX
{
    bellhop events "$1" --json | jq -c '[.events[].kind | select(startswith("turn"))]'
}

has_kinds() # BOX JSON
{
    [ "$(kinds "$1")" = "$2" ]
}

@test "the project is in the box before its coding agent starts" {
    for mode in none auto tcp; do
        at "$mode" up --provider process --agent mine --name "$mode" project >up.log 2>&1 || { cat up.log; false; }
        [ "$(at "$mode" exec "$mode" -- sh -c 'cat ~/at-start')" = file ]
        at "$mode" status "$mode" --json | jq -e '.agent.name == "mine" and .agent.exec_id != "" and .state == "running"'
        at "$mode" rm "$mode" # the next one gets the port
    done
}

@test "a command that ends between the box and its upload has left a box that the next one fills" {
    key=$(hostname | cut -c 1-64):$BOX_TMP/project
    ask POST /v1/boxes --json "$(jq -nc --arg key "$key" '{name: "one", provider: "process", agent: "mine", key: $key,
        defer_agent: true}')" | jq -e '.state == "running" and .agent.exec_id == ""'
    at tcp up --provider process --agent mine --name one project >/dev/null 2>&1
    [ "$(at tcp exec one -- sh -c 'cat ~/at-start')" = file ]
    at tcp exec one -- rm file
    at tcp up --provider process --agent mine --name one project >/dev/null 2>&1 # it has started: nothing is uploaded
    run at tcp cat one :file
    [ "$status" -eq 3 ]
}

@test "a coding agent that does not start ends 'up' over TCP with its error, and the box is removed" {
    recipe '.start.argv = ["sh", "-c", "echo broken >&2; exit 3"] | .health.total_ms = 5000'
    for mode in none tcp; do
        rc=0
        at "$mode" up --provider process --agent mine --name one project >out 2>err || rc=$?
        [ "$rc" -ne 0 ]
        grep -q '^bellhop: ' err
        [ "$(bellhop ls -q)" = '' ]
    done
}

@test "a prompt is answered, its silences are events of the box, and it is aborted in time" {
    bellhop up --provider process --agent mine --name one project >/dev/null 2>&1
    work=$(bellhop exec one -- pwd)
    wanted='[]'
    for mode in none auto tcp; do
        [ "$(at "$mode" prompt one "$(printf 'one\ntwo')")" = "$(printf 'you said: one\ntwo')" ]
        printf 'from a pipe' | at "$mode" prompt one --json - | jq -e '.text == "you said: from a pipe" and .session == "ses_1"'
        [ "$(kinds one)" = "$wanted" ]
        at "$mode" prompt one --session ses_1 --warn-after 100ms --stale-after 600ms work >answer 3>&- &
        PROMPT_PID=$!
        wanted=$(jq -c '. + ["turn_warning", "turn_stale"]' <<<"$wanted")
        wait_for 20 has_kinds one "$wanted"
        touch "$work/finish"
        wait "$PROMPT_PID"
        PROMPT_PID=
        [ "$(cat answer)" = 'at work, the end' ]
        rm "$work/finish"
        rc=0
        at "$mode" prompt one --timeout 1s --json work >out 2>/dev/null || rc=$?
        [ "$rc" -eq 6 ]
        jq -e '.error.code == "deadline_exceeded" and .error.field == "timeout"' out
        [ "$(tail -n 1 "$work/calls")" = /session/ses_1/abort ]
        rc=0
        at "$mode" prompt one fail >out 2>&1 || rc=$?
        [ "$rc" -eq 1 ]
        grep -q 'the coding agent failed: no model' out
    done
    bellhop events one --json | jq -e 'all(.events[] | select(.kind == "turn_stale"); .cause | startswith("session ses_1: the coding agent has said nothing for "))'
    bellhop up --empty --provider process --agent none --name two >/dev/null 2>&1
    for mode in none auto tcp; do
        rc=0
        at "$mode" prompt two hello >out 2>&1 || rc=$?
        [ "$rc" -eq 4 ]
        grep -q "the box 'two' has no coding agent" out
    done
    # A silence is one of two kinds, of a time that has passed.
    expect 400 '.field == "kind"' POST /v1/boxes/one/silence --json '{"kind": "turn", "session": "s", "silent_ms": 1}'
    expect 400 '.field == "silent_ms"' POST /v1/boxes/one/silence --json '{"kind": "turn_stale", "session": "s", "silent_ms": -1}'
    expect 404 '.code == "not_found"' POST /v1/boxes/nobody/silence --json '{"kind": "turn_stale", "session": "s", "silent_ms": 1}'
}

@test "an agent that somebody else runs is attached through a daemon, by an administrator" {
    start_agent
    mkdir there
    for mode in none auto tcp; do
        at "$mode" attach --url "$AGENT_URL" --name "far-$mode" --token-file "$AGENT_DIR/token" --dest "$BOX_TMP/there" \
            --json >out
        jq -e --arg url "$AGENT_URL" '.provider == "attached" and .state == "running" and .guest.url == $url' out
        # The gateway leads to boxes of the daemon's machine alone.
        if [ "$mode" = tcp ]; then
            at tcp exec "far-$mode" -- pwd 2>&1 | grep -q 'no socket on this machine'
        else
            [ "$(at "$mode" exec "far-$mode" -- pwd)" = "$BOX_TMP/there" ]
        fi
        echo wrong >wrong
        rc=0
        at "$mode" attach --url "$AGENT_URL" --name bad --token-file wrong >out 2>&1 || rc=$?
        [ "$rc" -eq 7 ]
    done
    [ "$(bellhop ls -q | tr '\n' ' ')" = 'far-auto far-none far-tcp ' ]
    expect 400 '.field == "timeout_ms"' POST /v1/attach --json '{"name": "bad", "url": "http://127.0.0.1:1", "timeout_ms": 60001}'
    token use
    rc=0
    bellhop --daemon "$URL" --token-file use attach --url "$AGENT_URL" --name bad --token-file "$AGENT_DIR/token" >out 2>&1 || rc=$?
    [ "$rc" -eq 7 ]
    grep -q "'admin'" out
}

@test "a box is found by its key, by who may see it" {
    gcc -std=c99 -Wall -Wextra -Werror -I"$BATS_TEST_DIRNAME/../../host-client/include" -o by_key \
        "$BATS_TEST_DIRNAME/by_key.c" -L"$BELLHOP_BUILD" -l:libbellhop.so.0 -Wl,-rpath,"$(realpath "$BELLHOP_BUILD")"
    odd=$'a/b?c=d&e%2F \xff'
    bellhop up --empty --provider process --agent none --name one --key "$odd" >/dev/null 2>&1
    found() # DAEMON TOKEN: what the library says with this daemon
    {
        ./by_key "$BELLHOP_STATE_DIR" "$1" "$2" "$odd" || true
    }
    for daemon in none '' auto "unix:$DAEMON_SOCKET" "$URL"; do
        [ "$(found "$daemon" "$(cat admin)")" = one ] || fail "$daemon"
    done
    bellhop token create -q --scope use --owner ann >ann
    wait_for 10 knows_token ann
    [ "$(found "$URL" "$(cat ann)")" = 'not_found key' ]
    expect 400 '.field == "key"' GET /v1/by-key
    bellhop rm one
    for daemon in none '' "$URL"; do
        [ "$(found "$daemon" "$(cat admin)")" = "$(found none '')" ] || fail "$daemon"
    done
    [ "$(found none '')" = 'not_found key' ] || [ "$(found none '')" = 'not_found name gone' ]
    [ "$(found "$URL" "$(cat ann)")" = 'not_found key' ]
}
