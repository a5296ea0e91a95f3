# early
# The monitor of a box: killed and put back, time to live, forwarded ports, restarts, exit record.
# All with the process provider, where everything is quick.

load ../lib/box

setup()
{
    box_setup
}
teardown()
{
    box_teardown
}

up() # NAME [OPTION...]
{
    bellhop up --name "$1" --provider process --agent none --empty "${@:2}" 2>/dev/null
    DIR=$BELLHOP_STATE_DIR/boxes/$(bellhop status "$1" --json | jq -r .id)
}

state()
{
    bellhop status "$1" --json | jq -r .state
}

is_state()
{
    [ "$(state "$1")" = "$2" ]
}

monitor_pid()
{
    cut -d ' ' -f 1 "$DIR/monitor.lock"
}

box_pid()
{
    jq -r .pid "$DIR/run.json"
}

# control JSON: one request to the monitor, its reply.
control()
{
    printf '%s\n' "$1" | socat -t 60 - "UNIX-CONNECT:$DIR/monitor.sock"
}

@test "a monitor that is killed with -9 is put back by the next command, and the box lives on" {
    up one >/dev/null
    box=$(box_pid)
    old=$(monitor_pid)
    end_now "$old"
    [ "$(bellhop exec one -- echo alive)" = alive ]
    [ "$(box_pid)" = "$box" ]
    [ "$(monitor_pid)" != "$old" ]
    kill -0 "$(monitor_pid)"
    is_state one running
}

# guard_pid: the monitor's parent, which starts it again.
guard_pid()
{
    sed 's/.*) //' "/proc/$(monitor_pid)/stat" | cut -d ' ' -f 2
}

# monitor_is_not PID: another one holds the box and answers.
monitor_is_not()
{
    [ "$(monitor_pid)" != "$1" ] && control '{"op":"ping"}' | jq -e '.ok'
}

@test "the published URL works again by itself after the monitor was killed, and the box's processes live" {
    up one --timeout 20m >/dev/null
    port=$(free_port)
    url=$(bellhop url one --port "$port")
    bellhop exec one --detach --id web -- python3 -m http.server --bind 127.0.0.1 "$port"
    wait_for 15 curl -sf -o /dev/null "$url"
    guest=$(bellhop status one --json | jq -r .guest.url)
    deadline=$(bellhop status one --json | jq .deadline_ms)
    sleep 1000 & # nobody's business
    canary=$!
    box=$(box_pid)
    web=$(bellhop ps one --json | jq -r '.. | objects | select(.id? == "web") | .pid' | head -n 1)
    for _ in 1 2 3; do
        old=$(monitor_pid)
        end_now "$old"
        # No command is run until it answers.
        wait_for 30 curl -sf -o /dev/null "$url"
        wait_for 30 curl -sf -o /dev/null "$guest/v1/health"
        monitor_is_not "$old"
    done
    kill -0 "$box" "$web" "$canary"
    kill "$canary"
    [ "$(box_pid)" = "$box" ]
    is_state one running
    [ "$(bellhop url one --port "$port")" = "$url" ]
    [ $(($(bellhop status one --json | jq .deadline_ms) - deadline)) -lt 1000 ]
    wait_for 10 one_monitor
}

