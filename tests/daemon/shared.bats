#!/usr/bin/env bats
# Ports and files of boxes for people without a token: signed URLs and open ports. The record of calls.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    daemon_start --listen 127.0.0.1:0
    ADDRESS=$(jq -r '.tcp[0]' <<<"$DAEMON_READY")
    mkdir "$BOX_TMP/project"
    echo content >"$BOX_TMP/project/report one.txt"
    bellhop up --provider process --agent none --name one --label owner=ann "$BOX_TMP/project" >/dev/null 2>&1
    ID=$(bellhop status one --json | jq -r .id)
    WEB_PID=
}

teardown()
{
    [ -z "$WEB_PID" ] || { kill "$WEB_PID" && wait "$WEB_PID"; } 2>/dev/null || true
    daemon_stop
    box_teardown
}

start_web()
{
    python3 "$BATS_TEST_DIRNAME/../lib/web_server.py" >"$BOX_TMP/port" 2>/dev/null 3>&- &
    WEB_PID=$!
    wait_for 10 test -s "$BOX_TMP/port"
    WEB_PORT=$(cat "$BOX_TMP/port")
}

status() # URL [CURL OPTION...]
{
    curl -sS --max-time 20 -o "$BOX_TMP/answer" -D "$BOX_TMP/headers" -w '%{http_code}' "${@:2}" "$1"
}

of_daemon() # FILTER
{
    bellhop audit ls --json | jq -c "[.calls[] | select(.verb != \"bellhop\")] | $1"
}

whole() # CALLS
{
    [ "$(bellhop audit verify)" = "$1 calls, the chain is whole" ]
}

refuses() # URL
{
    [ "$(status "$1")" = 401 ]
}

