#!/usr/bin/env bats
# The daemon's gateway: files, methods and ports of boxes, passed through to their agents. With the provider `process`.
# early

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon
load ../lib/node

setup()
{
    box_setup
    mkdir "$BOX_TMP/project"
    daemon_start
    WEB_PID=
    bellhop up --provider process --agent none --name one "$BOX_TMP/project" >/dev/null 2>&1
    WORK=$(bellhop exec one -- pwd)
}

teardown()
{
    [ -z "$WEB_PID" ] || { kill "$WEB_PID" && wait "$WEB_PID"; } 2>/dev/null || true
    [ -z "${TRACER:-}" ] || kill "$TRACER" 2>/dev/null || true
    daemon_stop
    box_teardown
}

# Sets WEB_PORT. The provider `process` has no network of its own: a server here is one in the box.
start_web() # [SERVER ARGUMENT...]
{
    python3 "$BATS_TEST_DIRNAME/../lib/${1:-web_server.py}" "${@:2}" >"$BOX_TMP/port" 2>/dev/null 3>&- &
    WEB_PID=$!
    wait_for 10 test -s "$BOX_TMP/port"
    WEB_PORT=$(cat "$BOX_TMP/port")
}

# seen NAME: the header that the server in the box got, of an answer of /echo.
seen()
{
    tr -d '\r' <"$BOX_TMP/headers" | sed -n 's/^X-Headers: //p' | jq -r ".\"$1\""
}

@test "files pass byte for byte: binary, NUL, empty, names with dots, spaces and UTF-8" {
    head -c 3000000 /dev/urandom >"$BOX_TMP/binary"
    printf 'a\0b' >"$BOX_TMP/nul"
    : >"$BOX_TMP/empty"
    for name in binary nul empty; do
        for path in "$name" "%2e%2ehidden-$name" "with%20space/$name" "gr%C3%BC%C3%9Fe/%F0%9F%90%9A-$name"; do
            ask PUT "/v1/boxes/one/files/$path" --data-binary "@$BOX_TMP/$name" >/dev/null
            [ "$ASK_STATUS" = 201 ]
            ask GET "/v1/boxes/one/files/$path" >/dev/null
            [ "$ASK_STATUS" = 200 ]
            cmp "$BOX_TMP/$name" "$BOX_TMP/answer"
        done
    done
    cmp "$BOX_TMP/nul" "$WORK/with space/nul"
    cmp "$BOX_TMP/nul" "$WORK/grüße/🐚-nul"
    cmp "$BOX_TMP/nul" "$WORK/..hidden-nul"
    # ".." as a whole name is a parent, as the agent has it, and never another box's file or a route of the daemon.
    ask GET /v1/boxes/one/files/with%20space%2f%2e%2e%2fnul
    cmp "$BOX_TMP/nul" "$BOX_TMP/answer"
    # Ranges and conditions are the agent's.
    ask GET /v1/boxes/one/files/binary -H 'Range: bytes=100-199'
    [ "$ASK_STATUS" = 206 ]
    cmp <(tail -c +101 "$BOX_TMP/binary" | head -c 100) "$BOX_TMP/answer"
    ask PUT /v1/boxes/one/files/nul -H 'If-Match: "other"' --data-binary x
    [ "$ASK_STATUS" = 412 ]
    ask DELETE /v1/boxes/one/files/nul
    [ ! -e "$WORK/nul" ]
    ask GET /v1/boxes/one/files/nul >"$BOX_TMP/e"
    [ "$ASK_STATUS" = 404 ]
    jq -e '.code == "not_found"' "$BOX_TMP/e"
}

# MB: 1024 in tests/long/gateway-gigabyte.sh.
@test "a large file passes both ways, and the daemon stays small" {
    head -c "${MB:-64}M" /dev/urandom >"$BOX_TMP/large"
    ask PUT /v1/boxes/one/files/large -T "$BOX_TMP/large"
    [ "$ASK_STATUS" = 201 ]
    cmp "$BOX_TMP/large" "$WORK/large"
    rm "$BOX_TMP/large"
    curl -sS --unix-socket "$DAEMON_SOCKET" http://bellhop/v1/boxes/one/files/large | cmp - "$WORK/large"
    [ "$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$DAEMON_PID/status")" -lt 40000 ]
}

