#!/usr/bin/env bats
# Listeners in the box, and waiting for one.
# early

bats_require_minimum_version 1.5.0
load ../lib/agent

setup()
{
    start_agent
}

teardown()
{
    stop_agents
}

# listen ID CODE: starts a command that runs this Python with `s`, an IPv4 TCP socket, and `out`.
listen()
{
    local code="import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
$2
print(s.getsockname()[1], flush=True)
time.sleep(600)"

    rpc Exec/Start "$(jq -nc --arg id "$1" --arg code "$code" '{$id, argv: ["python3", "-c", $code]}')" \
        -o /dev/null 2>/dev/null 3>&- &
    has_port() { rpc Exec/Read "{\"id\":\"$1\",\"stream\":\"stdout\"}" | jq -re '.text | select(length > 0)'; }
    wait_until 10 has_port "$1"
    PORT=$(has_port "$1" | head -n 1)
}

one_port()
{
    rpc System/Ports "{\"port\":$1}" | jq -c "$2"
}

@test "ports name address, process and the command that opened them" {
    listen web 's.bind(("127.0.0.1", 0)); s.listen()'
    run one_port "$PORT" '.ports'
    [ "$(jq length <<<"$output")" = 1 ]
    [ "$(jq -c '.[0] | [.protocol, .family, .address, .loopback, .reachable, .agent, .connections]' <<<"$output")" = \
        '["tcp","ipv4","127.0.0.1",true,true,false,0]' ]
    [ "$(jq -r '.[0].process.command' <<<"$output")" = web ]
    [ "$(jq -r '.[0].process.pid' <<<"$output")" = "$(rpc Exec/Get '{"id":"web"}' | jq -r .pid)" ]
    [[ $(jq -r '.[0].process | .name + " " + .exe' <<<"$output") == python3*" "*/python3* ]]
    [ "$(jq -r '.[0].uid' <<<"$output")" = "$(id -u)" ]
}

@test "ports tell where they can be reached, TCP and UDP, IPv4 and IPv6" {
    listen other 's.bind(("127.0.0.7", 0)); s.listen()'
    [ "$(one_port "$PORT" '.ports[0] | [.loopback, .reachable]')" = '[true,false]' ]
    listen any 's.bind(("0.0.0.0", 0)); s.listen()'
    [ "$(one_port "$PORT" '.ports[0] | [.address, .loopback, .reachable]')" = '["0.0.0.0",false,true]' ]
    listen six 's = socket.socket(socket.AF_INET6); s.bind(("::1", 0)); s.listen()'
    [ "$(one_port "$PORT" '.ports[0] | [.family, .address, .loopback, .reachable]')" = '["ipv6","::1",true,true]' ]
    listen udp 's = socket.socket(type=socket.SOCK_DGRAM); s.bind(("127.0.0.1", 0))'
    [ "$(one_port "$PORT" '.ports[0] | [.protocol, .reachable, .process.command]')" = '["udp",false,"udp"]' ]
    [ "$(one_port "$AGENT_PORT" '.ports[0] | [.agent, .reachable]')" = '[true,false]' ]
    [ "$(one_port "$(free_port)" .ports)" = '[]' ]
    for number in 0 65536; do
        one_port "$number" '[.code, .field]' | grep -Fx '["invalid_argument","port"]'
    done
}

@test "ports find the process of another user, and the command above a daemon's" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    listen daemon 'import os
s.bind(("127.0.0.1", 0)); s.listen()
print(s.getsockname()[1], flush=True)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.setuid(65534)'
    [ "$(one_port "$PORT" '.ports[0].process.command')" = '"daemon"' ]
}

@test "ports count the connections to them" {
    listen web 's.bind(("127.0.0.1", 0)); s.listen()'
    exec 8<>"/dev/tcp/127.0.0.1/$PORT"
    [ "$(one_port "$PORT" '.ports[0].connections')" = 1 ]
    exec 8>&-
}

