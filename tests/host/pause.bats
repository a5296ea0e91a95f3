# early
# Pause and resume: freeze with its memory, to disk, by commands and by connections, of both providers.
# needs: image

load ../lib/box

setup()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    box_setup
}
teardown()
{
    box_teardown
}

up() # PROVIDER [OPTION...]
{
    bellhop up --name one --provider "$1" --agent none --empty "${@:2}" >/dev/null 2>&1
    DIR=$BELLHOP_STATE_DIR/boxes/$(info .id)
}

info() # FILTER
{
    bellhop status one --json | jq -r "$1"
}

is_state() # STATE
{
    [ "$(info .state)" = "$1" ]
}

# States of the box's events after SEQ, with spaces.
states_after() # SEQ
{
    bellhop events one --json --since "$1" | jq -r '.events | map(.after) | join(" ")'
}

last_seq()
{
    bellhop events one --json | jq '.events[-1].seq'
}

# Is every process of the box frozen, or does none of them stand still?
freezer_is() # frozen|thawed
{
    local group file

    for group in /sys/fs/cgroup/freezer/bellhop-*-"$(info .id)" /sys/fs/cgroup/bellhop-*-"$(info .id)"; do
        for file in "$group/freezer.state" "$group/cgroup.events"; do
            [ -e "$file" ] || continue
            case $1 in
                frozen) grep -Eqx 'FROZEN|frozen 1' "$file" ;;
                thawed) grep -Eqx 'THAWED|frozen 0' "$file" ;;
            esac
            return
        done
    done
    return 1
}

# begin_counting: a detached command of the box writes 1, 2, 3, ... until it ends.
begin_counting()
{
    bellhop exec one --detach --id count -- \
        bash -c 'for ((i = 1;; i++)); do echo "$i" >>counts; sleep 0.02; done' >/dev/null
    wait_for 10 counts_past 2
}

count()
{
    bellhop exec one -- tail -n 1 counts
}

counts_past() # N
{
    [ "$(count)" -gt "$1" ]
}

pause_and_resume() # PROVIDER
{
    local box before after took

    up "$1"
    box=$(jq -r '.init.pid // .pid' "$DIR/run.json")
    begin_counting
    [ "$(bellhop pause one)" = "one: paused" ]
    is_state paused
    freezer_is frozen
    [ "$(info .paused_ms)" -gt 0 ]
    before=$(last_seq)
    [ "$(bellhop pause one --json | jq -r '.boxes[0].state')" = paused ]
    bellhop ls | grep -q paused
    bellhop events one >/dev/null
    [ "$(last_seq)" = "$before" ] # nothing of this resumed it
    after=$(date +%s%N)
    [ "$(bellhop resume one)" = "one: running" ]
    took=$((($(date +%s%N) - after) / 1000000))
    echo "# resume from freeze ($1): $took ms" >&3
    is_state running
    freezer_is thawed
    [ "$(states_after "$before")" = "resuming running" ]
    [ "$(bellhop resume one --json | jq -r '.boxes[0].state')" = running ]
    [ "$(states_after "$before")" = "resuming running" ]
    [ "$(jq -r '.init.pid // .pid' "$DIR/run.json")" = "$box" ]
    after=$(count)
    wait_for 10 counts_past "$after" # it continues where it was
    bellhop exec one -- bash -c 'cp counts so-far; diff <(seq "$(wc -l <so-far)") so-far'
}

@test "a paused box stands still and continues where it was: process" {
    pause_and_resume process
}

@test "a paused box stands still and continues where it was: oci" {
    pause_and_resume oci
}

@test "each command that needs a paused box resumes it, once, and ls, status, events and logs do not" {
    local seq port

    up process
    port=$(free_port)
    echo text >"$BOX_TMP/file"
    mkdir "$BOX_TMP/tree"
    bellhop exec one --detach --id ended -- true >/dev/null
    for command in "exec one -- true" "put one $BOX_TMP/file :file" "get one :file $BOX_TMP/back" \
        "cat one :file" "glob one file" "grep one text" "url one --port $port" "keep one --for 20m" "ps one" \
        "ready one" "start one" "edit one :file --old text --new words" "sync one $BOX_TMP/tree :tree" \
        "attach one ended" "watch one --timeout 1s"; do
        bellhop pause one >/dev/null
        seq=$(last_seq)
        # shellcheck disable=SC2086
        (cd "$BOX_TMP" && bellhop $command >/dev/null 2>"$BOX_TMP/errors") ||
            [[ $? -eq 6 && $command == watch* ]] || # it ends at its timeout
            fail "$command: $(cat "$BOX_TMP/errors")"
        [ "$(states_after "$seq")" = "resuming running" ] || fail "$command: $(states_after "$seq")"
        rm -rf "$BOX_TMP/back"
    done
    bellhop pause one >/dev/null
    seq=$(last_seq)
    bellhop ls >/dev/null
    bellhop status one >/dev/null
    bellhop events one >/dev/null
    bellhop logs one >/dev/null 2>&1 || true
    [ -z "$(states_after "$seq")" ]
    freezer_is frozen
    run bellhop --no-resume exec one -- true
    [ "$status" -ne 0 ]
    [[ "$output" == *"the box 'one' is paused"* ]]
    run bellhop activity one
    [ "$status" -eq 4 ]
    is_state paused
}

