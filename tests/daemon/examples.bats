#!/usr/bin/env bats
# The examples of docs/daemon.md do what they say, section by section. Those of the gateway: gateway.bats.
# needs: network

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon
load ../lib/venv

setup()
{
    box_setup
    DOC=$BATS_TEST_DIRNAME/../../docs/daemon.md
    SOCKET=$BOX_TMP/d.sock
    HELPERS=
    mkdir "$BOX_TMP/project"
}

teardown()
{
    # shellcheck disable=SC2086 # pids
    [ -z "$HELPERS" ] || kill $HELPERS 2>/dev/null || true
    bellhop daemon stop >/dev/null 2>&1 || true
    box_teardown
}

# example SECTION KIND: the blocks of this kind in a section, up to the next heading.
example()
{
    awk -v want="$1" -v kind="$2" '/^#/ { on = $0 ~ "^#+ " want "$"; next }
        $0 == "```" kind { block = on; next } /^```$/ { block = 0 } block' "$DOC"
}

# run_example SECTION: with `bellhop daemon` in the background, on the test's socket and a free port, which takes the
# place of the ports in the text; curl fails on an error and reads a stream for two seconds.
run_example()
{
    example "$1" sh >"$BOX_TMP/example"
    [ -s "$BOX_TMP/example" ]
    cat >"$BOX_TMP/prelude" <<'PRELUDE'
curl()
{
    case " $* " in
    *' -N '*) command curl -fsS --max-time 2 "$@" || [ $? = 28 ] ;;
    *) command curl -fsS "$@" ;;
    esac
}
bellhop()
{
    case "$*" in
    'daemon stop' | 'daemon status'*) "$BELLHOP" "$@" ;;
    daemon*)
        "$BELLHOP" daemon stop >/dev/null 2>&1 || true
        rm -f "$BOX_TMP/ready"
        mkfifo "$BOX_TMP/ready"
        "$BELLHOP" "$@" --json --socket "$SOCKET" >"$BOX_TMP/ready" 2>/dev/null &
        read -r ready <"$BOX_TMP/ready"
        echo "$ready"
        ;;
    *) "$BELLHOP" "$@" ;;
    esac
}
PRELUDE
    sed -i "s|/etc/bellhop/|$BOX_TMP/|g; s|\(127.0.0.1\|0.0.0.0\):\(7070\|7443\)|127.0.0.1:0|; s|:/workspace/report.pdf|:$BOX_TMP/project/report.pdf|" "$BOX_TMP/example"
    sed -i "s|\"agent\": \"none\"|&, \"provider\": \"process\"|; s|8080|${WEB_PORT:-8080}|; s|https://hooks.example/bellhop|http://127.0.0.1:${HOOK_PORT:-1}/|" "$BOX_TMP/example"
    sed -i "s|https://boxes.example:7443|http://${ADDRESS:-}|; s|~/.config/bellhop/token|$BOX_TMP/token|; s|bellhop up --name demo|& --provider process --agent none|" "$BOX_TMP/example"
    cat "$BOX_TMP/example"
    BELLHOP=$BELLHOP BOX_TMP=$BOX_TMP SOCKET=$SOCKET bash -euo pipefail -c '. "$BOX_TMP/prelude"; . "$BOX_TMP/example"' >"$BOX_TMP/printed" 2>&1 || {
        tail -5 "$BOX_TMP/printed"
        return 1
    }
}

printed()
{
    grep -qE -e "$1" "$BOX_TMP/printed" || { cat "$BOX_TMP/printed"; return 1; }
}

start_daemon()
{
    bellhop daemon --socket "$SOCKET" --json "$@" >"$BOX_TMP/ready.json" 2>"$BOX_TMP/daemon.log" 3>&- &
    wait_for 20 test -s "$BOX_TMP/ready.json"
    ADDRESS=$(jq -r '.tcp[0] // empty' "$BOX_TMP/ready.json")
}

make_demo()
{
    bellhop up --provider process --agent none --name demo "$BOX_TMP/project" >/dev/null 2>&1
}

# helper OUT PROGRAM...: a server of the test, which prints its port to OUT.
helper()
{
    python3 "$BATS_TEST_DIRNAME/../lib/$2" "${@:3}" >"$1" 2>/dev/null 3>&- &
    HELPERS+=" $!"
    wait_for 20 test -s "$1"
}

@test "starting and ending, and TLS" {
    run_example 'Starting and ending it'
    printed '"tcp":\["127.0.0.1:[1-9]'
    printed '^running, pid '
    [ "$(tail -n 1 "$BOX_TMP/printed")" = stopped ]
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
        -keyout "$BOX_TMP/key.pem" -out "$BOX_TMP/cert.pem" 2>/dev/null
    run_example TLS
    printed '"tls":true'
}

@test "the status page, boxes over HTTP, events, code" {
    start_daemon
    run_example 'The status page'
    printed '<title>'
    make_demo
    run_example Events
    printed '^event: box'
    run_example Code
    printed '"backends"'
    bellhop rm demo
    run_example 'Boxes over HTTP'
    printed '"name":"demo"'
    printed '"state":"stopped"'
    [ -z "$(bellhop ls -q)" ]
}

@test "commands through the daemon" {
    start_daemon --listen 127.0.0.1:0
    bellhop token create -q --scope admin >"$BOX_TMP/token"
    knows() { curl -sSf -H "Authorization: Bearer $(cat "$BOX_TMP/token")" "http://$ADDRESS/v1/info"; }
    wait_for 20 knows
    cd "$BOX_TMP/project"
    printf 'test:\n\techo fine >report.txt\n' >Makefile
    run_example 'Commands through the daemon'
    printed '^demo[[:space:]]+running'
    [ "$(cat report.txt)" = fine ]
}

@test "terminals" {
    start_daemon --listen 127.0.0.1:0
    make_demo
    python=$(venv_python websockets 13.1) || skip "websockets can't be installed"
    example Terminals python | sed "s/127.0.0.1:7070/$ADDRESS/" >"$BOX_TMP/example.py"
    TOKEN=$(curl -sS --unix-socket "$SOCKET" --json '{"scope": "use"}' http://x/v1/tokens | jq -r .token) \
        "$python" "$BOX_TMP/example.py" >"$BOX_TMP/printed"
    printed "b'Linux"
    printed '"exit"'
}

@test "tokens, quotas, URLs without a token, and the record of calls" {
    start_daemon --listen 127.0.0.1:0
    make_demo
    run_example 'Who may do what'
    printed '^bh_[0-9a-f]{64}$'
    printed '"cpu_millis":8000'
    [ "$(bellhop token ls --json | jq '.tokens | length')" = 0 ]
    echo report >"$BOX_TMP/project/report.pdf"
    helper "$BOX_TMP/web_port" web_server.py
    WEB_PORT=$(cat "$BOX_TMP/web_port")
    run_example 'Without a token'
    printed "^http://$WEB_PORT-.*bellhop_signature="
    [ "$(curl -sSf "$(sed -n '/\/files\//p' "$BOX_TMP/printed" | head -n 1)")" = report ]
    curl -sSf "$(grep -m 1 '^http.*bellhop_signature=' "$BOX_TMP/printed")" >/dev/null
    run_example 'The record of calls'
    printed '^[0-9]+ calls, the chain is whole$'
    printed '"whole":true'
    printed '/v1/tokens/viewer'
}

@test "webhooks and metrics" {
    echo key >"$BOX_TMP/hook.key"
    helper "$BOX_TMP/hook_port" webhook_server.py "$BOX_TMP/got"
    HOOK_PORT=$(cat "$BOX_TMP/hook_port")
    run_example Webhooks
    make_demo
    got() { grep -q requested "$BOX_TMP/got"; }
    wait_for 20 got
    run_example Metrics
    printed '^bellhop_boxes\{'
}

@test "each section of the page with an example is run by a test" {
    grep -E '^#|^```(sh|python)$' "$DOC" | grep -B1 '^```' | sed -n 's/^##* //p' | while read -r section; do
        grep -qF -e "run_example '$section'" -e "run_example $section" -e "example $section " "$BATS_TEST_FILENAME" ||
            [[ "$section" == 'The gateway: '* ]] || { echo "$section" && exit 1; }
    done
}
