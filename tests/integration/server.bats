#!/usr/bin/env bats
# early
bats_require_minimum_version 1.5.0
# The HTTP server: who gets in, what is refused and how, encodings, limits, clients that vanish.

load ../lib/agent

setup()
{
    AGENT_DIR=
}

teardown()
{
    stop_agents
}

json='Content-Type: application/json'

# raw_http TEXT: sends it unchanged, prints the reply until nothing arrives for 5 seconds.
raw_http()
{
    python3 - "$AGENT_PORT" "$1" <<'PY'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
s.sendall(sys.argv[2].encode().decode("unicode_escape").encode("latin1"))
out = b""
try:
    while True:
        piece = s.recv(65536)
        if not piece:
            break
        out += piece
except (socket.timeout, ConnectionResetError):
    pass
sys.stdout.write(out.decode("latin1"))
PY
}

@test "agent refuses to start without a token" {
    run -2 "$BELLHOPD" --listen 127.0.0.1:0
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == *"no token"*"--auth=open"* ]]
}

@test "agent refuses to start without a listener, with an unknown option, with two tokens" {
    run -2 "$BELLHOPD" --auth=open
    [[ $output == *"nowhere to listen"* ]]
    run -2 "$BELLHOPD" --listen 127.0.0.1:0 --auth=open --frobnicate
    [[ $output == *"'--frobnicate'"* ]]
    run -2 "$BELLHOPD" --listen 127.0.0.1:0 --auth=open --token-fd 0
    [[ $output == *"exclude each other"* ]]
    run -2 "$BELLHOPD" --listen 127.0.0.1:0 --auth=closed
    [[ $output == *"can only be 'open'"* ]]
    run -1 "$BELLHOPD" --listen 127.0.0.1:99999 --auth=open
    [[ $output == *"not between 0 and 65535"* ]]
    [ "${#lines[@]}" -eq 1 ]
}

@test "token file that others can read is refused" {
    AGENT_DIR=$(mktemp -d) && AGENT_DIRS+=("$AGENT_DIR")
    echo 0123456789abcdef >"$AGENT_DIR/token"
    chmod 0644 "$AGENT_DIR/token"
    run -1 "$BELLHOPD" --listen 127.0.0.1:0 --token-file "$AGENT_DIR/token"
    [[ $output == *"others can use the token file"* ]]
}

@test "token comes from an inherited descriptor, and is in nobody's environment or arguments" {
    AGENT_DIR=$(mktemp -d) && AGENT_DIRS+=("$AGENT_DIR")
    AGENT_TOKEN=from-a-descriptor-1234
    printf '%s' "$AGENT_TOKEN" >"$AGENT_DIR/t"
    run_agent --listen 127.0.0.1:0 --token-fd 5 5<"$AGENT_DIR/t"
    [ "$(rpc_status System/Info)" = 200 ]
    ! tr '\0' '\n' <"/proc/$AGENT_PID/cmdline" | grep -q "$AGENT_TOKEN" || false
    ! tr '\0' '\n' <"/proc/$AGENT_PID/environ" | grep -q "$AGENT_TOKEN" || false
    run rpc Exec/Run '{"argv":["sh","-c","env; ls -l /proc/self/fd; cat /proc/self/fd/[3-9] 2>/dev/null"]}'
    [[ $output != *"$AGENT_TOKEN"* && $output != *"$AGENT_DIR/t"* ]]
}

@test "command of another user can't look into the agent" {
    [ "$(id -u)" = 0 ] || skip "only root runs commands as another user"
    start_agent
    for file in environ mem maps fd/0 cwd/etc/hostname; do
        run rpc Exec/Run "{\"argv\":[\"head\",\"-c1\",\"/proc/$AGENT_PID/$file\"],\"user\":\"nobody\",\"cwd\":\"/\"}"
        [ "$(jq -r .exit.code <<<"$output")" = 1 ] || fail "$file: $output"
    done
    run rpc Exec/Run "{\"argv\":[\"cat\",\"$AGENT_DIR/token\"],\"user\":\"nobody\",\"cwd\":\"/\"}"
    [ "$(jq -r .exit.code <<<"$output")" = 1 ]
}

