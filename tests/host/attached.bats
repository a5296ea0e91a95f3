# Boxes that somebody else runs: bellhop attach --url.

load ../lib/box
load ../lib/agent
load ../lib/daemon
bats_require_minimum_version 1.5.0

setup()
{
    box_setup
    mkdir "$BOX_TMP/there"
    start_agent
}
teardown()
{
    daemon_stop
    stop_agents
    box_teardown
}

attach() # NAME [OPTION...]
{
    bellhop attach --url "$AGENT_URL" --name "$1" --token-file "$AGENT_DIR/token" --dest "$BOX_TMP/there" "${@:2}"
}

answers() { curl -fsS --noproxy '*' "$AGENT_URL/v1/health"; }

@test "an agent that runs anywhere is a box: commands, files and searches work, nobody ends it, and rm forgets it" {
    attach far --json >"$BOX_TMP/far"
    jq -e --arg url "$AGENT_URL" '.provider == "attached" and .state == "running" and .guest.url == $url' "$BOX_TMP/far"
    run ! grep -q "$AGENT_TOKEN" "$BOX_TMP/far"
    [ "$(bellhop ls -q)" = far ]
    printf 'needle\n\0' >"$BOX_TMP/file"
    bellhop put far "$BOX_TMP/file" :"$BOX_TMP/there/file"
    bellhop cat far :"$BOX_TMP/there/file" | cmp - "$BOX_TMP/file"
    [ "$(bellhop exec far -- sh -c 'pwd; exit 7' || echo "$?")" = "$BOX_TMP/there
7" ]
    [ "$(bellhop exec far -- cat file | head -n 1)" = needle ]
    [ "$(bellhop glob far 'f*' "$BOX_TMP/there")" = "$BOX_TMP/there/file" ]
    [[ "$(bellhop grep -a far needle "$BOX_TMP/there")" = *file*needle* ]]
    id=$(bellhop exec -d far -- sh -c 'echo detached')
    [ "$(bellhop attach far "$id")" = detached ]
    bellhop status far --json | jq -e '.enforced.missing | index("isolation") != null'
    # Its life is not ours.
    for command in 'stop far' 'start far' 'pause far' 'resume far' 'keep far --for 1h' 'url far --port 80'; do
        run --separate-stderr bellhop $command --json
        [ "$(jq -r .error.code <<<"$output")" = failed_precondition ] || fail "$command: $output"
    done
    for command in 'snapshot far' 'fork far near'; do
        run --separate-stderr bellhop $command --json
        [ "$status" -ne 0 ] || fail "$command"
    done
    bellhop gc
    [ "$(bellhop status far --json | jq -r .state)" = running ]
    [ "$(ls "$BELLHOP_STATE_DIR/boxes")" = "$(jq -r .id "$BOX_TMP/far")" ]
    [ -z "$(find "$BELLHOP_STATE_DIR/boxes" -name 'monitor*')" ]
    answers
    bellhop rm far
    [ -z "$(bellhop ls -q)" ]
    answers
    bellhop events far --json | jq -e '.events[-1].after == "destroyed"'
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ]
}

@test "an agent behind a proxy that drops Authorization and cleans paths is a box like any other" {
    local port

    python3 "$BATS_TEST_DIRNAME/../lib/collapse_proxy.py" "$AGENT_PORT" >"$BOX_TMP/proxy" 2>/dev/null 3>&- &
    AGENT_PIDS+=($!)
    wait_until 10 test -s "$BOX_TMP/proxy"
    AGENT_URL=http://127.0.0.1:$(cat "$BOX_TMP/proxy") attach far
    printf 'needle\n\0' >"$BOX_TMP/file"
    mkdir "$BOX_TMP/there/a b"
    bellhop put far "$BOX_TMP/file" :"$BOX_TMP/there/a b/../file"
    bellhop cat far :"$BOX_TMP/there//file" | cmp - "$BOX_TMP/file"
    cmp "$BOX_TMP/there/file" "$BOX_TMP/file"
    bellhop put far "$BOX_TMP/file" :relative
    cmp "$BOX_TMP/there/relative" "$BOX_TMP/file"
    bellhop put far "$BOX_TMP/there" :"$BOX_TMP/tree"
    cmp "$BOX_TMP/tree/file" "$BOX_TMP/file"
    run bellhop cat far :"$BOX_TMP/there"
    [ "$status" -ne 0 ]
    [[ $output != *entries* ]]
    [ "$(bellhop exec far -- cat relative | head -n 1)" = needle ]
}

@test "what cannot be attached leaves no box" {
    echo wrong >"$BOX_TMP/wrong"
    run --separate-stderr bellhop attach --url "$AGENT_URL" --name far --token-file "$BOX_TMP/wrong" --json
    [ "$(jq -r .error.code <<<"$output")" = unauthenticated ]
    run --separate-stderr bellhop attach --url ftp://nowhere --name far --json
    [ "$(jq -r .error.field <<<"$output")" = url ]
    run bellhop attach --url "$AGENT_URL"
    [ "$status" -eq 2 ]
    run bellhop attach far x --name near
    [ "$status" -eq 2 ]
    run --separate-stderr bellhop up --provider attached --name far --empty --agent none --json
    [ "$(jq -r .error.code <<<"$output")" = unimplemented ]
    [ -z "$(bellhop ls -q --all)" ]
    attach far
    run --separate-stderr attach far --json
    [ "$(jq -r .error.code <<<"$output")" = already_exists ]
    # It is gone for a while: the box stays, and is there again.
    kill "$AGENT_PID"
    wait "$AGENT_PID" || true
    run --separate-stderr bellhop ps far --json
    [ "$(jq -r .error.code <<<"$output")" = unavailable ]
    [ "$(bellhop status far --json | jq -r .state)" = running ]
    bellhop gc
    bellhop rm far
}

@test "the daemon lists and forgets a box that somebody else runs" {
    attach far
    daemon_start
    expect 200 '.boxes | map(.name) == ["far"]' GET /v1/boxes
    expect 200 '.provider == "attached" and .state == "running"' GET /v1/boxes/far
    expect 400 '.code == "failed_precondition"' POST /v1/boxes/far/stop
    ask GET /v1/boxes/far/files/file >/dev/null
    [ "$ASK_STATUS" -ge 400 ]
    ask DELETE /v1/boxes/far >/dev/null
    [ "$ASK_STATUS" -lt 300 ]
    answers
}
