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
