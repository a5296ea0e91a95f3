#!/usr/bin/env bats
# Use of the box: Activity's facts, holds from outside and from inside, and Resync after a restore.
# early

bats_require_minimum_version 1.5.0
load ../lib/agent

setup()
{
    AGENT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-agent-XXXXXX")
    AGENT_DIRS+=("$AGENT_DIR")
    HOLD=$AGENT_DIR/hold.sock
    AGENT_TOKEN=0123456789abcdef
    (umask 077 && echo "$AGENT_TOKEN" >"$AGENT_DIR/token")
    run_agent --listen 127.0.0.1:0 --token-file "$AGENT_DIR/token" --hold-socket "$HOLD"
    chmod 755 "$AGENT_DIR"
}

teardown()
{
    stop_agents
}

# activity FILTER ['{"ignore":[...]}']
# By default without the connections of the machine's other programs.
activity()
{
    rpc System/Activity "${2:-$OTHERS}" | jq -c "$1"
}
OTHERS='{"ignore":["connections"]}'

# is FILTER VALUE: waits until it is so.
is()
{
    local filter=$1 want=$2

    same() { [ "$(activity "$filter")" = "$want" ]; }
    wait_until 10 same || fail "$filter is $(activity "$filter"), not $want"
}

hold()
{
    "$BELLHOPD" hold --socket "$HOLD" "$@" 3>&-
}

start_command()
{
    rpc Exec/Start "$1" --max-time 600 -o /dev/null 2>/dev/null 3>&- &
}

# On a busy machine a reported time of an event has no other bound than this.
now_ms() { date +%s%3N; }

@test "activity of an idle agent is idle, and asking does not count" {
    is '[.busy, .reasons]' '[false,[]]'
    first=$(activity .calls.last_ms_ago)
    wait_until 2 eval '[ "$(activity .calls.last_ms_ago)" -gt $((first + 100)) ]'
    [ "$(activity '.idle_ms == .calls.last_ms_ago')" = true ]
    [ "$(activity '[.commands.running, .commands.ids, .commands.last_output_ms_ago, .calls.open, .holds, .lease_expires_in_ms]')" = \
        '[0,[],null,0,[],null]' ]
    begun=$(now_ms)
    rpc Exec/Run '{"argv":["true"]}' -o /dev/null
    ago=$(activity .calls.last_ms_ago)
    [ "$ago" -le $(($(now_ms) - begun)) ]
}

@test "activity says what runs, what calls, and when something was said" {
    start_command '{"id":"quiet","argv":["sleep","600"]}'
    is '[.busy, .reasons, .commands.running, .commands.ids, .calls.open, .idle_ms]' \
        '[true,["calls","commands"],1,["quiet"],1,0]'
    [ "$(activity '[.busy, .reasons]' '{"ignore":["commands","calls","connections"]}')" = '[false,[]]' ]
    [ "$(activity '.idle_ms >= 0' '{"ignore":["commands","calls","connections"]}')" = true ]
    begun=$(now_ms)
    rpc Exec/Run '{"argv":["echo","x"]}' -o /dev/null
    ago=$(activity '[.commands.last_output_ms_ago, .commands.last_end_ms_ago] | max')
    [ "$ago" -le $(($(now_ms) - begun)) ]
    rpc Exec/Signal '{"id":"quiet","signal":"SIGKILL"}' -o /dev/null
    is '[.busy, .commands.running, .calls.open]' '[false,0,0]'
    [ "$(rpc System/Activity '{"ignore":["noise"]}' | jq -r .field)" = ignore ]
}

