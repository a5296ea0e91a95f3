#!/usr/bin/env bats
# The daemon under faults of its machine: a full disk, a clock that is set, a daemon that is killed.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    HOOK_PID=
}

teardown()
{
    [ -z "${FOLLOW_PID:-}" ] || kill "$FOLLOW_PID" 2>/dev/null || true
    [ -z "$HOOK_PID" ] || { kill "$HOOK_PID" && wait "$HOOK_PID"; } 2>/dev/null || true
    daemon_stop
    box_teardown
    ! mountpoint -q "$BOX_TMP/small" || umount -l "$BOX_TMP/small"
}

make_box() # NAME; over HTTP
{
    expect 201 '.state == "running"' POST /v1/boxes \
        --json "{\"name\":\"$1\",\"provider\":\"process\",\"agent\":\"none\",\"no_upload\":true}" "${@:2}"
}

state_of() { bellhop status "$1" --json 2>/dev/null | jq -r '.state // "gone"'; }

# followed FILE: the stream has the position of each event that the store has, in order, once.
followed()
{
    moved bellhop events --json | jq -r '.events[].position' >"$BOX_TMP/positions"
    awk '/^id: / { id = $2 } /^event: / { if ($2 != "box") print id }' "$1" >"$BOX_TMP/streamed"
    cmp -s "$BOX_TMP/positions" "$BOX_TMP/streamed"
}

moved() { LD_PRELOAD=${SHIFT_LIB:-} "$@"; }

@test "on a full disk each call is done and stored, or a typed error; the next is served, and no event is lost" {
    mkdir "$BOX_TMP/small"
    mount -t tmpfs -o size=8m,mode=0700 none "$BOX_TMP/small" || skip "no right to mount here"
    export BELLHOP_STATE_DIR=$BOX_TMP/small/state
    daemon_start
    follow "$BOX_TMP/stream" '/v1/events?since=0'
    for call in create fork stop start pause resume keep destroy; do
        make_box one
        case $call in
        start) bellhop stop one >/dev/null ;;
        resume) bellhop pause one >/dev/null ;;
        esac
        before=$(state_of one)
        cat /dev/zero >"$BOX_TMP/small/zeroes" 2>/dev/null || true
        case $call in
        create) ask POST /v1/boxes -H "Idempotency-Key: $call" \
            --json '{"name":"two","provider":"process","agent":"none","no_upload":true}' ;;
        destroy) ask DELETE /v1/boxes/one ;;
        keep) ask POST /v1/boxes/one/keep --json '{"for_ms":7200000}' ;;
        fork) ask POST /v1/boxes/one/snapshots -H "Idempotency-Key: $call" --json '{"name":"s"}' ;;
        *) ask POST "/v1/boxes/one/$call" ;;
        esac >"$BOX_TMP/said"
        status=$ASK_STATUS
        expect 200 '.boxes | length >= 0' GET /v1/boxes
        rm "$BOX_TMP/small/zeroes"
        now=$(state_of one)
        echo "$call: $status $(cat "$BOX_TMP/said"), $before -> $now"
        case $call:$status in
        stop:200) [ "$now" = stopped ] ;;
        pause:200) [ "$now" = paused ] ;;
        start:200 | resume:200) [ "$now" = running ] ;;
        destroy:2*) [ "$now" = gone ] ;;
        fork:501 | keep:200) [ "$now" = "$before" ] ;;
        create:2*) [ "$(state_of two)" = running ] ;;
        *) jq -e '.code == "resource_exhausted" and .message != ""' "$BOX_TMP/said" ;;
        esac
        [[ "$call:$status" != create:[45]* ]] || [ "$(state_of two)" = gone ]
        bellhop rm -f one two >/dev/null
    done
    wait_for 20 followed "$BOX_TMP/stream"
    bellhop audit verify
    daemon_stop
    bellhop gc >/dev/null
    left=$(ls "$BELLHOP_STATE_DIR/boxes")
    umount "$BOX_TMP/small"
    [ -z "$left" ]
}

set_clock() # SECONDS: moves the wall clock of the daemon and of its boxes' monitors
{
    python3 -c 'import struct, sys; open(sys.argv[1], "r+b").write(struct.pack("<q", int(sys.argv[2])))' "$SHIFT_CLOCK" "$1"
}

call() # TOKEN PATH: the status
{
    curl -sS --max-time 20 -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $1" "$URL$2"
}

is_status() { [ "$(call "$2" "$3")" = "$1" ]; }

# The receiver has each event, in order, once.
took_all()
{
    moved bellhop events --json | jq -c '.events[].position' >"$BOX_TMP/want"
    jq -r '.body | fromjson | .position' "$BOX_TMP/got" >"$BOX_TMP/have"
    cmp -s "$BOX_TMP/want" "$BOX_TMP/have"
}

repeat_two() # the creation of the box `two` again has no other effect
{
    ask POST /v1/boxes -H 'Idempotency-Key: k' --json '{"name":"two","provider":"process","agent":"none","no_upload":true}' |
        jq -e --arg id "$TWO" '.id == $id and .state == "running"'
}