@test "every route but health needs the token, given either way" {
    start_agent
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$AGENT_URL/v1/health")" = 200 ]
    for path in /v1/metrics /v1/openapi.json /v1/ready /v1/files//etc/passwd '/v1/archive?path=/etc' \
        /v1/proxy/1/ /v1/tunnel/1; do
        run curl -s -i "$AGENT_URL$path"
        [[ $output == *" 401 "* && $output == *"WWW-Authenticate: Bearer"* ]] || fail "$path: $output"
        [[ $output == *'"code":"unauthenticated"'* ]] || fail "$path: $output"
        run curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer wrong-token-123456' "$AGENT_URL$path"
        [ "$output" = 401 ] || fail "$path: $output"
    done
    run curl -s -o /dev/null -w '%{http_code}' -H "$json" -d '{}' "$AGENT_URL/bellhop.v1.System/Info"
    [ "$output" = 401 ]
    run curl -s -o /dev/null -w '%{http_code}' -H "$json" -d '{}' \
        -H "X-Access-Token: $AGENT_TOKEN" "$AGENT_URL/bellhop.v1.System/Info"
    [ "$output" = 200 ]
    [ "$(rpc_status System/Info)" = 200 ]
    run curl -s -o /dev/null -w '%{http_code}' -H "$json" -d '{}' \
        -H "Authorization: Bearer ${AGENT_TOKEN}x" "$AGENT_URL/bellhop.v1.System/Info"
    [ "$output" = 401 ]
}

@test "unix socket, IPv4 and IPv6 serve at once" {
    start_agent --listen '[::1]:0'
    v6=http://$(jq -r '.tcp[1]' <<<"$AGENT_READY")
    curl -sf "$AGENT_URL/v1/health"
    curl -sf -g "$v6/v1/health"
    curl -sf --unix-socket "$AGENT_SOCKET" http://box/v1/health
    [ "$(stat -c %a "$AGENT_SOCKET")" = 600 ]
}

@test "errors are JSON with the right status: unknown path, method, type, field" {
    start_agent
    run agent_curl /nope -i
    [[ $output == *" 404 "* && $output == *'"code":"not_found"'* ]]
    run agent_curl /v1/health -i -X DELETE
    [[ $output == *" 405 "* && $output == *"Allow: GET, HEAD"* && $output == *'"code":"unimplemented"'* ]]
    run agent_curl /bellhop.v1.System/Info -i
    [[ $output == *" 405 "* && $output == *"Allow: POST"* ]]
    run agent_curl /bellhop.v1.System/Info -i -d '{}'
    [[ $output == *" 415 "* && $output == *"application/json"* ]]
    run rpc System/Info '{"frob":1}'
    [ "$(jq -r '.code + " " + .field' <<<"$output")" = "invalid_argument frob" ]
    run rpc System/Info '[1]'
    [ "$(jq -r .code <<<"$output")" = invalid_argument ]
    run rpc System/Info '{"a":'
    [[ $(jq -r .message <<<"$output") == "not valid JSON"* ]]
    run agent_curl '/v1/files//etc/passwd?frob=1'
    [ "$(jq -r '.code + " " + .field' <<<"$output")" = "invalid_argument frob" ]
}

@test "address with a NUL, and one with an encoded slash in a route, are refused" {
    start_agent
    run agent_curl '/v1/files//etc/passwd%00x' -i
    [[ $output == *" 400 "* && $output == *"NUL"* ]]
    run agent_curl '/v1%2Fhealth' -i
    [[ $output == *" 404 "* ]]
    echo x >"$AGENT_DIR/file"
    run agent_curl "/v1/files/${AGENT_DIR//\//%2F}%2Ffile" -o /dev/null -w '%{http_code}'
    [ "$output" = 200 ]
    run agent_curl '/v1/files/%zz' -i
    [[ $output == *" 400 "* && $output == *"hex"* ]]
}

@test "body with two lengths is refused" {
    start_agent
    auth="Authorization: Bearer $AGENT_TOKEN\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\nConnection: close"
    run raw_http "POST /bellhop.v1.System/Info HTTP/1.1\\r\\n$auth\\r\\nContent-Length: 2\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n"
    [[ $output == *" 400 "* && $output == *"more than one length"* ]]
    run raw_http "POST /bellhop.v1.System/Info HTTP/1.1\\r\\n$auth\\r\\nContent-Length: 2\\r\\nContent-Length: 3\\r\\n\\r\\n{}"
    [[ $output == *" 400 "* ]]
}