@test "a signed URL leads to its port until its time is over, and nowhere else" {
    start_web
    url=$(bellhop url one --port "$WEB_PORT" --signed --for 1h)
    [[ "$url" = "http://$WEB_PORT-$ID.localhost:${ADDRESS##*:}/?bellhop_signature="* ]]
    [ "$(status "$url")" = 200 ]
    # The page's parts come by the cookie that it sets.
    cookie=$(tr -d '\r' <"$BOX_TMP/headers" | sed -n 's/^Set-Cookie: \([^;]*\);.*/\1/p')
    [ "$(status "${url%%\?*}echo" -H "Cookie: a=b; $cookie")" = 200 ]
    [ "$(status "${url%%\?*}echo" -H "Cookie: bellhop_signature=junk; $cookie")" = 200 ]
    [ "$(status "${url%%\?*}echo" -H "Cookie: x$cookie; bellhop_signature=")" = 401 ]
    [ "$(status "${url%%\?*}echo")" = 401 ]
    query=${url#*\?}
    # Another port, another box, a file, a method, another signature, one that is changed.
    [ "$(status "http://$((WEB_PORT - 1))-$ID.localhost:${ADDRESS##*:}/?$query")" = 401 ]
    [ "$(status "http://$ADDRESS/v1/boxes/one/proxy/$WEB_PORT/?$query")" = 200 ]
    [ "$(status "http://$ADDRESS/v1/boxes/other/proxy/$WEB_PORT/?$query")" = 401 ]
    [ "$(status "http://$ADDRESS/v1/boxes/one/files/report%20one.txt?$query")" = 401 ]
    [ "$(status "http://$ADDRESS/v1/boxes?$query")" = 401 ]
    [ "$(status "http://$ADDRESS/v1/boxes/one/rpc/Exec/Run?$query" --data '{}')" = 401 ]
    [ "$(status "${url%?}0")" = 401 ] || [ "$(status "${url%?}1")" = 401 ]
    [ "$(status "${url/signature=/signature=9}")" = 401 ]
    short=$(bellhop url one --port "$WEB_PORT" --signed --for 1s)
    wait_for 10 refuses "$short"
    jq -e '.message == "the signature has expired"' "$BOX_TMP/answer"
}

@test "a signed URL of a file reads it, and does not write it" {
    work=$(bellhop exec one -- pwd)
    url=$(bellhop url one --signed --file ":$work/report one.txt")
    [ "$(status "$url")" = 200 ]
    [ "$(cat "$BOX_TMP/answer")" = content ]
    [ "$(status "$url" -X PUT --data x)" = 401 ]
    [ "$(status "$url" -X DELETE)" = 401 ]
    [ "$(cat "$work/report one.txt")" = content ]
    [ "$(status "${url/report/other}")" = 401 ]
}

@test "a public port is open to all until it is private again" {
    start_web
    url=$(bellhop url one --port "$WEB_PORT" --public)
    opened() { [ "$(status "$url")" = 200 ]; }
    wait_for 10 opened
    [ "$(status "http://$((WEB_PORT - 1))-$ID.localhost:${ADDRESS##*:}/")" = 401 ]
    # A text that is no signature becomes no header.
    [ "$(status "$url?bellhop_signature=1.ab;%20Domain=localhost")" = 200 ]
    run ! grep -qi '^set-cookie:' "$BOX_TMP/headers"
    bellhop url one --port "$WEB_PORT" --private
    wait_for 10 refuses "$url"
}

@test "a port has a URL on this machine, and one for other machines, which needs a token or a signature" {
    reaches() { [ "$(status "$1" --noproxy '*' "${@:2}")" = 200 ] && [ -s "$BOX_TMP/answer" ]; }
    start_web
    bellhop url one --port "$WEB_PORT" --json >"$BOX_TMP/url"
    jq -e '.needs == "nothing" and (.url | test("^http://127\\.0\\.0\\.1:[0-9]+$"))' "$BOX_TMP/url"
    reaches "$(jq -r .url "$BOX_TMP/url")/"
    bellhop url one "$WEB_PORT" --json | cmp - "$BOX_TMP/url"
    # A daemon on the loopback is out of reach.
    run bellhop url one --port "$WEB_PORT" --lan
    [ "$status" -eq 4 ]
    [[ "$output" = *"other machines do not reach the daemon: bellhop daemon --listen 0.0.0.0:7070"* ]]
    daemon_stop
    daemon_start --listen 127.0.0.1:0 --listen 0.0.0.0:0
    port=$(jq -r '.tcp[1]' <<<"$DAEMON_READY")
    bellhop url one --port "$WEB_PORT" --lan --json >"$BOX_TMP/url"
    jq -e --arg tail ":${port##*:}/v1/boxes/$ID/proxy/$WEB_PORT/" '.needs == "token" and
        (.url | startswith("http://") and endswith($tail) and (contains("//127.") or contains("//0.") or contains("//localhost") | not))' "$BOX_TMP/url"
    url=$(jq -r .url "$BOX_TMP/url")
    [ "$(status "$url" --noproxy '*')" = 401 ]
    token=$(bellhop token create -q --scope use)
    wait_for 10 reaches "$url" -H "Authorization: Bearer $token"
    run --separate-stderr bellhop url one --port "$WEB_PORT" --lan
    [ "$output" = "$url" ]
    [[ "$stderr" = *"Authorization: Bearer TOKEN"* ]]
    bellhop url one --port "$WEB_PORT" --lan --signed --json >"$BOX_TMP/url"
    jq -e '.needs == "nothing"' "$BOX_TMP/url"
    reaches "$(jq -r .url "$BOX_TMP/url")"
    work=$(bellhop exec one -- pwd)
    reaches "$(bellhop url one --lan --signed --file ":$work/report one.txt")"
    [ "$(cat "$BOX_TMP/answer")" = content ]
    # With a domain, the host name leads to the port from everywhere.
    daemon_stop
    daemon_start --listen 0.0.0.0:0 --domain boxes.example
    address=$(jq -r '.tcp[0]' <<<"$DAEMON_READY")
    [ "$(bellhop url one --port "$WEB_PORT" --lan -q)" = "http://$WEB_PORT-$ID.boxes.example:${address##*:}/" ]
}

@test "wrong options of shared URLs are named" {
    for port in 0 65536 web '' -1; do
        run bellhop url one -- "$port"
        [ "$status" -eq 2 ]
        [[ "$output" = *"the port "* ]]
    done
    run bellhop url one 80 --port 80
    [ "$status" -eq 2 ]
    [[ "$output" = *"the port is given twice"* ]]
    run bellhop url one --lan
    [ "$status" -eq 2 ]
    [[ "$output" = *"name a port of the box: --port 8080"* ]]
    run bellhop url one --signed
    [ "$status" -eq 2 ]
    [[ "$output" = *"name a port of the box: --port 8080"* ]]
    run bellhop url one --port 80 --signed --for 31d
    [ "$status" -eq 2 ]
    [[ "$output" = *"a signed URL is for at most 30 days"* ]]
    run bellhop url one --port 80 --signed --public
    [ "$status" -eq 2 ]
    run bellhop url one --signed --file relative
    [ "$status" -eq 2 ]
    [[ "$output" = *"a file in the box is as :/etc/hosts"* ]]
    daemon_stop
    run bellhop url one --port 80 --signed
    [ "$status" -eq 4 ]
    [[ "$output" = *"no daemon listens on TCP: bellhop daemon --listen 127.0.0.1:7070"* ]]
}

@test "calls that change something are recorded with their sender and result, and a change of the record is found" {
    read_token=$(bellhop token create -q --scope read --name viewer)
    ask POST /v1/boxes/one/stop >/dev/null
    ask POST /v1/boxes/one/start >/dev/null
    ask GET /v1/boxes >/dev/null
    knows() { [ "$(status "http://$ADDRESS/v1/boxes" -H "Authorization: Bearer $read_token")" = 200 ]; }
    wait_for 10 knows
    [ "$(status "http://$ADDRESS/v1/boxes/one/stop" -X POST -H "Authorization: Bearer $read_token")" = 403 ]
    [ "$(status "http://$ADDRESS/v1/boxes/one/stop" -X POST)" = 401 ]
    [ "$(status "http://$ADDRESS/v1/boxes/one/files/a%ff%20%20b" -X PUT -d x)" = 401 ]
    recorded() { [ "$(of_daemon length)" = 5 ]; }
    wait_for 10 recorded
    of_daemon 'map([.who, .verb, .target, .status])' | jq -e '. == [
        ["daemon", "POST", "/v1/boxes/one/stop", 200], ["daemon", "POST", "/v1/boxes/one/start", 200],
        ["token viewer", "POST", "/v1/boxes/one/stop", 403], ["nobody", "POST", "/v1/boxes/one/stop", 401],
        ["nobody", "PUT", "/v1/boxes/one/files/a\\xff  b", 401]]'
    of_daemon . | jq -e '.[0].from == "socket" and (.[3].from | startswith("127.0.0.1 "))'
    bellhop audit ls --json | jq -e '.calls | map(.seq) == [range(1; length + 1)]'
    whole 7
    run ! grep -q "$read_token" "$BELLHOP_STATE_DIR/audit.jsonl"
    # The chain goes on after a restart.
    daemon_stop
    daemon_start --listen 127.0.0.1:0
    ask POST /v1/boxes/one/stop >/dev/null
    wait_for 10 whole 8
    daemon_stop
    cp "$BELLHOP_STATE_DIR/audit.jsonl" "$BOX_TMP/record"
    # A changed line, a removed one, two in another order, a first one that is gone, the last ones that are gone.
    viewer=$(grep -n '"token viewer"' "$BOX_TMP/record" | cut -d : -f 1)
    sed -i 's/token viewer/token nobody/' "$BELLHOP_STATE_DIR/audit.jsonl"
    run bellhop audit verify
    [ "$status" -eq 11 ]
    [[ "$output" = *"audit.jsonl:$viewer: the chain is broken here"* ]]
    for change in 3d '2{h;d};3{G}'; do
        sed "$change" "$BOX_TMP/record" >"$BELLHOP_STATE_DIR/audit.jsonl"
        run bellhop audit verify
        [ "$status" -eq 11 ]
        [[ "$output" = *"audit.jsonl:"[23]": a line before this one is missing"* ]]
    done
    sed '7,$d' "$BOX_TMP/record" >"$BELLHOP_STATE_DIR/audit.jsonl"
    run bellhop audit verify
    [ "$status" -eq 11 ]
    [[ "$output" = *"audit.jsonl: lines at its end are missing: it ends with call 6, and had 8"* ]]
    mv "$BELLHOP_STATE_DIR/audit.head" "$BOX_TMP/head"
    run bellhop audit verify
    [ "$status" -eq 11 ]
    [[ "$output" = *"audit.head is missing"* ]]
    mv "$BOX_TMP/head" "$BELLHOP_STATE_DIR/audit.head"
    # A line that a crash has cut is removed, and one whose head is not written yet is no fault.
    cp "$BOX_TMP/record" "$BELLHOP_STATE_DIR/audit.jsonl"
    printf '{"time_ms":1' >>"$BELLHOP_STATE_DIR/audit.jsonl"
    cp "$BELLHOP_STATE_DIR/audit.head" "$BOX_TMP/head"
    daemon_start
    ask POST /v1/boxes/one/start >/dev/null
    wait_for 10 whole 9
    cp "$BOX_TMP/head" "$BELLHOP_STATE_DIR/audit.head"
    whole 9
}

@test "commands are recorded, too, with their user, and without their words, also beside the daemon" {
    mine() { bellhop audit ls --json | jq -c '[.calls[] | select(.verb == "bellhop") | [.target, .status]]'; }
    user="user $(id -un)"
    bellhop stop one >/dev/null
    run bellhop rm nobox none
    [ "$status" -eq 3 ]
    bellhop exec one -e KEY=hidden -- sh -c 'exit 7 # hidden' || true
    bellhop token create -q --scope read --name hidden >/dev/null
    bellhop token ls >/dev/null
    bellhop ls >/dev/null
    bellhop status one >/dev/null
    [ "$(mine)" = '[["up one",0],["stop one",0],["rm nobox none",3],["exec one",7],["token create",0]]' ]
    bellhop audit ls --json | jq -e --arg user "$user" 'all(.calls[] | select(.verb == "bellhop"); .who == $user and .from == "command")'
    run ! grep -q hidden "$BELLHOP_STATE_DIR/audit.jsonl"
    # Several writers at once have one chain. A command that uses the daemon has a line of its own beside the daemon's.
    before=$(bellhop audit ls --json | jq '.calls | length')
    for i in 1 2 3 4 5; do
        "$BELLHOP" keep one --for 1h >/dev/null 3>&- &
        curl -sS --unix-socket "$DAEMON_SOCKET" --json '{"for_ms": 3600000}' -o /dev/null http://bellhop/v1/boxes/one/keep 3>&- &
    done
    wait_for 30 whole $((before + 15))
    bellhop audit ls --json | jq -e --argjson n $((before + 16)) '.calls | map(.seq) == [range(1; $n)]'
}

@test "URLs are signed, and ports opened and closed, over HTTP as by the command, by who may use the box" {
    start_web
    ann=$(bellhop token create -q --scope use --owner ann) bob=$(bellhop token create -q --scope use --owner bob)
    viewer=$(bellhop token create -q --scope read)
    knows() { [ "$(status "http://$ADDRESS/v1/boxes" -H "Authorization: Bearer $viewer")" = 200 ]; }
    wait_for 10 knows
    # Another's box is not there, and a viewer signs nothing.
    for who in "$bob 404" "$viewer 403"; do
        for call in "POST urls {\"port\":$WEB_PORT}" "PUT public/$WEB_PORT {}" "DELETE public/$WEB_PORT {}"; do
            read -r method path body <<<"$call"
            [ "$(status "http://$ADDRESS/v1/boxes/one/$path" -X "$method" -H "X-Access-Token: ${who% *}" --data "$body")" = "${who#* }" ]
        done
    done
    [ "$(status "http://$ADDRESS/v1/boxes/one/urls" -H "X-Access-Token: $ann" --json "{\"port\":$WEB_PORT,\"for_ms\":60000}")" = 200 ]
    jq -e --argjson now "$(date +%s)000" '.until_ms > $now and .until_ms < $now + 120000' "$BOX_TMP/answer"
    url=$(jq -r .url "$BOX_TMP/answer")
    [ "$(status "$url")" = 200 ]
    [ "$(status "${url/$WEB_PORT-/$((WEB_PORT - 1))-}")" = 401 ]
    work=$(bellhop exec one -- pwd)
    url=$(ask POST /v1/boxes/one/urls --json "{\"file\":\"$work/report one.txt\"}" | jq -r .url)
    [ "$(status "$url")" = 200 ]
    [ "$(cat "$BOX_TMP/answer")" = content ]
    [ "$(status "http://$WEB_PORT-$ID.localhost:${ADDRESS##*:}/")" = 401 ]
    ask PUT "/v1/boxes/one/public/$WEB_PORT" >"$BOX_TMP/open"
    [ "$(status "$(jq -r .url "$BOX_TMP/open")")" = 200 ] # at once
    ask GET /v1/boxes/one/public | jq -e --argjson p "$WEB_PORT" '.ports == [$p]'
    ask DELETE "/v1/boxes/one/public/$WEB_PORT"
    [ "$ASK_STATUS" = 204 ]
    refuses "$(jq -r .url "$BOX_TMP/open")"
    ask GET /v1/boxes/one/public | jq -e '.ports == []'
    for body in '{}' '{"port":80,"file":"/x"}' '{"port":0}' '{"port":65536}'; do
        ask POST /v1/boxes/one/urls --json "$body" | jq -e '.code == "invalid_argument" and .field == "port"'
    done
    ask POST /v1/boxes/one/urls --json '{"file":"x"}' | jq -e '.field == "file"'
    ask POST /v1/boxes/one/urls --json '{"port":80,"for_ms":2592000001}' | jq -e '.field == "for_ms"'
    for port in 0 65536 x; do
        ask PUT "/v1/boxes/one/public/$port" | jq -e '.code == "invalid_argument" and .field == "port"'
    done
    daemon_stop
    daemon_start
    ask POST /v1/boxes/one/urls --json '{"port":80}' | jq -e '.code == "failed_precondition"'
}

@test "the record of calls is read in pages and verified over HTTP" {
    for _ in 1 2 3; do ask POST /v1/boxes/one/keep --json '{"for_ms":60000}' >/dev/null; done
    recorded() { [ "$(ask GET /v1/audit | jq '.calls | length')" = 4 ]; } # with `up`
    wait_for 10 recorded
    ask GET '/v1/audit?limit=2' | jq -e '[.calls[].seq] == [1, 2] and .more and .next_since == 2'
    ask GET '/v1/audit?limit=2&since=2' | jq -e '[.calls[].seq] == [3, 4] and (.more | not) and .next_since == 4'
    ask POST /v1/audit/verify | jq -e '. == {"whole": true, "calls": 4}'
    sed -i '2s/keep/stop/' "$BELLHOP_STATE_DIR/audit.jsonl"
    ask POST /v1/audit/verify | jq -e '.code == "data_loss" and (.message | startswith("audit.jsonl:2: "))'
}

@test "a call with a hostile name is one line of the record, and a terminal sees no control character" {
    python3 - "$DAEMON_SOCKET" <<'PY'
import socket, sys
for target in (b"/v1/boxes/one/files/%ff%fe", b"/v1/boxes/one/files/\xff\xc3", b"/v1/boxes/one/files/a%0a%7B%22seq%22%3A1%7D",
               b"/v1/boxes/one/files/%1b%5b2J?secret=hidden", b"/v1/boxes/one/files/%22%5c%00", b"/v1/boxes/one/files/gr%C3%BC%C3%9Fe",
               b"/v1/boxes/" + b"x" * 6000 + b"/stop"):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    verb = b"POST" if target.endswith(b"stop") else b"DELETE"
    s.sendall(verb + b" " + target + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    while s.recv(65536):
        pass
PY
    # Each call that reached a route; a NUL does not.
    recorded() { [ "$(ask GET /v1/audit | jq '.calls | length')" -ge 6 ]; }
    wait_for 10 recorded
    ask GET /v1/audit >"$BOX_TMP/calls"
    jq -e '[.calls[].target] | contains(["/v1/boxes/one/files/\\xff\\xfe", "/v1/boxes/one/files/\\xff\\xc3",
        "/v1/boxes/one/files/a\\n{\"seq\":1}", "/v1/boxes/one/files/grüße"])' "$BOX_TMP/calls" || { jq . "$BOX_TMP/calls"; false; }
    [ "$(jq '.calls | length' "$BOX_TMP/calls")" = "$(wc -l <"$BELLHOP_STATE_DIR/audit.jsonl")" ]
    run ! grep -q hidden "$BELLHOP_STATE_DIR/audit.jsonl"
    bellhop audit verify
    bellhop audit ls >"$BOX_TMP/ls"
    run ! grep -qP '[\x00-\x08\x0b-\x1f\x7f]' "$BOX_TMP/ls"
}
