#!/usr/bin/env bats
# Ports in the box: the HTTP proxy and the raw tunnel.

bats_require_minimum_version 1.5.0
load ../lib/agent
load ../lib/node

setup()
{
    start_agent
    WEB_PIDS=()
    start_web
}

teardown()
{
    for pid in "${WEB_PIDS[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    stop_agents
}

# start_web [6]: sets WEB_PORT.
start_web()
{
    rm -f "$AGENT_DIR/port"
    python3 "$BATS_TEST_DIRNAME/../lib/web_server.py" "$@" >"$AGENT_DIR/port" 2>/dev/null 3>&- &
    WEB_PIDS+=($!)
    wait_until 10 test -s "$AGENT_DIR/port"
    WEB_PORT=$(cat "$AGENT_DIR/port")
}

# upgrade PATH PROTOCOL TEXT: sends TEXT after the 101, then the end of file; prints everything received.
upgrade()
{
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" "$@" <<'PY'
import socket, sys
port, token, path, protocol, text = sys.argv[1:]
s = socket.create_connection(("127.0.0.1", int(port)), 60)
s.sendall((f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n"
           f"Authorization: Bearer {token}\r\n\r\n").encode())
out = b""
while b"\r\n\r\n" not in out:
    out += s.recv(4096)
if b" 101 " in out:
    s.sendall(text.encode().decode("unicode_escape").encode("latin1"))
    s.shutdown(socket.SHUT_WR)
    while True:
        piece = s.recv(65536)
        if not piece:
            break
        out += piece
sys.stdout.write(out.decode("latin1"))
PY
}

no_tunnels() { agent_curl /v1/metrics | grep -qx 'bellhop_tunnels 0'; }

@test "proxy passes a target in absolute form on by its path, with its host" {
    run agent_curl '' --request-target "http://front.example:8/v1/proxy/$WEB_PORT/a%2Fb?x" -H 'Host: other'
    [ "$output" = "/a%2Fb?x" ]
    run agent_curl '' --request-target "http://front.example:8/v1/proxy/$WEB_PORT/echo" -o /dev/null -D - -d x
    headers=$(tr -d '\r' <<<"$output" | sed -n 's/^X-Headers: //p')
    [ "$(jq -r '."x-forwarded-host"' <<<"$headers")" = front.example:8 ]
}

@test "proxy passes method, path, query, headers and body both ways, byte for byte" {
    head -c 3000000 /dev/urandom >"$AGENT_DIR/body"
    run agent_curl "/v1/proxy/$WEB_PORT/a%2Fb/c?x=%20y&z"
    [ "$output" = "/a%2Fb/c?x=%20y&z" ]
    run agent_curl "/v1/proxy/$WEB_PORT"
    [ "$output" = / ]
    agent_curl "/v1/proxy/$WEB_PORT/echo" -X PATCH --data-binary "@$AGENT_DIR/body" -o "$AGENT_DIR/back" \
        -D "$AGENT_DIR/head" -H 'X-Mine: 1'
    cmp "$AGENT_DIR/body" "$AGENT_DIR/back"
    tr -d '\r' <"$AGENT_DIR/head" >"$AGENT_DIR/head2"
    grep -q '^X-Method: PATCH$' "$AGENT_DIR/head2"
    [ "$(grep -c '^Set-Cookie: ' "$AGENT_DIR/head2")" = 2 ]
    headers=$(sed -n 's/^X-Headers: //p' "$AGENT_DIR/head2")
    [ "$(jq -r '."x-mine"' <<<"$headers")" = 1 ]
    [ "$(jq -r .authorization <<<"$headers")" = null ]
    [ "$(jq -r .host <<<"$headers")" = "localhost:$WEB_PORT" ]
    [ "$(jq -r '."x-forwarded-prefix"' <<<"$headers")" = "/v1/proxy/$WEB_PORT" ]
    [ "$(jq -r '."content-length"' <<<"$headers")" = 3000000 ]
    agent_curl "/v1/proxy/$WEB_PORT/echo" -H 'Transfer-Encoding: chunked' -X POST \
        --data-binary "@$AGENT_DIR/body" | cmp "$AGENT_DIR/body"
}