@test "broken HTTP gets no HTML" {
    start_agent
    run raw_http 'GARBAGE\r\n\r\n'
    [[ $output != *"<html"* ]]
    for head in 'GET /v1/health HTTP/1.1\r\n\r\n' \
        'POST /v1/health HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n'; do
        run raw_http "$head"
        [[ $output != *"<html"* ]]
        [[ $output == *" 400 "*"Content-Type: application/json"*'"code":"invalid_argument"'* ]] || fail "$head: $output"
    done
    run raw_http "GET /v1/health HTTP/1.1\\r\\nHost: x\\r\\nX: $(head -c 40000 /dev/zero | tr '\0' a)\\r\\n\\r\\n"
    [[ $output != *"<html"* ]]
}

@test "a NUL in a head is refused wherever it stands" {
    start_agent
    for head in 'GET /v1/health\x00 HTTP/1.1\r\nHost: x' 'GET /v1/health HTTP/1.1\r\nHost: a\x00b' \
        'GET /v1/health HTTP/1.1\r\nHost: x\r\nX: a\x00' 'GET /v1/health HTTP/1.1\r\nHost: x\r\nX\x00Y: a' \
        'GET /v1/health HTTP/1.1\nHost: x\nX: \x00a'; do
        run raw_http "$head\r\nConnection: close\r\n\r\n"
        [ "$(grep -c '^HTTP/1' <<<"$output")" = 1 ] || fail "$head: $output"
        [[ $output == *" 400 "* ]] || fail "$head: $output"
    done
    agent_curl /v1/health
}

@test "a head that the library refuses is answered once" {
    start_agent
    for head in 'GET /v1/health HTTP/1.1\r\n' \
        'POST /v1/health HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n' \
        'POST /v1/health HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n' \
        'POST /v1/health HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n'; do
        run raw_http "${head}Connection: close\r\n\r\n"
        [ "$(grep -c '^HTTP/1' <<<"$output")" = 1 ] || fail "$head: $output"
        [[ $output == *" 4"* ]]
        agent_curl /v1/health
    done
}

@test "web pages' requests are refused" {
    start_agent
    run rpc System/Info '{}' -i -H 'Origin: http://evil.example'
    [[ $output == *" 403 "* && $output == *"Origin"* ]]
}

@test "blanks behind a header's value are none of it" {
    start_agent
    auth="Authorization: Bearer $AGENT_TOKEN \\t\\r\\nHost: x \\r\\nContent-Type: application/json \\r\\nConnection: close \\r\\n"
    run raw_http "POST /bellhop.v1.System/Info HTTP/1.1\\r\\n${auth}Content-Length: 2 \\t\\r\\n\\r\\n{}"
    [[ $output == *" 200 "*'"protocol"'* ]]
    run raw_http "POST /bellhop.v1.System/Info HTTP/1.1\\r\\n${auth}Transfer-Encoding: chunked \\r\\n\\r\\n2\\r\\n{}\\r\\n0\\r\\n\\r\\n"
    [[ $output == *" 200 "*'"protocol"'* ]]
    run raw_http "POST /bellhop.v1.System/Info HTTP/1.1\\r\\n${auth}Content-Length: 2 2\\r\\n\\r\\n{}"
    [[ $output == *" 400 "* ]]
    run raw_http "GET /v1/health HTTP/1.1\\r\\nHost:   \\r\\nConnection: close\\r\\nX:\\r\\n\\r\\n"
    [[ $output == *" 200 "* ]]
}

@test "a target in absolute form is the same as its path" {
    start_agent
    echo hello >"$AGENT_DIR/f"
    run agent_curl '' --request-target "http://any.example:80/v1/files/$AGENT_DIR/f"
    [ "$output" = hello ]
    run agent_curl '' --request-target "HTTPS://any.example/bellhop.v1.System/Info" -H "$json" -d '{}'
    [ "$(jq -r .protocol <<<"$output")" = 1 ]
    run agent_curl '' --request-target "http://any.example/v1/archive?path=$AGENT_DIR" -o /dev/null -w '%{http_code}'
    [ "$output" = 200 ]
    run agent_curl '' --request-target "http:///v1/health" -w '%{http_code}'
    [[ $output == *"without a host"*400 ]]
    run agent_curl '' --request-target "http://any.example" -w '%{http_code}'
    [[ $output == '{"status":"ok"'*200 ]] # agent-sandbox's "/"
}

@test "connection is kept for the next request" {
    start_agent
    run curl -s -o /dev/null -o /dev/null -w '%{num_connects} ' "$AGENT_URL/v1/health" "$AGENT_URL/v1/health"
    [ "$output" = "1 0 " ]
    run curl -s -o /dev/null -o /dev/null -w '%{num_connects} ' -H "$json" -d '{}' \
        "$AGENT_URL/bellhop.v1.System/Info" "$AGENT_URL/bellhop.v1.System/Info"
    [ "$output" = "1 0 " ]
}