@test "the clock a day forward and back: streams, boxes and webhooks go on, and times that people set follow the clock" {
    SHIFT_LIB=$BOX_TMP/shift.so
    export SHIFT_CLOCK=$BOX_TMP/shift
    gcc -O1 -shared -fPIC -o "$SHIFT_LIB" "$BATS_TEST_DIRNAME/../lib/shift_clock.c"
    printf '\0\0\0\0\0\0\0\0' >"$SHIFT_CLOCK"
    python3 "$BATS_TEST_DIRNAME/../lib/webhook_server.py" "$BOX_TMP/got" >"$BOX_TMP/hook_port" 2>/dev/null 3>&- &
    HOOK_PID=$!
    wait_for 10 test -s "$BOX_TMP/hook_port"
    moved daemon_start --listen 127.0.0.1:0 --webhook "http://127.0.0.1:$(cat "$BOX_TMP/hook_port")/hook"
    URL=http://$(jq -r '.tcp[0]' <<<"$DAEMON_READY")
    hour=$(bellhop token create -q --scope use --expires 1h) month=$(bellhop token create -q --scope use --expires 30d)
    wait_for 10 is_status 200 "$month" /v1/info
    make_box one
    make_box two -H 'Idempotency-Key: k'
    TWO=$(jq -r .id "$BOX_TMP/expected")
    signed_hour=$(bellhop url one --signed --for 1h --file :/etc/passwd) signed_week=$(bellhop url one --signed --for 7d --file :/etc/passwd)
    curl -sS -N -H "Authorization: Bearer $month" "$URL/v1/events?since=0" >"$BOX_TMP/stream" 2>/dev/null 3>&- &
    FOLLOW_PID=$!
    wait_for 20 followed "$BOX_TMP/stream"
    for shift in 86400 -86400; do
        set_clock "$shift"
        expired=200 refused=200
        [ "$shift" -lt 0 ] || expired=401 refused=401
        wait_for 10 is_status "$expired" "$hour" /v1/info
        is_status 200 "$month" /v1/info
        [ "$(curl -sS -o /dev/null -w '%{http_code}' "$signed_hour")" = "$refused" ]
        [ "$(curl -sS -o /dev/null -w '%{http_code}' "$signed_week")" = 200 ]
        repeat_two
        expect 200 '.state == "stopped"' POST /v1/boxes/one/stop
        expect 200 '.state == "running"' POST /v1/boxes/one/start
        # No lease has ended, and no janitor thinks so.
        moved bellhop gc >/dev/null
        [ "$(state_of one) $(state_of two)" = 'running running' ]
        wait_for 20 followed "$BOX_TMP/stream"
        wait_for 20 took_all
    done
    kill -0 "$FOLLOW_PID"
    set_clock 0
    bellhop audit verify
}

@test "a lock that is no daemon's, of who asks or of a child that is just starting, delays a daemon's start alone" {
    mkdir -p -m 0700 "$BELLHOP_STATE_DIR"
    exec 8>>"$BELLHOP_STATE_DIR/daemon.lock"
    flock -s 8
    "$BELLHOP_BUILD/bellhop-daemon" --state-dir "$BELLHOP_STATE_DIR" --cache-dir "$BELLHOP_CACHE_DIR" \
        --socket "$BOX_TMP/daemon.sock" 2>"$BOX_TMP/daemon.log" 3>&- 8>&- &
    DAEMON_PID=$!
    tries() { ls -l "/proc/$DAEMON_PID/fd" | grep -q 'daemon[.]lock$'; }
    wait_for 10 tries
    flock -u 8
    exec 8>&-
    wait_for 10 curl -sS --fail --unix-socket "$BOX_TMP/daemon.sock" http://bellhop/v1/health
}

@test "when a daemon is killed, the next one starts at once and has the same" {
    daemon_start
    make_box one
    for i in 1 2 3; do
        run "$BELLHOP_BUILD/bellhop-daemon" --state-dir "$BELLHOP_STATE_DIR" --cache-dir "$BELLHOP_CACHE_DIR" --socket "$BOX_TMP/other"
        [ "$status" -eq 1 ]
        [[ "$output" = *"a daemon (pid $DAEMON_PID) serves the boxes of"* ]]
        # At work on a box: what it has started must not hold the lock.
        curl -sS --unix-socket "$DAEMON_SOCKET" --json "{\"name\":\"b$i\",\"provider\":\"process\",\"agent\":\"none\"}" \
            http://bellhop/v1/boxes >/dev/null 2>&1 3>&- &
        FOLLOW_PID=$!
        begun() { [ -e "$BELLHOP_STATE_DIR/locks/b$i" ]; }
        wait_for 10 begun
        kill -9 "$DAEMON_PID"
        wait "$DAEMON_PID" || true
        daemon_start
        expect 200 '[.boxes[].name] | index("one") != null' GET /v1/boxes
        wait "$FOLLOW_PID" || true
        FOLLOW_PID=
    done
}