@test "a large reply gets a larger buffer of a unix socket; a stream over TCP has few unsent bytes in the kernel" {
    local options='setsockopt\([0-9]+, '

    head -c 2M /dev/urandom >"$WORK/large"
    daemon_stop
    daemon_start --listen 127.0.0.1:0
    strace -f -p "$DAEMON_PID" -e trace=setsockopt -o "$BOX_TMP/calls" 2>"$BOX_TMP/tracer" 3>&- &
    TRACER=$!
    wait_for 20 grep -q attached "$BOX_TMP/tracer"
    ask GET /v1/boxes/one/files/large -o /dev/null
    ask GET /v1/info >/dev/null
    [ "$(grep -cE "${options}SOL_SOCKET, SO_SNDBUF, \[524288\]" "$BOX_TMP/calls")" = 1 ]
    token=$(bellhop token create -q --scope use)
    url=http://$(jq -r '.tcp[0]' <<<"$DAEMON_READY")
    knows() { curl -sS -f -o /dev/null -H "X-Access-Token: $token" "$url/v1/info" 2>/dev/null; }
    wait_for 10 knows
    curl -sS -H "X-Access-Token: $token" -o "$BOX_TMP/got" "$url/v1/boxes/one/files/large"
    (curl -sS -N --max-time 1 -H "X-Access-Token: $token" "$url/v1/events" 2>/dev/null || true) | grep -q '^event: box'
    kill "$TRACER"
    wait "$TRACER" || true
    TRACER=
    # TCP's sending buffer grows by itself, unless somebody has set it.
    [ "$(grep -cE "${options}SOL_SOCKET, SO_SNDBUF" "$BOX_TMP/calls")" = 1 ]
    grep -qE "${options}SOL_TCP, TCP_NOTSENT_LOWAT, \[131072\]" "$BOX_TMP/calls"
}

@test "a directory is listed with list=true, and Zuko's routes lead to the same" {
    printf hello >"$WORK/file"
    mkdir "$WORK/dir"
    for base in /v1/boxes/one/files /sandboxes/one/fs; do
        ask GET "$base/?list=true" | jq -e '[.entries[].path] | contains(["dir", "file"])'
        ask GET "$base/dir?list=true" | jq -e '.entries == []'
        [ "$(ask GET "$base/file")" = hello ]
        ask PUT "$base/dir/new" --data-binary new
        [ "$(cat "$WORK/dir/new")" = new ]
        rm "$WORK/dir/new"
    done
    ask GET '/v1/boxes/one/files/missing?list=true' | jq -e '.code == "not_found"'
    bellhop pause one
    ask POST /sandboxes/one/resume | jq -e '.state == "running"'
}

@test "methods pass, also those that stream, and archives" {
    ask POST /v1/boxes/one/rpc/Exec/Run -H 'Content-Type: application/json' \
        --data '{"argv":["sh","-c","echo out; exit 3"]}' | jq -e '.exit.code == 3 and .stdout.text == "out\n"'
    ask POST /v1/boxes/one/rpc/Exec/Start -H 'Content-Type: application/json' \
        --data '{"argv":["sh","-c","echo a; echo b >&2"]}' >"$BOX_TMP/stream"
    jq -se 'map(keys[0]) | first == "start" and last == "end"' "$BOX_TMP/stream"
    touch "$WORK/x.c"
    ask POST /v1/boxes/one/rpc/Search/Glob -H 'Content-Type: application/json' --data '{"pattern":"*.c"}' |
        jq -se '.[0].file.path == "x.c"'
    ask POST /v1/boxes/one/rpc/Exec/Nothing --data '{}'
    [ "$ASK_STATUS" = 404 ] || [ "$ASK_STATUS" = 501 ]
    ask GET '/v1/boxes/one/archive?path=.' >/dev/null
    tar tf "$BOX_TMP/answer" | grep -q x.c
    tar cf "$BOX_TMP/in.tar" -C "$BOX_TMP" stream
    ask PUT '/v1/boxes/one/archive?path=in' -T "$BOX_TMP/in.tar"
    cmp "$BOX_TMP/stream" "$WORK/in/stream"
}

