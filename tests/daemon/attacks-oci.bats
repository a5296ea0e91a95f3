#!/usr/bin/env bats
# Attacks of an isolated box and of its user on the daemon's machine, through the daemon: paths, archives, commands,
# another server in the agent's place, and a flood while other boxes are served.
# needs: image

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    daemon_start
    expect 201 .id POST /v1/boxes --json '{"name":"bad","agent":"none","provider":"oci"}'
}

teardown()
{
    daemon_stop
    box_teardown
}

# run_in BOX COMMAND: its standard output.
run_in()
{
    ask POST "/v1/boxes/$1/rpc/Exec/Run" --json "$(jq -nc --arg c "$2" '{argv: ["sh", "-c", $c]}')" |
        jq -j .stdout.text
}

@test "no path, link or archive of a box leads to a file of the daemon's machine" {
    secret=$BOX_TMP/secret
    echo "of the host" >"$secret"
    up=$(printf '../%.0s' {1..24})
    encoded=${up//../%2e%2e}
    for path in "/$secret" "$up${secret#/}" "${encoded}${secret#/}" "${up//\//%2f}${secret#/}" "/proc/1/root$secret" \
        "/proc/self/root$secret" "/proc/self/cwd/$up${secret#/}" "/proc/thread-self/root$secret"; do
        for base in /v1/boxes/bad/files/ /sandboxes/bad/fs/; do
            ask GET "$base$path" --path-as-is >"$BOX_TMP/got"
            run ! grep -q 'of the host' "$BOX_TMP/got"
            ask PUT "$base$path" --path-as-is --data-binary 'of the box' >/dev/null || true
            ask DELETE "$base$path" --path-as-is >/dev/null || true
            [ "$(cat "$secret")" = 'of the host' ] || fail "$base$path"
        done
    done
    # By a link that the box has made, and by one that an archive brings.
    run_in bad "ln -s $secret link; ln -s / root" >/dev/null
    for path in link "root$secret"; do
        ask GET "/v1/boxes/bad/files/$path" >"$BOX_TMP/got"
        run ! grep -q 'of the host' "$BOX_TMP/got"
        ask PUT "/v1/boxes/bad/files/$path" --data-binary 'of the box' >/dev/null
        [ "$(cat "$secret")" = 'of the host' ]
    done
    python3 - "$secret" "$BOX_TMP" <<'PY'
import io, sys, tarfile
secret, tmp = sys.argv[1:]
names = {"up": "../" * 24 + secret[1:], "absolute": secret}
for kind, name in names.items():
    with tarfile.open(f"{tmp}/{kind}.tar", "w") as tar:
        info = tarfile.TarInfo(name)
        info.size = 10
        tar.addfile(info, io.BytesIO(b"of the box"))
with tarfile.open(f"{tmp}/through.tar", "w") as tar:
    link = tarfile.TarInfo("way")
    link.type, link.linkname = tarfile.SYMTYPE, "/"
    tar.addfile(link)
    info = tarfile.TarInfo("way" + secret)
    info.size = 10
    tar.addfile(info, io.BytesIO(b"of the box"))
with tarfile.open(f"{tmp}/hard.tar", "w") as tar:
    link = tarfile.TarInfo("hard")
    link.type, link.linkname = tarfile.LNKTYPE, secret
    tar.addfile(link)
PY
    for kind in up absolute through hard; do
        ask PUT '/v1/boxes/bad/archive?path=.' -H 'Content-Type: application/x-tar' -T "$BOX_TMP/$kind.tar" >/dev/null
        [ "$(cat "$secret")" = 'of the host' ] || fail "$kind"
    done
    # An archive of the links has the links, and no content behind them.
    ask GET '/v1/boxes/bad/archive?path=.' >"$BOX_TMP/out.tar"
    run ! grep -q 'of the host' "$BOX_TMP/out.tar"
    # A command: the machine's file is not there, nor by any process that it sees.
    found=$(run_in bad "echo begin; for d in / /proc/[0-9]*/root /proc/[0-9]*/cwd; do cat \$d$secret 2>/dev/null; done; true")
    [[ "$found" = begin* ]]
    [[ "$found" != *'of the host'* ]]
}

@test "a path of the gateway stays with its box: no segment of it leads to another box, route or method" {
    expect 201 .id POST /v1/boxes --json '{"name":"good","agent":"none","provider":"oci"}'
    ask PUT /v1/boxes/good/files/mine --data-binary 'of the good one' >/dev/null
    for path in bad/files/../../good/files/mine bad/files/%2e%2e/%2e%2e/good/files/mine bad%2f..%2fgood/files/mine \
        bad/rpc/..%2f..%2fgood/files/mine bad/rpc/Exec/..%2f..%2f..%2fv1%2ffiles%2fmine bad/proxy/80/../../../good/files/mine \
        'bad/rpc/Exec/Run%0d%0aX-Access-Token:%20x' bad/tunnel/..%2f..%2ffiles bad/proxy/80%2f..%2f..%2ffiles/mine bad%00good/files/mine; do
        for verb in GET POST PUT DELETE; do
            ask "$verb" "/v1/boxes/$path" --path-as-is --data-binary '{}' >"$BOX_TMP/got" || true
            [[ "$ASK_STATUS" = 4* || "$ASK_STATUS" = 20? || "$ASK_STATUS" = 502 ]] || fail "$verb $path: $ASK_STATUS"
            run ! grep -q 'of the good one' "$BOX_TMP/got"
        done
        [ "$(ask GET /v1/boxes/good/files/mine)" = 'of the good one' ] || fail "$path"
    done
    expect 200 '[.boxes[].name] | sort == ["bad", "good"]' GET /v1/boxes
}

@test "another server at the socket of a box's agent gets neither a token nor a request" {
    socket=$(bellhop status bad --json | jq -r .guest.socket)
    [ "$(run_in bad 'echo served')" = served ]
    # By the box, whose root sees the directory of the socket if anybody there does.
    run_in bad 'for s in $(find / -xdev -name agent.sock 2>/dev/null) /run/bellhop/agent.sock; do mv "$s" "$s.away" 2>/dev/null; done; true' >/dev/null
    ask GET '/v1/boxes/bad/files/?list=true' >/dev/null
    [[ "$ASK_STATUS" = 200 || "$ASK_STATUS" = 5* || "$ASK_STATUS" = 404 || "$ASK_STATUS" = 409 ]]
    # By another process of the machine.
    rm -f "$socket"
    python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(16)
while True:
    c = s.accept()[0]
    print(c.recv(1000), flush=True)' "$socket" >"$BOX_TMP/thief" 3>&- &
    thief=$!
    wait_for 10 test -S "$socket"
    for path in '/v1/boxes/bad/files/?list=true' /v1/boxes/bad/files/x /v1/boxes/bad/proxy/80/; do
        ask GET "$path" --max-time 100 >/dev/null
        [ "$ASK_STATUS" != 200 ]
    done
    kill "$thief"
    wait "$thief" || true
    run ! grep -qE 'GET|Token' "$BOX_TMP/thief"
    expect 200 true GET /v1/info
}

@test "a box that floods the gateway delays no other box for long, and nothing of it stays" {
    expect 201 .id POST /v1/boxes --json '{"name":"good","agent":"none","provider":"oci"}'
    ask PUT /v1/boxes/good/files/mine --data-binary mine >/dev/null
    run_in bad 'truncate -s 4G sparse' >/dev/null
    fds() { find "/proc/$DAEMON_PID/fd" -mindepth 1 | wc -l; }
    before=$(fds)
    python3 - "$DAEMON_SOCKET" >"$BOX_TMP/slowest" <<'PY'
import http.client, json, socket, sys, threading, time
path = sys.argv[1]
stop = threading.Event()
def connect():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(path)
    return s
def request(line, body=b""):
    s = connect()
    s.sendall(f"{line} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    return s
def read(s):
    try:
        while not stop.is_set() and s.recv(1 << 20):
            pass
    except OSError:
        pass
    s.close()
run = json.dumps({"argv": ["sh", "-c", "exec yes"]}).encode()
busy = [request("GET /v1/boxes/bad/files/sparse") for _ in range(4)] + [request("POST /v1/boxes/bad/rpc/Exec/Start", run) for _ in range(4)]
readers = [threading.Thread(target=read, args=(s,)) for s in busy]
for t in readers:
    t.start()
silent = [request("GET /v1/boxes/bad/files/sparse") for _ in range(100)]  # nobody reads these
slowest = 0
for _ in range(100):
    c = http.client.HTTPConnection("x")
    begin = time.monotonic()
    c.sock = connect()
    c.request("GET", "/v1/boxes/good/files/mine")
    assert c.getresponse().read() == b"mine"
    slowest = max(slowest, time.monotonic() - begin)
stop.set()
for t in readers:
    t.join()
for s in silent:
    s.close()
print(f"{slowest:.3f}")
PY
    echo "the slowest of 100 took $(cat "$BOX_TMP/slowest") s"
    awk '{ exit !($1 < 5) }' "$BOX_TMP/slowest"
    hwm=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$DAEMON_PID/status")
    echo "the daemon had up to $hwm KiB"
    [ "$hwm" -lt 65536 ]
    as_before() { [ "$(fds)" -le "$((before + 2))" ]; }
    wait_for 30 as_before
    [ "$(run_in bad 'echo served')" = served ]
}
