#!/usr/bin/env bats
# Webhooks: each event of the boxes is posted, signed, in order, at least once; and the daemon's metrics.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    mkdir "$BOX_TMP/project"
    printf 'a key\n' >"$BOX_TMP/secret"
    GOT=$BOX_TMP/got
    HOOK_PID=
    start_hook
    daemon_start --webhook "http://127.0.0.1:$HOOK_PORT/hook" --webhook-secret-file "$BOX_TMP/secret"
}

teardown()
{
    [ -z "$HOOK_PID" ] || { kill "$HOOK_PID" && wait "$HOOK_PID"; } 2>/dev/null || true
    daemon_stop
    box_teardown
}

start_hook() # [PORT]
{
    : >"$BOX_TMP/hook_port"
    python3 "$BATS_TEST_DIRNAME/../lib/webhook_server.py" "$GOT" "$@" >"$BOX_TMP/hook_port" 2>/dev/null 3>&- &
    HOOK_PID=$!
    wait_for 10 test -s "$BOX_TMP/hook_port"
    HOOK_PORT=$(cat "$BOX_TMP/hook_port")
}

make_box()
{
    bellhop up --provider process --agent none --name "$1" "$BOX_TMP/project" >/dev/null 2>&1
}

# The positions of the events that were taken are all there are after the first N.
took_all()
{
    bellhop events --json | jq -c '.events[].position' >"$BOX_TMP/want"
    jq -r '.body | fromjson | .position' "$GOT" >"$BOX_TMP/have"
    cmp -s "$BOX_TMP/want" "$BOX_TMP/have"
}

@test "each event is posted in order with its id and a signature of the time and the body" {
    make_box one
    bellhop stop one
    wait_for 10 took_all
    python3 - "$GOT" <<'PY'
import hashlib, hmac, json, sys, time
for line in open(sys.argv[1], encoding="utf-8"):
    post = json.loads(line)
    headers = {k.lower(): v for k, v in post["headers"].items()}
    stamp, mac = (part.split("=", 1)[1] for part in headers["bellhop-signature"].split(","))
    assert abs(time.time() - int(stamp)) < 60
    assert mac == hmac.new(b"a key", f"{stamp}.{post['body']}".encode(), hashlib.sha256).hexdigest()
    assert headers["content-type"] == "application/json"
    assert headers["bellhop-event-id"] == str(json.loads(post["body"])["position"])
PY
}

@test "a receiver that fails gets each event later, in order, also after the daemon was killed" {
    touch "$GOT.fail"
    make_box one
    failed() { [ "$(wc -l <"$GOT.failed")" -ge 3 ]; }
    wait_for 10 failed
    # It is the same one that is posted again, until it is taken.
    [ "$(jq -r '.body | fromjson | .position' "$GOT.failed" | sort -u | wc -l)" = 1 ]
    kill -KILL "$DAEMON_PID"
    wait "$DAEMON_PID" || true
    bellhop stop one
    rm "$GOT.fail"
    daemon_start --webhook "http://127.0.0.1:$HOOK_PORT/hook"
    wait_for 15 took_all
    # A receiver that is not there.
    kill "$HOOK_PID"
    wait "$HOOK_PID" || true
    bellhop start one
    bellhop rm one
    start_hook "$HOOK_PORT"
    last() { tail -n 1 "$GOT" | jq -r .body | jq -e '.after == "destroyed"' >/dev/null; }
    wait_for 30 last
    # At least once, and never out of order.
    jq -r '.body | fromjson | .position' "$GOT" >"$BOX_TMP/have"
    sort -n -C "$BOX_TMP/have"
    bellhop events --json | jq -c '.events[].position' | diff - <(uniq "$BOX_TMP/have")
    [ "$(head -n 1 "$GOT" | jq -r '.headers["Bellhop-Signature"]')" = none ]
}

