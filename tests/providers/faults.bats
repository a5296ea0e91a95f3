# early
# Every function of every provider fails, hangs, or dies with the program that asked it (faulty.c), and `bellhop` still
# ends with an error, reports the first one, and leaves a store that is true.
# needs: image

load ../lib/box
load drivers
load faulty
bats_require_minimum_version 1.5.0

setup_file()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    build_faulty
}
teardown_file() { rm -rf --one-file-system "$FAULTY_DIR"; }

setup()
{
    box_setup
    BELLHOP=$FAULTY_DIR/bellhop
    mkdir -m 0700 "$BELLHOP_STATE_DIR"
}
teardown()
{
    mend
    box_teardown
}

# broken LINE...: "FUNCTION MODE" (faulty.c). mend: all works again.
broken() { printf '%s\n' "$@" >"$BELLHOP_STATE_DIR/fault"; }
mend() { rm -f "$BELLHOP_STATE_DIR/fault"; }

up() # [OPTION...]
{
    bellhop up --name one --agent none --empty --json "${UP[@]}" "$@" 2>/dev/null
}

make_box()
{
    up >/dev/null || fail "$PROVIDER: up"
    remember_box one
}

state() { bellhop status one --json | jq -r .state; }
message() { jq -r .error.message <<<"$output"; }

clear_boxes()
{
    mend
    bellhop ls -q | xargs -r "$BELLHOP" rm >/dev/null
    left_nothing
}

left_nothing()
{
    [ -z "$(bellhop ls -q)" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes" 2>/dev/null)" ]
    no_traces || wait_for 10 no_traces || fail "$PROVIDER: left behind: $(traces)"
}

# fails COMMAND...: with an error that is one JSON document.
fails()
{
    run "$@"
    [ "$status" -ne 0 ] || fail "$PROVIDER: $* did not fail: $(cat "$BELLHOP_STATE_DIR/fault")"
    [ -n "$(message)" ]
}

case_up_fails()
{
    local fault

    for fault in 'check error' 'prepare error' 'prepare late' 'start error' 'start late' 'start kill' 'start killed'; do
        broken "$fault"
        fails up
        [[ "$fault" == *kill* || "$(message)" == "the fault in ${fault% *}" ]] || fail "$PROVIDER: $fault: $output"
        mend
        left_nothing
    done
}

@test "an up whose provider fails anywhere is undone and reports that error" {
    each_driver case_up_fails
}

case_undo_fails()
{
    broken 'start error' 'destroy error'
    fails up
    [[ "$(message)" == "the fault in start; the rest is left to gc, because undoing it failed: the fault in destroy" ]] ||
        fail "$PROVIDER: $output"
    [ "$(bellhop ls -q)" = one ]
    [ "$(state)" = destroying ]
    mend
    bellhop gc
    left_nothing
    bellhop events one | tail -n 1 | grep 'the fault in start'
}

@test "an undo that the provider fails, too, is said after the first error, and gc finishes it" {
    each_driver case_undo_fails
}

case_up_hangs()
{
    local fault

    for fault in 'prepare hang' 'start hang'; do
        broken "$fault"
        fails up --start-timeout 1s
        [ "$status" -eq 6 ] || fail "$PROVIDER: $fault: $status, $output"
        mend
        left_nothing
    done
}

@test "a deadline ends an up whose provider hangs, and it is undone" {
    each_driver case_up_hangs
}

# Each way of a failing start: the state is `error` with the cause, the event says so, and the next start does better.
case_start_fails()
{
    local fault cause

    make_box
    bellhop exec one -- sh -c 'echo kept >file'
    for fault in 'start error' 'start late' 'start kill' 'start killed'; do
        bellhop stop one
        broken "$fault"
        fails bellhop start one --json
        mend
        [ "$(state)" = error ] || fail "$PROVIDER: $fault: $(state)"
        cause=$(bellhop status one --json | jq -r .cause)
        [ "$cause" = "$(message)" ]
        # It is this start's, not what an earlier one has logged.
        [[ "$fault" != *kill* || "$cause" != *"the fault in"* ]] || fail "$PROVIDER: $fault: $cause"
        bellhop events one --json | jq -s -e --arg cause "$cause" \
            '[.. | objects | select(.cause? == $cause)] | length > 0'
        [ "$(bellhop exec one -- cat file)" = kept ]
        [ "$(state)" = running ]
    done
}

@test "a start that the provider fails is state error with its cause, and the next one does better" {
    each_driver case_start_fails
}

case_start_hangs()
{
    local pid

    make_box
    bellhop stop one
    rm -f "$BELLHOP_STATE_DIR/asked" # of the starts before
    broken 'start hang'
    (exec "$BELLHOP" start one --json >"$BOX_TMP/start" 2>&1 3>&-) &
    pid=$!
    wait_for 10 grep -q 'bellhop-monitor start' "$BELLHOP_STATE_DIR/asked"
    kill -INT "$pid"
    ! wait "$pid" || fail "$PROVIDER: it was started"
    mend
    [ "$(state)" = stopped ] || fail "$PROVIDER: $(bellhop status one --json), $(cat "$BOX_TMP/start")"
    bellhop exec one -- true
}

@test "a start that hangs in the provider is ended by an interrupt, and the box is stopped" {
    each_driver case_start_hangs
}

# A stop or rm that fails, or dies, is finished by the next command or gc, and never told as done.
case_end_fails()
{
    local fault

    for fault in 'stop error' 'stop late'; do
        make_box
        broken "$fault"
        fails bellhop stop one --json
        [ "$(message)" = "the fault in stop" ]
        [ "$(state)" = stopping ]
        mend
        bellhop exec one -- true
        [ "$(state)" = running ]
    done
    for fault in 'destroy error' 'destroy late' 'destroy kill' 'destroy killed'; do
        make_box
        broken "$fault"
        run bellhop rm one
        [ "$status" -ne 0 ] || fail "$PROVIDER: $fault: it was removed"
        [ "$(state)" = destroying ]
        mend
        bellhop gc
        left_nothing
    done
}

@test "a stop or rm that the provider fails is finished by the next command or gc" {
    each_driver case_end_fails
}

# A provider that does not answer is no end of the box: it runs on.
case_find_fails()
{
    local before

    make_box
    before=$(state)
    broken 'find error'
    run bellhop exec one -- true
    [ "$status" -ne 0 ]
    [ "$(state)" = "$before" ]
    bellhop gc # its monitor answers
    mend
    [ "$(state)" = running ]
    bellhop exec one -- true
    broken 'inspect error'
    fails bellhop status one --json
    mend
    [ "$(state)" = running ]
}

@test "a provider that cannot tell whether a box runs is an error, and the box is not called stopped" {
    each_driver case_find_fails
}