@test "a port answers by path, by host name and by headers, which say where the client sees it" {
    start_web
    [ "$(ask GET "/v1/boxes/one/proxy/$WEB_PORT/a%2Fb?x=%20y")" = '/a%2Fb?x=%20y' ]
    [ "$(ask GET "/v1/boxes/one/proxy/$WEB_PORT")" = / ]
    [ "$(ask GET /c?d -H "Host: $WEB_PORT-one.localhost:7000")" = '/c?d' ]
    [ "$(ask GET /v1/info -H "Host: $WEB_PORT-one.localhost")" = /v1/info ]
    [ "$(ask GET /c?d -H 'Bellhop-Box: one' -H "Bellhop-Port: $WEB_PORT")" = '/c?d' ]
    ask POST "/v1/boxes/one/proxy/$WEB_PORT/echo" --data body -H 'Authorization: Basic eDp5' \
        -H 'X-Access-Token: mine' -H 'Bellhop-Proxy-Prefix: /no' >/dev/null
    [ "$(cat "$BOX_TMP/answer")" = body ]
    [ "$(seen x-forwarded-prefix)" = "/v1/boxes/one/proxy/$WEB_PORT" ]
    [ "$(seen authorization)" = 'Basic eDp5' ]
    [ "$(seen x-access-token)" = null ]
    grep -qi '^content-security-policy: sandbox ' "$BOX_TMP/headers"
    run ! grep -q "$(cat "$BELLHOP_STATE_DIR"/boxes/*/token)" "$BOX_TMP/headers"
    ask POST /echo -H "Host: $WEB_PORT-one.localhost:7000" --data-binary "@$BOX_TMP/answer" >/dev/null
    [ "$(seen x-forwarded-prefix)" = null ]
    [ "$(seen x-forwarded-host)" = "$WEB_PORT-one.localhost:7000" ]
    run ! grep -qi '^content-security-policy: sandbox' "$BOX_TMP/headers"
    # The domain that was given, and no other.
    ask GET /c -H "Host: $WEB_PORT-one.boxes.example" >/dev/null
    [ "$ASK_STATUS" = 404 ]
    daemon_stop
    daemon_start --domain boxes.example
    [ "$(ask GET /c -H "Host: $WEB_PORT-one.boxes.example:80")" = /c ]
}

