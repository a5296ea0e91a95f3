# daemon.bash: a daemon for tests, on the state directory of tests/lib/box.bash. Used by bats files:
#
#   load ../lib/box
#   load ../lib/daemon
#   setup() { box_setup; daemon_start; }
#   teardown() { daemon_stop; box_teardown; }

# daemon_start [OPTION...]: starts it and waits until it answers. Sets DAEMON_PID, DAEMON_SOCKET and DAEMON_READY, its
# line of JSON.
daemon_start()
{
    DAEMON_SOCKET=$BOX_TMP/daemon.sock
    mkfifo "$BOX_TMP/daemon.ready"
    "$BELLHOP_BUILD/bellhop-daemon" --state-dir "$BELLHOP_STATE_DIR" --cache-dir "$BELLHOP_CACHE_DIR" \
        --socket "$DAEMON_SOCKET" --ready-fd 3 "$@" 3>"$BOX_TMP/daemon.ready" 2>>"$BOX_TMP/daemon.log" &
    DAEMON_PID=$!
    read -r DAEMON_READY <"$BOX_TMP/daemon.ready"
    rm "$BOX_TMP/daemon.ready"
    jq -e 'has("error") | not' <<<"$DAEMON_READY" >/dev/null
}

# Asks it to end, and waits.
daemon_stop()
{
    [ -n "${DAEMON_PID:-}" ] || return 0
    kill "$DAEMON_PID" 2>/dev/null || true
    wait "$DAEMON_PID" || true
    DAEMON_PID=
}

# ask METHOD PATH [CURL OPTION...]: prints the body; $ASK_STATUS gets the status, and $BOX_TMP/headers the headers.
ask()
{
    local method=$1 path=$2

    shift 2
    ASK_STATUS=$(curl -sS --max-time 60 --unix-socket "$DAEMON_SOCKET" -X "$method" -o "$BOX_TMP/answer" \
        -D "$BOX_TMP/headers" -w '%{http_code}' "$@" "http://bellhop$path")
    cat "$BOX_TMP/answer"
}

# follow FILE PATH [CURL OPTION...]: writes a stream of events to FILE in the background; FOLLOW_PID is curl's.
follow()
{
    local file=$1 path=$2

    shift 2
    curl -sS -N --unix-socket "$DAEMON_SOCKET" "$@" "http://bellhop$path" >"$file" 2>"$file.err" &
    FOLLOW_PID=$!
}

# expect STATUS FILTER METHOD PATH [CURL OPTION...]: the answer has the status, and jq's filter is true of its JSON.
expect()
{
    local status=$1 filter=$2

    shift 2
    ask "$@" >"$BOX_TMP/expected"
    if [ "$ASK_STATUS" != "$status" ] || ! jq -e "$filter" "$BOX_TMP/expected" >/dev/null; then
        echo "$ASK_STATUS: $(cat "$BOX_TMP/expected")"
        return 1
    fi
}
