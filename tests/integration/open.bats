#!/usr/bin/env bats
bats_require_minimum_version 1.5.0
# An agent without a token, on a machine with a browser: its defences against web pages.

load ../lib/agent

setup()
{
    AGENT_DIR=
}

teardown()
{
    stop_agents
}

run_open()
{
    run_agent --listen 127.0.0.1:0 --auth=open "$@"
    echo "kept from pages" >"$AGENT_DIR/kept"
}

# answer PATH [CURL OPTION...]: prints the reply's body, and its status in a line of its own.
answer()
{
    local path=$1

    shift
    curl -sS --max-time 120 -w '\n%{http_code}\n' "$@" "$AGENT_URL$path"
}

# wants STATUS PATH [CURL OPTION...]
wants()
{
    local want=$1

    shift
    run answer "$@"
    [ "${lines[-1]}" = "$want" ] || fail "not $want: $*: $output"
}

json='Content-Type: application/json'
connect='Content-Type: application/connect+json'

@test "an open agent answers to addresses and localhost, and to no other host" {
    run_open
    for host in 127.0.0.1 "127.0.0.1:$AGENT_PORT" 192.0.2.7:80 '[::1]' '[2001:db8::1]:49983' localhost LocalHost:3000 localhost. ''; do
        wants 200 "/v1/files/$AGENT_DIR/kept" -H "Host: $host"
        wants 200 /process.Process/List -H "Host: $host" -H "$json" -d '{}'
    done
    # With DNS rebinding a name of the page's site leads to the agent.
    for host in evil.example "evil.example:$AGENT_PORT" localhost.evil.example 127.0.0.1.evil.example evil-localhost \
        '[::1].evil.example' '[::1' '[evil.example]' '[127.0.0.1]' ::1 :80 . 127.1 0x7f.0.0.1 x@127.0.0.1 127.0.0.1:8a "127.0.0.1 evil" \
        "$(head -c 300 /dev/zero | tr '\0' a).example"; do
        wants 403 /v1/files/$AGENT_DIR/kept -H "Host: $host"
        [[ $output == *'"code":"permission_denied"'*'"field":"Host"'* ]] || fail "$host: $output"
        [[ $output != *"$(cat "$AGENT_DIR/kept")"* ]]
        wants 403 /bellhop.v1.Exec/Run -H "Host: $host" -H "$json" -d "{\"argv\":[\"touch\",\"$AGENT_DIR/made\"]}"
        wants 403 /v1/health -H "Host: $host"
        wants 403 /files?path=$AGENT_DIR/kept -H "Host: $host"
        [[ $output == *'"code":403,"message":'*--allow-host* ]] || fail "$host: $output"
        wants 403 /init -H "Host: $host" -H "$json" -d '{"accessToken":"0123456789abcdef"}'
        wants 403 /process.Process/Start -H "Host: $host" -H "$connect" --data-binary x
    done
    [ ! -e "$AGENT_DIR/made" ]
    # If the target is in absolute form, its host counts.
    wants 403 "" --request-target http://evil.example/v1/health -H 'Host: localhost'
    wants 200 "" --request-target http://localhost/v1/health -H 'Host: evil.example'
}

@test "an open agent answers to the names of --allow-host" {
    run_open --allow-host box.example --allow-host=.e2b.test
    for host in box.example BOX.example:80 box.example. e2b.test 49983-abc.e2b.test a.b.e2b.test:443 localhost 127.0.0.1; do
        wants 200 /v1/health -H "Host: $host"
    done
    for host in a.box.example xbox.example xe2b.test e2b.test.evil.example example .e2b.tes; do
        wants 403 /v1/health -H "Host: $host"
    done
    for name in '' . .. a:80 'a b' http://a 127.0.0.1/8 .a. a..b '*'; do
        run -2 "$BELLHOPD" --listen 127.0.0.1:0 --auth=open --allow-host "$name"
        [[ $output == *"option '--allow-host'"*"'$name'"* ]] || fail "$output"
    done
    for option in --cors --allow-host=a; do
        run -2 "$BELLHOPD" --listen 127.0.0.1:0 --token-fd 0 "$option" <<<0123456789
        [[ $output == *"${option%=*} goes with --auth=open"* ]] || fail "$output"
    done
}