@test "refused upload of any size is answered, to curl and to node" {
    start_agent
    head -c 100000 /dev/zero >"$AGENT_DIR/small"
    head -c 60000000 /dev/zero >"$AGENT_DIR/large"
    for size in small large; do
        for expect in 'Expect:' 'Expect: 100-continue'; do
            run curl -s -o /dev/null -w '%{http_code}' -H "$expect" -T "$AGENT_DIR/$size" \
                "$AGENT_URL/v1/files/$AGENT_DIR/out"
            [ "$output" = 401 ] || fail "$size $expect: $output"
            run curl -s -o /dev/null -w '%{http_code}' -H "$expect" -H 'Transfer-Encoding: chunked' \
                -T "$AGENT_DIR/$size" "$AGENT_URL/v1/files/$AGENT_DIR/out"
            [ "$output" = 401 ] || fail "chunked $size $expect: $output"
        done
    done
    [ ! -e "$AGENT_DIR/out" ]
    command -v node >/dev/null || skip "no node"
    run node -e '
        fetch(process.argv[1], {method: "PUT", body: Buffer.alloc(900000)}).then(async r =>
            console.log(r.status, (await r.json()).code))' "$AGENT_URL/v1/files/$AGENT_DIR/out"
    [ "$output" = "401 unauthenticated" ]
}

@test "rpc body over the limit is refused with 413" {
    start_agent
    head -c 17000000 /dev/zero | tr '\0' ' ' >"$AGENT_DIR/large"
    run agent_curl /bellhop.v1.System/Info -H "$json" -H 'Expect:' --data-binary "@$AGENT_DIR/large" -i
    [[ $output == *" 413 "* && $output == *'"code":"resource_exhausted"'* ]]
    run agent_curl /bellhop.v1.System/Info -H "$json" -H 'Expect:' -H 'Transfer-Encoding: chunked' \
        --data-binary "@$AGENT_DIR/large" -i
    [[ $output == *" 413 "* && $output == *'"code":"resource_exhausted"'* ]]
    head -c 15000000 "$AGENT_DIR/large" >"$AGENT_DIR/fits"
    printf '{}' >>"$AGENT_DIR/fits"
    run agent_curl /bellhop.v1.System/Info -H "$json" --data-binary "@$AGENT_DIR/fits"
    [ "$(jq -r .protocol <<<"$output")" = 1 ]
}

@test "route that takes no body says so" {
    start_agent
    run agent_curl /v1/metrics -i -X GET --data-binary x
    [[ $output == *" 413 "* && $output == *"takes no body"* ]]
}

@test "stream comes as ndjson, as server-sent events and as Connect envelopes" {
    start_agent
    run rpc Exec/Start '{"argv":["echo","hi"]}' -i
    [[ $output == *"Content-Type: application/x-ndjson"* ]]
    [ "$(rpc Exec/Start '{"argv":["echo","hi"]}' | jq -r 'keys[0]' | paste -sd' ')" = "start data end" ]

    run rpc Exec/Start '{"argv":["echo","hi"]}' -H 'Accept: text/event-stream'
    [ "$(grep -c '^event: message$' <<<"$output")" = 3 ]
    [ "$(tail -n 2 <<<"$output" | head -n 1)" = "event: end" ] || [[ $output == *$'event: end\ndata: {}'* ]]

    python3 - "$AGENT_PORT" "$AGENT_TOKEN" <<'PY'
import http.client, json, struct, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
def call(path, message):
    body = json.dumps(message).encode()
    c.request("POST", path, struct.pack(">BI", 0, len(body)) + body,
              {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1",
               "Authorization": "Bearer " + sys.argv[2]})
    r = c.getresponse()
    assert r.status == 200, r.status
    assert r.headers["Content-Type"] == "application/connect+json"
    data, out = r.read(), []
    while data:
        flags, n = struct.unpack(">BI", data[:5])
        out.append((flags, json.loads(data[5:5 + n])))
        data = data[5 + n:]
    return out
out = call("/bellhop.v1.Exec/Start", {"argv": ["echo", "hi"]})
assert [f for f, _ in out] == [0, 0, 0, 2], out
assert out[-1][1] == {}, out
out = call("/bellhop.v1.Exec/Start", {"argv": ["no-such-program-here"]})
assert out[-1][0] == 2 and out[-1][1]["error"]["code"] == "not_found", out
out = call("/bellhop.v1.Exec/Start", {"argvv": []})
assert out == [(2, out[0][1])] and out[0][1]["error"]["field"] == "argvv", out
PY
}

