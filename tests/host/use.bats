# early
# Use of a box: the facts that extend its time, and those that do not. Boxes of the process provider with two seconds
# to live: without use they end at once.

load ../lib/box

setup()
{
    box_setup
}
teardown()
{
    box_teardown
}

up() # [OPTION...]; LIFE_S: its time to live, in seconds
{
    LIFE_S=${LIFE_S:-2}
    bellhop up --name one --provider process --agent none --empty --timeout "${LIFE_S}s" "$@" >/dev/null 2>&1
    DIR=$BELLHOP_STATE_DIR/boxes/$(bellhop status one --json | jq -r .id)
    BEGUN_MS=$(bellhop status one --json | jq .deadline_ms)
}

is_stopped()
{
    [ "$(bellhop status one --json | jq -r .state)" = stopped ]
}

# The deadline has moved by more than two lives: the monitor extended it again and again.
lives_on()
{
    bellhop status one --json |
        jq -e --argjson enough "$((BEGUN_MS + 2000 * LIFE_S))" '.state == "running" and .deadline_ms > $enough'
}

# call METHOD PARAMS: on the box's published socket, as a program of the user's does.
call()
{
    curl -sS --fail --unix-socket "$DIR/run/agent.sock" -H 'Content-Type: application/json' \
        -H "Authorization: Bearer $(cat "$DIR/token")" -d "$2" "http://box/bellhop.v1.$1"
}

@test "a detached command holds the box as long as it runs" {
    up
    bellhop exec one -d -- sh -c 'until [ -e go ]; do sleep 0.1; done'
    wait_for 15 lives_on
    touch "$DIR/workspace/go"
    wait_for 15 is_stopped
}

@test "a detached command that waits for nothing but time holds the box, and a shell's children do" {
    up
    bellhop exec one -d --id sleeper -- sleep 1000
    wait_for 15 lives_on
    bellhop exec one -d --id shell -- sh -c 'sleep 1000; true'
    bellhop kill one sleeper
    BEGUN_MS=$(bellhop status one --json | jq .deadline_ms)
    wait_for 15 lives_on
    bellhop kill one shell
    wait_for 15 is_stopped
}

@test "calls on the published socket hold the box" {
    LIFE_S=8 up # on a busy machine, there are seconds between two of the calls
    calls_and_lives_on() { call Fs/Stat '{"path":"/"}' >/dev/null && lives_on; }
    wait_for 60 calls_and_lives_on
    wait_for 15 is_stopped
}

@test "a stream on the published socket holds the box while it is open" {
    up
    curl -sN --unix-socket "$DIR/run/agent.sock" -H 'Content-Type: application/json' \
        -H "Authorization: Bearer $(cat "$DIR/token")" -d "{\"path\":\"$DIR/workspace\"}" \
        http://box/bellhop.v1.Fs/Watch >/dev/null 3>&- &
    stream=$!
    wait_for 15 lives_on
    kill "$stream"
    wait_for 15 is_stopped
}

@test "questions that look after a box do not hold it" {
    up
    asks_and_is_stopped()
    {
        for method in System/Activity System/Ports System/Info; do
            call "$method" '{}' >/dev/null || true
        done
        curl -s --unix-socket "$DIR/run/agent.sock" -H 'Content-Type: application/json' -H 'Bellhop-Quiet: 1' \
            -H "Authorization: Bearer $(cat "$DIR/token")" -d '{}' http://box/bellhop.v1.Exec/List >/dev/null || true
        is_stopped
    }
    wait_for 15 asks_and_is_stopped
}

@test "a server that nobody uses does not hold the box, one that works does" {
    port=$(free_port)
    up
    bellhop exec one -d -- python3 -c '
import os, socket, sys
s = socket.socket()
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
open("listens", "w")
work = [os.fork() for _ in range(2)] # together they get their share of a busy machine, too
while not os.path.exists("idle"): pass
if 0 in work: os._exit(0)
s.accept()' "$port"
    wait_for 15 test -e "$DIR/workspace/listens"
    wait_for 15 lives_on
    touch "$DIR/workspace/idle"
    wait_for 15 is_stopped
}

@test "a shell that waits does not hold the box, one that prints does" {
    up
    # It ends when its input does, which this program keeps open.
    mkfifo "$BOX_TMP/input"
    script -qfc "'$BELLHOP' shell one" /dev/null <"$BOX_TMP/input" >"$BOX_TMP/output" 2>&1 3>&- &
    terminal=$!
    exec {input}>"$BOX_TMP/input"
    types_and_lives_on() { echo 'echo he''llo' >&"$input" && lives_on; }
    wait_for 15 types_and_lives_on
    grep -q hello "$BOX_TMP/output"
    wait_for 15 is_stopped
    exec {input}>&-
    wait "$terminal" || true # the shell was ended
}

# agent SCRIPT: the recipe of a coding agent that is this Python program, and speaks lines.
agent()
{
    jq -n --arg body "$1" '{
        name: "mine", description: "a test", version: "1.0",
        files: [{path: "${home}/agent.py", content: $body, mode: "0600"}],
        start: {argv: ["python3", "-u", "${home}/agent.py"], cwd: "${workdir}", mode: "rpc"},
        health: {rpc: {send: {type: "hello"}, expect: {type: "hi"}}, attempt_ms: 20000, total_ms: 120000}
    }' >"$BOX_TMP/mine.json"
}

@test "a coding agent that works holds the box with nobody connected, one that waits does not" {
    agent '
import json, os, sys, threading
def work():
    while not os.path.exists("idle"): pass
threading.Thread(target=work, daemon=True).start()
for line in sys.stdin: print(json.dumps({"type": "hi", "id": json.loads(line).get("id")}))'
    up --agent "$BOX_TMP/mine.json"
    wait_for 15 lives_on
    touch "$DIR/workspace/idle"
    wait_for 15 is_stopped
}

@test "up with an agent that has no URL says how to talk to it" {
    agent 'import json, sys
for line in sys.stdin: print(json.dumps({"type": "hi", "id": json.loads(line).get("id")}))'
    run bellhop up --name one --provider process --agent "$BOX_TMP/mine.json" --empty
    [ "$status" -eq 0 ] || fail "$output"
    [[ "$output" == *"agent     mine 1.0, which reads and writes JSON lines"* ]]
    talk=$(sed -n 's/^ *\(bellhop attach .*[^ ]\)   *talk to.*/\1/p' <<<"$output")
    mkfifo "$BOX_TMP/input"
    eval "$talk" <"$BOX_TMP/input" >"$BOX_TMP/answer" 3>&- &
    exec {input}>"$BOX_TMP/input"
    echo '{"type":"hello","id":7}' >&"$input"
    wait_for 15 grep -q '"id": 7' "$BOX_TMP/answer"
    exec {input}>&-
    wait $!
}

@test "help of keep and shell says what counts as use" {
    for what in 'command that runs' 'detached' 'a call of' 'connection' 'hold' 'idle shell'; do
        [[ "$(bellhop help keep | tr '\n' ' ')" == *"$what"* ]] || fail "$what"
    done
    [[ "$(bellhop help shell | tr '\n' ' ')" == *"does not count as use"* ]]
}
