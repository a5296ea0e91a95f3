# Recipes as data: the schema, users' own recipes from a file, and what each way of not becoming
# healthy gets. The boxes are of the process provider: what is tested is the bootstrap.
# early

load ../lib/box
bats_require_minimum_version 1.5.0

ROOT=$BATS_TEST_DIRNAME/../..

setup()
{
    box_setup
    PORT=$(free_port)
    cd "$BOX_TMP"
}
teardown()
{
    cd /
    box_teardown
}

# recipe BODY [JQ CHANGE]: mine.json, a server that is this Python program.
recipe()
{
    jq -n --arg body "$1" --argjson port "$PORT" '{
        name: "mine", description: "a test", version: "1.0", port: $port,
        files: [{path: "${home}/server.py", content: $body, mode: "0600"}],
        env: {GREETING: "it is `fine` $(id) \"really\""},
        start: {argv: ["python3", "${home}/server.py", "${port}", "${password}"], mode: "server"},
        health: {http: {path: "/h", expect: {ok: true}}, attempt_ms: 2000, total_ms: 120000}
    }' | jq "${2:-.}" >mine.json
}

SERVER='
import http.server, json, os, sys
print("serving on", sys.argv[1], flush=True)
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"ok": True, "greeting": os.environ["GREETING"], "cwd": os.getcwd()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
'

up()
{
    bellhop up --name mine --provider process --agent ./mine.json --json "$@"
}

# fails CODE STEP: `up` fails that way, leaves nothing, and its error is in $BOX_TMP/error.
fails()
{
    local begin=$SECONDS

    up >error && return 1
    cat error >&2
    [ "$(jq -r .error.code error)" = "$1" ]
    [ "$(jq -r .error.step error)" = "$2" ]
    [ -z "$(bellhop ls -q)" ]
    TOOK=$((SECONDS - begin))
}