@test "wrong options of webhooks are named" {
    run bellhop daemon stop
    daemon_stop
    run timeout 30 "$BELLHOP" daemon --socket "$BOX_TMP/x.sock" --webhook ftp://example
    [ "$status" -eq 2 ]
    [[ "$output" = *"'ftp://example' is no URL of http or https"* ]]
    run timeout 30 "$BELLHOP" daemon --socket "$BOX_TMP/x.sock" --webhook http://127.0.0.1:1 --webhook-secret-file /nonexistent
    [ "$status" -eq 2 ]
    [[ "$output" = *"/nonexistent"* ]]
}

@test "a hostile receiver delays its own events alone: redirects are not followed, replies have bounds" {
    printf 'a key\n' >"$BOX_TMP/secret"
    daemon_stop
    at=127.0.0.1:$HOOK_PORT
    daemon_start --webhook "http://$at/hook" --webhook "http://$at/redirect" --webhook "http://$at/endless" \
        --webhook "http://$at/slow" --webhook "http://$at/huge" --webhook "http://$at/junk" \
        --webhook "http://user:p%40ss@$at/login"
    make_box one
    bellhop stop one
    posts() { jq -r --arg p "$1" 'select(.path == $p) | .body | fromjson | .position' "$GOT" | uniq; }
    bellhop events --json | jq -c '.events[].position' >"$BOX_TMP/want"
    for path in /hook /endless /login; do # a reply without an end is no reason to post again
        took() { posts "$path" | cmp -s - "$BOX_TMP/want"; }
        wait_for 20 took
    done
    again() { [ "$(jq -r --arg p "$1" 'select(.path == $p) | .path' "$GOT" | wc -l)" -ge 2 ]; }
    for path in /redirect /huge /junk; do
        wait_for 20 again "$path"
        [ "$(posts "$path")" = "$(head -n 1 "$BOX_TMP/want")" ]
    done
    [ "$(posts /slow)" = "$(head -n 1 "$BOX_TMP/want")" ]
    [ "$(posts /hook | wc -l)" = "$(wc -l <"$BOX_TMP/want")" ] # nothing came there by the redirect
    jq -e -s 'map(select(.path == "/login")) | all(.headers.Authorization == "Basic \("user:p@ss" | @base64)")' "$GOT"
    run ! grep -q 'p%40ss\|p@ss' "$BOX_TMP/daemon.log"
    [ "$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$DAEMON_PID/status")" -lt 60000 ]
    # It ends at once, whatever its receivers do.
    kill "$DAEMON_PID"
    wait_for 20 is_gone "$DAEMON_PID"
}

metric() # PATTERN: the value
{
    ask GET /metrics | sed -n -E "s/^$1 //p"
}

@test "metrics count boxes by state and owner, creations, events, streams, requests and bytes of the gateway" {
    make_box one
    bellhop up --provider process --agent none --name two --label owner=ann >/dev/null 2>&1
    bellhop stop two
    created() { [ "$(metric bellhop_creation_seconds_count)" = 2 ]; }
    wait_for 10 created
    [ "$(metric 'bellhop_boxes\{state="running",owner=""\}')" = 1 ]
    [ "$(metric 'bellhop_boxes\{state="stopped",owner="ann"\}')" = 1 ]
    [ "$(metric bellhop_event_streams)" = 0 ]
    follow "$BOX_TMP/events" /v1/events
    streams() { [ "$(metric bellhop_event_streams)" = 1 ]; }
    wait_for 10 streams
    kill "$FOLLOW_PID"
    none() { [ "$(metric bellhop_event_streams)" = 0 ]; }
    wait_for 10 none
    head -c 100000 /dev/zero >"$BOX_TMP/zeros"
    ask PUT /v1/boxes/one/files/zeros --data-binary "@$BOX_TMP/zeros" >/dev/null
    sent() { [ "$(metric bellhop_gateway_in_bytes_total)" -ge 100000 ]; }
    wait_for 10 sent
    [ "$(metric bellhop_gateway_requests_total)" = 1 ]
    [ "$(metric bellhop_gateway_errors_total)" = 0 ]
    ask GET /v1/boxes/none >/dev/null
    seen() { [ "$(metric 'bellhop_http_requests_total\{status="4xx"\}')" -ge 1 ]; }
    wait_for 10 seen
}