@test "envelope that lies about its length is refused" {
    start_agent
    run bash -c "printf '\\0\\0\\0\\0\\377{}' | curl -s -H 'Authorization: Bearer $AGENT_TOKEN' \
        -H 'Content-Type: application/connect+json' --data-binary @- \
        '$AGENT_URL/bellhop.v1.Exec/Start' | tail -c +6"
    [[ $output == *'"code":"invalid_argument"'*envelope* ]]
}

@test "single reply is one object, or a stream of one when asked for" {
    start_agent
    run rpc Exec/Run '{"argv":["echo","hi"]}'
    [ "$(jq -r .stdout.text <<<"$output")" = hi ]
    run rpc Exec/Run '{"argv":["echo","hi"]}' -H 'Accept: application/x-ndjson' -i
    [[ $output == *"Content-Type: application/x-ndjson"* ]]
    [ "$(rpc_status Exec/Run '{"argv":["no-such-program-here"]}')" = 404 ]
}

@test "silent stream shows signs of life" {
    start_agent --keepalive 300ms
    run rpc Exec/Start '{"argv":["sleep","2.5"]}'
    [ "$(grep -c '^{"keepalive":{}}$' <<<"$output")" -ge 1 ]
    [ "$(tail -n 1 <<<"$output" | jq -r '.end.exit.reason')" = exited ]
    run rpc Exec/Start '{"argv":["sleep","2.5"]}' -H 'Accept: text/event-stream'
    [ "$(grep -c '^: keep-alive$' <<<"$output")" -ge 1 ]
}

@test "clients that vanish leave no descriptors" {
    start_agent --keepalive 1h # the agent detects that they have left without writing to them
    is_running() { rpc Exec/Get '{"id":"long"}' | jq -e '.state == "running"'; }
    ask_and_leave Exec/Start '{"argv":["sleep","600"],"id":"long"}' /dev/null is_running
    before=$(n_fds)
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" "$AGENT_SOCKET" <<'PY'
import socket, sys
body = b'{"id":"long"}'
head = (f"POST /bellhop.v1.Exec/Attach HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {sys.argv[2]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
for batch in range(5):
    socks = []
    for i in range(200):
        if i % 2:
            s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
        else:
            s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect(sys.argv[3])
        s.sendall(head + body)
        socks.append(s)
    for s in socks:
        line = s.recv(16)
        assert line.startswith(b"HTTP/1.1 200") or b"429" in line, line
    for s in socks:
        s.close()
PY
    fds_are_back() { [ "$(n_fds)" -le $((before + 4)) ]; }
    wait_until 15 fds_are_back || fail "$(n_fds) descriptors, $before before"
    [ "$(rpc_status System/Info)" = 200 ]
}

@test "uploads that are cut midway leave no connection" {
    start_agent
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" "$AGENT_DIR" <<'PY'
import socket, sys
put = (f"PUT /v1/files/{sys.argv[3]}/up HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {sys.argv[2]}\r\n"
       "Content-Length: 100000\r\n\r\n").encode() + b"x" * 5000
for _ in range(100): # the end comes with the last bytes
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60) as s:
        s.sendall(put)
PY
    only_ours_is_open() { [ "$(agent_curl /v1/metrics | sed -n 's/^bellhop_connections //p')" -le 1 ]; }
    wait_until 15 only_ours_is_open || fail "$(agent_curl /v1/metrics | grep '^bellhop_connections ')"
    [ ! -e "$AGENT_DIR/up" ]
}

@test "health answers at once while uploads crawl and a FIFO is opened" {
    start_agent
    mkfifo "$AGENT_DIR/fifo"
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" "$AGENT_DIR" <<'PY'
import socket, sys, time
port, token, tmp = int(sys.argv[1]), sys.argv[2], sys.argv[3]
socks = []
for i in range(64):
    s = socket.create_connection(("127.0.0.1", port), 60)
    s.sendall((f"PUT /v1/files/{tmp}/slow{i} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
               f"Content-Length: 1000000\r\n\r\nabc").encode())
    socks.append(s)
for i in range(4):
    s = socket.create_connection(("127.0.0.1", port), 60)
    s.sendall((f"GET /v1/files/{tmp}/fifo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n").encode())
    socks.append(s)
took = []
for i in range(50):
    for k in range(64):
        socks[k].sendall(b"x" * 10)
    start = time.monotonic()
    s = socket.create_connection(("127.0.0.1", port), 60)
    s.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert s.recv(64).startswith(b"HTTP/1.1 200")
    took.append(time.monotonic() - start)
    s.close()
took.sort()
print("the most", took[25], "worst", took[-1])
# Other processes share the machine: the promise is 50 ms; a stall would last seconds and hit all requests.
assert took[25] < 0.5 and took[-1] < 10, took
PY
    gone() { ! ls "$AGENT_DIR"/.bellhop-tmp-* 2>/dev/null; }
    wait_until 10 gone
    ! ls "$AGENT_DIR"/slow* 2>/dev/null
}

