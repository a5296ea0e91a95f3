#!/usr/bin/env bats
# `bellhop daemon`: it starts bellhop-daemon, tells whether it runs, and ends it; and one daemon a state directory.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    SOCKET=$BOX_TMP/d.sock
}

teardown()
{
    [ -z "${COMMAND_PID:-}" ] || kill "$COMMAND_PID" 2>/dev/null || true
    daemon_stop
    box_teardown
}

# Starts it by the command, and waits for its document.
command_start()
{
    mkfifo "$BOX_TMP/ready"
    "$BELLHOP" daemon --json --socket "$SOCKET" "$@" >"$BOX_TMP/ready" 2>"$BOX_TMP/command.log" 3>&- &
    COMMAND_PID=$!
    read -r READY <"$BOX_TMP/ready"
    rm "$BOX_TMP/ready"
}

@test "the command runs the daemon, status tells about it, and stop ends it" {
    run bellhop daemon status
    [ "$status" -eq 5 ]
    [ "$output" = "not running" ]
    run bellhop daemon stop
    [ "$status" -eq 3 ]
    command_start --listen 127.0.0.1:0
    jq -e --arg s "$SOCKET" --argjson pid "$COMMAND_PID" \
        '.pid == $pid and .socket == $s and (.tcp[0] | startswith("127.0.0.1:"))' <<<"$READY"
    run bellhop daemon status --json
    [ "$status" -eq 0 ]
    jq -e '.running and .answers and .boxes == 0 and .tls == false and .version != ""' <<<"$output"
    bellhop daemon status | grep -q "^running, pid $COMMAND_PID, "
    [ "$(bellhop daemon stop)" = stopped ]
    wait "$COMMAND_PID" || true
    [ ! -e "$SOCKET" ]
    run bellhop daemon status --json
    [ "$status" -eq 5 ]
    jq -e '.running == false and .answers == false' <<<"$output"
}

@test "a person at a terminal is told the address of the status page" {
    local page

    "$BELLHOP" daemon --socket "$SOCKET" --listen 127.0.0.1:0 2>"$BOX_TMP/command.log" 3>&- &
    COMMAND_PID=$!
    wait_for 20 grep -q 'the status page is ' "$BOX_TMP/command.log"
    page=$(sed -n 's/.*the status page is \([^ ]*\/\), .*/\1/p' "$BOX_TMP/command.log")
    curl -sS --fail "$page" | grep -q '<html'
}

@test "a state directory has one daemon: the second is told the pid of the first" {
    command_start
    run timeout 30 "$BELLHOP" daemon --socket "$BOX_TMP/other.sock"
    [ "$status" -eq 4 ]
    [[ "$output" = *"a daemon (pid $COMMAND_PID) serves the boxes of"* ]]
    # Also when it is started without the command, which looks first.
    run timeout 30 "$BELLHOP_BUILD/bellhop-daemon" --state-dir "$BELLHOP_STATE_DIR" --cache-dir "$BELLHOP_CACHE_DIR" \
        --socket "$BOX_TMP/other.sock"
    [ "$status" -eq 1 ]
    [[ "$output" = *"a daemon (pid $COMMAND_PID) serves the boxes of"* ]]
    [ ! -e "$BOX_TMP/other.sock" ]
}

@test "a Lease is for the first process of a container, and its name is checked; the store is not opened" {
    run -1 timeout 30 "$BELLHOP" daemon --socket "$SOCKET" --lease one
    [[ "$output" = *'first process of a container'* ]]
    run -2 timeout 30 "$BELLHOP" daemon --socket "$SOCKET" --lease A/b
    [[ "$output" = *"'A/b' is no name of a Lease"* ]]
    [ ! -e "$BELLHOP_STATE_DIR/store.db" ]
    command_start # it has a store
    [ -e "$BELLHOP_STATE_DIR/store.db" ]
    run -1 timeout 30 "$BELLHOP" daemon --socket "$BOX_TMP/other.sock" --lease one
    [[ "$output" = *'first process of a container'* ]]
    bellhop daemon status
}

@test "the socket of a daemon that was killed is replaced, and no other file is" {
    command_start
    kill -KILL "$COMMAND_PID"
    wait "$COMMAND_PID" || true
    [ -S "$SOCKET" ]
    command_start
    jq -e '.pid' <<<"$READY"
    bellhop daemon stop
    echo mine >"$SOCKET"
    command_start
    jq -e '.error.code == "already_exists" and .error.field == "socket"' <<<"$READY"
    [ "$(cat "$SOCKET")" = mine ]
}

