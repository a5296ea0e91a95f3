#!/usr/bin/env bats
# Terminals over WebSockets. With the provider `process`.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    daemon_start
    bellhop up --empty --provider process --agent none --name one >/dev/null 2>&1
}

teardown()
{
    daemon_stop
    box_teardown
}

ws() # PATH; the steps on standard input
{
    python3 "$BATS_TEST_DIRNAME/../lib/ws_client.py" "$DAEMON_SOCKET" "$1"
}


@test "a terminal has its size, takes bytes and signals, is resized, and says how it ended" {
    ws '/v1/boxes/one/terminal?cols=91&rows=33&cmd=stty%20size;stty%20raw%20-echo;echo%20ready;head%20-c4%7Cod%20-An%20-tx1;trap%20%22stty%20size;exit%207%22%20INT;echo%20armed;while%20:;do%20sleep%200.05;done' >"$BOX_TMP/out" <<'END'
until 33 91
until ready
bytes \x00\xff\x0a\x1b
until 00 ff 0a 1b
until armed
text {"resize":{"cols":120,"rows":40}}
ping hello
text {"signal":"SIGINT"}
until 40 120
wait exit
end
END
    cat "$BOX_TMP/out"
    jq -e '.exit == {"reason": "exited", "code": 7, "signal": ""}' <<<"$(sed -n 1p "$BOX_TMP/out")"
    [ "$(sed -n 2p "$BOX_TMP/out")" = "closed 1000 " ]
}

@test "a login shell works, and ends when its client leaves" {
    ws /v1/boxes/one/terminal >"$BOX_TMP/out" <<'END'
wait started
bytes echo $((40 + 2))-$TERM\r
until 42-xterm-256color
END
    id=$(jq -r .started.id "$BOX_TMP/out")
    ended() { bellhop ps --all --json one | grep -q "\"$id\"" && bellhop logs --json --id "$id" one | jq -e '.state == "ended"'; }
    wait_for 20 ended
}

@test "a command that loses the first SIGHUP of its client's leaving gets another" {
    ws '/v1/boxes/one/terminal?cmd=trap%20%22trap%20-%20HUP%22%20HUP;echo%20armed;while%20:;do%20sleep%200.05;done' \
        >"$BOX_TMP/out" <<'END'
wait started
until armed
END
    id=$(jq -r .started.id "$BOX_TMP/out")
    ended() { bellhop logs --json --id "$id" one | jq -e '.state == "ended" and .exit.signal == "SIGHUP"'; }
    wait_for 20 ended
}

@test "a command that is attached to by its id goes on when its client leaves" {
    id=$(bellhop exec -d one -- sh -c 'echo first; exec sleep 1000')
    ws "/v1/boxes/one/terminal?id=$id" >"$BOX_TMP/out" <<'END'
until first
close
END
    [ "$(tail -1 "$BOX_TMP/out")" = "closed 1000 " ]
    bellhop logs --json --id "$id" one | jq -e '.state == "running"'
    bellhop kill one "$id"
}

@test "frames that the protocol forbids end the connection with its code" {
    local frame code n=0

    # unmasked; a reserved bit; an unknown opcode; a long ping; a continuation of nothing; a length in too many bytes;
    # text that is no UTF-8; a close code that must not be sent; a message that is no control; too much text.
    while read -r code frame; do
        printf 'frame %s\nend\n' "$frame" | ws '/v1/boxes/one/terminal?cmd=sleep%201000' >"$BOX_TMP/out"
        grep -q "^closed $code" "$BOX_TMP/out" || { echo "$frame: $(cat "$BOX_TMP/out")"; return 1; }
        n=$((n + 1))
    done <<'END'
1002 820161
1002 c2810000000061
1002 838100000000 61
1002 89fe007e00000000
1002 808100000000 61
1002 82fe000100000000 61
1007 818100000000 ff
1002 888200000000 03ed
1008 818300000000 7b7d7d
1008 818300000000 7b6178
1009 81fe400100000000
END
    [ "$n" = 11 ]
}

@test "what is no terminal is a typed error, and a subprotocol is chosen" {
    run ws '/v1/boxes/none/terminal' </dev/null
    [[ $output = '404 {"code":"not_found"'* ]]
    run ws '/v1/boxes/one/terminal?cols=0' </dev/null
    [[ $output = 400*'"field":"cols"'* ]]
    run ws '/v1/boxes/one/terminal?colour=1' </dev/null
    [[ $output = 400*'"field":"colour"'* ]]
    run ws '/v1/boxes/one/terminal?id=none' </dev/null
    [[ $output = 404* ]]
    WS_KEY=short run ws '/v1/boxes/one/terminal' </dev/null
    [[ $output = 400*'"field":"Sec-WebSocket-Key"'* ]]
    WS_VERSION=12 run ws '/v1/boxes/one/terminal' </dev/null
    [[ $output = 426* ]]
    expect 426 '.field == "Upgrade"' GET /v1/boxes/one/terminal
    WS_PROTOCOL='bellhop, bellhop.token.x' run ws '/v1/boxes/one/terminal?cmd=true' <<<end
    [[ $output = "protocol ['Sec-WebSocket-Protocol: bellhop']"* ]]
}

@test "a client that leaves while its command is started leaves no command behind" {
    python3 - "$DAEMON_SOCKET" <<'PY'
import socket, sys
for _ in range(8):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.sendall(b"GET /v1/boxes/one/terminal?cmd=exec%20sleep%2087654 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
              b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
    s.close()
PY
    # A terminal of a client that stays shows that those before it were begun.
    printf 'until there\nclose\n' | ws '/v1/boxes/one/terminal?cmd=echo%20there;sleep%201000' >"$BOX_TMP/out"
    none_runs() { bellhop ps --json one | jq -e '[.. | strings | select(test("sleep 87654"))] == []'; }
    wait_for 20 none_runs
}