@test "twenty commands at once resume a paused box once" {
    local seq i

    up oci
    bellhop pause one >/dev/null
    seq=$(last_seq)
    for i in $(seq 20); do
        bellhop exec one -- echo "$i" >"$BOX_TMP/out.$i" 2>&1 3>&- &
    done
    wait
    for i in $(seq 20); do
        [ "$(cat "$BOX_TMP/out.$i")" = "$i" ]
    done
    [ "$(states_after "$seq")" = "resuming running" ]
}

published() # PROVIDER
{
    local port url guest seq

    up "$1"
    port=$(free_port)
    bellhop exec one --detach --id web -- python3 -m http.server --bind 127.0.0.1 "$port" >/dev/null
    url=$(bellhop url one --port "$port")
    guest=$(info .guest.url)
    wait_for 15 curl -sf -o /dev/null "$url"
    bellhop pause one >/dev/null
    seq=$(last_seq)
    curl -sf --max-time 90 -o /dev/null "$url"
    [ "$(states_after "$seq")" = "resuming running" ]
    [ "$(bellhop events one --json | jq -r '.events[-1].actor')" = monitor ]
    bellhop pause one >/dev/null
    seq=$(last_seq)
    for _ in $(seq 20); do
        curl -sf --max-time 90 -o /dev/null "$guest/v1/health" 3>&- &
    done
    wait
    [ "$(states_after "$seq")" = "resuming running" ]
}

@test "a connection to a published port resumes a paused box: process" {
    published process
}

@test "a connection to a published port resumes a paused box: oci" {
    published oci
}

