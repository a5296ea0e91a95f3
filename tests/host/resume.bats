# early
# What is right in a box after a resume, and different in two boxes of one snapshot: clock, connections, random numbers.
# needs: image

bats_require_minimum_version 1.5.0
load ../lib/box

setup()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    box_setup
}
teardown() { box_teardown; }

info() # NAME FILTER
{
    bellhop status "$1" --json | jq -r "$2"
}

# rpc NAME METHOD [PARAMS]: a call of the guest agent on a new connection, past bellhop.
rpc()
{
    curl -s --max-time 30 --unix-socket "$(info "$1" .guest.socket)" \
        -H "Authorization: Bearer $(cat "$(info "$1" .guest.token_file)")" \
        -H 'Content-Type: application/json' -d "${3:-{\}}" "http://box/bellhop.v1.$2"
}

now_ms() { date +%s%3N; }
is_past() { [ "$(now_ms)" -ge "$1" ]; }

# A kept-alive connection to the guest agent on the published port, as a client's pool has it: "ready" once it has
# answered; the next line of input says that the box is back: "dropped" or "kept".
HELD_CONNECTION='
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
c.request("GET", "/v1/health")
c.getresponse().read()
print("ready", flush=True)
sys.stdin.readline()
c.sock.settimeout(30)
try:
    print("dropped" if c.sock.recv(1) == b"" else "kept", flush=True)
except ConnectionResetError:
    print("dropped", flush=True)
except TimeoutError:
    print("kept", flush=True)
'

@test "after a pause of seconds the guest has had Resync: a new generation, its clock is the host's, old connections are dropped" {
    local before guest after paused generation port

    bellhop up --name one --provider oci --agent none --empty >/dev/null 2>&1
    generation=$(rpc one System/Info | jq .generation)
    port=$(info one .guest.url | sed 's/.*://')
    coproc HELD { python3 -c "$HELD_CONNECTION" "$port" 2>&1 3>&-; }
    read -r -t 60 line <&"${HELD[0]}"
    [ "$line" = ready ]

    bellhop pause one >/dev/null
    paused=$(now_ms)
    wait_for 60 is_past $((paused + 3000))
    bellhop resume one >/dev/null
    # Resync was called, once, before the first call.
    [ "$(rpc one System/Info | jq .generation)" -eq $((generation + 1)) ]
    before=$(now_ms)
    guest=$(bellhop exec one -- date +%s%3N)
    after=$(now_ms)
    [ "$guest" -ge $((before - 500)) ]
    [ "$guest" -le $((after + 500)) ]
    echo go >&"${HELD[1]}"
    read -r -t 60 line <&"${HELD[0]}"
    [ "$line" = dropped ]
    # The time that the agent itself has.
    before=$(now_ms)
    guest=$(rpc one System/Resync | jq .clock.now_ms)
    after=$(now_ms)
    [ "$guest" -ge $((before - 500)) ]
    [ "$guest" -le $((after + 500)) ]
}

# Random numbers of a box, one source a line: the kernel, programs that seed a generator of their own, the agent.
RANDOM_SOURCES='
import os, random, secrets, tempfile, uuid
print("urandom", open("/dev/urandom", "rb").read(32).hex())
print("getrandom", os.getrandom(32).hex())
print("uuid", open("/proc/sys/kernel/random/uuid").read().strip())
print("python", random.random())
print("secrets", secrets.token_hex(16))
print("mktemp", tempfile.mktemp())
'

# A coding agent that draws a random number when it starts.
make_agent()
{
    jq -n '{
        name: "mine", description: "a test", version: "1.0", port: 7788,
        files: [{path: "${home}/server.py", mode: "0600", content: "
import http.server, random
open(\"/tmp/agent-seed\", \"w\").write(str(random.random()))
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b\"{\\\"ok\\\": true}\")
http.server.HTTPServer((\"127.0.0.1\", 7788), H).serve_forever()
"}],
        start: {argv: ["python3", "${home}/server.py", "${password}"], mode: "server"},
        health: {http: {path: "/h", expect: {ok: true}, username: "u"}, attempt_ms: 2000, total_ms: 120000}
    }' >"$BOX_TMP/mine.json"
}

randoms_of() # NAME
{
    bellhop exec "$1" -- python3 -c "$RANDOM_SOURCES"
    bellhop exec "$1" -- sh -c 'echo "shell $(mktemp -u XXXXXXXXXXXXXXXX)"'
    echo "token $(cat "$(info "$1" .guest.token_file)")"
    echo "agent-seed $(bellhop exec "$1" -- cat /tmp/agent-seed)"
    echo "agent-password $(info "$1" .agent.password)"
    echo "exec-id $(bellhop exec "$1" -d -- true)"
    echo "machine-id $(bellhop exec "$1" -- cat /etc/machine-id)"
}

@test "two boxes of one snapshot have different random numbers: of the kernel, of programs, of the agent" {
    make_agent
    bellhop up --name one --provider oci --agent "$BOX_TMP/mine.json" --empty >/dev/null 2>&1
    bellhop exec one -- python3 -c "$RANDOM_SOURCES" >/dev/null
    bellhop snapshot one --name base >/dev/null
    bellhop up --from base --name two >/dev/null 2>&1
    bellhop up --from base --name three >/dev/null 2>&1
    bellhop fork one four >/dev/null
    for name in one two three four; do
        randoms_of "$name" >"$BOX_TMP/$name"
    done
    cat "$BOX_TMP/one" "$BOX_TMP/two" "$BOX_TMP/three" "$BOX_TMP/four" | sort | uniq -d >"$BOX_TMP/same"
    [ "$(cat "$BOX_TMP/same")" = "machine-id " ] || fail "$(cat "$BOX_TMP/same")" # none has one
    [ "$(wc -l <"$BOX_TMP/one")" -eq 12 ]
    bellhop rm one two three four >/dev/null
    bellhop snapshots rm base
}