@test "a hang-up is ignored" {
    command_start
    kill -HUP "$COMMAND_PID"
    kill -HUP "$COMMAND_PID"
    bellhop daemon status --json | jq -e '.answers'
    [ "$(awk '/^SigIgn/ { print $2 }' "/proc/$COMMAND_PID/status" | cut -c16)" != 0 ]
    bellhop daemon stop
}

@test "the administrator's limits and the settings of the command are the daemon's" {
    BELLHOP_PROVIDER_TIMEOUT=7m command_start
    document=$(tr '\0' '\n' <"/proc/$COMMAND_PID/cmdline" | sed -n '/--options-fd/{n;p}')
    jq -e --arg dir "$BELLHOP_STATE_DIR" \
        '.options.provider_timeout_ms == 420000 and .options.state_dir == $dir and has("limits")' \
        "/proc/$COMMAND_PID/fd/$document"
}

@test "wrong options of the daemon are named" {
    run bellhop daemon --socket "$SOCKET" --tls-cert /tmp/x
    [ "$status" -eq 2 ]
    [[ "$output" = *"TLS needs both a certificate and its key"* ]]
    # Values that the daemon finds wrong only when it uses them.
    for option in '--listen nonsense' '--listen 127.0.0.1:99999' '--listen 1.2.3.4.5:0' '--webhook nonsense' \
        '--domain a/b' "--webhook-secret-file $BOX_TMP/none --webhook http://127.0.0.1:1/"; do
        # shellcheck disable=SC2086 # words
        run timeout 30 "$BELLHOP" daemon --socket "$SOCKET" $option
        echo "$option: $status $output"
        [ "$status" -eq 2 ]
        [ "${#lines[@]}" = 1 ]
    done
    run bellhop daemon --socket "$SOCKET" --listen nonsense
    [[ "$output" = *"'nonsense' is not ADDR:PORT"* ]]
    run bellhop daemon frobnicate
    [ "$status" -eq 2 ]
    [[ "$output" = *"there is no 'daemon frobnicate': start, status or stop"* ]]
}

@test "a service manager passes the sockets in, is told when the daemon is ready, and keeps the file" {
    python3 - "$BELLHOP" "$BOX_TMP" <<'PY'
import os, socket, sys
program, tmp = sys.argv[1:]
path = tmp + "/m.sock"
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind(tmp + "/notify")
notify.settimeout(20)
local = socket.socket(socket.AF_UNIX)
local.bind(path)
local.listen()
tcp = socket.create_server(("127.0.0.1", 0))

def start():
    def pass_sockets():
        os.environ["LISTEN_PID"] = str(os.getpid())
        first, second = os.dup(local.fileno()), os.dup(tcp.fileno())
        high = [os.dup2(fd, 100 + i, inheritable=False) for i, fd in enumerate((first, second))]
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)
    env = dict(os.environ, LISTEN_FDS="2", NOTIFY_SOCKET=tmp + "/notify")
    pid = os.fork()
    if pid == 0:
        os.environ.update(env)
        pass_sockets()
        os.execv(program, [program, "-q", "daemon"])
    assert notify.recv(100) == b"READY=1\n"
    return pid

def ask(family, address):
    client = socket.socket(family)
    client.settimeout(20)
    client.connect(address)
    client.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    return client.recv(12)

pid = start()
assert ask(socket.AF_UNIX, path) == b"HTTP/1.1 204"
assert ask(socket.AF_INET, tcp.getsockname()) == b"HTTP/1.1 204"
os.kill(pid, 15)
# A request that comes while no daemon runs waits for the next one.
waiting = socket.socket(socket.AF_UNIX)
waiting.settimeout(20)
assert notify.recv(100) == b"STOPPING=1\n"
os.waitpid(pid, 0)
assert os.path.exists(path)
waiting.connect(path)
waiting.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
pid = start()
assert waiting.recv(12) == b"HTTP/1.1 204"
os.kill(pid, 15)
os.waitpid(pid, 0)
PY
}

make_cert() # NAME: $BOX_TMP/NAME.pem and NAME.key
{
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost -keyout "$BOX_TMP/$1.key" -out "$BOX_TMP/$1.pem" 2>/dev/null
}

