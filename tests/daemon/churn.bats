#!/usr/bin/env bats
# Clients that come and go while boxes change. `make test-sanitized` runs it for longer (CHURN_ROUNDS), with a daemon that
# was built with a sanitizer.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    WEB_PID=
}

teardown()
{
    [ -z "$WEB_PID" ] || { kill "$WEB_PID" && wait "$WEB_PID"; } 2>/dev/null || true
    daemon_stop
    box_teardown
}

@test "fifty clients that vanish at random bytes while boxes change leave nothing, and do no harm" {
    python3 "$BATS_TEST_DIRNAME/../lib/web_server.py" >"$BOX_TMP/port" 2>/dev/null 3>&- &
    WEB_PID=$!
    wait_for 10 test -s "$BOX_TMP/port"
    # Memory that was freed is overwritten.
    MALLOC_PERTURB_=165 daemon_start --listen 127.0.0.1:0
    bellhop up --provider process --agent none --empty --name one >/dev/null 2>&1
    URL=http://$(jq -r '.tcp[0]' <<<"$DAEMON_READY")
    token=$(bellhop token create -q --scope use)
    known() { curl -sSf --max-time 20 -H "Authorization: Bearer $token" "$URL/v1/info" >/dev/null 2>&1; }
    wait_for 10 known
    python3 "$BATS_TEST_DIRNAME/../lib/churn.py" "$DAEMON_SOCKET" "${URL#http://}" "$token" \
        "$(cat "$BOX_TMP/port")" "${CHURN_ROUNDS:-1}"
    expect 200 '[.boxes[].name] == ["one"]' GET /v1/boxes
    kill "$DAEMON_PID"
    wait "$DAEMON_PID"
    DAEMON_PID=
    ! grep -E 'Sanitizer|runtime error' "$BOX_TMP/daemon.log"
}