@test "wait port answers as soon as the port accepts" {
    port=$(free_port)
    rpc System/WaitPort "{\"port\":$port,\"timeout_ms\":20000}" >"$AGENT_DIR/waited" &
    waiter=$!
    is_waiting() { rpc System/Activity '{}' | jq -e '.calls.open == 1'; }
    wait_until 10 is_waiting
    listen late "time.sleep(0.3); s.bind(('127.0.0.1', $port)); s.listen()"
    wait "$waiter"
    [ "$(jq -r .port "$AGENT_DIR/waited")" = "$port" ]
    [ "$(jq -r .status "$AGENT_DIR/waited")" = null ]
    [ "$(jq '.waited_ms >= 100' "$AGENT_DIR/waited")" = true ]
    [ "$(rpc System/WaitPort "{\"port\":$port}" | jq '.waited_ms < 10000')" = true ]
}

@test "wait port with a path waits for an answer below 400" {
    listen web 'import http.server
class H(http.server.BaseHTTPRequestHandler):
    n = 0
    def do_GET(self):
        H.n += 1
        self.send_response(503 if H.n < 3 else 204 if self.path == "/up?x" else 404)
        self.end_headers()
    def log_message(self, *a): pass
h = http.server.HTTPServer(("127.0.0.1", 0), H)
print(h.server_address[1], flush=True)
h.serve_forever()'
    [ "$(rpc System/WaitPort "{\"port\":$PORT,\"path\":\"/up?x\"}" | jq -r .status)" = 204 ]
    for ms in 300 3000 30000; do # one answer must come in this time
        run rpc System/WaitPort "{\"port\":$PORT,\"path\":\"/other\",\"timeout_ms\":$ms}"
        [ "$(jq -r .code <<<"$output")" = deadline_exceeded ]
        [[ $(jq -r .message <<<"$output") != *"answered with 404" ]] || break
    done
    [[ $(jq -r .message <<<"$output") == *"answered with 404" ]]
}

@test "wait port says deadline_exceeded, and is never taken in by a connection to itself" {
    run rpc System/WaitPort "{\"port\":$(free_port),\"timeout_ms\":100}" -w '%{http_code}'
    [[ $output == *'"code":"deadline_exceeded"'*'"field":"port"'*504 ]]
    # So few client ports that a connection to one of them from the same port does happen.
    unshare -n true 2>/dev/null || skip "no network namespaces here"
    run unshare -n sh -c "ip link set lo up; echo '40000 40001' >/proc/sys/net/ipv4/ip_local_port_range
        '$BELLHOPD' --unix '$AGENT_DIR/n.sock' --auth=open >/dev/null 2>&1 3>&- 4>&- & agent=\$!
        until curl -sf --unix-socket '$AGENT_DIR/n.sock' http://x/v1/health || ! kill -0 \$agent; do :; done
        curl -s --unix-socket '$AGENT_DIR/n.sock' -d '{\"port\":40001,\"timeout_ms\":1500}' \
            -H 'Content-Type: application/json' http://x/bellhop.v1.System/WaitPort
        kill \$agent; wait \$agent"
    [ "$(jq -r .code <<<"$output")" = deadline_exceeded ]
}

@test "wait port gives up at once when the command that should open it has ended" {
    port=$(free_port)
    rpc Exec/Start '{"id":"dev","argv":["sh","-c","sleep 0.3; exit 3"]}' -o /dev/null &
    starter=$!
    has_it() { [ "$(rpc_status Exec/Get '{"id":"dev"}')" = 200 ]; }
    wait_until 5 has_it
    run rpc System/WaitPort "{\"port\":$port,\"id\":\"dev\",\"timeout_ms\":15000}"
    wait "$starter"
    [ "$(jq -r .code <<<"$output")" = failed_precondition ]
    [ "$(jq -r .field <<<"$output")" = id ]
    [[ $(jq -r .message <<<"$output") == *"port $port exited with 3" ]]
    [ "$(rpc System/WaitPort "{\"port\":$port,\"id\":\"dev\"}" | jq -r .code)" = failed_precondition ]
    [ "$(rpc System/WaitPort "{\"port\":$port,\"id\":\"nobody\"}" | jq -r .code)" = not_found ]
}

@test "wait port refuses what it can't wait for, by field" {
    for case in port:'{"port":0}' port:'{"port":65536}' port:'{}' path:'{"port":1,"path":"x"}' \
        path:'{"port":1,"path":"/a b"}' host:'{"port":1,"host":"example.org"}' \
        timeout_ms:'{"port":1,"timeout_ms":99999999999}' udp:'{"port":1,"udp":true}'; do
        [ "$(rpc System/WaitPort "${case#*:}" | jq -r '.code + " " + .field')" = "invalid_argument ${case%%:*}" ] ||
            fail "$case"
    done
}

@test "wait port whose client has gone leaves nothing behind" {
    before=$(n_fds)
    for _ in 1 2 3 4 5; do
        rpc System/WaitPort "{\"port\":$(free_port)}" --max-time 0.2 -o /dev/null 2>/dev/null || true
    done
    fds_are_back() { [ "$(n_fds)" -le "$before" ]; }
    wait_until 10 fds_are_back
}