@test "every recipe is valid by the schema" {
    for recipe in "$ROOT"/bootstrap/*.json; do
        [ "$(basename "$recipe")" = schema.json ] ||
            python3 "$BATS_TEST_DIRNAME/validate.py" "$ROOT/bootstrap/schema.json" "$recipe"
    done
    recipe "$SERVER"
    python3 "$BATS_TEST_DIRNAME/validate.py" "$ROOT/bootstrap/schema.json" mine.json
}

@test "schema and decoder refuse the same recipes, and the decoder names the field" {
    while IFS='|' read -r change field; do
        recipe "$SERVER" "$change"
        run ! python3 "$BATS_TEST_DIRNAME/validate.py" "$ROOT/bootstrap/schema.json" mine.json
        run up
        [ "$status" -eq 2 ] || fail "status $status: $change"
        [ "$(jq -r .error.field <<<"${lines[-1]}")" = "$field" ] || fail "$change: $output"
    done <<'CHANGES'
.name = "Not Good"|name
del(.version)|version
.port = 70000|port
del(.port)|port
.start.argv = []|start.argv
.start.argv[1] = "${nothing}"|start.argv[1]
.start.mode = "pty"|start.mode
.start.shell = "x"|start.shell
.env = {"A-B": "x"}|env.A-B
.health = {}|health
.health.http.path = "h"|health.http.path
.health.total_ms = 0|health.total_ms
.files[0].mode = "rw"|files[0].mode
.files[0].from = "x"|files[0]
.install = {"npm": [{"arch": "x"}]}|install.npm[0].package
.install = {"npm_lock": "../x"}|install.npm_lock
.restart = {"max": -1}|restart.max
.restart = {"max": 51}|restart.max
.restart = {"max": "5"}|restart.max
.timeouts = {"start": 1}|timeouts.start
.more = 1|more
CHANGES
}

@test "schema and decoder take the same numbers of restarts" {
    for max in 0 1 50; do
        recipe "$SERVER" ".restart = {max: $max}"
        python3 "$BATS_TEST_DIRNAME/validate.py" "$ROOT/bootstrap/schema.json" mine.json
        up >out
        bellhop rm mine
    done
}

@test "a user's own recipe works from its file" {
    recipe "$SERVER"
    up >out
    url=$(jq -r .agent.url out)
    [ "$(jq -r .agent.name out)" = mine ]
    [ "$(curl -s "$url/h" | jq -r .greeting)" = 'it is `fine` $(id) "really"' ]
    [ "$(curl -s "$url/h" | jq -r .cwd)" = "$(bellhop exec -n mine -- pwd)" ]
}

@test "a user's own recipe is kept with the box: its file may go" {
    recipe "$SERVER"
    up >out
    bellhop stop mine
    rm mine.json
    bellhop start mine
    [ "$(curl -s "$(bellhop status mine --json | jq -r .agent.url)/h" | jq -r .ok)" = true ]
}

@test "the box's own variables win over the recipe's" {
    recipe "$SERVER"
    up --env GREETING=mine >out
    [ "$(curl -s "$(jq -r .agent.url out)/h" | jq -r .greeting)" = mine ]
}

@test "one that listens and never answers ends at the deadline, with the log's tail" {
    recipe '
import socket, sys, time
print("listening and silent", flush=True)
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen(16)
time.sleep(600)
' '.health.total_ms = 8000'
    fails deadline_exceeded health
    [[ "$(jq -r .error.message error)" == *"did not become healthy within"* ]]
    [[ "$(jq -r .error.detail error)" == *"listening and silent"* ]]
    [ "$TOOK" -lt 120 ]
}

@test "one that ends at once is told at once, with its log" {
    recipe 'import sys; print("no config found", file=sys.stderr); sys.exit(3)' '.health.total_ms = 600000'
    fails failed_precondition health
    [[ "$(jq -r .error.message error)" == *"it exited with status 3"* ]]
    [[ "$(jq -r .error.detail error)" == *"no config found"* ]]
    [ "$TOOK" -lt 120 ]
}

@test "a page with status 200 is not health" {
    recipe '
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html>welcome</html>")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
' '.health.total_ms = 8000'
    fails deadline_exceeded health
    [[ "$(jq -r .error.message error)" == *"the answer is not JSON"* ]]
}

@test "one that never answers its first requests is asked again long before the recipe's time for an answer" {
    recipe '
import http.server, json, sys, threading, time
seen = []
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        seen.append(1)
        if len(seen) <= 3:
            time.sleep(600)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"ok": True}).encode())
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
' '.health.attempt_ms = 50000 | .health.total_ms = 60000'
    up >out
    [ "$(jq -r .state out)" = running ]
}

@test "the log's tail is at most 30 lines of 120 characters, without the password" {
    recipe '
import sys
for i in range(100):
    print(i, "x" * 500)
print("my password is", sys.argv[2])
sys.exit(1)
' '.health.http.username = "u"'
    fails failed_precondition health
    jq -j .error.detail error >detail
    [ "$(wc -l <detail)" -le 30 ]
    [ "$(wc -c <detail)" -lt 4096 ]
    [ "$(wc -L <detail)" -le 120 ]
    grep -q 'my password is \*\*\*' detail
}

@test "a command of the installation that fails is named, and its log shown" {
    recipe "$SERVER" '.install.commands = [["true"], ["sh", "-c", "echo half way; exit 7"]]'
    fails failed_precondition install
    [[ "$(jq -r .error.message error)" == *"'sh' ended with status 7"* ]]
    [[ "$(jq -r .error.detail error)" == *"half way"* ]]
}

@test "a step has its time" {
    recipe "$SERVER" '.install.commands = [["sleep", "600"]] | .timeouts.install_ms = 1500'
    fails deadline_exceeded install
    [ "$TOOK" -lt 120 ]
}

@test "a program that is not there is named" {
    recipe "$SERVER" '.start.argv = ["no-such-program"]'
    fails not_found start
    [[ "$(jq -r .error.message error)" == *no-such-program* ]]
}

@test "npm that can't be reached is unavailable, naming the package" {
    recipe "$SERVER" '.install.npm = [{package: "no-such-package-of-bellhop"}]'
    export npm_config_registry=http://127.0.0.1:$PORT
    fails unavailable install
    [[ "$(jq -r .error.message error)" == *"no-such-package-of-bellhop 1.0"* ]]
    [ "$(jq -r .error.field error)" = npm_registry ]
}

@test "an agent-config that has nothing for the agent is refused" {
    mkdir empty
    recipe "$SERVER" '.files += [{from: "settings.json", into: "${home}"}]'
    up --agent-config empty >error && return 1
    [ "$(jq -r .error.field error)" = agent_config ]
}

@test "unknown recipes are refused before anything is made, naming the known ones" {
    run bellhop up --name mine --provider process --agent opncode --json
    [ "$status" -ne 0 ]
    [[ "$output" == *"opencode, pi, none"* ]]
    [ -z "$(bellhop ls -q)" ]
    run bellhop up --name mine --provider process --agent opencode@latest --json
    [[ "$output" == *"exact version"* ]]
}

@test "the right version is not installed again, a wrong one is" {
    recipe "$SERVER" '.restart.max = 0
        | .check = {argv: ["cat", "${home}/version"], output: "${version}"}
        | .install.commands = [["sh", "-c", "echo once >>\"$1/installs\"; echo \"$2\" >\"$1/version\"", "sh", "${home}", "${version}"]]'
    installs() { bellhop exec -n mine -- sh -c 'wc -l <~/installs'; }
    end_agent() { end_now "$(bellhop exec -n mine -- pgrep -f "[s]erver.py $PORT")"; }
    up >out
    [ "$(installs)" -eq 1 ]
    # Ended, so that it is brought up again: what is there is of the right version.
    end_agent
    up >out
    [ "$(installs)" -eq 1 ]
    bellhop exec -n mine -- sh -c 'echo 0.9 >~/version'
    end_agent
    up >out
    [ "$(installs)" -eq 2 ]
    [ "$(bellhop exec -n mine -- sh -c 'cat ~/version')" = 1.0 ]
    [ "$(curl -s "$(jq -r .agent.url out)/h" | jq -r .ok)" = true ]
}

@test "an installation after which the version is still wrong is an error that says so" {
    recipe "$SERVER" '.check = {argv: ["echo", "0.9"], output: "${version}"} | .install.commands = [["true"]]'
    fails failed_precondition install
    [[ "$(jq -r .error.message error)" == *"mine 1.0 was installed, but its check still fails"* ]]
}

# left_nothing: no box, no directory, no process, whatever step failed.
left_nothing()
{
    [ -z "$(bellhop ls -q)" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ]
    no_traces || wait_for 10 no_traces || fail "$(traces)"
}

@test "whatever step of up fails, all is undone and the first error is the one reported" {
    # STEP|CODE|CHANGE of the recipe
    while IFS='|' read -r step code change; do
        recipe "$SERVER" "$change"
        fails "$code" "$step" || fail "$step: $(cat error)"
        left_nothing
    done <<'STEPS'
check|deadline_exceeded|.check = {argv: ["sleep", "600"]} | .timeouts.check_ms = 1000
install|failed_precondition|.install.commands = [["false"]]
files|permission_denied|.files[0].path = "/proc/version" | .files[0].mode = "0644"
start|not_found|.start.argv = ["no-such-program"]
health|failed_precondition|.start.argv = ["false"]
STEPS
}

@test "a failing upload or clone is undone and is the error reported" {
    recipe "$SERVER"
    mkdir -p project/sub
    # Nothing can be put there.
    ! bellhop up --name mine --provider process --agent none --json --dest /proc/sys project >error || fail "it was made"
    [ "$(jq -r .error.step error)" = upload ] || fail "$(cat error)"
    left_nothing
    ! bellhop up --name mine --provider process --agent none --json --repo "file://$BOX_TMP/nowhere" >error || fail "it was made"
    [ "$(jq -r .error.step error)" = clone ] || fail "$(cat error)"
    left_nothing
}

@test "an undo that fails itself does not hide the first error, and gc finishes it" {
    # A mount in the box's directory: it cannot be removed.
    recipe "$SERVER" '.install.commands = [["sh", "-c",
        "mkdir $1/m; mount --bind $1/m $1/m && readlink -f $1/m >$2; echo the first error; exit 7", "sh", "${home}", ""]]'
    jq --arg at "$BOX_TMP/at" '.install.commands[0][-1] = $at' mine.json >with-path.json
    mv with-path.json mine.json
    ! up >error || fail "it was made"
    [ -s "$BOX_TMP/at" ]
    umount "$(cat "$BOX_TMP/at")"
    [ "$(jq -r .error.step error)" = install ] || fail "$(cat error)"
    [[ "$(jq -r .error.detail error)" == *"the first error"* ]]
    bellhop gc
    left_nothing
}

@test "two boxes' agents have passwords of their own, in files of mode 0600" {
    for name in mine other; do
        recipe "$SERVER" '.health.http.username = "u"'
        bellhop up --name "$name" --provider process --agent ./mine.json --json >out
        file=$BELLHOP_STATE_DIR/boxes/$(jq -r .id out)/agent-password
        jq -r .agent.password out >"password.$name"
        [ "$(wc -c <"password.$name")" -gt 16 ]
        [ "$(cat "$file")" = "$(cat "password.$name")" ]
        [ "$(stat -c %a "$file")" = 600 ]
        PORT=$(free_port)
    done
    run ! cmp password.mine password.other
}

# steps_of LOG: the debug log's calls that find, start and ask, without repetitions.
steps_of()
{
    sed -nE -e 's/.* provider: process (find|start|prepare) .*/provider \1/p' \
        -e 's|.* http: GET http://box/v1/health 200 .*|guest agent answers|p' \
        -e 's|.* http: POST http://box/bellhop.v1.Exec/Start .*|coding agent starts|p' \
        -e 's|.* state: [0-9a-f]* state [a-z]* to ([a-z]*)$|\1|p' "$1" | uniq
}