tls_start()
{
    make_cert own
    command_start --listen 127.0.0.1:0 --tls-cert "$BOX_TMP/own.pem" --tls-key "$BOX_TMP/own.key"
    PORT=$(jq -r '.tcp[0] | split(":") | last' <<<"$READY")
}

# tls CURL_OPTION...
tls()
{
    curl -sS --cacert "$BOX_TMP/own.pem" --max-time 60 "$@"
}

# handshake OPTION...: "New, TLSv1.2, Cipher is ...", or "(NONE)"
handshake()
{
    timeout 20 openssl s_client -connect "127.0.0.1:$PORT" "$@" </dev/null 2>&1 | grep '^New, ' || true
}

@test "TCP is TLS with a certificate: files and streams pass, and plain HTTP is told so" {
    tls_start
    mkdir "$BOX_TMP/project"
    bellhop up --provider process --agent none --name one "$BOX_TMP/project" >/dev/null 2>&1
    auth="Authorization: Bearer $(bellhop token create -q --scope use)"
    knows() { tls -H "$auth" "https://localhost:$PORT/v1/boxes" | jq -e '.boxes | length == 1' >/dev/null; }
    wait_for 10 knows
    head -c 3000000 /dev/urandom >"$BOX_TMP/file"
    tls -H "$auth" -T "$BOX_TMP/file" "https://localhost:$PORT/v1/boxes/one/files/file" >/dev/null
    tls -H "$auth" "https://localhost:$PORT/v1/boxes/one/files/file" | cmp - "$BOX_TMP/file"
    (tls -H "$auth" -N --max-time 2 "https://localhost:$PORT/v1/events" 2>/dev/null || true) | grep -q '^event: box'
    [ "$(curl -sS --max-time 20 -w '%{http_code}' "http://localhost:$PORT/v1/health")" = \
        '{"code":"invalid_argument","message":"this port speaks TLS: use https"}400' ]
    bellhop daemon status | grep -q ' (TLS)'
}