@test "a published port that was taken while there was no monitor answers again once it is free" {
    up one --timeout 20m >/dev/null
    guest=$(bellhop status one --json | jq -r .guest.url)
    port=${guest##*:}
    old=$(monitor_pid)
    end_now "$(guard_pid)" "$old"
    wait_for 10 begin_listening "$port"
    bellhop gc >/dev/null
    wait_for 30 monitor_is_not "$old"
    run curl -sf -o /dev/null "$guest/v1/health"
    [ "$status" -ne 0 ]
    kill "$taker_pid"
    wait_for 30 curl -sf -o /dev/null "$guest/v1/health"
}

# begin_listening PORT: takes it, as $taker_pid, and never answers.
begin_listening()
{
    coproc taker { exec python3 -c '
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
print("listens", flush=True)
while True:
    s.accept()[0].close()' "$1" 3>&-; }
    taker_pid=$taker_PID
    read -r _ <&"${taker[0]}"
}

@test "a monitor that is started again keeps the time, and the coding agent running" {
    up one --timeout 3s >/dev/null
    supervise "echo start >>$DIR/workspace/starts; until [ -e $DIR/workspace/go ]; do sleep 0.1; done; exit 1"
    old=$(monitor_pid)
    end_now "$old"
    wait_for 30 monitor_is_not "$old"
    touch "$DIR/workspace/go"
    wait_for 15 bash -c "[ \$(wc -l <'$DIR/workspace/starts') -ge 2 ]"
    bellhop exec one -- rm "$DIR/agent-start.json"
    old=$(monitor_pid)
    end_now "$old" # it forgets what it kept running
    wait_for 30 monitor_is_not "$old"
    wait_for 30 is_state one stopped
    [[ "$(bellhop status one --json | jq -r .cause)" == *"time"* ]]
}

@test "a monitor that is killed while its box is stopped, started and removed never brings it back" {
    for _ in $(seq 5); do
        up one >/dev/null
        kill -9 "$(monitor_pid)"
        bellhop stop one
        is_state one stopped
        [[ "$(processes_naming "$DIR")" != *bellhopd* ]]
        bellhop start one >/dev/null
        kill -9 "$(monitor_pid)"
        bellhop rm one
        [ -z "$(bellhop ls -q)" ]
        wait_for 30 no_traces
    done
}

@test "the guard ends with the monitor that has ended by itself" {
    up one >/dev/null
    guard=$(guard_pid)
    [[ "$(tr '\0' ' ' <"/proc/$guard/cmdline")" == */bellhop-guard* ]]
    bellhop stop one
    wait_for 15 is_gone "$guard"
    bellhop start one
    guard=$(guard_pid)
    kill -TERM "$(monitor_pid)"
    wait_for 15 is_gone "$guard"
    is_state one stopped
}

@test "a guard that is killed leaves the monitor as it is, and the next command mends both" {
    up one >/dev/null
    old=$(monitor_pid)
    end_now "$(guard_pid)"
    control '{"op":"ping"}' | jq -e .ok
    end_now "$old"
    [ "$(bellhop exec one -- echo alive)" = alive ]
    [ "$(monitor_pid)" != "$old" ]
    [[ "$(tr '\0' ' ' <"/proc/$(guard_pid)/cmdline")" == */bellhop-guard* ]]
}

@test "a monitor that is put back keeps the deadline and the forwarded ports" {
    up one --timeout 20m >/dev/null
    url=$(bellhop url one --port 8123)
    deadline=$(bellhop status one --json | jq .deadline_ms)
    end_now "$(monitor_pid)"
    bellhop exec one -- true
    [ "$(bellhop url one --port 8123)" = "$url" ]
    [ $(($(bellhop status one --json | jq .deadline_ms) - deadline)) -lt 1000 ]
}

one_monitor()
{
    [ "$(processes_naming "--state-dir" | grep -c "bellhop-monitor .*--state-dir $BELLHOP_STATE_DIR ")" -eq 1 ]
}

@test "there is one monitor however many commands find it gone" {
    up one >/dev/null
    end_now "$(monitor_pid)"
    for i in $(seq 8); do
        "$BELLHOP" exec one -- true &
        pids[i]=$!
    done
    for i in $(seq 8); do
        wait "${pids[i]}"
    done
    # Monitors that came too late end by themselves.
    wait_for 10 one_monitor
}

@test "a monitor that finds a box whose agent does not answer gives up, and leaves the box as it is" {
    up one --timeout 20m >/dev/null
    box=$(box_pid)
    end_now "$(guard_pid)" "$(monitor_pid)"
    kill -STOP "$box"
    run bellhop gc
    kill -CONT "$box"
    [ "$status" -ne 0 ]
    [ "$(bellhop exec one -- echo alive)" = alive ]
    [ "$(box_pid)" = "$box" ]
}

@test "a box whose first process was killed is stopped with the cause, and starts again" {
    up one >/dev/null
    bellhop exec one -- sh -c 'echo kept >file'
    kill -9 "$(box_pid)"
    wait_for 10 is_state one stopped
    [[ "$(bellhop status one --json | jq -r .cause)" == *"signal 9"* ]]
    [ "$(jq -r .by "$DIR/exit.json")" = box ]
    [ "$(jq .exit.signal "$DIR/exit.json")" -eq 9 ]
    [ "$(bellhop exec one -- cat file)" = kept ]
}

@test "a box and its monitor killed together are found stopped and start again" {
    up one >/dev/null
    bellhop exec one -- sh -c 'echo kept >file'
    end_now "$(monitor_pid)" "$(box_pid)"
    [ "$(bellhop exec one -- cat file)" = kept ]
}

@test "a box that reaches its time stops, keeps its disk, and says why" {
    up one --timeout 3s >/dev/null
    box=$(box_pid)
    wait_for 15 is_state one stopped
    wait_for 5 is_gone "$box"
    [[ "$(bellhop status one --json | jq -r .cause)" == *"time"* ]]
    [ "$(jq -r .by "$DIR/exit.json")" = timeout ]
    [ -d "$DIR/workspace" ]
}

@test "a box made with --on-timeout rm is gone when its time is over" {
    up one --timeout 2s --on-timeout rm >/dev/null
    wait_for 15 bash -c "! '$BELLHOP' status one --json >/dev/null 2>&1"
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ]
}

@test "a box made with --on-timeout rm is removed later if its removal is refused at first" {
    up one --timeout 2s --on-timeout rm >/dev/null
    # The store is locked until the monitor was refused.
    mkfifo "$BOX_TMP/let-go"
    python3 - "$BELLHOP_STATE_DIR/store.db" "$BOX_TMP/let-go" 3>&- 4>&- <<'P' &
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
db.execute("BEGIN IMMEDIATE")
open(sys.argv[2]).read()
P
    locker=$!
    wait_for 90 grep -q 'bellhop-monitor: the box is not removed' "$DIR/monitor.log" || { kill "$locker"; fail "$(cat "$DIR/monitor.log")"; }
    : >"$BOX_TMP/let-go"
    wait "$locker"
    # By the monitor, or by a command that takes the box over meanwhile.
    is_removed() { [ -z "$(bellhop ls -q)" ] && [ ! -e "$DIR" ]; }
    wait_for 60 is_removed
    bellhop events one --json | jq -e '[.events[] | select(.kind == "not-ended" and .actor == "monitor")] | length == 1'
}

@test "a command that runs holds the box beyond its time" {
    up one --timeout 2s >/dev/null
    [ "$(bellhop exec one -- sh -c 'sleep 5; echo done')" = done ] # its end would have been the command's
    wait_for 15 is_state one stopped
}

@test "a connection to a published port holds the box beyond its time" {
    local port

    up one --timeout 4s >/dev/null
    port=$(free_port)
    url=$(bellhop url one --port "$port")
    bellhop exec one --detach -- socat "TCP-LISTEN:$port,bind=127.0.0.1,fork,reuseaddr" EXEC:cat
    wait_for 5 bash -c "echo ping | socat -t 1 - TCP:127.0.0.1:${url##*:} | grep -q ping"
    exec {held}<>"/dev/tcp/127.0.0.1/${url##*:}"
    first=$(bellhop status one --json | jq .deadline_ms)
    is_longer() { is_state one running && [ "$(bellhop status one --json | jq .deadline_ms)" -gt $((first + 6000)) ]; }
    wait_for 5 is_longer
    exec {held}>&-
    wait_for 15 is_state one stopped
}

@test "keep lengthens the time and never shortens it" {
    up one --timeout 10m >/dev/null
    bellhop keep one --for 2h
    long=$(bellhop status one --json | jq .deadline_ms)
    [ "$long" -gt $(($(date +%s%3N) + 7100000)) ]
    bellhop keep one --for 1m
    [ "$(bellhop status one --json | jq .deadline_ms)" -eq "$long" ]
}

@test "an up of a running box carries its timeout, which lengthens the time and never shortens it" {
    up one --timeout 10m >/dev/null
    up one --timeout 2h >/dev/null
    long=$(bellhop status one --json | jq .deadline_ms)
    [ "$long" -gt $(($(date +%s%3N) + 7100000)) ]
    up one --timeout 1m >/dev/null
    [ "$(bellhop status one --json | jq .deadline_ms)" -eq "$long" ]
    bellhop rm one >/dev/null
    up one --timeout 2h >/dev/null
    long=$(bellhop status one --json | jq .deadline_ms)
    up one >/dev/null # the configured time
    [ "$(bellhop status one --json | jq .deadline_ms)" -gt "$long" ]
}

@test "a command with a timeout extends the lease to its deadline and a minute" {
    up one --timeout 1m >/dev/null
    bellhop exec one --timeout 30m -- true
    left=$(($(bellhop status one --json | jq .deadline_ms) - $(date +%s%3N)))
    [ "$left" -gt 1830000 ]
    [ "$left" -lt 1862000 ]
}

@test "a detached command with a timeout extends the lease as any other does" {
    up one --timeout 1m >/dev/null
    bellhop exec one --detach --timeout 15m -- sleep 1000 >/dev/null
    left=$(($(bellhop status one --json | jq .deadline_ms) - $(date +%s%3N)))
    [ "$left" -gt 930000 ]
    [ "$left" -le 960000 ]
}

@test "a monitor whose box was ended before it came starts nothing" {
    up one >/dev/null
    id=$(bellhop status one --json | jq -r .id)
    bellhop stop one >/dev/null
    run timeout 30 "$BELLHOP_BUILD/bellhop-monitor" --state-dir "$BELLHOP_STATE_DIR" --cache-dir "$BELLHOP_CACHE_DIR" \
        --agent "$BELLHOP_BUILD/bellhopd" --id "$id"
    [ "$status" -eq 1 ]
    [[ "$output" = *"the box is stopped"* ]]
    [ ! -e "$BELLHOP_STATE_DIR/boxes/$id/run.json" ]
    [ "$(bellhop status one --json | jq -r .state)" = stopped ]
}

@test "a second monitor leaves a box to the one that answers, also if the lock file was removed" {
    bellhop up --name one --provider process --agent none --empty >/dev/null 2>&1
    id=$(bellhop status one --json | jq -r .id)
    seq=$(bellhop events one --json | jq '.events[-1].seq')
    rm "$BELLHOP_STATE_DIR/boxes/$id/monitor.lock"
    run timeout 30 "$BELLHOP_BUILD/bellhop-monitor" --state-dir "$BELLHOP_STATE_DIR" --cache-dir "$BELLHOP_CACHE_DIR" --id "$id"
    [ "$status" -eq 1 ]
    [[ "$output" = *"the box has a monitor already, which answers"* ]]
    bellhop exec one -- true
    [ "$(bellhop events one --json | jq '.events[-1].seq')" = "$seq" ]
}

@test "a forwarded port reaches a server in the box, both ways, with half-close" {
    up one >/dev/null
    port=$(free_port)
    url=$(bellhop url one --port "$port")
    [[ "$url" == http://127.0.0.1:* ]]
    bellhop exec one --detach -- socat "TCP-LISTEN:$port,bind=127.0.0.1,fork,reuseaddr" EXEC:md5sum
    head -c 5000000 /dev/urandom >"$BOX_TMP/random"
    want=$(md5sum <"$BOX_TMP/random")
    wait_for 5 bash -c "socat -t 5 - 'TCP:127.0.0.1:${url##*:}' </dev/null | grep -q ."
    [ "$(socat -t 120 - "TCP:127.0.0.1:${url##*:}" <"$BOX_TMP/random")" = "$want" ]
}

@test "the guest agent itself has a loopback URL that wants the token" {
    up one >/dev/null
    url=$(bellhop status one --json | jq -r .guest.url)
    token=$(cat "$(bellhop status one --json | jq -r .guest.token_file)")
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/v1/health")" = 200 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' -X POST -d '{}' -H 'Content-Type: application/json' "$url/bellhop.v1.Exec/List")" = 401 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' -X POST -d '{}' -H 'Content-Type: application/json' -H "Authorization: Bearer $token" "$url/bellhop.v1.Exec/List")" = 200 ]
}

@test "a port of this machine that was taken meanwhile is a typed error that names it" {
    up one >/dev/null
    url=$(bellhop url one --port 8126)
    port=${url##*:}
    bellhop stop one
    socat "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr" - </dev/null >/dev/null &
    taken=$!
    wait_for 5 bash -c "ss -ltn | grep -q ':$port '"
    run bellhop url one --port 8126 --json
    kill "$taken"
    [ "$status" -ne 0 ]
    [[ "$output" == *"$port"* ]]
    [[ "$output" == *"already_exists"* ]]
}

# supervise SCRIPT: the coding agent's command, as a bootstrap leaves it, under the monitor.
supervise()
{
    jq -n --arg s "$1" '{id: "agent-1", argv: ["sh", "-c", $s]}' >"$DIR/agent-start.json"
    bellhop exec one -- true
    curl -s -N --max-time 120 --unix-socket "$DIR/run/agent.sock" -o "$BOX_TMP/started" \
        -H "Authorization: Bearer $(cat "$DIR/token")" -H 'Content-Type: application/json' \
        -d "@$DIR/agent-start.json" http://box/bellhop.v1.Exec/Start 3>&- &
    wait_for 10 grep -q start "$BOX_TMP/started"
    kill $! 2>/dev/null || true # it may have ended with the command
    control '{"op":"supervise"}' | grep -q '"ok"'
}

restarted_twice()
{
    [ "$(control '{"op":"ping"}' | jq .restarts)" -eq 2 ]
}

@test "a coding agent that ends is started again" {
    up one >/dev/null
    supervise "echo start >>$DIR/workspace/starts; [ \$(wc -l <$DIR/workspace/starts) -ge 3 ] && exec sleep 1000; exit 1"
    wait_for 10 bash -c "[ \$(wc -l <'$DIR/workspace/starts') -eq 3 ]"
    is_state one running
    wait_for 5 restarted_twice
}

@test "a coding agent is started again five times at most, then the box is in error and reachable" {
    up one >/dev/null
    supervise "echo start >>$DIR/workspace/starts; echo it is broken >&2; exit 9"
    wait_for 20 is_state one error
    [ "$(wc -l <"$DIR/workspace/starts")" -eq 6 ]
    [[ "$(bellhop status one --json | jq -r .cause)" == *"exited with 9: it is broken" ]]
    [ "$(bellhop exec one -- echo reachable)" = reachable ]
    is_state one error
}

@test "each restart of a coding agent that ends is one line of the log, with its pause" {
    up one >/dev/null
    supervise "exit 9"
    wait_for 60 grep -q 'given up' "$DIR/monitor.log"
    grep 'the coding agent ended' "$DIR/monitor.log" | sed 's/.*the coding agent/it/' >"$BOX_TMP/steps"
    for pause in 500 1000 2000 4000 8000; do
        n=$((${n:-0} + 1))
        echo "it ended (exited with 9): restart $n of 5 in $pause ms"
    done | cat - <(echo 'it ended (exited with 9): given up') | diff - "$BOX_TMP/steps"
}

@test "the control socket answers while a hold is open and refuses what it does not know" {
    up one >/dev/null
    control '{"op":"ping"}' | jq -e '.ok and .uses == 0'
    control '{"op":"jump"}' | jq -e '.error.code == "unimplemented"'
    control '{"op":"extend"}' | jq -e '.error.field == "until_ms"'
    control '{"op":"ping","more":1}' | jq -e '.error.field == "more"'
    control 'not json' | jq -e '.error.code == "invalid_argument"'
    [ "$(stat -c %a "$DIR/monitor.sock")" = 600 ]
}

@test "the control socket bounds its callers and their lines" {
    up one >/dev/null
    for i in $(seq 80); do
        (sleep 3 | socat - "UNIX-CONNECT:$DIR/monitor.sock") >/dev/null 2>&1 &
    done
    head -c 200000 /dev/zero | tr '\0' x | socat - "UNIX-CONNECT:$DIR/monitor.sock" || true
    wait
    control '{"op":"ping"}' | jq -e .ok
    is_state one running
}

@test "a monitor that is asked to end by a signal stops its box in order" {
    up one >/dev/null
    box=$(box_pid)
    kill -TERM "$(monitor_pid)"
    wait_for 10 is_state one stopped
    wait_for 5 is_gone "$box"
}

@test "a monitor that stands still is replaced, and the box lives on" {
    up one >/dev/null
    box=$(box_pid)
    kill -STOP "$(monitor_pid)"
    [ "$(bellhop exec one -- echo alive)" = alive ]
    [ "$(box_pid)" = "$box" ]
}

@test "output is whole after its connection was cut in the middle" {
    up one >/dev/null
    mv "$DIR/run/agent.sock" "$DIR/run/real.sock"
    socat "UNIX-LISTEN:$DIR/run/agent.sock,fork" "UNIX-CONNECT:$DIR/run/real.sock" 3>&- &
    relay=$!
    wait_for 5 test -S "$DIR/run/agent.sock"
    trust_listener "$relay"
    bellhop exec one -- sh -c 'seq 1 50000; until [ -e go ]; do sleep 0.05; done; seq 50001 100000' >"$BOX_TMP/out" 3>&- &
    command=$!
    wait_for 5 grep -qx 50000 "$BOX_TMP/out"
    pkill -P "$relay" # the relay's own children: the connections
    touch "$DIR/workspace/go"
    wait "$command"
    kill "$relay"
    mv "$DIR/run/real.sock" "$DIR/run/agent.sock"
    seq 1 100000 | cmp - "$BOX_TMP/out"
}

@test "a state directory may have a path longer than a socket's address" {
    BELLHOP_STATE_DIR=$BELLHOP_STATE_DIR/$(printf 'long-directory-name-%.0s' 1 2 3 4 5 6)
    up one >/dev/null
    [ "$(bellhop exec one -- echo hello)" = hello ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$(bellhop status one --json | jq -r .guest.url)/v1/health")" = 200 ]
    bellhop rm one
}