@test "a box is reached again in order: its processes, its guest agent, its coding agent" {
    recipe "$SERVER" '.restart.max = 0'
    up >out
    end_now "$(bellhop exec -n mine -- pgrep -f "[s]erver.py $PORT")"
    BELLHOP_DEBUG=$BOX_TMP/trace up >out
    steps_of "$BOX_TMP/trace" >steps
    cat steps
    [ "$(grep -n 'provider find' steps | head -n 1 | cut -d : -f 1)" -eq 1 ]
    [ "$(grep -n 'guest agent answers' steps | head -n 1 | cut -d : -f 1)" -lt "$(grep -n 'coding agent starts' steps | head -n 1 | cut -d : -f 1)" ]
    ! grep -E 'provider (prepare|start)|destroying' steps || fail "it was made anew"
    [ "$(tail -n 1 steps)" = "coding agent starts" ] || tail -n 1 steps | grep -q 'provider find'
    [ "$(curl -s "$(jq -r .agent.url out)/h" | jq -r .ok)" = true ]
}

@test "a long wait for a coding agent is told after five seconds and then every ten" {
    recipe "$SERVER" '.health.http.expect = {ok: false} | .health.total_ms = 17000'
    fails deadline_exceeded health 2>err
    grep -o 'waiting for mine since [0-9]* s' err >told
    diff told <(echo 'waiting for mine since 5 s'; echo 'waiting for mine since 15 s')
}

