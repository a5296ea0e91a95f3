#!/usr/bin/env bats
# Commands with --daemon: the boxes of a daemon, over its unix socket and over TCP with a token. With the provider
# `process`.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    mkdir "$BOX_TMP/project"
    echo 'a line' >"$BOX_TMP/project/file"
    daemon_start --listen 127.0.0.1:0
    URL=http://$(jq -r '.tcp[0]' <<<"$DAEMON_READY")
}

teardown()
{
    [ -z "${EXEC_PID:-}" ] || kill "$EXEC_PID" 2>/dev/null || true
    [ -z "${SERVER_PID:-}" ] || kill "$SERVER_PID" 2>/dev/null || true
    daemon_stop
    box_teardown
}

make_box() # NAME [OPTION...]
{
    bellhop up --provider process --agent none --name "$@" "$BOX_TMP/project" >/dev/null 2>&1
}

token() # SCOPE [OPTION...]: writes the file $BOX_TMP/SCOPE, and waits until the daemon knows it
{
    local scope=$1

    shift
    bellhop token create -q --scope "$scope" "$@" >"$BOX_TMP/$scope"
    wait_for 10 knows_token "$BOX_TMP/$scope"
}

knows_token() # FILE
{
    curl -sf --max-time 5 -H "Authorization: Bearer $(cat "$1")" "$URL/v1/info" >/dev/null
}

at() # MODE WORD...: the command in one of the modes
{
    local mode=$1

    shift
    case $mode in
    none) bellhop --daemon none "$@" ;;
    default) bellhop "$@" ;;
    unix) bellhop --daemon "unix:$DAEMON_SOCKET" "$@" ;;
    auto) bellhop --daemon auto "$@" ;;
    tcp) bellhop --daemon "$URL" --token-file "$BOX_TMP/admin" "$@" ;;
    esac
}

# fails STATUS PATTERN WORD...: the command ends with the status, and its message has the pattern.
fails()
{
    local wanted=$1 pattern=$2 rc=0

    shift 2
    bellhop "$@" >/dev/null 2>"$BOX_TMP/message" || rc=$?
    if [ "$rc" -ne "$wanted" ] || ! grep -q -- "$pattern" "$BOX_TMP/message"; then
        echo "$*: $rc: $(cat "$BOX_TMP/message")"
        return 1
    fi
}

# Times, ages and pids differ from one call to the next.
steady()
{
    sed 's/[0-9a-f]\{16\}/ID/g; s/[0-9]\{1,\}/N/g; s/\bN\(ms\|s\|m\)\( N\(s\|ms\)\)\{0,1\}/N/g; s/  */ /g'
}

@test "a command prints the same and ends the same without a daemon, through the one found by 'auto', and over TCP" {
    make_box one -e GREETING=hello --label team=a
    token admin
    # The first word on a line is the status.
    cat >"$BOX_TMP/table" <<'TABLE'
0 ls
0 ls -q
0 ls --json
0 status one
0 status one --json
0 events one
0 events --json one
0 exec one -- sh -c 'echo out; echo err >&2; echo $GREETING'
7 exec one -- sh -c 'exit 7'
127 exec one -- /nothing
0 exec -i one -- cat
0 exec --json one -- pwd
143 exec one -- sh -c 'kill -TERM $$'
0 cat one :file
3 cat one :missing
0 glob one '*'
0 grep one line
1 grep one absent
0 put one "$BOX_TMP/project/file" :file
3 get one :missing .
3 status nobody
125 exec --json nobody -- true
2 status NOBODY
0 snapshots ls
9 snapshot one
3 logs one
0 hold one --id h
0 release one h
6 wait-port one 1 --timeout 500ms
0 ps one
4 prompt one hello
2 prompt one ''
3 prompt nobody hello
2 attach --url ftp://x --name far
TABLE
    for mode in none default auto tcp; do
        while read -r status words; do
            rc=0
            eval "at $mode $words" <"$BOX_TMP/project/file" >"$BOX_TMP/out" 2>"$BOX_TMP/err" || rc=$?
            { echo "== $words: $rc"; steady <"$BOX_TMP/out"; echo '-- errors:'; steady <"$BOX_TMP/err"; } \
                >>"$BOX_TMP/mode.$mode"
            [ "$status" = "$rc" ] || echo "$mode: $words: $rc" >>"$BOX_TMP/wrong"
        done <"$BOX_TMP/table"
    done
    [ ! -e "$BOX_TMP/wrong" ] || { cat "$BOX_TMP/wrong" "$BOX_TMP/mode.none"; false; }
    grep -q '^hello' "$BOX_TMP/mode.none"
    for mode in default auto tcp; do
        diff "$BOX_TMP/mode.none" "$BOX_TMP/mode.$mode"
    done
}