@test "a client that waits on an open connection resumes a box when it sends, and one that hangs up does not" {
    local port seq

    up process
    port=$(free_port)
    bellhop exec one --detach --id echo -- socat "TCP-LISTEN:$port,bind=127.0.0.1,fork,reuseaddr" EXEC:cat >/dev/null
    host=$(bellhop url one --port "$port")
    host=${host#http://}
    wait_for 10 bash -c "exec 7<>/dev/tcp/${host%:*}/${host#*:}; echo hi >&7; read -r -t 5 x <&7"
    exec 7<>"/dev/tcp/${host%:*}/${host#*:}" 8<>"/dev/tcp/${host%:*}/${host#*:}"
    echo one >&7
    read -r -t 60 line <&7
    echo two >&8
    read -r -t 60 line <&8
    bellhop pause one >/dev/null
    seq=$(last_seq)
    exec 8>&-
    bellhop ls >/dev/null
    [ -z "$(states_after "$seq")" ]
    freezer_is frozen
    echo again >&7
    read -r -t 90 line <&7
    exec 7>&-
    [ "$line" = again ]
    [ "$(states_after "$seq")" = "resuming running" ]
}

@test "the guest agent gets the time and a new generation before the first call" {
    local before

    up oci
    before=$(curl -s -D - -o /dev/null "$(info .guest.url)/v1/health" | tr -d '\r' | sed -n 's/.*[Gg]eneration: *//p')
    bellhop pause one >/dev/null
    bellhop exec one -- date +%s >"$BOX_TMP/date"
    [ $(($(date +%s) - $(cat "$BOX_TMP/date"))) -le 5 ]
    [ "$(curl -s -D - -o /dev/null "$(info .guest.url)/v1/health" | tr -d '\r' |
        sed -n 's/.*[Gg]eneration: *//p')" -gt "${before:-0}" ]
}

ends_while_paused() # PROVIDER
{
    local began

    up "$1"
    bellhop exec one --detach --id sleep -- sleep 1000 >/dev/null
    bellhop pause one >/dev/null
    [ "$(bellhop stop one)" = "one: stopped" ]
    is_state stopped
    run bellhop pause one
    [ "$status" -eq 4 ]
    run bellhop pause one --json
    [ "$(jq -r .error.code <<<"$output")" = failed_precondition ]
    [ "$(jq -r .error.field <<<"$output")" = state ]
    run bellhop resume one
    [ "$status" -eq 4 ]
    bellhop start one >/dev/null
    bellhop pause one >/dev/null
    bellhop rm one >/dev/null
    [ -z "$(bellhop ls -q)" ]
    wait_for 10 no_traces
}

@test "stop and rm end a paused box: process" {
    ends_while_paused process
}

@test "stop and rm end a paused box: oci" {
    ends_while_paused oci
}

@test "pause to disk ends the processes, and resume starts the box" {
    up process
    echo kept >"$BOX_TMP/file"
    bellhop put one "$BOX_TMP/file" :file >/dev/null
    [ "$(bellhop pause --level disk one)" = "one: stopped" ]
    is_state stopped
    [ "$(bellhop resume one)" = "one: running" ]
    [ "$(bellhop cat one :file)" = kept ]
    run bellhop pause --level memory one
    [ "$status" -eq 2 ]
    is_state running
}

monitor_pid()
{
    cut -d ' ' -f 1 "$DIR/monitor.lock"
}

other_monitor() # PID
{
    [ "$(monitor_pid)" != "$1" ] && printf '{"op":"ping"}\n' | socat -t 60 - "UNIX-CONNECT:$DIR/monitor.sock" | grep -q '"ok"'
}

@test "a box stays paused when its monitor is killed, and its ports resume it" {
    local old guest seq

    up oci
    guest=$(info .guest.url)
    begin_counting
    bellhop pause one >/dev/null
    seq=$(last_seq)
    for _ in 1 2; do
        old=$(monitor_pid)
        end_now "$old"
        wait_for 30 other_monitor "$old"
        freezer_is frozen
    done
    [ -z "$(states_after "$seq")" ]
    curl -sf --max-time 90 -o /dev/null "$guest/v1/health"
    [ "$(states_after "$seq")" = "resuming running" ]
    wait_for 10 counts_past "$(count)"
}

@test "the next command undoes a pause and finishes a resume that were killed, at each step" {
    local delay state

    up process
    begin_counting
    for delay in 0.002 0.005 0.01 0.02 0.03; do
        for what in pause resume; do
            [ "$what" = pause ] || bellhop pause one >/dev/null
            timeout -s KILL "$delay" "$BELLHOP" "$what" one >/dev/null 2>&1 || true
            [ "$(bellhop exec one -- echo alive)" = alive ]
            is_state running
            freezer_is thawed
        done
    done
    # The store says that a pause was at work, and the box is frozen.
    bellhop pause one >/dev/null
    for state in pausing resuming; do
        sqlite3 "$BELLHOP_STATE_DIR/store.db" "UPDATE boxes SET state = '$state' WHERE name = 'one'"
        bellhop gc >/dev/null
        is_state running
        freezer_is thawed
        bellhop pause one >/dev/null
    done
    bellhop resume one >/dev/null
    # The store says so, and the box runs: what was killed was done all the same.
    for state in pausing resuming; do
        sqlite3 "$BELLHOP_STATE_DIR/store.db" "UPDATE boxes SET state = '$state' WHERE name = 'one'"
        [ "$(bellhop exec one -- echo alive)" = alive ]
        is_state running
    done
    wait_for 10 counts_past "$(count)"
}

# Asks the monitor for an operation and ends before the monitor reads it; returns after the monitor did, as the
# answer to a later question shows.
ask_and_end() # OPERATION
{
    local pid

    pid=$(cut -d ' ' -f 1 "$DIR/monitor.lock")
    python3 - "$DIR/monitor.sock" "$1" "$pid" <<'EOF'
import json, os, signal, socket, sys
path, operation, pid = sys.argv[1], sys.argv[2], int(sys.argv[3])

def ask(word):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect(path)
    s.sendall(json.dumps({"op": word}).encode() + b"\n")
    return s

os.kill(pid, signal.SIGSTOP)
try:
    ask(operation).close()
    later = ask("ping")
finally:
    os.kill(pid, signal.SIGCONT)
assert b'"ok":true' in later.recv(4096).replace(b" ", b"")
EOF
}

@test "a pause, resume or stop whose caller has died before it began is not begun" {
    up process
    ask_and_end pause
    [ "$(bellhop exec one -- echo alive)" = alive ]
    freezer_is thawed
    ask_and_end stop
    [ "$(bellhop exec one -- echo alive)" = alive ]
    is_state running
    bellhop pause one >/dev/null
    ask_and_end resume
    freezer_is frozen
    is_state paused
    [ "$(bellhop exec one -- echo alive)" = alive ]
}

@test "a paused box is stopped at the end of its time to live" {
    up process --timeout 15s
    bellhop pause one >/dev/null
    wait_for 30 is_state stopped
    [[ "$(info .cause)" == *"time to live"* ]]
    wait_for 10 bash -c "! compgen -G '/sys/fs/cgroup/freezer/bellhop-*-$(info .id)'"
}

# The time until the box's first process ends the box, or null.
own_deadline()
{
    curl -s --max-time 30 --unix-socket "$DIR/run/agent.sock" -H "Authorization: Bearer $(cat "$DIR/token")" \
        -H 'Content-Type: application/json' -d '{}' http://box/bellhop.v1.System/Lease | jq .expires_in_ms
}

has_own_deadline()
{
    [ "$(own_deadline)" -gt 0 ]
}

@test "the box's own deadline, which a pause lifts, is set again after the resume" {
    up oci
    wait_for 10 has_own_deadline
    bellhop pause one >/dev/null
    bellhop resume one >/dev/null
    wait_for 10 has_own_deadline
}