@test "an interrupt ends the wait for a coding agent with status 130, and leaves nothing" {
    recipe "$SERVER" '.health.http.expect = {ok: false}'
    "$BELLHOP" up --name mine --provider process --agent ./mine.json >out 2>err 3>&- &
    pid=$!
    wait_for 30 grep -q 'waiting for mine since 5 s' err
    begun=$(date +%s%N)
    kill -INT "$pid"
    status=0
    wait "$pid" || status=$?
    echo "# from the interrupt to the end: $((($(date +%s%N) - begun) / 1000000)) ms" >&3
    [ "$status" -eq 130 ]
    [ -z "$(bellhop ls -q)" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ]
}

# Prints its password when it starts and when it ends.
TELLTALE='import atexit, os, signal
print("password", __import__("sys").argv[2], flush=True)
atexit.register(print, "end", __import__("sys").argv[2], flush=True)
signal.signal(signal.SIGTERM, lambda *a: exit(7))
'

@test "neither the debug log of a command nor the monitor's has a coding agent's password" {
    local dir password

    # It logs no requests: its last line is what it said at its end.
    recipe "$TELLTALE${SERVER/http.server.HTTPServer/$'H.log_message = lambda *a: None\nhttp.server.HTTPServer'}" '.health.http.username = "u"'
    export BELLHOP_DEBUG=$BOX_TMP/debug.log
    up >out 2>err
    dir=$BELLHOP_STATE_DIR/boxes/$(jq -r .id out)
    password=$(jq -r .agent.password out)
    [ "${#password}" -gt 16 ]
    pid=$(bellhop exec -n mine -- pgrep -f "[s]erver.py $PORT")
    kill -TERM "$pid"
    wait_for 60 grep -q 'ended (exited with 7: end' "$dir/monitor.log"
    wait_for 60 served_by_another "$pid"
    bellhop status mine >/dev/null
    grep -qE 'provider: process start mine: ok [0-9]+ ms$' "$dir/monitor.log"
    grep -qE 'http: POST http://box/[A-Za-z0-9/._-]+ 200 [0-9]+ bytes [0-9]+ ms$' "$dir/monitor.log"
    grep -q 'provider: process prepare mine: ok' "$BELLHOP_DEBUG"
    bellhop events mine --json >events
    if grep -F -- "$password" "$BELLHOP_DEBUG" "$dir/monitor.log" events err; then fail "it is there"; fi
}

