#!/usr/bin/env bats
# The daemon's boxes over HTTP, and their events as they come. With the provider `process`.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    mkdir "$BOX_TMP/project"
    daemon_start
}

teardown()
{
    [ -z "${FOLLOW_PID:-}" ] || kill "$FOLLOW_PID" 2>/dev/null || true
    daemon_stop
    box_teardown
}

make_box() # NAME
{
    bellhop up --provider process --agent none --name "$1" "$BOX_TMP/project" >/dev/null 2>&1
}

has() # FILE PATTERN
{
    grep -q "$2" "$1"
}

@test "a box that a command made is listed, stopped, started and destroyed, by its name and by its id" {
    make_box one
    ask GET /v1/boxes >"$BOX_TMP/list"
    [ "$ASK_STATUS" = 200 ]
    jq -e '.boxes | length == 1 and .[0].name == "one" and .[0].state == "running"' "$BOX_TMP/list"
    id=$(jq -r '.boxes[0].id' "$BOX_TMP/list")
    ask POST /v1/boxes/one/stop | jq -e '.state == "stopped"'
    ask POST "/v1/boxes/$id/start" | jq -e '.state == "running"'
    ask DELETE "/v1/boxes/$id"
    [ "$ASK_STATUS" = 204 ]
    ask GET "/v1/boxes/$id" | jq -e --arg id "$id" '.code == "not_found" and .detail.gone == $id'
    [ "$(bellhop ls -q)" = "" ]
}

@test "what is not there is a typed error" {
    ask GET /v1/boxes/none >"$BOX_TMP/e"
    [ "$ASK_STATUS" = 404 ]
    jq -e '.code == "not_found" and .field == "name"' "$BOX_TMP/e"
    ask GET /v1/nothing >"$BOX_TMP/e"
    [ "$ASK_STATUS" = 404 ]
    ask PUT /v1/boxes >"$BOX_TMP/e"
    [ "$ASK_STATUS" = 405 ] || [ "$ASK_STATUS" = 501 ]
    grep -qi '^allow: .*GET' "$BOX_TMP/headers"
    ask POST /v1/boxes/x/stop -H 'Content-Type: application/json' --data '{' >"$BOX_TMP/e"
    [ "$ASK_STATUS" = 400 ]
}

@test "a follower gets the states first, then each event of a whole life with its id, and a replay from the middle" {
    make_box one
    follow "$BOX_TMP/events" /v1/events
    wait_for 10 has "$BOX_TMP/events" '^event: box'
    make_box two
    bellhop stop one
    bellhop rm one two
    last=$(bellhop events --json | jq '.events[-1].position')
    wait_for 10 has "$BOX_TMP/events" "^id: $last\$"
    [ "$(grep -m 1 '^event:' "$BOX_TMP/events")" = 'event: box' ]
    # The ids rise, and the replay has what followed, byte for byte.
    grep '^id: ' "$BOX_TMP/events" | cut -c5- | sort -n -C
    middle=$(grep '^id: ' "$BOX_TMP/events" | cut -c5- | sed -n 5p)
    follow "$BOX_TMP/replay" /v1/events -H "Last-Event-ID: $middle"
    sed "1,/^id: $middle\$/d" "$BOX_TMP/events" | sed -n '/^id: /,$p' >"$BOX_TMP/rest"
    wait_for 10 cmp -s "$BOX_TMP/rest" "$BOX_TMP/replay"
}

@test "one box's followers see nothing of another" {
    make_box one
    follow "$BOX_TMP/events" /v1/boxes/one/events
    wait_for 10 has "$BOX_TMP/events" '^event: box'
    make_box two
    bellhop rm two
    bellhop stop one
    wait_for 10 has "$BOX_TMP/events" '"after":"stopped"'
    run ! grep -q '"name":"two"' "$BOX_TMP/events"
}

@test "a box that the daemon makes has the limits, mask and signals of one that a command makes" {
    daemon_stop
    # Its own limit, which the daemon raises for itself.
    ulimit -S -n 777
    daemon_start
    [ "$(sed -n 's/^Max open files *\([0-9]*\).*/\1/p' "/proc/$DAEMON_PID/limits")" -gt 777 ]
    mkdir "$BOX_TMP/p"
    bellhop up --provider process --agent none --name theirs "$BOX_TMP/p" >/dev/null 2>&1
    ask POST /v1/boxes --json '{"name":"ours","provider":"process","agent":"none"}' >/dev/null
    for box in theirs ours; do
        bellhop exec "$box" -- sh -c 'grep -E "open files|core|locked|stack|processes" /proc/self/limits; umask; nice; cat /proc/self/oom_score_adj
            grep -E "^(Sig|Shd)(Blk|Ign|Cgt):" /proc/self/status; ls /proc/self/fd
            env | cut -d= -f1 | sort' >"$BOX_TMP/$box.all"
        # Signals 32 and 33 are the C library's: whether they are ignored comes from whoever started this test.
        sed -E '/^SigIgn/s/[0-9a-f]{9}$/*&/; /^SigIgn/s/\*[0-9a-f]/*/' "$BOX_TMP/$box.all" >"$BOX_TMP/$box"
    done
    grep -q 777 "$BOX_TMP/ours"
    diff "$BOX_TMP/theirs" "$BOX_TMP/ours"
    # A box that was stopped, started by a terminal or a request.
    ask POST /v1/boxes/ours/stop >/dev/null
    ask POST /v1/boxes/ours/start >/dev/null
    [ "$(bellhop exec ours -- sh -c 'ulimit -n')" = 777 ]
}

