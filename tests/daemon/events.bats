#!/usr/bin/env bats
# Streams of events: signs of life, slow readers, boxes that ended unseen, leases of boxes that are followed.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    FOLLOWERS=()
}

teardown()
{
    for pid in "${FOLLOWERS[@]}"; do kill "$pid" 2>/dev/null || true; done
    daemon_stop
    box_teardown
}

make_box() # NAME
{
    bellhop up --empty --provider process --agent none --name "$1" >/dev/null 2>&1
}

has() # FILE PATTERN
{
    grep -q "$2" "$1"
}

has_streams() # N
{
    ask GET /metrics | grep -q "^bellhop_event_streams $1\$"
}

follow_too() # as follow
{
    follow "$@"
    FOLLOWERS+=("$FOLLOW_PID")
}

box_pids() # ID PROGRAM
{
    processes_naming "$1" | grep "$2" | sed 's/^process \([0-9]*\):.*/\1/'
}

deadline_of() # NAME
{
    bellhop status --json "$1" | jq .deadline_ms
}

@test "a stream that is silent has a comment every 15 seconds at most" {
    daemon_start
    make_box one
    follow_too "$BOX_TMP/events" /v1/boxes/one/events
    wait_for 10 has "$BOX_TMP/events" '^event: box'
    begun=$SECONDS
    wait_for 20 has "$BOX_TMP/events" '^:$'
    [ $((SECONDS - begun)) -le 15 ]
}

@test "a client that reads nothing delays nobody, and loses nothing" {
    daemon_start
    make_box one
    follow_too "$BOX_TMP/events" /v1/events
    wait_for 10 has "$BOX_TMP/events" '^event: box'
    mkfifo "$BOX_TMP/go"
    python3 "$BATS_TEST_DIRNAME/../lib/slow_reader.py" "$DAEMON_SOCKET" /v1/events "$BOX_TMP/go" "$BOX_TMP/slow" &
    FOLLOWERS+=($!)
    wait_for 20 has_streams 2
    # 20,000 events, which are more than any buffer takes and than a box keeps.
    python3 "$BATS_TEST_DIRNAME/../lib/many_events.py" "$BELLHOP_STATE_DIR" one 20000
    last=$(bellhop events --json | jq '.events[-1].position')
    wait_for 10 has "$BOX_TMP/events" "^id: $last\$"
    bellhop stop one
    last=$(bellhop events --json | jq '.events[-1].position')
    wait_for 2 has "$BOX_TMP/events" "^id: $last\$"
    echo "$last" >"$BOX_TMP/go"
    wait_for 20 has "$BOX_TMP/slow" "^id: $last\$"
}

@test "the states of a thousand boxes come once each, in pieces, and then the events; they take little memory" {
    daemon_start
    bellhop up --empty --provider process --agent none --name one >/dev/null 2>&1
    bellhop stop one
    python3 "$BATS_TEST_DIRNAME/../lib/many_boxes.py" "$BELLHOP_STATE_DIR" one 1000
    memory() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/$DAEMON_PID/status"; }
    before=$(memory VmRSS)
    mkfifo "$BOX_TMP/go"
    # A client that has read a part when a box changes.
    python3 "$BATS_TEST_DIRNAME/../lib/slow_reader.py" "$DAEMON_SOCKET" /v1/events "$BOX_TMP/go" "$BOX_TMP/slow" &
    FOLLOWERS+=($!)
    follow_too "$BOX_TMP/events" /v1/events
    wait_for 20 has "$BOX_TMP/events" '^data: {"name":"z-1000"'
    wait_for 20 has_streams 2
    bellhop start one
    last=$(bellhop events --json | jq '.events[-1].position')
    wait_for 10 has "$BOX_TMP/events" "^id: $last\$"
    echo "$last" >"$BOX_TMP/go"
    wait_for 20 has "$BOX_TMP/slow" "^id: $last\$"
    for file in events slow; do
        [ "$(grep -ac '^event: box' "$BOX_TMP/$file")" = 1001 ]
        [ "$(grep -ao '^data: {"name":"[^"]*"' "$BOX_TMP/$file" | sort -u | wc -l)" = 1001 ]
    done
    expect 200 '(.boxes | length) == 1000 and .next_cursor != null' GET /v1/boxes
    # As objects, all at once, they took 17 MB.
    [ $(($(memory VmHWM) - before)) -lt 9000 ]
}

@test "a box whose processes ended unseen is corrected within two seconds of a client's coming" {
    daemon_start
    make_box one
    id=$(bellhop status --json one | jq -r .id)
    for name in bellhop-guard bellhop-monitor bellhopd; do
        kill -9 $(box_pids "$id" "$name")
    done
    follow_too "$BOX_TMP/events" /v1/events
    wait_for 2 has "$BOX_TMP/events" '"after":"stopped"'
}

@test "a hundred clients within a minute cause one look at a box" {
    daemon_start
    make_box one
    id=$(bellhop status --json one | jq -r .id)
    for name in bellhop-guard bellhop-monitor; do
        kill -9 $(box_pids "$id" "$name")
    done
    expect 200 true PUT /sandbox/debug --data '{"enabled":true}'
    for i in $(seq 100); do
        follow_too "$BOX_TMP/e.$i" /v1/events
    done
    for i in $(seq 100); do
        wait_for 10 has "$BOX_TMP/e.$i" '^event: box'
    done
    [ "$(grep -c "provider.*find" "$BOX_TMP/daemon.log")" = 1 ]
}

@test "the lease of a box is extended while clients follow it, from the first one to the last" {
    daemon_start --follow-keep-ms 200
    make_box one
    make_box two
    before=$(deadline_of one)
    later() { [ "$(deadline_of "$1")" -gt "$2" ]; }
    follow_too "$BOX_TMP/a" /v1/boxes/one/events
    follow_too "$BOX_TMP/b" /v1/boxes/one/events
    wait_for 10 later one "$before"
    kill "${FOLLOWERS[0]}"
    wait_for 10 later one "$(deadline_of one)"
    kill "${FOLLOWERS[1]}"
    # The other box's lease shows that times of the timer pass.
    follow_too "$BOX_TMP/c" /v1/boxes/two/events
    follow_too "$BOX_TMP/viewer" '/v1/boxes/one/events?keep=false'
    wait_for 10 has "$BOX_TMP/viewer" '^event: box'
    wait_for 10 later two "$(deadline_of two)"
    wait_for 10 later two "$(deadline_of two)"
    after=$(deadline_of one)
    for i in 1 2 3 4 5; do
        wait_for 10 later two "$(deadline_of two)"
    done
    [ "$(deadline_of one)" = "$after" ]
    expect 400 '.field == "keep"' GET '/v1/boxes/one/events?keep=perhaps'
    # A box that does not run is not woken.
    bellhop stop two
    expect 200 '.state == "stopped"' GET /v1/boxes/two
    follow_too "$BOX_TMP/d" /v1/boxes/one/events
    wait_for 10 later one "$after"
    expect 200 '.state == "stopped"' GET /v1/boxes/two
}
