# early
# The end of a box's time to live with a snapshot: --on-timeout snapshot.
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
    remove_with_snapshots
    box_teardown
}

up() # NAME [OPTION...]
{
    bellhop up -n "$1" --agent none --empty --on-timeout snapshot "${@:2}" >/dev/null 2>"$BOX_TMP/up" || return 1
    DIR=$BELLHOP_STATE_DIR/boxes/$(info "$1" .id)
}

info() # NAME FILTER
{
    bellhop status "$1" --json | jq -r "$2"
}

is_state() # NAME STATE
{
    [ "$(info "$1" .state)" = "$2" ]
}

# "KIND AFTER ACTOR CAUSE" of each event after SEQ, one a line; the extensions of the time are left out.
told_after() # NAME SEQ
{
    bellhop events "$1" --json --since "$2" |
        jq -r '.events[] | select(.kind != "extended") | "\(.kind) \(.after) \(.actor) \(.cause)"'
}

last_seq() { bellhop events "$1" --json | jq '.events[-1].seq'; }

snapshots() { bellhop snapshots ls --json | jq -r '[.snapshots[].name] | join(" ")'; }
has_snapshot() { [ "$(snapshots)" = "$1" ]; }

end_monitor_and_guard()
{
    local monitor guard

    monitor=$(cut -d ' ' -f 1 "$DIR/monitor.lock")
    guard=$(sed 's/.*) //' "/proc/$monitor/stat" | cut -d ' ' -f 2)
    end_now "$guard" "$monitor"
}

make_overdue()
{
    jq -c '.deadline_mono_ms = 1' "$DIR/lease.json" >"$BOX_TMP/lease.json"
    cp "$BOX_TMP/lease.json" "$DIR/lease.json"
}