@test "a browser reaches a port at its host name, also in absolute form, over TCP" {
    start_web
    daemon_stop
    daemon_start --listen 127.0.0.1:0
    address=$(jq -r '.tcp[0]' <<<"$DAEMON_READY")
    bellhop url one --port "$WEB_PORT" --public >/dev/null
    opened() { [ "$(curl -sS --max-time 20 -H "Host: $WEB_PORT-one.localhost:1" "http://$address/d")" = /d ]; }
    wait_for 10 opened
    for host in "$WEB_PORT-one.localhost" "$WEB_PORT-one.localhost.:7070"; do
        [ "$(curl -sS --max-time 20 -H "Host: $host" -H 'Sec-Fetch-Site: none' "http://$address/e")" = /e ]
        [ "$(curl -sS --max-time 20 -H "Host: $host" -H "Origin: http://$host" --data x "http://$address/f")" = /f ]
    done
}

@test "WebSocket, events, uploads and downloads of any size pass as they come" {
    start_web
    for way in "/v1/boxes/one/proxy/$WEB_PORT/socket bellhop" "/socket $WEB_PORT-one.localhost"; do
        # shellcheck disable=SC2086 # two words
        run python3 - "$DAEMON_SOCKET" $way <<'PY'
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(f"GET {sys.argv[2]} HTTP/1.1\r\nHost: {sys.argv[3]}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode())
out = b""
while not out.endswith(b"hello:"):
    out += s.recv(65536)
s.sendall(b"ping\0\xff" * 20000)
s.shutdown(socket.SHUT_WR)
while piece := s.recv(65536):
    out += piece
head, body = out.split(b"\r\n\r\n", 1)
print(head.split(b"\r\n")[0].decode(), body == b"hello:" + b"ping\0\xff" * 20000)
PY
        [[ $output == *" 101 "*True ]]
    done
    [ "$(ask GET "/v1/boxes/one/proxy/$WEB_PORT/big" | wc -c)" = 8388608 ]
    head -c 20000000 /dev/urandom >"$BOX_TMP/body"
    ask POST "/v1/boxes/one/proxy/$WEB_PORT/echo" -T "$BOX_TMP/body" >/dev/null
    cmp "$BOX_TMP/body" "$BOX_TMP/answer"
    ask POST "/v1/boxes/one/proxy/$WEB_PORT/echo" -H 'Transfer-Encoding: chunked' -T "$BOX_TMP/body" >/dev/null
    cmp "$BOX_TMP/body" "$BOX_TMP/answer"
    [ "$(ask GET "/v1/boxes/one/proxy/$WEB_PORT/close")" = 'until the end' ]
}

@test "a paused box is woken once for all requests, a stopped one is started, and a destroyed one is gone" {
    start_web
    bellhop pause one
    for i in $(seq 10); do
        curl -sS --max-time 90 --unix-socket "$DAEMON_SOCKET" -o "$BOX_TMP/out.$i" \
            "http://bellhop/v1/boxes/one/proxy/$WEB_PORT/$i" 3>&- &
        PIDS[i]=$!
    done
    wait "${PIDS[@]}"
    for i in $(seq 10); do [ "$(cat "$BOX_TMP/out.$i")" = "/$i" ]; done
    [ "$(bellhop events one --json | jq '[.events[] | select(.after == "resuming")] | length')" = 1 ]
    # At once after a pause: no request may trust what was known before.
    python3 - "$DAEMON_SOCKET" "/v1/boxes/one/proxy/$WEB_PORT/again" "$DAEMON_PID" "$BELLHOP" <<'PY'
import http.client, os, signal, socket, subprocess, sys
c = http.client.HTTPConnection("bellhop")
c.sock = socket.socket(socket.AF_UNIX)
c.sock.settimeout(60)
c.sock.connect(sys.argv[1])
def ask(verb, path):
    c.request(verb, path)
    reply = c.getresponse()
    return reply.status, reply.read()
for _ in range(10):
    assert ask("GET", sys.argv[2]) == (200, b"/again")
    paused = ask("POST", "/v1/boxes/one/pause")
    assert paused[0] == 200, paused
    assert ask("GET", sys.argv[2]) == (200, b"/again")
# A command pauses it, and the next request is there before the daemon has read that event.
for _ in range(3):
    for _ in range(20):  # the agent is known, also after the events of its last resume
        assert ask("GET", sys.argv[2]) == (200, b"/again")
    os.kill(int(sys.argv[3]), signal.SIGSTOP)
    try:
        subprocess.run([sys.argv[4], "pause", "one"], check=True, timeout=60, env={**os.environ, "BELLHOP_DAEMON": "none"})
        c.request("GET", sys.argv[2])
    finally:
        os.kill(int(sys.argv[3]), signal.SIGCONT)
    assert c.getresponse().read() == b"/again"
PY
    bellhop stop one
    ask GET '/v1/boxes/one/files/?list=true' | jq -e 'has("entries")'
    id=$(bellhop status one --json | jq -r .id)
    [ "$(ask GET "/v1/boxes/$id/proxy/$WEB_PORT/by-id")" = /by-id ]
    bellhop rm one
    ask GET "/v1/boxes/$id/proxy/$WEB_PORT/" >"$BOX_TMP/e"
    jq -e --arg id "$id" '.code == "not_found" and .detail.gone == $id' "$BOX_TMP/e"
    [ "$ASK_STATUS" = 404 ]
    ask GET /v1/boxes/never/files/x >/dev/null
    [ "$ASK_STATUS" = 404 ]
}

@test "by TCP a token leads to a port, and no program in a box gets it" {
    start_web
    daemon_stop
    daemon_start --listen 127.0.0.1:0
    url=http://$(jq -r '.tcp[0]' <<<"$DAEMON_READY")/v1/boxes/one/proxy/$WEB_PORT
    token=$(bellhop token create -q --scope use)
    is_known() { curl -sSf -o /dev/null -H "Authorization: Bearer $token" "$url/x"; }
    wait_for 10 is_known
    [ "$(curl -sS -o /dev/null -w '%{http_code}' "$url/x")" = 401 ]
    [ "$(curl -sS -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer other' "$url/x")" = 401 ]
    curl -sSf -o /dev/null -D "$BOX_TMP/headers" -H "Authorization: Bearer $token" -H 'X-Access-Token: x' "$url/echo"
    [ "$(seen authorization)" = null ]
    run ! grep -q "$token" "$BOX_TMP/headers"
    curl -sSf -o /dev/null -D "$BOX_TMP/headers" -H "X-Access-Token: $token" -H 'Authorization: Basic eDp5' "$url/echo"
    [ "$(seen authorization)" = 'Basic eDp5' ]
    run ! grep -q "$token" "$BOX_TMP/headers"
    curl -sSf -o /dev/null -D "$BOX_TMP/headers" -H "Sec-WebSocket-Protocol: chat, bellhop.token.$token" "$url/echo"
    run ! grep -q "$token" "$BOX_TMP/headers"
    curl -sSf -o /dev/null -D "$BOX_TMP/headers" -H "X-Access-Token: $token" -H 'Sec-WebSocket-Protocol: chat' "$url/echo"
    [ "$(seen sec-websocket-protocol)" = chat ]
}

@test "a file by ?path= is the same at the daemon, its record names the file, and a path that a proxy may have made relative is an error" {
    daemon_stop
    daemon_start --listen 127.0.0.1:0
    url=http://$(jq -r '.tcp[0]' <<<"$DAEMON_READY")/v1/boxes/one/files
    token=$(bellhop token create -q --scope use)
    by_tcp() { curl -sSf -H "X-Access-Token: $token" "$@"; }
    is_known() { by_tcp -X PUT -d one "$url?path=$WORK/a%20b" -o /dev/null; }
    wait_for 10 is_known
    [ "$(cat "$WORK/a b")" = one ]
    [ "$(by_tcp "$url?path=a+b")" = one ]
    # The daemon is no proxy that rewrites paths, and does not say that it were one.
    [ "$(by_tcp "$url/a%20b")" = one ]
    for header in 'X-Forwarded-For: 10.0.0.1' 'Via: 1.1 front'; do
        [ "$(curl -sS -H "X-Access-Token: $token" -H "$header" "$url/a%20b" | jq -r .field)" = path ]
        [ "$(by_tcp -H "$header" "$url?path=a%20b")" = one ]
    done
    [ "$(curl -sS -o /dev/null -w '%{http_code}' "$url?path=a%20b")" = 401 ]
    [ "$(by_tcp -X DELETE "$url?path=$WORK/a%20b" -o /dev/null -w '%{http_code}')" = 204 ]
    bellhop audit ls --json | jq -e --arg target "/v1/boxes/one/files?path=$WORK/a b" \
        '[.calls[] | select(.target == $target) | .verb] | unique == ["DELETE", "PUT"]'
}

@test "a box that is known is not looked up again, and its hold ends after the last request" {
    start_web
    [ "$(ask GET "/v1/boxes/one/proxy/$WEB_PORT/1")" = /1 ]
    ask GET /v1/boxes/one/files/x >/dev/null # the news of the first one have been read
    read -r monitor _ <"$(echo "$BELLHOP_STATE_DIR"/boxes/*/monitor.lock)"
    holds() { find "/proc/$DAEMON_PID/fd" -lname 'socket:*' | wc -l; }
    held=$(holds)
    kill -STOP "$monitor"
    for i in 2 3 4; do
        [ "$(ask GET "/v1/boxes/one/proxy/$WEB_PORT/$i" --max-time 10)" = "/$i" ] || { kill -CONT "$monitor"; false; }
    done
    kill -CONT "$monitor"
    is_let_go() { [ "$(holds)" -lt "$held" ]; }
    wait_for 20 is_let_go
}

@test "faults of a server in the box are typed errors, and the next request is served" {
    start_web
    ask GET /v1/boxes/one/proxy/1/ >"$BOX_TMP/e"
    jq -e '.code == "unavailable" and (.message | contains("nothing listens on port 1"))' "$BOX_TMP/e"
    [ "$ASK_STATUS" = 502 ]
    ask GET "/v1/boxes/one/proxy/$WEB_PORT/silent" >/dev/null
    [ "$ASK_STATUS" = 502 ]
    run -18 curl -sS --unix-socket "$DAEMON_SOCKET" -o /dev/null "http://x/v1/boxes/one/proxy/$WEB_PORT/cut"
    for bad in 0 http 99999; do
        ask GET "/v1/boxes/one/proxy/$bad/" | jq -e '.code == "invalid_argument" and .field == "port"'
    done
    ask GET / -H 'Bellhop-Box: one' -H 'Bellhop-Port: x' | jq -e '.field == "Bellhop-Port"'
    [ "$(ask GET "/v1/boxes/one/proxy/$WEB_PORT/next")" = /next ]
}

@test "an agent that answers with nonsense, endless headers or no end does no harm" {
    start_web
    socket=$(bellhop status one --json | jq -r .guest.socket)
    DIR=$(dirname "$(dirname "$socket")")
    mv "$socket" "$socket.real"
    for fault in nonsense headers endless early interim; do
        python3 - "$socket" "$fault" >"$BOX_TMP/fake" 3>&- <<'PY' &
import socket, sys
path, fault = sys.argv[1:]
s = socket.socket(socket.AF_UNIX)
s.bind(path)
s.listen(16)
print("ready", flush=True)
while True:
    c, _ = s.accept()
    try:
        c.settimeout(20)
        if not c.recv(65536):
            continue
        if fault == "nonsense":
            c.sendall(b"\0\xff nonsense\r\n\r\n")
        elif fault == "headers":
            c.sendall(b"HTTP/1.1 200 OK\r\n")
            for i in range(100000):
                c.sendall(b"X-%d: y\r\n" % i)
        elif fault == "interim":
            while True:
                c.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10)
        elif fault == "endless":
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + b"z" * 1000)
            while True:
                c.sendall(b"z" * 65536)
        else:
            c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
    except OSError:
        pass
    c.close()
PY
        fake=$!
        wait_for 10 grep -q ready "$BOX_TMP/fake"
        cp "$DIR/run.json" "$BOX_TMP/run.json.before"
        trust_listener "$fake"
        answer=$(curl -sS --max-time 30 --unix-socket "$DAEMON_SOCKET" \
            "http://x/v1/boxes/one/proxy/$WEB_PORT/x" 2>&1 || echo "curl: $?")
        case $fault in
        nonsense | headers | early | interim) jq -e '.code == "unavailable"' <<<"$answer" ;;
        endless) [ "$answer" = zzzzzzzzzz ] ;;
        esac
        kill "$fake"
        wait "$fake" || true
        cat "$BOX_TMP/run.json.before" >"$DIR/run.json"
        rm "$socket"
    done
    mv "$socket.real" "$socket"
    [ "$(ask GET "/v1/boxes/one/proxy/$WEB_PORT/next")" = /next ]
}

@test "another process in the agent's place gets neither the token nor a request" {
    start_web
    [ "$(ask GET "/v1/boxes/one/proxy/$WEB_PORT/x")" = /x ]
    socket=$(bellhop status one --json | jq -r .guest.socket)
    mv "$socket" "$socket.real"
    python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(16)
while True:
    c = s.accept()[0]
    print(c.recv(100), flush=True)' "$socket" >"$BOX_TMP/thief" 3>&- &
    thief=$!
    wait_for 10 test -S "$socket"
    ask GET "/v1/boxes/one/proxy/$WEB_PORT/x" --max-time 60 >/dev/null
    [ "$ASK_STATUS" != 200 ]
    kill "$thief"
    wait "$thief" || true
    run ! grep -q GET "$BOX_TMP/thief"
    mv "$socket.real" "$socket"
    [ "$(ask GET "/v1/boxes/one/proxy/$WEB_PORT/x")" = /x ]
}

@test "clients that stop reading, leave or reset cost nothing that stays" {
    start_web
    head -c 50M /dev/zero >"$WORK/zeros"
    [ "$(ask GET "/v1/boxes/one/proxy/$WEB_PORT/x")" = /x ]
    fds() { find "/proc/$DAEMON_PID/fd" -mindepth 1 | wc -l; }
    before=$(fds)
    python3 - "$DAEMON_SOCKET" "$WEB_PORT" <<'PY'
import socket, struct, sys
path, port = sys.argv[1:]
clients = []
for i in range(60):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    target = ["/v1/boxes/one/files/zeros", f"/v1/boxes/one/proxy/{port}/big", f"/v1/boxes/one/proxy/{port}/echo"][i % 3]
    if i % 3 == 2: # half of a body
        s.sendall(f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n".encode() + b"x" * 500)
    else: # nobody reads the answer
        s.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        s.recv(10)
    clients.append(s)
other = socket.socket(socket.AF_UNIX) # one that is not delayed by them
other.settimeout(30)
other.connect(path)
other.sendall(f"GET /v1/boxes/one/proxy/{port}/other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
out = b""
while piece := other.recv(65536):
    out += piece
assert out.endswith(b"/other"), out
for s in clients:
    s.close()
PY
    no_more() { [ "$(fds)" -le "$((before + 1))" ]; }
    wait_for 30 no_more
    [ "$(ask GET "/v1/boxes/one/proxy/$WEB_PORT/next")" = /next ]
}

@test "the examples of the gateway's page work as they stand" {
    start_web
    bellhop up --provider process --agent none --name demo "$BOX_TMP/project" >/dev/null 2>&1
    sed -n '/^## The gateway/,/^## Who/p' "$BATS_TEST_DIRNAME/../../docs/daemon.md" |
        sed -n '/^```sh/,/^```/p' | grep -v '^```' | sed "s/8080/$WEB_PORT/" >"$BOX_TMP/examples"
    [ "$(grep -c '^curl' "$BOX_TMP/examples")" = 8 ]
    cd "$BOX_TMP"
    echo words >notes.txt
    SOCKET=$DAEMON_SOCKET bash -euo pipefail -c 'curl() { command curl -fsS "$@"; }; . ./examples' >"$BOX_TMP/printed"
    grep -q 'words$' "$BOX_TMP/printed"
    grep -q '"path":"notes.txt"' "$BOX_TMP/printed"
    grep -q '^\(\./\)\?notes.txt$\|}\(\./\)\?notes.txt$' "$BOX_TMP/printed"
    grep -q Linux "$BOX_TMP/printed"
    [ "$(grep -o '/index.html' "$BOX_TMP/printed" | wc -l)" = 3 ]
}

@test "below a path a box gets and sets no cookies, and nothing that holds for the daemon's whole origin" {
    start_web
    ask GET "/v1/boxes/one/proxy/$WEB_PORT/echo" -H 'Cookie: other=secret' >/dev/null
    [ "$(seen cookie)" = null ]
    run ! grep -qi '^set-cookie:' "$BOX_TMP/headers"
    ask GET "/v1/boxes/one/proxy/$WEB_PORT/origin" >/dev/null
    run ! grep -qiE '^(clear-site-data|strict-transport-security):' "$BOX_TMP/headers"
    grep -qi '^x-kept: yes' "$BOX_TMP/headers"
    # A host name is the box's own.
    ask GET /echo -H "Host: $WEB_PORT-one.localhost" -H 'Cookie: own=1' >/dev/null
    [ "$(seen cookie)" = own=1 ]
    grep -qi '^set-cookie:' "$BOX_TMP/headers"
}

@test "clients that leave as soon as they have asked for a port do no harm" {
    start_web
    python3 - "$DAEMON_SOCKET" "/v1/boxes/one/proxy/$WEB_PORT/echo" <<'PY'
import socket, sys
for n in range(3000):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.sendall(f"POST {sys.argv[2]} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"[: -1 - n % 5].encode())
    s.close()
PY
    [ "$(ask POST "/v1/boxes/one/proxy/$WEB_PORT/echo" --data body)" = body ]
}