@test "a box is made, used, changed and removed over TCP, and the project comes with it" {
    token admin
    state() { at tcp status one --json | jq -r .state; }
    at tcp up --provider process --agent none --name one "$BOX_TMP/project" >/dev/null 2>&1
    [ "$(at tcp cat one :file)" = 'a line' ]
    # The token in the clear is no proxy's to read, in calls of the daemon and of the box.
    [ "$(http_proxy=http://127.0.0.1:1 no_proxy= at tcp ls -q)" = one ]
    [ "$(http_proxy=http://127.0.0.1:1 no_proxy= at tcp exec one -- cat file)" = 'a line' ]
    # A second up finds it, and uploads nothing again.
    at tcp exec one -- rm file
    at tcp up --provider process --agent none --name one "$BOX_TMP/project" >/dev/null 2>&1
    run at tcp cat one :file
    [ "$status" -eq 3 ]
    # Another project does not get it.
    mkdir "$BOX_TMP/other"
    run at tcp up --provider process --agent none --name one "$BOX_TMP/other"
    [ "$status" -eq 4 ]
    [[ $output == *"'one' is not for"* ]]
    head -c 20000000 /dev/urandom >"$BOX_TMP/large" # more than 16 MiB: by an upload that can be resumed
    at tcp put one "$BOX_TMP/large" :large
    at tcp get one :large "$BOX_TMP/back"
    cmp "$BOX_TMP/large" "$BOX_TMP/back/large"
    at tcp pause one
    [ "$(state)" = paused ]
    at tcp resume one
    [ "$(state)" = running ]
    at tcp stop one
    [ "$(state)" = stopped ]
    run at tcp --no-resume exec one -- true
    [ "$status" -eq 125 ]
    [[ $output == *"'one' is stopped"* ]]
    [ "$(at tcp exec one -- echo woken)" = woken ]
    at tcp start one
    at tcp keep one --for 3h --json | jq -e '.deadline_ms > (now + 10000) * 1000'
    at tcp url one --port 8080 | grep -qx "$URL/v1/boxes/[0-9a-f]*/proxy/8080/"
    at tcp rm one
    at tcp ls --all --json | jq -e '.boxes | length == 1 and .[0].state == "destroyed"'
}

@test "'auto' uses the daemon of the state directory alone, and without one everything is as before" {
    make_box one
    calls() { grep -c '"verb":"POST"' "$BELLHOP_STATE_DIR/audit.jsonl" || true; }
    before=$(calls)
    at auto stop one
    [ "$(calls)" -eq $((before + 1)) ]
    at none start one
    [ "$(calls)" -eq $((before + 1)) ]
    at default stop one
    [ "$(calls)" -eq $((before + 2)) ]
    # An event has the command that caused it, not the daemon.
    bellhop events one --json | jq -e '.events[-1] | .after == "stopped" and .actor == "bellhop stop"'
    # No route: done here, by default too.
    at auto gc >/dev/null
    at default image ls >/dev/null
    at default url one --port 80 --signed | grep -q bellhop_signature=
    at default up --empty --provider process --agent none --name two >/dev/null 2>&1
    [ "$(calls)" -eq $((before + 2)) ]
    at default ls -q | grep -qx two
    daemon_stop
    [ "$(at default exec two -- echo here)" = here ]
    at none start one
    [ "$(at auto exec one -- echo here)" = here ]
    BELLHOP_DAEMON=auto bellhop stop one
    [ "$(calls)" -eq $((before + 2)) ]
}

# own_daemon CASE: the server of own_daemon.py has the lock of the state directory. Its requests are in $BOX_TMP/asked.
own_daemon()
{
    rm -f "$BOX_TMP/own.sock" "$BOX_TMP/asked"
    python3 "$BATS_TEST_DIRNAME/../lib/own_daemon.py" "$BELLHOP_STATE_DIR" "$BOX_TMP/own.sock" "$@" >"$BOX_TMP/asked" 3>&- &
    SERVER_PID=$!
    wait_for 10 grep -q ready "$BOX_TMP/asked"
}

end_own_daemon()
{
    kill "$SERVER_PID" 2>/dev/null || true
    wait "$SERVER_PID" || true
    SERVER_PID=
}

