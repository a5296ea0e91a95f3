#!/usr/bin/env bats
# Ports of boxes by host name (PORT-BOX.localhost) for programs that others wrote, and the corners of HTTP/1.1.
# needs: network

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon
load ../lib/node
load ../lib/venv

setup()
{
    box_setup
    mkdir "$BOX_TMP/project"
    daemon_start --listen 127.0.0.1:0
    ADDRESS=$(jq -r '.tcp[0]' <<<"$DAEMON_READY")
    WEB_PID=
    bellhop up --provider process --agent none --name one "$BOX_TMP/project" >/dev/null 2>&1
    TOKEN=$(ask POST /v1/tokens --json '{"scope": "use"}' | jq -r .token)
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

# by_name PATH [CURL OPTION...]
by_name()
{
    curl -sS --max-time 300 -H "Host: $WEB_PORT-one.localhost" -H "X-Access-Token: $TOKEN" "${@:2}" "http://$ADDRESS$1"
}

@test "npm's ws and node's fetch work by host name: frames, events, uploads, close codes" {
    npm_package ws 8.18.3
    run run_node "$BATS_TEST_DIRNAME/../lib/proxy_client.mjs" "http://$ADDRESS" "$TOKEN" one.localhost
    echo "$output"
    [ "$status" = 0 ]
    [ "$(grep -c '^ok ' <<<"$output")" = 11 ]
}

@test "Python's websockets work by host name: fragments, a megabyte, pings both ways, close codes" {
    python=$(venv_python websockets 13.1) || skip "websockets can't be installed"
    [ "$("$python" "$BATS_TEST_DIRNAME/../lib/websockets_client.py" "${ADDRESS##*:}" "$TOKEN" one.localhost)" = ok ]
}

# MB: 1024 in tests/long/gateway-gigabyte.sh.
@test "an upload and a download by host name have the digests of what was sent" {
    start_web
    head -c "${MB:-64}M" /dev/urandom >"$BOX_TMP/large"
    sha=$(sha256sum <"$BOX_TMP/large" | cut -d ' ' -f 1)
    [ "$(by_name /sha -T "$BOX_TMP/large")" = "$sha" ]
    rm "$BOX_TMP/large"
    bytes=$((${MB:-64} * 1048576))
    sha=$(curl -sS --max-time 300 "http://127.0.0.1:$WEB_PORT/bytes/$bytes" | sha256sum)
    [ "$(by_name "/bytes/$bytes" | sha256sum)" = "$sha" ]
    [ "$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$DAEMON_PID/status")" -lt 40000 ]
}

@test "an event arrives before the next one is there" {
    start_web
    by_name /sse -N >"$BOX_TMP/sse" &
    sse=$!
    wait_for 20 grep -q 'data: one' "$BOX_TMP/sse"
    run ! grep -q 'data: two' "$BOX_TMP/sse"
    by_name /go
    wait "$sse"
    grep -q 'data: two' "$BOX_TMP/sse"
}

@test "HTTP/1.0, trailers, 100-continue, HEAD, 204 and 304 pass, and the connection goes on where it may" {
    start_web
    python3 - "$ADDRESS" "$WEB_PORT-one.localhost" "$TOKEN" <<'PY'
import hashlib, socket, sys
address, host, token = sys.argv[1:]
name, port = address.rsplit(":", 1)

class Client:
    def __init__(self):
        self.sock = socket.create_connection((name, int(port)), 30)
        self.file = self.sock.makefile("rb")

    def send(self, line, headers=(), body=b"", version="1.1"):
        head = [f"{line} HTTP/{version}", f"Host: {host}", f"X-Access-Token: {token}", *headers]
        self.sock.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    def head(self):
        status = int(self.file.readline().split()[1])
        headers = {}
        while line := self.file.readline().strip().decode():
            key, value = line.split(":", 1)
            headers[key.lower()] = value.strip()
        return status, headers

    def chunks(self):
        body = b""
        while size := int(self.file.readline(), 16):
            body += self.file.read(size)
            self.file.readline()
        while self.file.readline().strip():
            pass
        return body

    def answers(self):  # the connection goes on, and nothing of the last answer is in the way
        self.send("GET /next")
        status, headers = self.head()
        assert status == 200 and self.file.read(int(headers["content-length"])) == b"/next", (status, headers)

c = Client()
for path, status, kept in [("/204", 204, "x-kept"), ("/304", 304, "etag")]:
    c.send(f"GET {path}", ['If-None-Match: "a"'])
    got, headers = c.head()
    assert got == status and kept in headers, (got, headers)
    c.answers()
c.send("HEAD /head")
got, headers = c.head()
assert got == 200 and headers["content-length"] == "5", (got, headers)
c.answers()
c.send("POST /trailer", ["Transfer-Encoding: chunked", "Trailer: X-Mine"], b"5\r\nhello\r\n0\r\nX-Mine: 1\r\n\r\n")
got, headers = c.head()
assert got == 200 and c.chunks() == b"hello", headers
c.answers()
body = b"z" * 300000
c.send("PUT /sha", ["Expect: 100-continue", f"Content-Length: {len(body)}"])
assert c.head()[0] == 100
c.sock.sendall(body)
got, headers = c.head()
assert got == 200 and c.file.read(int(headers["content-length"])).decode() == hashlib.sha256(body).hexdigest()
c.answers()
# Without a token the refusal comes in place of "go on".
token = ""
c = Client()
c.send("PUT /sha", ["Expect: 100-continue", "Content-Length: 5"])
assert c.head()[0] == 401
token = sys.argv[3]
# A client of HTTP/1.0 gets no chunks, and the end by the end of the connection.
c = Client()
c.send("GET /trailer", version="1.0")
got, headers = c.head()
assert got == 200 and "transfer-encoding" not in headers, headers
assert c.file.read() == b""
c = Client()
c.send("GET /big", version="1.0")
got, headers = c.head()
assert got == 200 and "transfer-encoding" not in headers, headers
assert c.file.read() == b"b" * 8388608
PY
}