@test "a gateway in front of the agent says below which path its clients see the server" {
    prefix_seen() # VALUE
    {
        agent_curl "/v1/proxy/$WEB_PORT/echo" -H "Bellhop-Proxy-Prefix$1" -o /dev/null -D - |
            tr -d '\r' | sed -n 's/^X-Headers: //p' | jq -r '."x-forwarded-prefix", ."bellhop-proxy-prefix"'
    }
    [ "$(prefix_seen ': /boxes/one/8080' | tr '\n' ' ')" = "/boxes/one/8080 null " ]
    [ "$(prefix_seen ';' | tr '\n' ' ')" = "null null " ]
    run agent_curl "/v1/proxy/$WEB_PORT/echo" -H 'Bellhop-Proxy-Prefix: x' -i
    [[ $output == *" 400 "* && $output == *'"field":"Bellhop-Proxy-Prefix"'* ]]
}

@test "proxy leaves the server's own Authorization alone" {
    run curl -s -H "X-Access-Token: $AGENT_TOKEN" -H 'Authorization: Basic eDp5' -D - -o /dev/null \
        "$AGENT_URL/v1/proxy/$WEB_PORT/echo"
    [[ $output == *'"authorization": "Basic eDp5"'* && $output != *"$AGENT_TOKEN"* ]]
}

@test "proxy streams large bodies, and those without a length" {
    [ "$(agent_curl "/v1/proxy/$WEB_PORT/big" | wc -c)" = 8388608 ]
    run agent_curl "/v1/proxy/$WEB_PORT/close" -i
    [[ $output == *"Content-Type: text/x-odd"* && $output == *"until the end" ]]
}

@test "proxy passes the status on, and skips what only announces it" {
    run agent_curl "/v1/proxy/$WEB_PORT/status" -i
    [[ $output == *"HTTP/1.1 418 "* && $output == *"X-Odd: yes"* && $output == *"short and stout" ]]
    run agent_curl "/v1/proxy/$WEB_PORT/status" -I
    [[ $output == *"HTTP/1.1 418 "* && $output == *"Content-Length: 15"* ]]
}

@test "proxy says what is wrong with the server" {
    run agent_curl "/v1/proxy/1/" -i
    [[ $output == *" 502 "* && $output == *'"code":"unavailable"'* && $output == *"nothing listens on port 1 "* ]]
    run agent_curl "/v1/proxy/$WEB_PORT/silent" -i
    [[ $output == *" 502 "* && $output == *"closed without an answer"* ]]
    run -18 agent_curl "/v1/proxy/$WEB_PORT/cut"
    run agent_curl "/v1/proxy/0/" -i
    [[ $output == *" 400 "* && $output == *'"field":"port"'* ]]
    run agent_curl "/v1/proxy/http/" -i
    [[ $output == *" 400 "* ]]
}

@test "proxy reaches servers on the IPv6 loopback" {
    start_web 6
    run agent_curl "/v1/proxy/$WEB_PORT/six"
    [ "$output" = /six ]
}

@test "proxy lets an upgrade through" {
    run upgrade "/v1/proxy/$WEB_PORT/socket" websocket 'ping\x00\xff'
    [[ $output == *" 101 "* && $output == *"Upgrade: websocket"* && $output == *"X-Accept: yes"* ]]
    [[ $output == *"hello:ping"* ]]
}

@test "proxy passes a request with a body on without its wish for an upgrade, so that the body has an end" {
    run agent_curl "/v1/proxy/$WEB_PORT/echo" -D "$AGENT_DIR/headers" -H 'Connection: Upgrade, HTTP2-Settings' \
        -H 'Upgrade: h2c' -H 'HTTP2-Settings: AAMAAABk' --data body
    [ "$output" = body ]
    run ! grep -i '"upgrade"' "$AGENT_DIR/headers"
}

@test "proxy drops what each Connection header names" {
    agent_curl "/v1/proxy/$WEB_PORT/echo" -D "$AGENT_DIR/headers" -H 'Connection: close' -H 'Connection: X-One' \
        -H 'X-One: 1' -H 'X-Two: 2'
    run ! grep -i '"x-one"' "$AGENT_DIR/headers"
    grep -i '"x-two": "2"' "$AGENT_DIR/headers"
}

# first_line BYTES: the first line of the agent's answer.
first_line()
{
    exec 9<>"/dev/tcp/127.0.0.1/$AGENT_PORT"
    printf '%b' "$1" >&9
    head -n 1 <&9
    exec 9>&-
}