@test "a daemon that is another's, ends just now, hangs or was killed does not get in the way of 'auto'" {
    make_box one
    here() { [ "$(bellhop ls 2>&1 | tail -n 1 | cut -f 1)" = one ] && ! bellhop ls 2>&1 | grep '^bellhop:'; }
    here
    kill -STOP "$DAEMON_PID"
    begun=$SECONDS
    [ "$(bellhop exec one -- echo here 2>"$BOX_TMP/err")" = here ]
    grep -q "the daemon (pid $DAEMON_PID) does not answer: this is done without it" "$BOX_TMP/err"
    [ $((SECONDS - begun)) -le 10 ]
    kill -CONT "$DAEMON_PID"
    here
    kill -KILL "$DAEMON_PID"
    wait "$DAEMON_PID" || true
    [ -S "$DAEMON_SOCKET" ] # stale
    here
    DAEMON_PID=
    own_daemon other
    here
    [ "$(grep -c boxes "$BOX_TMP/asked")" -eq 0 ]
    end_own_daemon
    own_daemon gone
    here
    end_own_daemon
    own_daemon silent
    bellhop ls 2>&1 | grep -q 'does not answer'
    end_own_daemon
    [ "$(id -u)" = 0 ] || skip 'the rest needs root: a socket of another user'
    mkdir -m 0777 "$BOX_TMP/open"
    chmod a+x "$BOX_TMP"
    rm "$BOX_TMP/asked"
    python3 "$BATS_TEST_DIRNAME/../lib/own_daemon.py" "$BELLHOP_STATE_DIR" "$BOX_TMP/open/own.sock" stolen 65534 \
        >"$BOX_TMP/asked" 3>&- &
    SERVER_PID=$!
    wait_for 10 grep -q ready "$BOX_TMP/asked"
    here
    [ "$(cat "$BOX_TMP/asked")" = ready ] # nothing was sent to it
    end_own_daemon
}

@test "a daemon of another state directory is not used, wherever its socket is" {
    make_box one
    # The lock here names the socket of a daemon that serves another directory.
    first=$DAEMON_PID
    jq -c --arg socket "$BOX_TMP/second.sock" '.socket = $socket' "$BELLHOP_STATE_DIR/daemon.lock" >"$BOX_TMP/lock"
    cat "$BOX_TMP/lock" >"$BELLHOP_STATE_DIR/daemon.lock"
    mkfifo "$BOX_TMP/second.ready"
    "$BELLHOP_BUILD/bellhop-daemon" --state-dir "$BOX_TMP/state2" --cache-dir "$BELLHOP_CACHE_DIR" --socket "$BOX_TMP/second.sock" \
        --ready-fd 3 3>"$BOX_TMP/second.ready" 2>/dev/null &
    DAEMON_PID=$!
    read -r _ <"$BOX_TMP/second.ready"
    [ "$(bellhop ls -q)" = one ]
    [ "$(BELLHOP_STATE_DIR=$BOX_TMP/state2 bellhop ls -q)" = '' ]
    daemon_stop
    DAEMON_PID=$first
}

@test "a daemon that is restarted between two calls of a command is waited for" {
    daemon_stop
    own_daemon restart
    bellhop stop one
    [ "$(grep -v health "$BOX_TMP/asked" | tr '\n' ' ')" = 'ready GET /v1/boxes/one POST /v1/boxes/0123456789abcdef/stop ' ]
    end_own_daemon
}

@test "no libcurl is loaded for a daemon's unix socket, and none of it without a daemon" {
    make_box one
    opens() { strace -f -o "$BOX_TMP/trace" -e trace=openat "$BELLHOP" "$@" >/dev/null && grep -c 'libcurl[^"]*", .* = [0-9]' "$BOX_TMP/trace"; }
    command -v strace >/dev/null || skip 'strace is not installed'
    [ "$(opens ls || true)" = 0 ]
    [ "$(opens status one || true)" = 0 ]
    [ "$(opens stop one || true)" = 0 ]
    daemon_stop
    [ "$(opens ls || true)" = 0 ]
}

@test "the record of calls names the caller" {
    make_box one
    bellhop token create -q --scope use --name ann >"$BOX_TMP/use"
    wait_for 10 knows_token "$BOX_TMP/use"
    BELLHOP_DAEMON=$URL BELLHOP_TOKEN=$(cat "$BOX_TMP/use") bellhop stop one
    bellhop audit ls | grep -q 'ann.*/v1/boxes/[0-9a-f]*/stop'
}