@test "up again leaves a healthy agent alone and brings a dead one back" {
    recipe "$SERVER" '.restart.max = 0'
    up >out
    pid=$(bellhop exec -n mine -- pgrep -f "[s]erver.py $PORT")
    up >out
    [ "$(bellhop exec -n mine -- pgrep -f "[s]erver.py $PORT")" = "$pid" ]
    end_now "$pid"
    up >out
    [ "$(curl -s "$(jq -r .agent.url out)/h" | jq -r .ok)" = true ]
}

served_by_another() # PID
{
    local pid

    pid=$(bellhop exec -n mine -- pgrep -f "[s]erver.py $PORT") && [ "$pid" != "$1" ] &&
        [ "$(curl -s -m 5 "$(jq -r .agent.url out)/h" | jq -r .ok)" = true ]
}

@test "an agent that hangs is ended and started again by the monitor" {
    recipe "$SERVER" '.health.interval_ms = 200 | .health.attempt_ms = 500'
    up >out
    pid=$(bellhop exec -n mine -- pgrep -f "[s]erver.py $PORT")
    kill -STOP "$pid"
    wait_for 60 served_by_another "$pid"
    is_gone "$pid"
    [ "$(bellhop status mine --json | jq -r .state)" = running ]
}

@test "an agent that hangs each time is given up, with what it hung at" {
    recipe "$SERVER" '.health.interval_ms = 200 | .health.attempt_ms = 500 | .health.total_ms = 20000 | .restart.max = 1'
    up >out
    first=$(bellhop exec -n mine -- pgrep -f "[s]erver.py $PORT")
    kill -STOP "$first"
    wait_for 60 served_by_another "$first"
    kill -STOP "$(bellhop exec -n mine -- pgrep -f "[s]erver.py $PORT")"
    wait_for 60 sh -c "'$BELLHOP' status mine --json | jq -e '.state == \"error\" and (.cause | test(\"it hung: \"))'"
    [ "$(bellhop exec -n mine -- echo reachable)" = reachable ]
}

# A server that writes a line into $HOME/asked for each request, and is silent while there is $HOME/silent.
NOTING='
import http.server, json, os, sys, time
path = lambda name: os.path.join(os.environ["HOME"], name)
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open(path("asked"), "a") as f:
            f.write(self.path + "\n")
        while os.path.exists(path("silent")):
            time.sleep(0.02)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"ok": True}).encode())
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
'

# How often the agent was asked, read without the box.
requests() { wc -l <"$AGENT_HOME/asked"; }
requests_pass() { [ "$(requests)" -gt "$1" ]; }

@test "a resume is over after the agent has answered a health check, and the supervisor asks one that is silent" {
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    recipe "$NOTING" '.health.interval_ms = 600000'
    up >out
    AGENT_HOME=$BELLHOP_STATE_DIR/boxes/$(jq -r .id out)/home
    bellhop pause mine
    before=$(requests)
    bellhop resume mine
    [ "$(requests)" -eq $((before + 1)) ]
    # The first call on the published URL of a paused box: the health check comes before it.
    bellhop pause mine
    curl -sS --max-time 60 "$(jq -r .agent.url out)/first-call" | jq -e .ok
    tail -n 2 "$AGENT_HOME/asked" | diff - <(printf '/h\n/first-call\n')

    touch "$AGENT_HOME/silent"
    bellhop pause mine
    before=$(requests)
    bellhop resume mine
    [ "$(bellhop status mine --json | jq -r .state)" = running ]
    wait_for 60 requests_pass $((before + 1))
}