@test "before the end of its time a box gets a snapshot, whose id it keeps, and stops; a command wakes it, and its next end replaces the snapshot" {
    local deadline first id seq

    up one --timeout 12s
    # A `keep` promises a box that runs so long: its end does not begin before.
    now=$(date +%s%3N)
    kept=$(bellhop keep one --for 20s --json | jq .deadline_ms)
    [ "$kept" -ge $((now + 20000)) ]
    [ "$kept" -lt $((now + 26000)) ]
    [ "$(info one .deadline_ms)" -ge $((kept + 5900)) ] # half of its time to live is for the snapshot
    bellhop rm one >/dev/null
    up one --timeout 12s
    bellhop exec one -- sh -c 'echo one >/workspace/file; (sleep 1000 >/dev/null 2>&1 &)'
    bellhop snapshot one --name mine >/dev/null
    seq=$(last_seq one)
    deadline=$(info one .deadline_ms)
    wait_for 30 is_state one stopped
    [ "$(told_after one "$seq")" = "snapshot running monitor the snapshot 'one-1'
state stopping monitor its time to live is over
state stopped monitor its time to live is over" ]
    # It began before the end, and nothing was put off for it.
    bellhop events one --json --since "$seq" |
        jq -e 'first(.events[] | select(.kind == "snapshot")).time_ms < ([.events[] | select(.kind == "extended")] | length * 12000 + '"$deadline"')'
    [ "$(info one .snapshot.name)" = one-1 ]
    first=$(info one .snapshot.id)
    [ "$(bellhop snapshots ls --json | jq -r '.snapshots[] | select(.name == "one-1").id')" = "$first" ]
    bellhop status one | grep -Eqx 'last snapshot +one-1'
    bellhop snapshots verify one-1
    # The content is in the snapshot, and in the box, which any command starts again.
    bellhop up --from one-1 -n two --on-timeout stop >/dev/null 2>&1
    [ "$(bellhop exec two -- cat /workspace/file)" = one ]
    bellhop rm two >/dev/null
    [ "$(bellhop exec one -- sh -c 'cat /workspace/file; echo two >/workspace/file')" = one ]
    # Its next end leaves one such snapshot, and those that a person made.
    wait_for 30 is_state one stopped
    [ "$(snapshots)" = "mine one-2" ]
    [ "$(info one .snapshot.name)" = one-2 ]
    [ "$(info one .snapshot.id)" != "$first" ]
    bellhop up --from one-2 -n two --on-timeout stop >/dev/null 2>&1
    [ "$(bellhop exec two -- cat /workspace/file)" = two ]
    # One that a box has as its disk stays.
    id=$(info one .snapshot.id)
    bellhop start one >/dev/null
    wait_for 30 is_state one stopped
    [ "$(info one .snapshot.id)" != "$id" ]
    bellhop snapshots ls --json | jq -e --arg id "$id" 'any(.snapshots[]; .id == $id)'
}

@test "a paused box gets its snapshot at the end of its time, too" {
    local seq

    up one --timeout 10s
    bellhop exec one -- sh -c 'echo kept >/workspace/file'
    bellhop pause one >/dev/null
    seq=$(last_seq one)
    wait_for 30 is_state one stopped
    [ "$(told_after one "$seq")" = "snapshot paused monitor the snapshot 'one-1'
state stopping monitor its time to live is over
state stopped monitor its time to live is over" ]
    bellhop up --from one-1 -n two --on-timeout stop >/dev/null 2>&1
    [ "$(bellhop exec two -- cat /workspace/file)" = kept ]
}

@test "if the snapshot at the end of the time fails, that is a fault, and the box stops with its disk" {
    local seq

    up one --timeout 10s
    bellhop exec one -- sh -c 'echo kept >/workspace/file'
    seq=$(last_seq one)
    rm -rf "$BELLHOP_STATE_DIR/snapshots"
    echo "not a directory" >"$BELLHOP_STATE_DIR/snapshots"
    wait_for 30 is_state one stopped
    told_after one "$seq" >"$BOX_TMP/told"
    grep -q "^fault running monitor no snapshot at the end of its time: " "$BOX_TMP/told" || fail "$(cat "$BOX_TMP/told")"
    [ "$(tail -n 2 "$BOX_TMP/told")" = "state stopping monitor its time to live is over
state stopped monitor its time to live is over" ]
    [ -z "$(snapshots)" ]
    [ "$(info one .snapshot)" = null ]
    rm "$BELLHOP_STATE_DIR/snapshots"
    [ "$(bellhop exec one -- cat /workspace/file)" = kept ]
}

@test "without a monitor, the next command takes the snapshot, stops the box and starts it" {
    up one --on-idle keep
    bellhop exec one -- sh -c 'echo kept >/workspace/file'
    end_monitor_and_guard
    make_overdue
    [ "$(bellhop exec one -- cat /workspace/file)" = kept ]
    bellhop events one --json | jq -e '[.events[] | select(.kind == "snapshot" or .after == "stopped") | .kind] == ["snapshot", "state"]'
    [ "$(info one .snapshot.name)" = one-1 ]
}

# The box's first process leaves its control groups: the box cannot stand still, as one of runsc cannot be copied.
leave_group()
{
    local file

    for file in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do
        [ ! -e "${file%/*}/cgroup.procs" ] || echo "$(jq -r .init.pid "$DIR/run.json")" >"$file" 2>/dev/null || true
    done
}

@test "a box that cannot be copied while it runs gets its snapshot once it has stopped" {
    local seq

    up one --timeout 10s
    bellhop exec one -- sh -c 'echo kept >/workspace/file'
    leave_group
    run -9 bellhop snapshot one
    seq=$(last_seq one)
    wait_for 30 is_state one stopped
    wait_for 30 has_snapshot one-1
    [ "$(told_after one "$seq")" = "state stopping monitor its time to live is over
state stopped monitor its time to live is over
snapshot stopped monitor the snapshot 'one-1'" ]
    bellhop up --from one-1 -n two --on-timeout stop >/dev/null 2>&1
    [ "$(bellhop exec two -- cat /workspace/file)" = kept ]
}

@test "a provider without snapshots refuses --on-timeout snapshot by name, before anything is made" {
    run -9 --separate-stderr bellhop up -n one --provider process --agent none --empty --on-timeout snapshot --json
    [ "$(jq -r '.error | "\(.code) \(.field) \(.message)"' <<<"$output")" = \
        "unimplemented on-timeout on-timeout: the provider 'process' cannot make snapshots" ]
    [ -z "$(bellhop ls --all --json | jq -r '.boxes[].name')" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes" 2>/dev/null)" ]
}
