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
    run bellhop daemon --socket "$BOX_TMP/other.sock"
    [ "$status" -eq 4 ]
    [[ "$output" = *"a daemon (pid $COMMAND_PID) serves the boxes of"* ]]
    # Also when it is started without the command, which looks first.
    run "$BELLHOP_BUILD/bellhop-daemon" --state-dir "$BELLHOP_STATE_DIR" --cache-dir "$BELLHOP_CACHE_DIR" \
        --socket "$BOX_TMP/other.sock"
    [ "$status" -eq 1 ]
    [[ "$output" = *"a daemon (pid $COMMAND_PID) serves the boxes of"* ]]
    [ ! -e "$BOX_TMP/other.sock" ]
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
    [ "$status" -ne 0 ]
    [[ "$output" = *"TLS needs both a certificate and its key"* ]]
    run bellhop daemon --socket "$SOCKET" --listen nonsense
    [ "$status" -ne 0 ]
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

@test "TCP is TLS with a certificate: files and streams pass, and plain HTTP is not answered" {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost -keyout "$BOX_TMP/key.pem" -out "$BOX_TMP/cert.pem" 2>/dev/null
    command_start --listen 127.0.0.1:0 --tls-cert "$BOX_TMP/cert.pem" --tls-key "$BOX_TMP/key.pem"
    port=$(jq -r '.tcp[0] | split(":") | last' <<<"$READY")
    mkdir "$BOX_TMP/project"
    bellhop up --provider process --agent none --name one "$BOX_TMP/project" >/dev/null 2>&1
    token=$(bellhop token create -q --scope use)
    tls() { curl -sS --cacert "$BOX_TMP/cert.pem" -H "Authorization: Bearer $token" --max-time 20 "$@"; }
    knows() { tls "https://localhost:$port/v1/boxes" | jq -e '.boxes | length == 1' >/dev/null; }
    wait_for 10 knows
    head -c 3000000 /dev/urandom >"$BOX_TMP/file"
    tls -T "$BOX_TMP/file" "https://localhost:$port/v1/boxes/one/files/file" >/dev/null
    tls "https://localhost:$port/v1/boxes/one/files/file" | cmp - "$BOX_TMP/file"
    (tls -N --max-time 2 "https://localhost:$port/v1/events" 2>/dev/null || true) | grep -q '^event: box'
    run ! curl -sS --max-time 5 "http://localhost:$port/v1/health"
    bellhop daemon status | grep -q ' (TLS)'
    bellhop daemon stop
    echo junk >"$BOX_TMP/junk"
    run bellhop daemon --socket "$SOCKET" --listen 127.0.0.1:0 --tls-cert "$BOX_TMP/junk" --tls-key "$BOX_TMP/key.pem"
    [ "$status" -eq 1 ]
    [[ "$output" = *"the certificate and the key are no pair in PEM"* ]]
}