# An agent that is spoken to in lines. What its files tell it to do, it does.
LINES='
import json, os, sys, time
home, args = sys.argv[1], sys.argv[2:]
path = lambda name: os.path.join(home, name)
session = args[1] if args[:1] == ["--session"] else "fresh-%d" % os.getpid()
if os.path.exists(path("crash")):
    print("it is raining", file=sys.stderr)
    sys.exit(3)
if args[:1] == ["--session"] and os.path.exists(path("unknown")):
    print("No session found matching %s" % session, file=sys.stderr)
    sys.exit(1)
for line in sys.stdin:
    with open(path("lines"), "a") as f:
        f.write(line)
    if line.startswith("hang"):
        time.sleep(600)
    elif line.startswith("{"):
        print(json.dumps({"id": json.loads(line)["id"], "ok": True, "data": {"session": session}}), flush=True)
'

lines_recipe() # [JQ CHANGE]
{
    jq -n --arg body "$LINES" '{
        name: "mine", description: "a test", version: "1.0",
        files: [{path: "${home}/lines.py", content: $body, mode: "0600"}],
        start: {argv: ["python3", "${home}/lines.py", "${home}"], mode: "rpc",
            session_args: ["--session", "${session}"], session_unknown: "No session found matching ${session}"},
        health: {rpc: {send: {type: "state"}, expect: {ok: true}, session: "data.session"},
            attempt_ms: 2000, total_ms: 120000}
    }' | jq "${1:-.}" >mine.json
}

kept_session()
{
    jq -r .session "$BELLHOP_STATE_DIR/boxes/$(bellhop status mine --json | jq -r .id)/agent.json"
}