@test "every kind of route answers while a frozen FUSE mount holds thirty requests" {
    [ "$(id -u)" -eq 0 ] && [ -e /dev/fuse ] || skip "mounting FUSE needs root and /dev/fuse"
    start_agent
    mkdir "$AGENT_DIR/frozen"
    echo alive >"$AGENT_DIR/file"
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" "$AGENT_DIR" <<'PY'
import ctypes, os, socket, sys, time
port, token, tmp = int(sys.argv[1]), sys.argv[2], sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
# A file system whose server never answers: every access blocks.
fuse = os.open("/dev/fuse", os.O_RDWR)
mnt = (tmp + "/frozen").encode()
if libc.mount(b"frozen", mnt, b"fuse", 0, f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()) != 0:
    raise OSError(ctypes.get_errno(), "mount")
def send(request):
    s = socket.create_connection(("127.0.0.1", port), 60)
    s.sendall(request.encode())
    return s
def ask(method, path, body=""):
    start = time.monotonic()
    s = send(f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
             f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}")
    got = b""
    while True:
        piece = s.recv(65536)
        if not piece:
            break
        got += piece
    return got, time.monotonic() - start
try:
    held = []
    for i in range(10):
        held.append(send(f"GET /v1/files/{tmp}/frozen/x{i} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"))
        held.append(send(f"PUT /v1/files/{tmp}/frozen/y{i} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 2\r\n\r\nhi"))
        body = '{"path":"%s/frozen"}' % tmp
        held.append(send(f"POST /bellhop.v1.Fs/List HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                         f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"))
    routes = [("GET", "/v1/health", "", b" 200 "), ("GET", "/v1/metrics", "", b" 200 "),
              ("POST", "/bellhop.v1.System/Info", "{}", b" 200 "),
              ("POST", "/bellhop.v1.Exec/Run", '{"argv":["true"]}', b'"code":0'),
              ("GET", f"/v1/files/{tmp}/file", "", b"alive"),
              ("POST", "/bellhop.v1.Fs/Stat", '{"path":"%s/file"}' % tmp, b" 200 ")]
    for method, path, body, want in routes:
        took = []
        for i in range(5):
            got, t = ask(method, path, body)
            assert want in got, (path, got[:300])
            took.append(t)
        print(path, "worst", max(took))
        # Other processes share the machine: a stall would last for ever.
        assert max(took) < 30, (path, took)
finally:
    os.close(fuse)  # ends the waiting with ENOTCONN
    libc.umount2(mnt, 2)
PY
    [ "$(agent_status /v1/health)" = 200 ]
}

@test "over the connection limit health still answers, the rest gets 503" {
    start_agent --max-connections 8
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" <<'PY'
import re, select, socket, sys
port, token = int(sys.argv[1]), sys.argv[2]
def ask(path, s=None):
    s = s or socket.create_connection(("127.0.0.1", port), 60)
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    reply = s.recv(4096)
    head, _, body = reply.partition(b"\r\n\r\n")
    left = int(re.search(rb"Content-Length: (\d+)", head)[1]) - len(body) if b"Content-Length" in head else 0
    while left > 0:
        left -= len(s.recv(left))
    return s, reply
held = []
for i in range(8):
    s, reply = ask("/v1/metrics")
    assert b" 200 " in reply, reply
    held.append(s)
s, reply = ask("/v1/metrics")
assert b" 503 " in reply and b"resource_exhausted" in reply, reply
held.append(s)
s, reply = ask("/v1/health")
assert b" 200 " in reply, reply
held.append(s)
s, reply = ask("/v1/metrics", held[0])
assert b" 200 " in reply, reply
for i in range(200):
    s = socket.create_connection(("127.0.0.1", port), 60)
    held.append(s)
# An accepted connection counts once a thread of the server has picked it up, which takes longer on a busy machine.
for i in range(200):
    s = socket.create_connection(("127.0.0.1", port), 60)
    held.append(s)
    if select.select([s], [], [], 0.3)[0]:
        break
reply = s.recv(4096)
assert b" 503 " in reply, reply
PY
    [ "$(rpc_status System/Info)" = 200 ] || wait_until 10 agent_curl /v1/metrics -f
    run agent_curl /v1/metrics
    [[ $output == *bellhop_connections_refused_total* ]]
}

