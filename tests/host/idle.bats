# early
# The idle time of a box: what ends it, what does not, and what happens then.
# needs: image

bats_require_minimum_version 1.5.0
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

up() # [OPTION...]
{
    bellhop up --name one --provider process --agent none --empty "$@" >/dev/null 2>&1
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

last_seq()
{
    bellhop events one --json | jq '.events[-1].seq'
}

# "STATE ACTOR CAUSE" of each event after SEQ, one a line.
told_after() # SEQ
{
    bellhop events one --json --since "$1" | jq -r '.events[] | "\(.after) \(.actor) \(.cause)"'
}

monitor_pid()
{
    cut -d ' ' -f 1 "$DIR/monitor.lock"
}

end_monitor_and_guard()
{
    local monitor guard

    monitor=$(monitor_pid)
    guard=$(sed 's/.*) //' "/proc/$monitor/stat" | cut -d ' ' -f 2)
    end_now "$guard" "$monitor"
}

@test "a box that nobody uses is paused, any command resumes it, and it is paused again" {
    local seq

    up --idle 2s
    seq=$(last_seq)
    wait_for 15 is_state paused
    [ "$(told_after "$seq")" = "pausing monitor unused for 2s
paused monitor unused for 2s" ]
    grep -Eqx 'FROZEN|frozen 1' /sys/fs/cgroup/freezer/bellhop-*-"$(info .id)"/freezer.state \
        /sys/fs/cgroup/bellhop-*-"$(info .id)"/cgroup.events 2>/dev/null
    [ "$(info .cause)" = "unused for 2s" ]
    [ "$(bellhop exec one -- echo alive)" = alive ]
    seq=$(last_seq)
    wait_for 15 is_state paused
    [[ "$(told_after "$seq")" == *"paused monitor unused for 2s" ]]
}

@test "a box of the oci provider is paused, too" {
    bellhop up --name one --provider oci --agent none --empty --network none --idle 2s >/dev/null 2>&1
    wait_for 15 is_state paused
    [ "$(bellhop exec one -- echo alive)" = alive ]
}

@test "on-idle stop stops the box and keeps its disk, and rm removes it" {
    up --idle 2s --on-idle stop
    bellhop exec one -- touch kept
    wait_for 15 is_state stopped
    [ "$(info .cause)" = "unused for 2s" ]
    bellhop exec one -- test -e kept
    bellhop rm one >/dev/null
    up --idle 2s --on-idle rm
    echo input >"$BOX_TMP/input"
    is_gone_from_list() { [ -z "$(bellhop ls -q)" ]; }
    wait_for 15 is_gone_from_list
    bellhop ls --all --json | jq -e 'any(.boxes[]; .cause == "it has expired: unused for 2s")'
    run -3 bellhop put one "$BOX_TMP/input" :input
    [[ "$output" == *"it is gone since"*": it has expired: unused for 2s" ]]
    run -3 bellhop keep one --for 1m --json
    [ "$(jq -r .error.detail <<<"$output" | jq -r '.gone.cause')" = "it has expired: unused for 2s" ]
    [ "$(bellhop events one --json | jq -r '.events[-1] | "\(.after) \(.actor)"')" = "destroyed monitor" ]
}

# The time to live is extended again and again, and nothing is paused meanwhile.
lives_on()
{
    bellhop status one --json |
        jq -e --argjson enough "$((BEGUN_MS + 4000))" '.state == "running" and .deadline_ms > $enough'
}

never_paused()
{
    bellhop events one --json | jq -e 'all(.events[]; .after != "paused" and .after != "stopped")'
}

@test "a command that runs is use, an idle server and a shell's prompt are not" {
    local port input

    up --timeout 2s --idle 2s
    BEGUN_MS=$(info .deadline_ms)
    bellhop exec one -d --id sleeper -- sleep 1000
    wait_for 15 lives_on
    never_paused
    bellhop kill one sleeper
    port=$(free_port)
    bellhop exec one -d --id web -- python3 -m http.server --bind 127.0.0.1 "$port"
    wait_for 15 is_state paused
    mkfifo "$BOX_TMP/input"
    script -qfc "'$BELLHOP' shell one" /dev/null <"$BOX_TMP/input" >"$BOX_TMP/output" 2>&1 3>&- &
    exec {input}>"$BOX_TMP/input"
    wait_for 15 is_state running
    wait_for 15 is_state paused
    exec {input}>&-
    wait
}

@test "questions are no use: ls, status, events and System/Activity do not put the idle time off" {
    up --idle 2s
    export BELLHOP_ANSWER_TIMEOUT=3s # a question may meet the pause
    asks_and_is_paused()
    {
        bellhop ls >/dev/null
        bellhop activity one >/dev/null 2>&1
        is_state paused
    }
    wait_for 15 asks_and_is_paused
}

@test "a question that the pause of its box overtakes ends at the answer timeout, and says why" {
    local group

    up --idle 10m
    for group in /sys/fs/cgroup/freezer/bellhop-*-"$(info .id)" /sys/fs/cgroup/bellhop-*-"$(info .id)"; do
        [ ! -e "$group/freezer.state" ] || echo FROZEN >"$group/freezer.state"
        [ ! -e "$group/cgroup.freeze" ] || echo 1 >"$group/cgroup.freeze"
    done
    run -6 env BELLHOP_ANSWER_TIMEOUT=1s "$BELLHOP" activity one
    for group in /sys/fs/cgroup/freezer/bellhop-*-"$(info .id)" /sys/fs/cgroup/bellhop-*-"$(info .id)"; do
        [ ! -e "$group/freezer.state" ] || echo THAWED >"$group/freezer.state"
        [ ! -e "$group/cgroup.freeze" ] || echo 0 >"$group/cgroup.freeze"
    done
    bellhop activity one >/dev/null
    bellhop pause one >/dev/null
    run -4 bellhop activity one
    [[ "$output" == *"the box 'one' is paused"* ]]
}

@test "the time to live ends a box first if it is shorter, and begins anew with the pause if it is not" {
    up --timeout 2s --idle 1h
    wait_for 15 is_state stopped
    [ "$(info .cause)" = "its time to live is over" ]
    bellhop rm one >/dev/null
    up --timeout 2s --idle 2s --on-timeout rm
    wait_for 15 eval '! is_state paused && [ -z "$(bellhop ls -q)" ]'
    [ "$(bellhop events one --json | jq -r '[.events[].after] | join(" ")')" = \
        "requested provisioning bootstrapping running pausing paused stopping stopped destroying destroyed" ]
}

@test "with --on-idle keep a box is not paused, and its time to live ends it" {
    up --timeout 2s --idle 1s --on-idle keep
    wait_for 15 is_state stopped
    [ "$(info .cause)" = "its time to live is over" ]
    never_was_paused() { bellhop events one --json | jq -e 'all(.events[]; .after != "paused")'; }
    never_was_paused
}

@test "keep --for puts the idle time off" {
    up --idle 10m
    bellhop keep one --for 1h >/dev/null
    jq -e '.awake_until_mono_ms == .deadline_mono_ms and .awake_until_mono_ms - .used_mono_ms > 3500000' "$DIR/lease.json"
}

@test "without a monitor, two gcs at once do what is due, and it is done once" {
    local seq

    up --idle 10m
    end_monitor_and_guard
    # As if ten minutes had passed, and the monitor had looked a moment ago: up's own calls are not news.
    jq -c --argjson now "$(python3 -c 'import time; print(int(time.monotonic() * 1000))')" \
        '.used_mono_ms -= 600000 | .looked_mono_ms = $now | .cpu_ms += 600000' "$DIR/lease.json" >"$BOX_TMP/lease.json"
    cp "$BOX_TMP/lease.json" "$DIR/lease.json"
    seq=$(last_seq)
    bellhop gc >/dev/null 3>&- &
    bellhop gc >/dev/null
    wait
    wait_for 15 is_state paused
    [ "$(told_after "$seq")" = "pausing monitor unused for 10m
paused monitor unused for 10m" ]
}

# The box's first process leaves its control group: the box cannot be frozen.
leave_group()
{
    local root=/sys/fs/cgroup/freezer

    [ -e "$root/cgroup.procs" ] || root=/sys/fs/cgroup
    jq -r .pid "$DIR/run.json" >"$root/cgroup.procs"
}

n_refused()
{
    bellhop events one --json | jq '[.events[] | select(.kind == "not-paused" and .actor == "monitor")] | length'
}

@test "a box that cannot be frozen is stopped; if pause was asked for, it runs on and says so once" {
    up --idle 2s
    leave_group
    wait_for 15 is_state stopped
    [ "$(info .cause)" = "unused for 2s" ]
    bellhop rm one >/dev/null
    up --idle 1s --on-idle pause
    leave_group
    was_refused() { [ "$(n_refused)" -eq 1 ]; }
    wait_for 15 was_refused
    is_state running
    bellhop events one --json | jq -e 'any(.events[]; .kind == "not-paused" and (.cause | contains("control group")))'
    [ "$(bellhop exec one -- echo alive)" = alive ]
    BEGUN_MS=$(jq .looked_mono_ms "$DIR/lease.json")
    looked_again() { jq -e --argjson t "$BEGUN_MS" '.looked_mono_ms > $t + 3000' "$DIR/lease.json"; }
    wait_for 15 looked_again # and was refused again
    was_refused
}

# As if the time to live had ended since.
make_overdue()
{
    jq -c '.deadline_mono_ms = 1' "$DIR/lease.json" >"$BOX_TMP/lease.json"
    cp "$BOX_TMP/lease.json" "$DIR/lease.json"
}

@test "without a monitor, the next command does what is due: stop and start, or removal" {
    local pid

    up --on-idle keep
    pid=$(jq -r .pid "$DIR/run.json")
    end_monitor_and_guard
    make_overdue
    [ "$(bellhop exec one -- echo alive)" = alive ]
    wait_for 10 is_gone "$pid"
    bellhop events one --json | jq -e 'any(.events[]; .after == "stopped" and .cause == "its time to live is over")'
    bellhop rm one >/dev/null
    up --on-idle keep --on-timeout rm
    end_monitor_and_guard
    make_overdue
    run -3 --separate-stderr bellhop ps one --json
    jq -e '.error.detail | fromjson | .gone.cause == "it has expired: its time to live is over"' <<<"$output"
    [ -z "$(bellhop ls -q)" ]
}

@test "a box of the machine's own clock: a day forward and back ends nothing early or late" {
    local deadline

    up --timeout 20m --idle 20m
    deadline=$(jq .deadline_mono_ms "$DIR/lease.json")
    for jump in 86400000 -86400000; do
        end_monitor_and_guard
        # As if the wall clock had been set since: the store's times are a day off.
        sqlite3 "$BELLHOP_STATE_DIR/store.db" "UPDATE boxes SET deadline_ms = deadline_ms - ($jump)"
        bellhop gc >/dev/null
        is_state running
        [ "$(jq .deadline_mono_ms "$DIR/lease.json")" -eq "$deadline" ]
        # The time for people is right again.
        [ $(($(info .deadline_ms) - $(date +%s%3N))) -lt 1200000 ]
        [ $(($(info .deadline_ms) - $(date +%s%3N))) -gt 0 ]
    done
}

@test "each extension of a box in use is an event with its reason" {
    local holder

    up --timeout 2s --idle 2s
    BEGUN_MS=$(info .deadline_ms)
    bellhop exec one -- sleep 1000 >/dev/null 2>&1 3>&- &
    holder=$!
    wait_for 15 lives_on
    kill "$holder"
    bellhop events one --json | jq -e '[.events[] | select(.kind == "extended")] | length >= 2 and
        all(.[]; .actor == "monitor" and .before == "running" and .after == "running"
            and (.cause | test("^a client is connected: lives until .*Z at least \\(extension [0-9]+\\)$")))'
}

@test "status and a second up know the idle time" {
    up --idle 5m --on-idle stop
    [ "$(info '.options | "\(.idle_ms) \(.on_idle)"')" = "300000 stop" ]
    up --idle 5m --on-idle stop
    run -4 bellhop up --name one --provider process --agent none --empty --idle 6m
    [[ "$output" == *"idle: the box was made with '300s', not '360s'"* ]]
    run -4 bellhop up --name one --provider process --agent none --empty --on-idle pause
    [[ "$output" == *"on-idle: the box was made with 'stop', not 'pause'"* ]]
}