@test "an open agent takes no requests of web pages, on no route" {
    run_open
    # Browsers send these for pages of another site, of another port, of none (a file, a sandboxed frame).
    for page in 'Origin: http://evil.example' 'Origin: https://127.0.0.1' 'Origin: http://localhost:1' 'Origin: null' \
        'Sec-Fetch-Site: cross-site' 'Sec-Fetch-Site: same-site' 'Sec-Fetch-Site: '; do
        page=${page/%: /;}
        wants 403 /process.Process/Start -H "$page" -H "$connect" --data-binary x
        wants 403 /process.Process/List -H "$page" -H 'Content-Type: text/plain' -d '{}'
        wants 403 "/files?path=$AGENT_DIR/made" -H "$page" -F "file=@$AGENT_DIR/kept"
        wants 403 /files?path=$AGENT_DIR/kept -H "$page"
        wants 403 /init -H "$page" -d '{"accessToken":"0123456789abcdef"}'
        wants 403 /bellhop.v1.System/Info -H "$page" -H "$json" -d '{}'
        wants 403 /v1/files/$AGENT_DIR/kept -H "$page"
        wants 403 "/v1/proxy/$AGENT_PORT/v1/health" -H "$page" -X POST -d x
        wants 403 "/v1/proxy/1/" -H "$page" -H 'Connection: Upgrade' -H 'Upgrade: websocket' \
            -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=='
    done
    [ ! -e "$AGENT_DIR/made" ]
    # A preflight permits nothing.
    run curl -sSi -X OPTIONS -H 'Origin: http://evil.example' -H 'Access-Control-Request-Method: POST' \
        "$AGENT_URL/process.Process/Start"
    [[ $output == *" 403 "* && $output != *Access-Control* ]]
    # The user's own requests: from the address bar, and from pages served here (behind the proxy).
    wants 200 /v1/health -H 'Sec-Fetch-Site: none' -H 'Sec-Fetch-Mode: navigate'
    for own in "Origin: $AGENT_URL" 'Sec-Fetch-Site: same-origin'; do
        wants 502 /v1/proxy/1/api -H "$own" -d x
        # It may no more run commands or read files than any other page.
        wants 403 /process.Process/List -H "$own" -H "$json" -d '{}'
        wants 403 /bellhop.v1.System/Info -H "$own" -H "$json" -d '{}'
        wants 403 /v1/files/$AGENT_DIR/kept -H "$own"
    done
    # Node's fetch, which the SDK uses, sends these headers.
    wants 200 /process.Process/List -H 'Sec-Fetch-Mode: cors' -H "$json" -d '{}'
}

@test "--cors lets web pages call E2B's routes of an open agent, and no others" {
    run_open --cors
    page='Origin: http://page.example'
    run curl -sSi -X OPTIONS -H "$page" -H 'Access-Control-Request-Method: POST' "$AGENT_URL/process.Process/Start"
    [[ $output == *" 204 "*"Access-Control-Allow-Origin: *"* ]]
    run curl -sSi -H "$page" -H 'Sec-Fetch-Site: cross-site' -H "$json" -d '{}' "$AGENT_URL/process.Process/List"
    [[ $output == *" 200 "*"Access-Control-Allow-Origin: *"* ]]
    wants 403 /process.Process/List -H "$page" -H 'Host: rebound.example' -H "$json" -d '{}'
    wants 403 /bellhop.v1.System/Info -H "$page" -H "$json" -d '{}'
    wants 403 /v1/files/$AGENT_DIR/kept -H 'Sec-Fetch-Site: cross-site'
    wants 403 /v1/proxy/1/ -H "$page"
}

@test "a token does what the host and the page did: an agent that has one looks at neither" {
    run_open
    wants 403 /health -H 'Host: box.example'
    wants 403 /health -H 'Origin: http://page.example'
    wants 204 /init -H "$json" -d '{"accessToken":"0123456789abcdef"}'
    wants 204 /health -H 'Host: box.example'
    run curl -sSi -H 'Host: box.example' -H 'Origin: http://page.example' -H 'Sec-Fetch-Site: cross-site' \
        -H 'X-Access-Token: 0123456789abcdef' -H "$json" -d '{}' "$AGENT_URL/process.Process/List"
    [[ $output == *" 200 "*"Access-Control-Allow-Origin: *"* ]]
    wants 401 /process.Process/List -H 'Origin: http://page.example' -H "$json" -d '{}'
}

@test "a unix socket takes any host or none, and no page" {
    AGENT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-agent-XXXXXX") && AGENT_DIRS+=("$AGENT_DIR")
    run_open --unix "$AGENT_DIR/agent.sock"
    curl -sSf --unix-socket "$AGENT_SOCKET" http://any.example/v1/health
    curl -sSf --unix-socket "$AGENT_SOCKET" -H 'Host;' http://x/v1/health
    curl -sSf -0 --unix-socket "$AGENT_SOCKET" -H 'Host:' http://x/v1/health
    curl -sSf -0 -H 'Host:' "$AGENT_URL/v1/health" # a browser always sends it
    run curl -sS --unix-socket "$AGENT_SOCKET" -H 'Origin: http://evil.example' http://x/health
    [[ $output == *403* ]]
}
