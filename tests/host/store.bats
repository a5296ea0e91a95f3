# Crashes: every kill -9 leaves a store and a machine that the next command, or `gc`, repairs. With the process
# provider.
# early

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
}

clean()
{
    [ -z "$(bellhop ls -q)" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes" 2>/dev/null)" ]
    wait_for 10 no_traces || fail "$(traces)"
}

@test "kill -9 of up at any time leaves what gc removes without a trace or keeps whole" {
    for ms in 1 3 6 10 15 20 30 40 60 80 110 150; do
        "$BELLHOP" up --name one --provider process --agent none --empty >/dev/null 2>&1 &
        pid=$!
        read -r -t "$(printf '0.%03d' "$ms")" <> <(:) || true
        kill -9 "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        bellhop gc >/dev/null
        if [ -n "$(bellhop ls -q)" ]; then
            [ "$(bellhop exec one -- echo whole)" = whole ]
            bellhop rm one
        fi
        clean
    done
}

@test "kill -9 of up at any time leaves what the next up finishes" {
    for ms in 2 8 20 35 70 120; do
        "$BELLHOP" up --name one --provider process --agent none --empty >/dev/null 2>&1 &
        pid=$!
        read -r -t "$(printf '0.%03d' "$ms")" <> <(:) || true
        kill -9 "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        up one >/dev/null
        [ "$(bellhop exec one -- echo whole)" = whole ]
        bellhop rm one
        clean
    done
}

@test "up that is interrupted by ^C at any time undoes everything" {
    for ms in 1 5 12 25 45 80; do
        "$BELLHOP" up --name one --provider process --agent none --empty >/dev/null 2>&1 &
        pid=$!
        read -r -t "$(printf '0.%03d' "$ms")" <> <(:) || true
        kill -INT "$pid" 2>/dev/null || true
        if wait "$pid"; then
            bellhop rm one
        fi
        clean
    done
}

@test "kill -9 of a start keeps the disk that was there" {
    up one >/dev/null
    bellhop exec one -- sh -c 'echo kept >file'
    for ms in 2 10 25 60; do
        bellhop stop one
        "$BELLHOP" exec one -- true >/dev/null 2>&1 &
        pid=$!
        read -r -t "$(printf '0.%03d' "$ms")" <> <(:) || true
        kill -9 "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        [ "$(bellhop exec one -- cat file)" = kept ]
    done
}

@test "kill -9 of rm at any time leaves what the next gc removes" {
    for ms in 1 4 10 25; do
        up one >/dev/null
        "$BELLHOP" rm one >/dev/null 2>&1 &
        pid=$!
        read -r -t "$(printf '0.%03d' "$ms")" <> <(:) || true
        kill -9 "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        bellhop gc >/dev/null
        [ -z "$(bellhop ls -q)" ] || bellhop rm one
        clean
    done
}

@test "gc puts back the monitor of a box that runs without one" {
    up one >/dev/null
    dir=$BELLHOP_STATE_DIR/boxes/$(bellhop status one --json | jq -r .id)
    monitor=$(cut -d ' ' -f 1 "$dir/monitor.lock")
    guard=$(sed 's/.*) //' "/proc/$monitor/stat" | cut -d ' ' -f 2) # it would put it back itself
    end_now "$guard" "$monitor"
    run bellhop gc
    [ "$status" -eq 0 ]
    [[ "$output" == *"one"* ]]
    kill -0 "$(cut -d ' ' -f 1 "$dir/monitor.lock")"
}

@test "gc removes the processes and the directory of a box that the store does not know" {
    up one >/dev/null
    id=$(bellhop status one --json | jq -r .id)
    pid=$(jq -r .pid "$BELLHOP_STATE_DIR/boxes/$id/run.json")
    mv "$BELLHOP_STATE_DIR"/store.db "$BOX_TMP/"
    rm -f "$BELLHOP_STATE_DIR"/store.db-*
    bellhop gc
    wait_for 5 is_gone "$pid"
    clean
}

@test "a store whose directory cannot be made is an error that names it" {
    echo file >"$BOX_TMP/file"
    BELLHOP_STATE_DIR=$BOX_TMP/file/state run bellhop ls
    [ "$status" -ne 0 ]
    [[ "$output" == *"$BOX_TMP/file"* ]]
}

@test "the state directory and what is in it is its owner's alone" {
    up one >/dev/null
    [ "$(stat -c %a "$BELLHOP_STATE_DIR")" = 700 ]
    [ "$(stat -c %a "$BELLHOP_STATE_DIR/store.db")" = 600 ]
    [ "$(stat -c %a "$BELLHOP_STATE_DIR"/boxes/*/token)" = 600 ]
}

# age NAME MS: the box has been in its state for so much longer.
age()
{
    python3 - "$BELLHOP_STATE_DIR/store.db" "$1" "$2" <<'PY'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE boxes SET state_since_ms = state_since_ms - ? WHERE name = ?", (int(sys.argv[3]), sys.argv[2]))
db.commit()
PY
}

DAY_MS=$((24 * 3600 * 1000))

@test "gc keeps a box however long it has been stopped, and says that it is there" {
    up old >/dev/null
    up young >/dev/null
    bellhop exec old -- sh -c 'echo kept >file'
    bellhop stop old young >/dev/null
    age old $((400 * DAY_MS))
    age young $((6 * DAY_MS))
    run bellhop gc
    [ "$status" -eq 0 ]
    [[ "$output" == *"old: stopped for 400d"*"kept"*"--stopped-for"* ]]
    [[ "$output" != *young* ]]
    [ "$(bellhop exec old -- cat file)" = kept ]
}

@test "gc --stopped-for removes boxes that have been stopped so long, and no other" {
    up old >/dev/null
    up young >/dev/null
    up running >/dev/null
    bellhop stop old young >/dev/null
    age old $((7 * DAY_MS + 1000))
    age young $((7 * DAY_MS - 3600000))
    age running $((9 * DAY_MS))
    run bellhop gc --stopped-for 7d
    [ "$status" -eq 0 ]
    [[ "$output" == *"old: stopped for 7d"*"removed"* ]]
    [ "$(bellhop ls -q)" = "$(printf 'running\nyoung')" ]
    bellhop gc --stopped-for 0
    [ "$(bellhop ls -q)" = running ]
    run bellhop gc --stopped-for soon --json
    [ "$status" -ne 0 ]
    [ "$(jq -r .error.field <<<"$output")" = stopped-for ]
}

@test "help of stop and gc says that only rm and --stopped-for remove a box" {
    [[ "$(bellhop help stop)" == *"until 'bellhop rm'"*"--stopped-for"* ]]
    [[ "$(bellhop help gc)" == *"removes a box only with --stopped-for"*"--stopped-for TIME"* ]]
}
