#!/usr/bin/env bats
# /metrics: Prometheus' text, and in it the figures of the guest agents, summed by the owner of their boxes.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    mkdir "$BOX_TMP/project"
    daemon_start
    STOPPED=
}

teardown()
{
    [ -z "$STOPPED" ] || kill -CONT "$STOPPED" 2>/dev/null || true
    daemon_stop
    box_teardown
}

make_box() # NAME [OPTION...]
{
    bellhop up --provider process --agent none --name "$1" "${@:2}" "$BOX_TMP/project" >/dev/null 2>&1
}

# metric SERIES: its value now; nothing if it is not there.
metric()
{
    ask GET /metrics | awk -v want="$1" '$1 == want { print $2 }'
}

# is SERIES OPERATOR VALUE
is()
{
    jq -en --arg v "$(metric "$1")" "(\$v | tonumber? // -1) $2 $3" >/dev/null
}

@test "processor time, memory, commands, bytes and errors of the agents are summed by owner and state" {
    make_box one --label owner=ann
    make_box two --label owner=ann
    make_box three
    bellhop exec three -- true
    wait_for 20 is 'bellhop_guest_memory_bytes{state="running",owner="ann"}' '==' 0
    # One that was there at the first look has grown by nothing: its past is no work of now.
    is 'bellhop_guest_in_bytes_total{owner=""}' '==' 0
    bellhop exec -d one -- sleep 600 >/dev/null
    bellhop exec -d two -- sleep 600 >/dev/null
    bellhop exec two -- sh -c 'i=0; while [ $i -lt 500000 ]; do i=$((i + 1)); done'
    head -c 1000000 /dev/zero >"$BOX_TMP/zeros"
    ask PUT /v1/boxes/one/files/zeros --data-binary "@$BOX_TMP/zeros" >/dev/null
    wait_for 20 is 'bellhop_guest_commands{state="running",owner="ann"}' '==' 2
    wait_for 20 is 'bellhop_guest_in_bytes_total{owner="ann"}' '>=' 1000000
    wait_for 20 is 'bellhop_guest_cpu_seconds_total{owner="ann"}' '>=' 0.1
    is 'bellhop_guest_memory_bytes{state="running",owner="ann"}' '>' 100000
    is 'bellhop_guest_out_bytes_total{owner="ann"}' '>' 0
    is 'bellhop_guest_errors_total{owner="ann"}' '==' 0
    is bellhop_guest_silent '==' 0
    before=$(metric 'bellhop_guest_in_bytes_total{owner="ann"}')
    # A paused box is not woken, and counts as it was; what a box that is gone has used stays.
    bellhop pause one
    bellhop rm two
    wait_for 20 is 'bellhop_guest_commands{state="paused",owner="ann"}' '==' 1
    is 'bellhop_guest_memory_bytes{state="paused",owner="ann"}' '>' 100000
    [ -z "$(metric 'bellhop_guest_commands{state="running",owner="ann"}')" ]
    is 'bellhop_guest_in_bytes_total{owner="ann"}' '>=' "$before"
    [ "$(bellhop status one --json | jq -r .state)" = paused ]
    ask GET /metrics >"$BOX_TMP/metrics"
    python3 "$BATS_TEST_DIRNAME/../lib/check_metrics.py" <"$BOX_TMP/metrics"
}

@test "an agent that hangs is counted as silent, delays nobody else's figures, and Prometheus little" {
    make_box one --label owner=ann
    make_box two --label owner=bob
    wait_for 20 is bellhop_guest_silent '==' 0
    STOPPED=$(jq .listener.pid "$BELLHOP_STATE_DIR/boxes/$(bellhop status one --json | jq -r .id)/run.json")
    kill -STOP "$STOPPED"
    wait_for 20 is bellhop_guest_silent '==' 1
    bellhop exec -d two -- sleep 600 >/dev/null
    wait_for 20 is 'bellhop_guest_commands{state="running",owner="bob"}' '==' 1
    kill -CONT "$STOPPED"
    wait_for 20 is bellhop_guest_silent '==' 0
}

@test "a label of any text is no label of a metric, and a board's panels ask for what is there" {
    make_box one --label $'owner=x"} 1\nbellhop_injected{y="'
    make_box two --label 'owner=ann'
    ask GET /metrics >"$BOX_TMP/metrics"
    [ "$(python3 "$BATS_TEST_DIRNAME/../lib/check_metrics.py" <"$BOX_TMP/metrics")" -gt 20 ]
    run ! grep -q injected "$BOX_TMP/metrics"
    grep -q '^bellhop_boxes{state="running",owner=""} 1$' "$BOX_TMP/metrics"
    for name in $(jq -r '.. | .expr? // empty' "$BATS_TEST_DIRNAME/../../docs/grafana.json" |
        grep -o 'bellhop_[a-z_]*' | sort -u); do
        grep -q "^${name}[ {]" "$BOX_TMP/metrics"
    done
    ask GET /v1/boxes/two/metrics | python3 "$BATS_TEST_DIRNAME/../lib/check_metrics.py"
}