@test "what is wrong with the address, the token or the daemon is a typed error" {
    make_box one
    token read
    token use
    fails 7 'token is needed' --daemon "$URL" ls
    BELLHOP_TOKEN=wrong fails 7 'not known' --daemon "$URL" ls
    fails 7 "'use'" --daemon "$URL" --token-file "$BOX_TMP/read" stop one
    fails 7 "'admin'" --daemon "$URL" --token-file "$BOX_TMP/use" rm one
    fails 3 'token-file' --daemon "$URL" --token-file "$BOX_TMP/none" ls
    fails 2 'https://HOST' --daemon ftp://x ls
    fails 2 'https://HOST' --daemon unix:relative ls
    fails 2 'no user' --daemon http://me:pw@localhost ls
    fails 9 'through a daemon' --daemon "$URL" gc
    fails 9 'agent_config' --daemon "$URL" --token-file "$BOX_TMP/use" up --agent-config "$BOX_TMP" "$BOX_TMP"
    fails 3 'daemon-ca' --daemon https://localhost:1 --daemon-ca "$BOX_TMP/none" ls
    fails 5 'the daemon' --daemon "unix:$BOX_TMP/none" ls
    daemon_stop
    fails 5 'the daemon' --daemon "$URL" --token-file "$BOX_TMP/use" ls
    bellhop ls -q | grep -qx one
}

# exec_waits ID: a command in the background, through the daemon, that ends when the box has the file ID. Sets EXEC_PID.
exec_waits()
{
    "$BELLHOP" --daemon "unix:$DAEMON_SOCKET" exec --id "$1" one -- sh -c \
        "echo begun; until [ -e $1 ]; do sleep 0.1; done; echo over" >"$BOX_TMP/$1" 2>"$BOX_TMP/$1.err" &
    EXEC_PID=$!
    wait_for 20 grep -q begun "$BOX_TMP/$1"
}

exec_ends() # STATUS
{
    local rc=0

    wait_for 30 is_gone "$EXEC_PID"
    wait "$EXEC_PID" || rc=$?
    EXEC_PID=
    [ "$rc" -eq "$1" ]
}

@test "^C ends the command in the box" {
    make_box one
    exec_waits one
    kill -INT "$EXEC_PID"
    exec_ends 130
    bellhop ps one --json | jq -e 'tostring | contains("\"running\"") | not'
}

@test "a command goes on when the daemon is killed and comes back, and without it the error is typed" {
    make_box one
    exec_waits first
    kill -KILL "$DAEMON_PID"
    wait "$DAEMON_PID" || true
    daemon_start
    bellhop exec one -- touch first
    exec_ends 0
    [ "$(cat "$BOX_TMP/first")" = "$(printf 'begun\nover')" ]
    exec_waits second
    kill -KILL "$DAEMON_PID"
    wait "$DAEMON_PID" || true
    DAEMON_PID=
    exec_ends 125
    grep -q '^bellhop: the daemon: ' "$BOX_TMP/second.err"
}

@test "https is checked against the certificates that are given" {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost -keyout "$BOX_TMP/key.pem" -out "$BOX_TMP/cert.pem" 2>/dev/null
    make_box one
    token admin
    daemon_stop
    daemon_start --listen 127.0.0.1:0 --tls-cert "$BOX_TMP/cert.pem" --tls-key "$BOX_TMP/key.pem"
    export BELLHOP_DAEMON
    BELLHOP_DAEMON=https://localhost:$(jq -r '.tcp[0] | split(":") | last' <<<"$DAEMON_READY")
    export BELLHOP_TOKEN_FILE=$BOX_TMP/admin
    fails 7 'the daemon' ls
    [ "$(bellhop --daemon-ca "$BOX_TMP/cert.pem" exec one -- cat file)" = 'a line' ]
    unset BELLHOP_DAEMON
}

# answers CASE STATUS PATTERN WORD...: the command fails so at a server that answers as the case of false_daemon.py says.
answers()
{
    local case=$1 status=$2 pattern=$3 port

    shift 3
    rm -f "$BOX_TMP/port"
    mkfifo "$BOX_TMP/port"
    python3 "$BATS_TEST_DIRNAME/../lib/false_daemon.py" "$case" >"$BOX_TMP/port" 3>&- &
    SERVER_PID=$!
    read -r port <"$BOX_TMP/port"
    (
        ulimit -v 1000000
        fails "$status" "$pattern" --daemon "http://127.0.0.1:$port" "$@"
    ) || { echo "$case"; return 1; }
    kill "$SERVER_PID"
    wait "$SERVER_PID" || true
    SERVER_PID=
}

@test "a server that answers with nonsense gets a typed error, and no memory" {
    answers web 5 'no daemon of Bellhop' ls
    answers redirect 5 'no daemon of Bellhop' ls
    answers html 11 'is not JSON' ls
    answers large 8 'larger than' ls
    answers deep 11 'is not JSON' ls
    answers many 8 'daemon' ls
    answers pages 11 'do not end' ls
    answers list 11 'no list' ls
    answers name 11 "the name '../x'" status one
    answers id 125 "the id '../../" exec one -- true
    answers workdir 11 'no absolute path' status one
    answers state 11 "no state 'ruined'" stop one
    answers time 11 'created_ms' ls
    answers missing 11 'agent' ls
}