@test "activity says of each command what it is: its program, its processes, its time, its output, whether it serves" {
    start_command '{"id":"shell","argv":["bash","--norc"],"pty":{"cols":80,"rows":24}}'
    start_command '{"id":"three","shell":"sleep 600 & sleep 600"}'
    # The kernel counts user and system time in whole ticks each, so a bit less than process_time() says.
    start_command '{"id":"web","argv":["python3","-u","-c","import socket, time\ns = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen(); print(1)\nwhile time.process_time() < 0.4: pass\ntime.sleep(600)"]}'
    is '[.commands.list[].id] | sort' '["shell","three","web"]'
    is '[.commands.list[] | select(.id == "shell")][0] | [.name, .pty, .listens, .processes, .output_bytes > 0]' \
        '["bash",true,false,1,true]'
    is '[.commands.list[] | select(.id == "three")][0] | [.pty, .listens, .processes, .output_bytes]' '[false,false,3,0]'
    is '[.commands.list[] | select(.id == "web")][0] | [.name, .listens, .output_bytes, .cpu_ms >= 300]' '["python3",true,2,true]'
    rpc Exec/Signal '{"id":"web","signal":"SIGKILL"}' -o /dev/null
    is '[.commands.list[].id] | sort' '["shell","three"]'
}

@test "a request that says that it is quiet does not count as use" {
    activity . >/dev/null
    first=$(activity .calls.last_ms_ago)
    rpc Exec/List '{}' -H 'Bellhop-Quiet: 1' -o /dev/null
    [ "$(activity .calls.last_ms_ago)" -ge "$first" ]
    rpc Exec/Start '{"id":"quiet","argv":["sleep","600"]}' -H 'Bellhop-Quiet: 1' --max-time 600 -o /dev/null 2>/dev/null 3>&- &
    is '[.commands.running, .calls.open]' '[1,0]'
    start_command '{"id":"loud","argv":["sleep","600"]}'
    is '[.commands.running, .calls.open]' '[2,1]'
}

@test "activity bounds its list of ids" {
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" <<'PY'
import http.client, json, sys
for i in range(103):
    c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    c.request("POST", "/bellhop.v1.Exec/Start", json.dumps({"argv": ["sleep", "600"]}),
              {"Authorization": "Bearer " + sys.argv[2], "Content-Type": "application/json"})
    assert c.getresponse().status == 200
    c.close()
PY
    is '[.commands.running, (.commands.ids | length), (.commands.list | length)]' '[103,100,100]'
}

@test "activity counts the processor time of children, of those that have gone and of orphans" {
    activity . >/dev/null
    # The kernel counts whole ticks, so a bit less than process_time() says.
    burn='import time, sys
end = time.process_time() + 0.4
while time.process_time() < end: pass'
    rpc Exec/Run "$(jq -nc --arg c "$burn" '{argv: ["python3", "-c", $c]}')" -o /dev/null
    total=$(activity .cpu.total_ms)
    [ "$total" -ge 300 ]
    [ "$(activity '.cpu | .recent_ms >= 300 and .window_ms > 0')" = true ]
    rpc Exec/Run "$(jq -nc --arg c "$burn
time.sleep(50)" '{shell: ("setsid setsid python3 -c \u0027" + $c + "\u0027 >/dev/null 2>&1 & true")}')" -o /dev/null
    wait_until 20 eval '[ "$(activity .cpu.total_ms)" -ge $((total + 300)) ]'
    # The orphan still runs but is idle: it no longer keeps the box busy.
    is '[.commands.running, .reasons]' '[0,["cpu"]]'
}

@test "activity counts the memory of the processes that run" {
    before=$(activity .memory.resident_bytes)
    rpc Exec/Run '{"shell":"setsid python3 -c \"import time; x = b\u0027z\u0027 * 40000000; time.sleep(50)\" >/dev/null 2>&1 & true"}' -o /dev/null
    has_grown() { [ "$(activity .memory.resident_bytes)" -ge $((before + 40000000)) ]; }
    wait_until 20 has_grown
}

@test "activity counts connections to ports in the box, not those to the agent" {
    start_command '{"id":"web","argv":["python3","-u","-c","import socket, time\ns = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen(); print(s.getsockname()[1]); time.sleep(600)"]}'
    has_port() { rpc Exec/Read '{"id":"web","stream":"stdout"}' | jq -re '.text | select(length > 0)'; }
    wait_until 10 has_port
    port=$(has_port)
    before=$(activity .connections.established)
    exec 8<>"/dev/tcp/127.0.0.1/$port"
    is "[.connections.ports[] | select(.port == $port)]" "[{\"port\":$port,\"connections\":1}]"
    [ "$(activity "[.connections.ports[] | select(.port == $AGENT_PORT)]")" = '[]' ]
    [ "$(activity '.reasons | index("connections") != null' '{}')" = true ]
    exec 8>&-
    is "[.connections.ports[] | select(.port == $port)]" '[]'
}