@test "an early end does not throw the session away, unless the agent says that it is unknown" {
    lines_recipe
    up >out
    session=$(kept_session)
    [[ "$session" == fresh-* ]]
    bellhop exec -n mine -c 'touch ~/crash'
    bellhop stop mine
    run bellhop start mine --json
    [ "$status" -ne 0 ]
    [[ "$output" == *"its session $session is kept"*"it exited with status 3"* ]] || fail "$output"
    [ "$(kept_session)" = "$session" ]
    rm "$BELLHOP_STATE_DIR"/boxes/*/home/crash
    up >out
    [ "$(kept_session)" = "$session" ]
    bellhop exec -n mine -c 'touch ~/unknown'
    bellhop stop mine
    bellhop start mine
    [[ "$(kept_session)" == fresh-* ]]
    [ "$(kept_session)" != "$session" ]
}

# to_agent JSON: an Exec/Write to it.
to_agent()
{
    local dir

    dir=$BELLHOP_STATE_DIR/boxes/$(bellhop status mine --json | jq -r .id)
    curl -s --unix-socket "$dir/run/agent.sock" -H "Authorization: Bearer $(cat "$dir/token")" \
        -H 'Content-Type: application/json' -d "$1" http://box/bellhop.v1.Exec/Write
}

n_asked()
{
    bellhop exec -n mine -c 'grep -c state ~/lines'
}

asked_more_than() { [ "$(n_asked)" -gt "$1" ]; }

@test "an agent that is spoken to in lines is asked between the lines of others, and restarted when it hangs" {
    lines_recipe '.health.interval_ms = 100'
    up >out
    wait_for 60 asked_more_than 2
    # while somebody's line is under way nobody else's is put into it, and offsets count their own bytes only
    to_agent '{"id":"agent","data":{"text":"half"},"offset":0}' | jq -e '.offset == 4'
    pid=$(bellhop exec -n mine -- pgrep -f "lines[.]py")
    n=$(n_asked)
    to_agent '{"id":"agent","data":{"text":"x\n"},"between_lines":true}' | jq -e '.code == "aborted"'
    to_agent '{"id":"agent","data":{"text":"+half\n"},"offset":4}' | jq -e '.offset == 10'
    wait_for 60 asked_more_than "$n"
    bellhop exec -n mine -c 'grep -qx half+half ~/lines'
    [ "$(bellhop exec -n mine -- pgrep -f "lines[.]py")" = "$pid" ]
    to_agent '{"id":"agent","data":{"text":"hang\n"}}' | jq -e .offset
    wait_for 60 is_gone "$pid"
    wait_for 60 bellhop exec -n mine -- pgrep -f "lines[.]py"
}

CONVERSATION=$(cat "$BATS_TEST_DIRNAME/../lib/conversation_agent.py")

kinds()
{
    bellhop events mine --json | jq -c '[.events[].kind | select(startswith("turn"))]'
}

@test "a prompt is answered; an agent that says nothing is a warning, then stale, and is aborted in time" {
    recipe "$CONVERSATION" '.conversation = "opencode" | .health.http.username = "user"'
    up --empty >/dev/null 2>&1
    work=$(bellhop exec mine -- pwd)
    [ "$(bellhop prompt mine "$(printf 'one\ntwo')")" = "$(printf 'you said: one\ntwo')" ]
    printf 'from a pipe' | bellhop prompt mine --json - >answer
    jq -e '.text == "you said: from a pipe" and .session == "ses_1"' answer
    [ "$(kinds)" = '[]' ]
    # It works, and says nothing: both are told, once. Then it goes on.
    "$BELLHOP" prompt mine --session ses_1 --warn-after 100ms --stale-after 600ms work >answer 3>&- &
    prompt=$!
    wait_for 20 eval '[ "$(kinds)" = "[\"turn_warning\",\"turn_stale\"]" ]'
    bellhop events mine --json | jq -e '[.events[] | select(.kind == "turn_warning")][0].cause | startswith("session ses_1: the coding agent has said nothing for ")'
    touch "$work/finish"
    wait "$prompt"
    [ "$(cat answer)" = 'at work, the end' ]
    [ "$(kinds)" = '["turn_warning","turn_stale"]' ]
    rm "$work/finish"
    # Out of time, the turn is aborted.
    run --separate-stderr bellhop prompt mine --timeout 1s --json work
    [ "$(jq -r .error.code <<<"$output")" = deadline_exceeded ]
    [ "$(jq -r .error.field <<<"$output")" = timeout ]
    [ "$(tail -n 1 "$work/calls")" = /session/ses_1/abort ]
    [ "$(kinds)" = '["turn_warning","turn_stale"]' ]
    # An agent that refuses is asked again.
    touch "$work/refuse1" "$work/refuse2"
    run --separate-stderr bellhop prompt mine --timeout 1s --json work
    [ "$(jq -r .error.code <<<"$output")" = deadline_exceeded ]
    [[ "$(jq -r .error.message <<<"$output")" != *'may go on'* ]] || fail "$output"
    [ "$(tail -n 3 "$work/calls" | grep -c /abort)" -eq 3 ]
    touch "$work"/refuse{10..60}
    run --separate-stderr bellhop prompt mine --timeout 1s --json work
    [ "$(jq -r .error.code <<<"$output")" = deadline_exceeded ]
    [[ "$(jq -r .error.message <<<"$output")" = *"the turn of the session 'ses_1' may go on"*'status 503'* ]]
    rm "$work"/refuse*
    run --separate-stderr bellhop prompt mine --action-timeout 300ms --json 'hang up'
    [ "$(jq -r .error.code <<<"$output")" = deadline_exceeded ]
}

@test "a prompt that cannot be given says why" {
    recipe "$CONVERSATION" '.conversation = "opencode" | .health.http.username = "user"'
    run bellhop up --name mine --provider process --agent ./mine.json --empty --json
    [ "$status" -eq 0 ]
    run bellhop prompt mine fail
    [[ "$output" = *'the coding agent failed: no model'* ]]
    [ "$status" -eq 1 ]
    run bellhop prompt mine --session ses_2 hello
    [ "$status" -eq 3 ]
    [[ "$output" = *'the coding agent has no such session'* ]]
    run bellhop prompt mine --session ../x hello
    [ "$status" -eq 2 ]
    run bellhop prompt mine --warn-after 6m hello
    [ "$status" -eq 2 ]
    [[ "$output" = *'warn-after: the warning cannot come after the turn is stale'* ]]
    run bellhop prompt mine ''
    [ "$status" -eq 2 ]
    bellhop rm mine
    recipe "$SERVER" '.conversation = "other"'
    run --separate-stderr up --empty
    [ "$status" -eq 2 ]
    [ "$(jq -r .error.field <<<"$output")" = conversation ]
    recipe "$SERVER"
    up --empty >/dev/null 2>&1
    run bellhop prompt mine hello
    [ "$status" -eq 9 ]
    [[ "$output" = *"the coding agent 'mine' takes no prompts here"* ]]
}