@test "a request with control characters in its head is refused, as other servers may take them for line ends" {
    [[ $(first_line 'GET /v1/health HTTP/1.1\r\nHost: x\r\nX: a\tb\r\n\r\n') == "HTTP/1.1 "[!4]* ]]
    [[ $(first_line 'GET /v1/health HTTP/1.1\r\nHost: x\r\nX: a\rY: b\r\n\r\n') == *" 400 "* ]]
    [[ $(first_line 'GET /v1/health?a\tb HTTP/1.1\r\nHost: x\r\n\r\n') == *" 400 "* ]]
    [[ $(first_line 'GE\001T /v1/health HTTP/1.1\r\nHost: x\r\n\r\n') == *" 400 "* ]]
}

@test "tunnel carries bytes both ways, with half-close" {
    run upgrade "/v1/tunnel/$WEB_PORT" tcp 'GET /by-tunnel HTTP/1.1\r\nHost: x\r\n\r\n'
    [[ $output == *" 101 "* && $output == *"/by-tunnel" ]]
    run upgrade "/v1/tunnel/1" tcp x
    [[ $output == *" 502 "* && $output == *"nothing listens"* ]]
    run agent_curl "/v1/tunnel/$WEB_PORT" -i
    [[ $output == *" 426 "* ]]
    run agent_curl /v1/metrics
    [ "$(sed -n 's/^bellhop_relayed_received_bytes_total //p' <<<"$output")" -gt 0 ]
    [ "$(sed -n 's/^bellhop_relayed_sent_bytes_total //p' <<<"$output")" -gt 0 ]
}

@test "tunnel moves 20 MB through an echo unharmed" {
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" "$WEB_PORT" <<'PY'
import hashlib, os, socket, sys, threading
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
s.sendall((f"GET /v1/tunnel/{sys.argv[3]} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
           f"Authorization: Bearer {sys.argv[2]}\r\n\r\n").encode())
def until(mark):
    out = b""
    while not out.endswith(mark):
        out += s.recv(1)
    return out
assert b" 101 " in until(b"\r\n\r\n")
s.sendall(b"GET / HTTP/1.1\r\nUpgrade: echo\r\n\r\n")
until(b"hello:")
data = os.urandom(20 * 1024 * 1024)
def send():
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
back = hashlib.sha256()
n = 0
while True:
    piece = s.recv(65536)
    if not piece:
        break
    back.update(piece)
    n += len(piece)
assert n == len(data), n
assert back.digest() == hashlib.sha256(data).digest()
PY
}

@test "tunnels that end leave no descriptors" {
    before=$(n_fds)
    for _ in 1 2 3 4 5; do
        upgrade "/v1/tunnel/$WEB_PORT" tcp 'GET /x HTTP/1.1\r\n\r\n' >/dev/null
        upgrade "/v1/proxy/$WEB_PORT/s" echo 'x' >/dev/null
    done
    fds_are_back() { [ "$(n_fds)" -le $((before + 2)) ]; }
    wait_until 10 fds_are_back || fail "$(n_fds), $before before"
    wait_until 10 no_tunnels
}

@test "proxy carries WebSocket, events and uploads as they come" {
    npm_package ws 8.18.3
    fds=$(n_fds)
    run run_node "$BATS_TEST_DIRNAME/../lib/proxy_client.mjs" "$AGENT_URL" "$AGENT_TOKEN"
    echo "$output"
    [ "$status" = 0 ]
    [ "$(grep -c '^ok ' <<<"$output")" = 11 ]
    fds_are_back() { [ "$(n_fds)" -le $((fds + 2)) ]; }
    wait_until 10 fds_are_back || fail "$(n_fds), $fds before"
    wait_until 10 no_tunnels
}

@test "proxy and tunnel refuse the agent's own port, and say when to come again" {
    run agent_curl "/v1/proxy/$AGENT_PORT/v1/health" -i
    [[ $output == *" 400 "* && $output == *"is the agent's own"* && $output == *'"field":"port"'* ]]
    run agent_curl "/v1/tunnel/$AGENT_PORT" -i -H 'Connection: Upgrade' -H 'Upgrade: tcp'
    [[ $output == *" 400 "* && $output == *"is the agent's own"* ]]
    run agent_curl /v1/proxy/1/ -i
    [[ $output == *" 502 "* && $output == *"Retry-After: 1"* ]]
}