@test "a refused upload of any size over TLS is answered, and its client reads the answer" {
    tls_start
    token=$(bellhop token create -q --scope use)
    knows() { [ "$(tls -o /dev/null -w '%{http_code}' -H "X-Access-Token: $token" "https://localhost:$PORT/v1/boxes")" = 200 ]; }
    wait_for 10 knows
    head -c 3000000 /dev/zero >"$BOX_TMP/file"
    for expect in 'Expect:' 'Expect: 100-continue'; do
        for way in "-T $BOX_TMP/file" "-H Transfer-Encoding:chunked -T $BOX_TMP/file"; do
            # shellcheck disable=SC2086 # words
            got=$(tls -w '%{http_code}' -H "$expect" $way "https://localhost:$PORT/v1/boxes/none/files/x")
            [[ "$got" = '{"code":"unauthenticated",'*'}401' ]]
        done
    done
    got=$(tls -w '%{http_code}' -H 'Expect:' -H "X-Access-Token: $token" --data-binary "@$BOX_TMP/file" "https://localhost:$PORT/v1/boxes")
    [[ "$got" = '{"code":"resource_exhausted",'*'}413' ]]
    # A client that sends all of its body before it reads anything.
    python3 - "$PORT" "$BOX_TMP/own.pem" <<'PY'
import http.client, ssl, sys
c = http.client.HTTPSConnection("localhost", int(sys.argv[1]), timeout=60, context=ssl.create_default_context(cafile=sys.argv[2]))
c.request("PUT", "/v1/boxes/none/files/x", body=b"z" * 8_000_000)
reply = c.getresponse()
assert reply.status == 401 and b"unauthenticated" in reply.read(), reply.status
PY
    tls -o /dev/null "https://localhost:$PORT/v1/health"
}

@test "a WebSocket over TLS ends with its server, after the last byte, and with its token, after a close frame" {
    tls_start
    mkdir "$BOX_TMP/project"
    bellhop up --provider process --agent none --name one "$BOX_TMP/project" >/dev/null 2>&1
    python3 "$BATS_TEST_DIRNAME/../lib/web_server.py" >"$BOX_TMP/port" 2>/dev/null 3>&- &
    web=$!
    wait_for 10 test -s "$BOX_TMP/port"
    token=$(bellhop token create -q --scope use --name gone)
    knows() { tls -f -o /dev/null -H "X-Access-Token: $token" "https://localhost:$PORT/v1/info" 2>/dev/null; }
    wait_for 10 knows
    python3 - "$PORT" "$token" "$(cat "$BOX_TMP/port")" >"$BOX_TMP/out" 3>&- <<'PY' &
import socket, ssl, sys
port, token, web = sys.argv[1:]
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
def upgrade(path):
    s = context.wrap_socket(socket.create_connection(("127.0.0.1", int(port)), 20))
    s.sendall(f"GET /v1/boxes/one/proxy/{web}{path} HTTP/1.1\r\nHost: localhost\r\nX-Access-Token: {token}\r\n"
              "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode())
    return s
def rest(s, sign=None):
    data = b""
    while (sign is None or sign not in data) and (piece := s.recv(65536)):
        data += piece
    return data
print("ended", rest(upgrade("/ended")).endswith(b"hello:" + b"x" * 300000), flush=True)
s = upgrade("/frames/810548454c4c4f")
rest(s, b"HELLO")
print("open", flush=True)
print("closed", rest(s), flush=True)
PY
    client=$!
    wait_for 30 grep -q open "$BOX_TMP/out"
    grep -q '^ended True' "$BOX_TMP/out"
    bellhop token revoke gone
    wait "$client"
    grep -qF "closed b'\x88\x12\x03\xf0access has ended'" "$BOX_TMP/out"
    kill "$web"
}

@test "hostile clients of TLS: old versions, junk, silence, another handshake; the next one is served" {
    tls_start
    [[ "$(handshake)" = 'New, TLSv1.3,'* ]]
    [[ "$(handshake -tls1_2)" = 'New, TLSv1.2,'* ]]
    for old in -tls1 -tls1_1; do
        [[ "$(handshake "$old" -cipher 'ALL:@SECLEVEL=0')" = *'(NONE)'* ]]
    done
    python3 - "$PORT" <<'PY'
import os, socket, sys
address = ("127.0.0.1", int(sys.argv[1]))
kept = []
for piece in [b"", b"\x16", b"\x16\x03\x01\xff\xff" + os.urandom(200), os.urandom(4000), b"\x16\x03\x03\0\x05\1\0\0\1\0", b"GET",
              b"\x80\x2e\x01\0\2" + os.urandom(41)] * 10:
    s = socket.create_connection(address, 20)
    s.sendall(piece)
    kept.append(s)  # most of them say no more, and stay
import ssl
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
with context.wrap_socket(socket.create_connection(address, 20)) as other:
    other.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert other.recv(12) == b"HTTP/1.1 204"
PY
    # openssl's R asks for a new handshake: with TLS 1.2 that is refused or done, and ends nothing but this connection.
    printf 'R\nGET /v1/health HTTP/1.1\r\n\r\n' | timeout 20 openssl s_client -connect "127.0.0.1:$PORT" -tls1_2 >/dev/null 2>&1 || true
    tls -o /dev/null "https://localhost:$PORT/v1/health"
    kill -0 "$COMMAND_PID"
}

# The fingerprint of the certificate that a new connection gets.
shown() { openssl s_client -connect "127.0.0.1:$PORT" </dev/null 2>/dev/null | openssl x509 -noout -fingerprint; }

fingerprint() { openssl x509 -noout -fingerprint -in "$BOX_TMP/$1.pem"; }

shows() { [ "$(shown)" = "$(fingerprint "$1")" ]; }

# says N TEXT: N lines of the daemon's log have the text.
says() { [ "$(grep -c "$2" "$BOX_TMP/command.log")" = "$1" ]; }

renew() # NAME: puts its certificate and key in the place of the daemon's, and tells it
{
    cp "$BOX_TMP/$1.pem" "$BOX_TMP/own.pem"
    cp "$BOX_TMP/$1.key" "$BOX_TMP/own.key"
    kill -HUP "$COMMAND_PID"
}

@test "a hang-up reads the certificate and its key again; connections stay, and files that cannot be used change nothing" {
    tls_start
    cp "$BOX_TMP/own.pem" "$BOX_TMP/first.pem"
    make_cert second
    auth="Authorization: Bearer $(bellhop token create -q --scope use)"
    mkdir "$BOX_TMP/project"
    bellhop up --provider process --agent none --name one "$BOX_TMP/project" >/dev/null 2>&1
    follows() { grep -q '^event: box' "$BOX_TMP/events"; }
    curl -sS -N --cacert "$BOX_TMP/first.pem" -H "$auth" "https://localhost:$PORT/v1/events" >"$BOX_TMP/events" 2>/dev/null 3>&- &
    FOLLOW_PID=$!
    wait_for 10 follows
    mkfifo "$BOX_TMP/renewed"
    python3 - "$PORT" "${auth##* }" "$BOX_TMP/renewed" >"$BOX_TMP/terminal" 3>&- <<'PY' &
import socket, ssl, sys
port, token, renewed = sys.argv[1:]
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
s = context.wrap_socket(socket.create_connection(("127.0.0.1", int(port)), 30))
s.sendall(f"GET /v1/boxes/one/terminal?cmd=cat HTTP/1.1\r\nHost: localhost\r\nX-Access-Token: {token}\r\nConnection: Upgrade\r\n"
          "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode())
def until(text, data=b""):
    while text not in data:
        piece = s.recv(65536)
        assert piece, data
        data += piece
until(b"started")
print("open", flush=True)
open(renewed).read()
s.sendall(b"\x82\x86\0\0\0\0hello\n")
until(b"hello")
print("echo", flush=True)
PY
    terminal=$!
    wait_for 10 grep -q open "$BOX_TMP/terminal"
    shows first

    renew second
    wait_for 10 shows second
    says 1 "new connections get the certificate of '$BOX_TMP/own.pem'"
    # The terminal and the stream from before go on.
    : >"$BOX_TMP/renewed"
    wait "$terminal"
    grep -q echo "$BOX_TMP/terminal"
    bellhop stop one
    wait_for 10 grep -q '"after":"stopped"' "$BOX_TMP/events"
    tls -H "$auth" "https://localhost:$PORT/v1/boxes" | jq -e '.boxes | length == 1'

    # Files that cannot be used: no pair, no file.
    cp "$BOX_TMP/first.pem" "$BOX_TMP/own.pem"
    kill -HUP "$COMMAND_PID"
    wait_for 10 says 1 'the certificate stays as it was: the certificate and the key are no pair in PEM'
    rm "$BOX_TMP/own.key"
    kill -HUP "$COMMAND_PID"
    wait_for 10 says 2 'the certificate stays as it was'
    shows second
    kill -0 "$FOLLOW_PID"
    kill "$FOLLOW_PID"
}

@test "certificates are renewed as often as one likes: seven stay for their connections, and no thread is left of others" {
    n_threads() { ls "/proc/$COMMAND_PID/task" | wc -l; }
    tls_start
    for name in a b; do make_cert $name; done
    before=$(n_threads)
    auth="Authorization: Bearer $(bellhop token create -q --scope use)"
    streams=()
    for i in 1 2 3 4 5 6 7 8 9 10 11; do
        curl -sS -N -k -H "$auth" "https://localhost:$PORT/v1/events" >"$BOX_TMP/events.$i" 2>/dev/null 3>&- &
        streams+=($!)
        wait_for 10 grep -q . "$BOX_TMP/events.$i"
        renew "$([ $((i % 2)) = 1 ] && echo a || echo b)"
        wait_for 10 says "$i" 'new connections get the certificate'
        [ "$i" -lt 8 ] || wait_for 10 is_gone "${streams[$((i - 8))]}"
    done
    kill -0 "${streams[10]}"
    kill "${streams[@]}" 2>/dev/null || true
    as_before() { [ "$(n_threads)" -le "$before" ]; }
    wait_for 10 as_before
    shows a
}

@test "a certificate or a key that cannot be used is named, and no daemon starts" {
    make_cert own
    make_cert other
    echo junk >"$BOX_TMP/junk"
    : >"$BOX_TMP/empty"
    openssl ec -in "$BOX_TMP/own.key" -aes128 -passout pass:x -out "$BOX_TMP/locked" 2>/dev/null
    for pair in 'junk own.key' 'own.pem junk' 'own.pem other.key' 'own.pem empty' 'empty own.key' 'own.pem locked'; do
        run timeout 30 "$BELLHOP" daemon --socket "$SOCKET" --listen 127.0.0.1:0 \
            --tls-cert "$BOX_TMP/${pair% *}" --tls-key "$BOX_TMP/${pair#* }"
        echo "$pair: $output"
        [ "$status" -eq 2 ]
        [[ "$output" = *"the certificate and the key are no pair in PEM"* ]]
    done
    run bellhop daemon --socket "$SOCKET" --listen 127.0.0.1:0 --tls-cert "$BOX_TMP/none" --tls-key "$BOX_TMP/own.key"
    [ "$status" -eq 2 ]
    [[ "$output" = *"$BOX_TMP/none"* ]]
}