@test "a NUL in a header is refused wherever it stands, and no other header is" {
    python3 - "$DAEMON_SOCKET" <<'PY'
import socket, sys
def ask(head, body=b"", pieces=1):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect(sys.argv[1])
    data = b"GET /v1/boxes HTTP/1.1\r\n" + head + b"\r\n" + body
    step = -(-len(data) // pieces)
    for i in range(0, len(data), step):
        s.sendall(data[i:i + step])
    got = b""
    while piece := s.recv(65536):
        got += piece
    return int(got.split()[1])
end = b"Connection: close\r\n"
host = b"Host: x\r\n"
for bad in (b"X: a\0b\r\n", b"X: \0b\r\n", b"X: a\0b\n", b"Host: x\0y\r\n", b"X: a\0\0\0b\r\n", b"X: a\0Y: b\r\n"):
    for head in (bad + host + end, host + bad + end, host + end + bad) if not bad.startswith(b"Host") else (bad + end, end + bad):
        assert ask(head) == 400, head
        assert ask(head, pieces=7) == 400, head
for good in (b"X: a\r\n", b"X: a \t \r\n", b"X:\r\n", b"X: \r\n", b"X: a\n", b"X:a\r\nX:b\nX: c \r\n", b"X: " + b"a" * 9000 + b"\r\n"):
    for head in (good + host + end, host + good + end, host + end + good):
        for pieces in 1, 2, 3, 5, 50:
            assert ask(head, pieces=pieces) == 200, (head, pieces)
            assert ask(head + b"Content-Length: 2\r\n", b"{}", pieces) == 200, (head, pieces)
# Several requests that come at once.
one = b"GET /v1/boxes HTTP/1.1\r\n" + host
s = socket.socket(socket.AF_UNIX)
s.settimeout(30)
s.connect(sys.argv[1])
s.sendall((one + b"X: a\r\n\r\n") * 5 + one + b"X: a\0b\r\n" + end + b"\r\n")
got = b""
while piece := s.recv(65536):
    got += piece
assert (got.count(b"HTTP/1.1 200"), got.count(b"HTTP/1.1 400")) == (5, 1), got
assert ask(host + end + b"".join(b"X-%d: %d\r\n" % (i, i) for i in range(200))) == 200
PY
}

@test "the socket is its owner's, and goes with the daemon" {
    [ "$(stat -c %a "$DAEMON_SOCKET")" = 600 ]
    daemon_stop
    [ ! -e "$DAEMON_SOCKET" ]
}

# Clients that ask for the events at the same moment; prints how many got the state of a box. Then all leave.
many_followers() # N
{
    python3 - "$DAEMON_SOCKET" "$1" <<'PY'
import selectors, socket, sys
path, n = sys.argv[1], int(sys.argv[2])
ready = selectors.DefaultSelector()
for _ in range(n):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    s.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
    ready.register(s, selectors.EVENT_READ, bytearray())
served = 0
while ready.get_map():
    events = ready.select(20)
    if not events:
        break
    for key, _ in events:
        piece = key.fileobj.recv(65536)
        key.data.extend(piece)
        served += b"event: box" in key.data
        if not piece or b"event: box" in key.data or b'"code"' in key.data:
            ready.unregister(key.fileobj)
print(served)
PY
}

private_kib() { awk '/^Private/ { n += $2 } END { print n }' "/proc/$DAEMON_PID/smaps_rollup"; }

is_small() { [ "$(private_kib)" -lt 6144 ]; }

@test "more followers than the pool has room for may come at once, and what they took is given back" {
    daemon_stop
    ulimit -Sn 1024 # a usual limit; the daemon raises its own
    daemon_start
    ulimit -Sn 4096
    bellhop up --provider process --agent none --name one >/dev/null 2>&1
    is_small
    [ "$(many_followers 1500)" = 1500 ]
    wait_for 30 is_small
}

@test "a daemon that was just started holds less than 6 MB, also of what it shares" {
    [ "$(awk '/^VmRSS/ { print $2 }' "/proc/$DAEMON_PID/status")" -lt 6144 ]
    # The pages that its start left behind come back when they are needed.
    expect 200 '.boxes == []' GET /v1/boxes
}
