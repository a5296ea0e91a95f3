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

@test "an agent that lies about its figures spoils neither the text nor the time" {
    make_box one --label owner=ann
    make_box two --label owner=bob
    DIR=$BELLHOP_STATE_DIR/boxes/$(bellhop status one --json | jq -r .id)
    socket=$(bellhop status one --json | jq -r .guest.socket)
    mv "$socket" "$socket.real"
    python3 - "$socket" >"$BOX_TMP/fake" 3>&- <<'PY' &
import http.server, json, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    n = 0
    def send(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send(json.dumps({"cpu": {"total_ms": -5}, "memory": {"resident_bytes": 2 ** 63 - 1}, "commands": {"running": "many"},
                              "busy": True, "idle_ms": 0}).encode(), "application/json")
    def do_GET(self):
        Handler.n += 1
        self.send(b'bellhop_sent_bytes_total -1\nbellhop_received_bytes_total 99999999999999999999999\nbellhop_uptime_seconds 1e9\n'
                  b'bellhop_requests_total{route="x\\"} 1\nbellhop_injected{",code="500"} 7\n\0\nno value\n ' + b"z" * (100 if Handler.n % 2 else 2000000),
                  "text/plain")
    def log_message(self, *_):
        pass
class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
with Server(sys.argv[1], Handler) as server:
    print("ready", flush=True)
    server.serve_forever()
PY
    STOPPED=$!
    wait_for 10 grep -q ready "$BOX_TMP/fake"
    trust_listener "$STOPPED"
    bellhop exec -d two -- sleep 600 >/dev/null
    wait_for 20 is 'bellhop_guest_memory_bytes{state="running",owner="ann"}' '>' 1000000000000
    wait_for 20 is 'bellhop_guest_commands{state="running",owner="bob"}' '==' 1
    is 'bellhop_guest_memory_bytes{state="running",owner="ann"}' '<=' 9007199254740992
    wait_for 20 is bellhop_guest_silent '==' 1 # the answer that is too long
    ask GET /metrics >"$BOX_TMP/metrics"
    python3 "$BATS_TEST_DIRNAME/../lib/check_metrics.py" <"$BOX_TMP/metrics"
    run ! grep -q injected "$BOX_TMP/metrics"
    kill "$STOPPED"
    rm "$socket"
    mv "$socket.real" "$socket"
}