@test "ranges and conditions of a file" {
    start_agent
    printf 0123456789 >"$AGENT_DIR/ten"
    : >"$AGENT_DIR/empty"
    url=/v1/files/$AGENT_DIR/ten
    check()
    {
        run agent_curl "$url" -H "Range: $1" -w '|%{http_code}|%header{content-range}'
        [ "$output" = "$2" ] || fail "$1: $output, not $2"
    }
    check bytes=0-3 '0123|206|bytes 0-3/10'
    check bytes=7- '789|206|bytes 7-9/10'
    check bytes=-2 '89|206|bytes 8-9/10'
    check bytes=-20 '0123456789|206|bytes 0-9/10'
    check bytes=5-100 '56789|206|bytes 5-9/10'
    check bytes=9-9 '9|206|bytes 9-9/10'
    check bytes=3-1 '0123456789|200|'
    check bytes=0-1,3-4 '01234|206|bytes 0-4/10'
    check lines=1-2 '0123456789|200|'
    check bytes=a-b '0123456789|200|'
    run agent_curl "$url" -i -H 'Range: bytes=10-'
    [[ $output == *" 416 "* && $output == *"Content-Range: bytes */10"* && $output == *out_of_range* ]]
    etag=$(agent_curl "$url" -o /dev/null -w '%header{etag}')
    [ "$(agent_status "$url" -H "If-None-Match: $etag")" = 304 ]
    [ "$(agent_status "$url" -H "If-Match: $etag")" = 200 ]
    [ "$(agent_status "$url" -H 'If-Match: "other"')" = 412 ]
    [ "$(agent_status "$url" -H "If-Range: $etag" -H 'Range: bytes=0-0')" = 206 ]
    [ "$(agent_status "$url" -H 'If-Range: "other"' -H 'Range: bytes=0-0')" = 200 ]
    [ "$(agent_curl "$url" -I | tr -d '\r' | sed -n 's/^Content-Length: //p')" = 10 ]
    [ "$(agent_status "/v1/files/$AGENT_DIR/empty")" = 200 ]
    [ "$(agent_status "/v1/files/$AGENT_DIR/none")" = 404 ]
    [ "$(agent_curl /v1/files//proc/self/comm)" = bellhopd ]
}

@test "upload is all there or not there, and can be conditional" {
    start_agent
    head -c 20000000 /dev/urandom >"$AGENT_DIR/source"
    [ "$(agent_status "/v1/files/$AGENT_DIR/a/b/copy" -T "$AGENT_DIR/source")" = 201 ]
    cmp "$AGENT_DIR/source" "$AGENT_DIR/a/b/copy"
    [ "$(agent_status "/v1/files/$AGENT_DIR/a/b/copy" -H 'Transfer-Encoding: chunked' -T "$AGENT_DIR/source")" = 200 ]
    agent_curl "/v1/files/$AGENT_DIR/a/b/copy" | cmp "$AGENT_DIR/source"

    run agent_curl "/v1/files/$AGENT_DIR/a/b/copy" -i -X PUT -d new -H 'If-Match: "other"'
    [[ $output == *" 412 "* && $output == *"ETag: "* && $output == *if_match* ]]
    [ "$(agent_status "/v1/files/$AGENT_DIR/a/b/copy" -X PUT -d new -H 'If-None-Match: *')" = 412 ]
    cmp "$AGENT_DIR/source" "$AGENT_DIR/a/b/copy"

    python3 - "$AGENT_PORT" "$AGENT_TOKEN" "$AGENT_DIR/a/b/copy" <<'PY'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
s.sendall((f"PUT /v1/files/{sys.argv[3]} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {sys.argv[2]}\r\n"
           f"Content-Length: 1000000\r\n\r\n").encode() + b"y" * 500000)
s.close()
PY
    gone() { ! ls "$AGENT_DIR"/a/b/.bellhop-tmp-* 2>/dev/null; }
    wait_until 10 gone
    cmp "$AGENT_DIR/source" "$AGENT_DIR/a/b/copy"

    sum=$(openssl dgst -sha256 -binary "$AGENT_DIR/source" | base64)
    [ "$(agent_status "/v1/files/$AGENT_DIR/sum" -H "Repr-Digest: sha-256=:$sum:" -T "$AGENT_DIR/source")" = 201 ]
    [ "$(agent_status "/v1/files/$AGENT_DIR/sum2" -H "Repr-Digest: sha-256=:$sum:" -X PUT -d x)" = 400 ]
    [ ! -e "$AGENT_DIR/sum2" ]
}