@test "hold is a reason to be busy until it runs out, is renewed, or is released" {
    run rpc System/Hold '{"id":"deploy","reason":"terraform apply","ttl_ms":60000}'
    [ "$(jq -c '[.id, .reason, .local, (.expires_in_ms > 50000)]' <<<"$output")" = '["deploy","terraform apply",false,true]' ]
    is '[.busy, .reasons, .holds[0].id]' '[true,["holds"],"deploy"]' # the call itself ends with its connection
    rpc System/Hold '{"id":"deploy","ttl_ms":120000}' -o /dev/null
    [ "$(activity '[(.holds | length), (.holds[0].expires_in_ms > 60000)]')" = '[1,true]' ]
    [ "$(rpc System/Release '{"id":"deploy"}' | jq -r .id)" = deploy ]
    is '[.busy, .holds]' '[false,[]]'
    [ "$(rpc System/Release '{"id":"deploy"}' | jq -r .code)" = not_found ]
    rpc System/Hold '{"ttl_ms":150}' -o /dev/null
    is '[.busy, (.idle_ms < 60000)]' '[false,true]'
}

@test "holds are bounded, and refused by field" {
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" <<'PY'
import http.client, json, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
for i in range(256):
    c.request("POST", "/bellhop.v1.System/Hold", json.dumps({"id": f"h{i}"}),
              {"Authorization": "Bearer " + sys.argv[2], "Content-Type": "application/json"})
    r = c.getresponse()
    r.read()
    assert r.status == 200
PY
    [ "$(activity '.holds | length')" = 256 ]
    [ "$(rpc System/Hold '{"id":"one-more"}' -w '%{http_code}')" = \
        '{"code":"resource_exhausted","message":"there are 256 holds, the most allowed"}429' ]
    [ "$(rpc System/Hold '{"id":"h7"}' | jq -r .id)" = h7 ]
    long=$(head -c 201 /dev/zero | tr '\0' r)
    for case in id:'{"id":"a b"}' ttl_ms:'{"ttl_ms":0}' ttl_ms:'{"ttl_ms":86400001}' reason:"{\"reason\":\"$long\"}"; do
        [ "$(rpc System/Hold "${case#*:}" | jq -r '.code + " " + .field')" = "invalid_argument ${case%%:*}" ] || fail "$case"
    done
}

@test "bellhopd hold holds while a command runs, and passes its end on" {
    "$BELLHOPD" hold --socket "$HOLD" --reason 'the tests' -- sleep 50 3>&- &
    holder=$!
    is '[.reasons, .holds[0].reason, .holds[0].local, .holds[0].uid, .holds[0].expires_in_ms]' \
        "[[\"holds\"],\"the tests\",true,$(id -u),null]"
    [ "$(activity '.holds[0].pid')" = "$holder" ]
    child=$(cat "/proc/$holder/task/$holder/children")
    kill -9 "$holder" $child
    is .holds '[]'
    run -7 hold -- sh -c 'exit 7'
    run -143 hold -- sh -c 'kill -TERM $$'
    run -127 hold -- /no/such/program
    [[ $output == *"/no/such/program"* ]]
    is .holds '[]'
}

@test "bellhopd hold passes a signal on to its command" {
    "$BELLHOPD" hold --socket "$HOLD" -- sh -c "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.05; done" >"$AGENT_DIR/out" 3>&- &
    holder=$!
    wait_until 10 grep -q ready "$AGENT_DIR/out"
    kill -TERM "$holder"
    status=0
    wait "$holder" || status=$?
    [ "$status" = 5 ]
    [ "$(tail -n 1 "$AGENT_DIR/out")" = told ]
}

@test "bellhopd hold for a time stays, is renewed and released by its user alone" {
    run -0 hold --for 5m --id mine --reason waiting
    [ "$output" = mine ]
    [ "$(activity '[.holds[0].id, (.holds[0].expires_in_ms > 200000)]')" = '["mine",true]' ]
    run -0 hold --for 10m --id mine
    [ "$(activity '[(.holds | length), (.holds[0].expires_in_ms > 500000)]')" = '[1,true]' ]
    run -125 hold --id mine -- true
    [[ $output == *"'mine' is in force"* ]]
    if [ "$(id -u)" = 0 ]; then
        chmod 755 "$BELLHOPD"
        cp "$BELLHOPD" "$AGENT_DIR/bellhopd"
        run -125 setpriv --reuid 65534 --regid 65534 --clear-groups "$AGENT_DIR/bellhopd" hold --socket "$HOLD" --release mine
        [[ $output == *"somebody else's"* ]]
        run -125 setpriv --reuid 65534 --regid 65534 --clear-groups "$AGENT_DIR/bellhopd" hold --socket "$HOLD" --id mine
        run -0 setpriv --reuid 65534 --regid 65534 --clear-groups "$AGENT_DIR/bellhopd" hold --socket "$HOLD" --id theirs
        [ "$(activity '.holds[] | select(.id == "theirs") | .uid')" = 65534 ]
        rpc System/Release '{"id":"theirs"}' -o /dev/null
    fi
    run -0 hold --release mine
    [ "$(activity .holds)" = '[]' ]
    run -125 "$BELLHOPD" hold --socket "$AGENT_DIR/nobody.sock" -- touch "$AGENT_DIR/ran"
    [ ! -e "$AGENT_DIR/ran" ]
    run -2 hold --for 25h
    run -2 hold --nonsense x
}

@test "hold socket obeys nothing but holds, and bounds what a user can do to it" {
    [ "$(stat -c %a "$HOLD")" = 666 ]
    python3 - "$HOLD" <<'PY'
import socket, sys, time
def ask(data, end=True):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(sys.argv[1])
    s.sendall(data)
    return s, s.recv(1000)
for bad in (b"GET / HTTP/1.1\n", b"take\n", b"take 1\n", b"take x - r\n", b"take 0 - r\n", b"take 99999999999 - r\n",
            b"take 1 " + b"i" * 129 + b" r\n", b"release\n", b"release nobody\n", b"\n", b"x" * 512):
    s, got = ask(bad)
    assert got.startswith(b"error "), (bad, got)
    try:
        assert s.recv(10) == b"", bad
    except ConnectionResetError:
        pass
    if bad.split()[:1] not in ([b"take"], [b"release"]) and len(bad) < 512 or bad == b"take\n":
        assert got == b"error expected: take, bind or release\n", (bad, got)
s, got = ask(b"take 60000 - a\x01b\xffc\n")
assert got.startswith(b"ok "), got
held = [ask(b"bind 0 - r\n") for _ in range(31)]
assert all(got.startswith(b"ok ") for _, got in held)
_, got = ask(b"bind 0 - r\n")
assert b"32 holds, the most allowed" in got, got
# Silent clients are dropped after a while; clients beyond the maximum at once.
silent = []
for _ in range(300):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.settimeout(120)
    silent.append(s)
assert all(s.recv(10) == b"" for s in silent)
PY
    is '.holds | map(.reason)' '["a b?c"]'
}

@test "resync sets the clock where it may, credits entropy, raises the generation" {
    now() { date +%s%3N; }
    [ "$(rpc System/Info | jq .generation)" = 1 ]
    agent_curl /v1/health -o /dev/null -D - | grep -qi '^bellhop-generation: 1'
    entropy=$(head -c 48 /dev/urandom | base64 -w 0)
    run rpc System/Resync "{\"now_ms\":$(now),\"tolerance_ms\":120000,\"entropy\":{\"b64\":\"$entropy\"}}"
    [ "$(jq -r .clock.result <<<"$output")" = within_tolerance ]
    [ "$(jq -c '[.generation, .previous_generation]' <<<"$output")" = '[2,1]' ]
    [[ $(jq -r .entropy <<<"$output") =~ ^(credited|mixed)$ ]]
    [[ $(jq -r .reseed <<<"$output") =~ ^(reseeded|not_permitted)$ ]]
    agent_curl /v1/health -o /dev/null -D - | grep -qi '^bellhop-generation: 2'
    [ "$(rpc System/Resync '{"generation":7}' | jq .generation)" = 7 ]
    run rpc System/Resync '{"generation":7}'
    [ "$(jq -r '.code + " " + .field' <<<"$output")" = "failed_precondition generation" ]
    [ "$(rpc System/Info | jq .generation)" = 7 ]
    [ "$(rpc System/Resync | jq -c '[.clock.result, .entropy, .reseed, .generation]')" = '["not_asked","not_asked","not_asked",8]' ]
    [ "$(agent_curl /v1/metrics | sed -n 's/^bellhop_generation //p')" = 8 ]
    for case in now_ms:'{"now_ms":-1}' now_ms:'{"now_ms":1e300}' tolerance_ms:'{"tolerance_ms":-2}' \
        entropy:'{"entropy":{"text":"short"}}' entropy:"{\"entropy\":{\"b64\":\"$(head -c 513 /dev/zero | base64 -w 0)\"}}"; do
        [ "$(rpc System/Resync "${case#*:}" | jq -r '.code + " " + .field')" = "invalid_argument ${case%%:*}" ] || fail "$case"
    done
}

@test "resync says what it is not permitted to do" {
    command -v setpriv >/dev/null && [ "$(id -u)" = 0 ] || skip "needs root and setpriv"
    printf '#!/bin/sh\nexec setpriv --bounding-set -sys_time,-sys_admin --inh-caps -sys_time,-sys_admin %s "$@"\n' \
        "$BELLHOPD" >"$AGENT_DIR/weak"
    chmod 755 "$AGENT_DIR/weak"
    BELLHOPD=$AGENT_DIR/weak run_agent --listen 127.0.0.1:0 --token-file "$AGENT_DIR/token"
    entropy=$(head -c 48 /dev/urandom | base64 -w 0)
    before=$(date +%s%3N)
    run rpc System/Resync "{\"now_ms\":$((before + 3600000)),\"entropy\":{\"b64\":\"$entropy\"}}"
    [ "$(jq -c '[.clock.result, .entropy, .reseed, .generation]' <<<"$output")" = \
        '["not_permitted","mixed","not_permitted",2]' ]
    [ "$(jq '.clock.offset_ms > 3590000' <<<"$output")" = true ]
    [ $(($(date +%s%3N) - before)) -lt 60000 ]
}

# The clock is set to its present time, less the few milliseconds of the call.
@test "resync really sets the clock, and deadlines do not care" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    start_command '{"id":"s","argv":["sleep","600"],"timeout_ms":600000}'
    is .commands.running 1 # before Resync closes connections on which no request has come yet
    run rpc System/Resync "{\"now_ms\":$(date +%s%3N),\"tolerance_ms\":-1}"
    [[ $(jq -r .clock.result <<<"$output") =~ ^(set|not_permitted)$ ]]
    [ "$(jq '.clock.offset_ms | . <= 0 and . > -60000' <<<"$output")" = true ]
    # The time that the call took is added again.
    rpc System/Resync "{\"now_ms\":$(($(date +%s%3N) - $(jq .clock.offset_ms <<<"$output"))),\"tolerance_ms\":-1}" -o /dev/null
    is .commands.running 1
}

@test "resync closes connections that wait for nothing" {
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" <<'PY'
import http.client, json, sys, time
def connect():
    c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    c.request("GET", "/v1/health")
    c.getresponse().read()
    return c
# On a busy machine the agent may not have finished a reply that was read already: such a connection is still in use.
for _ in range(20):
    old = [connect() for _ in range(3)]
    c = connect()
    c.request("POST", "/bellhop.v1.System/Resync", "{}",
              {"Authorization": "Bearer " + sys.argv[2], "Content-Type": "application/json"})
    reply = json.load(c.getresponse())
    assert reply["connections_closed"] <= 3, reply
    if reply["connections_closed"] == 3:
        break
    c.close()
    time.sleep(1)
assert reply["connections_closed"] == 3, reply
for o in old:
    assert o.sock.recv(1) == b""
c.request("GET", "/v1/health")
assert c.getresponse().status == 200
PY
}