@test "archive goes out and comes in again" {
    start_agent
    mkdir -p "$AGENT_DIR/tree/sub"
    echo one >"$AGENT_DIR/tree/a"
    echo two >"$AGENT_DIR/tree/sub/b"
    ln -s sub/b "$AGENT_DIR/tree/link"
    for format in tar tar.gz tar.zst; do
        agent_curl "/v1/archive?path=$AGENT_DIR/tree&format=$format" -o "$AGENT_DIR/x.$format" -f
        run agent_curl "/v1/archive?path=$AGENT_DIR/out.$format" -T "$AGENT_DIR/x.$format"
        [ "$(jq -r .format <<<"$output")" = "$format" ] || fail "$output"
        diff -r "$AGENT_DIR/tree" "$AGENT_DIR/out.$format"
    done
    agent_curl "/v1/archive?path=$AGENT_DIR/tree&exclude=sub" | tar t | grep -q '^a$'
    ! agent_curl "/v1/archive?path=$AGENT_DIR/tree&exclude=sub" | tar t | grep -q sub/b || false
    run agent_curl "/v1/archive?path=$AGENT_DIR/tree" -X PUT -d 'this is no archive at all' -i
    [[ $output == *" 400 "* && $output == *invalid_argument* ]]
    diff "$AGENT_DIR/tree/a" <(echo one)
    run agent_curl "/v1/archive?path=$AGENT_DIR/none" -i
    [[ $output == *" 404 "* ]]
    run agent_curl "/v1/archive" -i
    [[ $output == *" 400 "* && $output == *"'path' is required"* ]]
}

@test "read-only agent changes nothing" {
    start_agent --read-only
    [ "$(rpc_status System/Info)" = 200 ]
    [ "$(rpc_status Exec/Run '{"argv":["true"]}')" = 403 ]
    [ "$(agent_status "/v1/files/$AGENT_DIR/x" -X PUT -d x)" = 403 ]
    [ "$(agent_status "/v1/archive?path=$AGENT_DIR" -X PUT -d x)" = 403 ]
    [ "$(agent_status /v1/files//etc/passwd)" = 200 ]
    [ ! -e "$AGENT_DIR/x" ]
}

@test "agent ends its commands and itself when asked to stop" {
    start_agent
    ask_and_leave Exec/Start '{"argv":["sleep","60"],"id":"s"}' "$AGENT_DIR/out" grep -q start "$AGENT_DIR/out"
    pid=$(jq -r '.start.pid // empty' "$AGENT_DIR/out" | head -n 1)
    [ -n "$pid" ]
    kill "$AGENT_PID"
    wait_gone "$AGENT_PID" 8
    wait "$AGENT_PID"
    wait_gone "$pid" 2
    [ ! -e "$AGENT_SOCKET" ]
}

@test "full disk is told in the middle of an upload, and nothing half-made stays" {
    [ "$(id -u)" = 0 ] || skip "only root can mount a small disk"
    start_agent
    mkdir "$AGENT_DIR/tiny"
    mount -t tmpfs -o size=4m none "$AGENT_DIR/tiny" || skip "mounts are not allowed here"
    head -c 30000000 /dev/zero >"$AGENT_DIR/large"
    declared=$(agent_curl "/v1/files/$AGENT_DIR/tiny/f" -H 'Expect:' -T "$AGENT_DIR/large" -w '|%{http_code}') || true
    chunked=$(agent_curl "/v1/files/$AGENT_DIR/tiny/f" -H 'Transfer-Encoding: chunked' -T "$AGENT_DIR/large" -w '|%{http_code}') || true
    empty() { [ -z "$(ls -A "$AGENT_DIR/tiny")" ]; }
    left=0
    wait_until 5 empty || left=1
    umount "$AGENT_DIR/tiny"
    [[ $declared == *resource_exhausted*'|507' ]] || fail "$declared"
    [[ $chunked == *resource_exhausted*'|507' ]] || fail "$chunked"
    [ "$left" = 0 ]
}
