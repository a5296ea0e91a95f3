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

@test "gc removes the processes and the directory of a box whose record says that it was destroyed" {
    up one >/dev/null
    id=$(bellhop status one --json | jq -r .id)
    pid=$(jq -r .pid "$BELLHOP_STATE_DIR/boxes/$id/run.json")
    python3 - "$BELLHOP_STATE_DIR/store.db" <<'PY'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("DELETE FROM boxes")
db.commit()
PY
    bellhop gc
    wait_for 5 is_gone "$pid"
    clean
}

@test "gc keeps the processes and the directory of a box that the store does not know, and reports both" {
    up one >/dev/null
    id=$(bellhop status one --json | jq -r .id)
    pid=$(jq -r .pid "$BELLHOP_STATE_DIR/boxes/$id/run.json")
    bellhop exec one -- sh -c 'echo kept >file'
    mkdir "$BOX_TMP/away"
    mv "$BELLHOP_STATE_DIR"/store.db* "$BOX_TMP/away"
    bellhop gc --dry-run >/dev/null
    bellhop gc >"$BOX_TMP/out"
    rm -f "$BELLHOP_STATE_DIR"/store.db*
    mv "$BOX_TMP/away"/* "$BELLHOP_STATE_DIR"
    grep -q "^not ours, kept: '$BELLHOP_STATE_DIR/boxes/$id' is of a box that the store does not know, its disk has [1-9][0-9]* bytes; " "$BOX_TMP/out"
    grep -Eq "^not ours, kept: the box $id whose store does not know it \\('$BELLHOP_STATE_DIR'\\): .*processes .*\\b$pid\\b" "$BOX_TMP/out" || fail "$(cat "$BOX_TMP/out")"
    kill -0 "$pid"
    [ "$(bellhop exec one -- cat file)" = kept ]
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

# thousand: a store with 1,000 stopped boxes: copies of the row of 'one'.
thousand()
{
    python3 - "$BELLHOP_STATE_DIR/store.db" <<'PY'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("""WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
    INSERT INTO boxes(id, name, state, created_ms, state_since_ms, spec)
    SELECT printf('%016x', i), 'b' || i, state, created_ms, state_since_ms, spec FROM n, boxes WHERE name = 'one'""")
db.execute("""WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10)
    INSERT INTO keys(key, box_id) SELECT randomblob(64), id FROM n, boxes""")
db.commit()
PY
}

@test "ls of a thousand boxes takes this long" {
    up one >/dev/null
    bellhop stop one >/dev/null
    thousand
    begun=$(date +%s%N)
    [ "$("$BELLHOP_BUILD/bellhop" ls | wc -l)" -eq 1001 ]
    echo "# ls of 1,000 boxes with 10 keys each: $((($(date +%s%N) - begun) / 1000000)) ms" >&3
    bellhop ls --json | jq -e '[.boxes[].keys | length] | length == 1000 and (unique == [10])'
    python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("DELETE FROM boxes WHERE name <> ?", ("one",))
db.commit()' "$BELLHOP_STATE_DIR/store.db"
    # a row that any program deletes leaves its record and its event
    [ "$(bellhop ls --all -q | wc -l)" -eq 1000 ]
    [ "$(bellhop events --json | jq '[.events[] | select(.after == "destroyed")] | length')" -eq 999 ]
}

# The state of each box is what its last event says.
is_true()
{
    local name

    for name in $(bellhop ls -q); do
        [ "$(bellhop status "$name" --json | jq -r .state)" = "$(bellhop events "$name" --json | jq -r '.events[-1].after')" ]
    done
}

@test "a store on a full disk refuses changes by name, stays true, and goes on when there is room" {
    mkdir "$BOX_TMP/small"
    mount -t tmpfs -o size=4m,mode=0700 none "$BOX_TMP/small" || skip "no right to mount here"
    export BELLHOP_STATE_DIR=$BOX_TMP/small/state
    up one >/dev/null
    cat /dev/zero >"$BOX_TMP/small/zeroes" 2>/dev/null || true
    for i in 1 2 3 4 5; do
        run up "two$i" --json
        [ "$status" -eq 8 ] || { tail -n 1 <<<"$output"; umount -l "$BOX_TMP/small"; false; }
        [ "$(tail -n 1 <<<"$output" | jq -r .error.code)" = resource_exhausted ]
    done
    [ "$(bellhop ls -q)" = one ]
    [ "$(bellhop exec one -- echo alive)" = alive ]
    is_true
    bellhop stop one >/dev/null
    [ "$(bellhop status one --json | jq -r .state)" = stopped ]
    rm "$BOX_TMP/small/zeroes"
    bellhop ls >/dev/null
    is_true
    up two >/dev/null
    cat /dev/zero >"$BOX_TMP/small/zeroes" 2>/dev/null || true
    bellhop rm one two # the store has a reserve for it
    rm "$BOX_TMP/small/zeroes"
    bellhop ls >/dev/null
    is_true
    bellhop rm -f one two >/dev/null
    bellhop events one --json | jq -e '.events[-1].after == "destroyed"'
    bellhop events two --json | jq -e '.events[-1].after == "destroyed"'
    [ "$(bellhop ls --all -q | sort -u | grep -cx -e one -e two)" -eq 2 ]
    bellhop gc >/dev/null
    left=$(ls "$BELLHOP_STATE_DIR/boxes")
    umount "$BOX_TMP/small"
    [ -z "$left" ]
}

# full_disk COMMAND...: what it says, on a disk without a free byte. 0 means that it is stored.
full_disk()
{
    cat /dev/zero >"$BOX_TMP/small/zeroes" 2>/dev/null || true
    run "$BELLHOP" "$@"
    rm "$BOX_TMP/small/zeroes"
    echo "full: $*: $status $output"
    [ "$status" -eq 0 ] || [ -n "$output" ] || fail "$* failed without a word"
}

@test "each command on a full disk is done and stored, or an error, and the store is true" {
    local command before now

    mkdir "$BOX_TMP/small"
    mount -t tmpfs -o size=8m,mode=0700 none "$BOX_TMP/small" || skip "no right to mount here"
    export BELLHOP_STATE_DIR=$BOX_TMP/small/state
    for command in up start stop pause resume exec exec-stopped keep status ls events gc rm; do
        up one >/dev/null
        bellhop exec one -- sh -c 'echo precious >file'
        case $command in
        start | exec-stopped) bellhop stop one >/dev/null ;;
        resume) bellhop pause one >/dev/null ;;
        esac
        before=$(bellhop status one --json | jq -r .state)
        case $command in
        up) full_disk up --name two --provider process --agent none --empty ;;
        exec | exec-stopped) full_disk exec one -- cat file ;;
        keep) full_disk keep one --for 1h ;;
        ls | gc) full_disk "$command" ;;
        *) full_disk "$command" one ;;
        esac
        now=$(bellhop status one --json 2>/dev/null | jq -r '.state // "gone"')
        case $command:$status in
        stop:0) [ "$now" = stopped ] ;;
        pause:0) [ "$now" = paused ] ;;
        start:0 | resume:0 | exec-stopped:0) [ "$now" = running ] ;;
        rm:0) [ "$now" = gone ] ;;
        up:*) [ "$status" -eq 0 ] || [ "$(bellhop ls -q)" = one ] ;;
        keep:0) bellhop status one --json | jq -e '.deadline_ms / 1000 > now + 3000' ;;
        exec:* | keep:* | status:* | ls:* | events:* | gc:0) [ "$now" = "$before" ] ;;
        esac || fail "$command: $status, and it is $now"
        bellhop gc >/dev/null || fail "gc after $command"
        is_true
        if [ "$command" = rm ] && [ "$status" -eq 0 ]; then
            bellhop events one --json | jq -e '.events[-1].after == "destroyed"'
        else
            [ "$(bellhop exec one -- cat file)" = precious ] || fail "$command: its content is gone"
        fi
        bellhop rm -f one two >/dev/null
    done
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ]
    umount "$BOX_TMP/small"
}

@test "two monitors of one box: the second ends with an error, and the box has the first" {
    local dir first

    up one >/dev/null
    dir=$(echo "$BELLHOP_STATE_DIR"/boxes/*)
    first=$(cat "$dir/monitor.lock")
    run "$BELLHOP_BUILD/bellhop-monitor" --state-dir "$BELLHOP_STATE_DIR" --cache-dir "$BELLHOP_CACHE_DIR" --id "$(basename "$dir")"
    [ "$status" -ne 0 ]
    [[ "$output" == *"the box has a monitor already"* ]]
    [ "$(cat "$dir/monitor.lock")" = "$first" ]
    [ "$(bellhop exec one -- echo alive)" = alive ]
    is_true
}

@test "a store without its reserve on a full disk: rm removes all or nothing, and no change is claimed that is not stored" {
    mkdir "$BOX_TMP/small"
    mount -t tmpfs -o size=6m,mode=0700 none "$BOX_TMP/small" || skip "no right to mount here"
    export BELLHOP_STATE_DIR=$BOX_TMP/small/state
    for name in one two three; do
        up "$name" >/dev/null
        bellhop exec "$name" -- sh -c 'echo precious >file'
    done
    [ "$(stat -c %s "$BELLHOP_STATE_DIR/store.reserve")" -eq 524288 ]
    dir=$BELLHOP_STATE_DIR/boxes/$(bellhop status three --json | jq -r .id)
    pid=$(jq -r .pid "$dir/run.json")
    rm "$BELLHOP_STATE_DIR/store.reserve"
    cat /dev/zero >"$BOX_TMP/small/zeroes" 2>/dev/null || true
    run bellhop rm one
    echo "rm: $status $output"
    [ "$status" -eq 0 ] || [ "$(bellhop exec one -- cat file)" = precious ]
    run bellhop stop two
    echo "stop: $status $output"
    [ "$status" -eq 8 ] || [ "$(bellhop events two --json | jq -r '.events[-1].after')" = stopped ]
    end_now "$pid"
    wait_for 10 eval '[ -n "$(bellhop gc 2>&1)" ] || [ "$(bellhop events three --json | jq -r ".events[-1].after")" = stopped ]'
    run bellhop gc
    echo "gc: $status $output"
    [ "$status" -eq 8 ] || [ "$(bellhop events three --json | jq -r '.events[-1].after')" = stopped ]
    [ "$status" -eq 0 ] || [[ "$output" != *"marked as stopped"* ]]
    rm "$BOX_TMP/small/zeroes"
    bellhop gc
    is_true
    for name in $(bellhop ls -q); do
        [ "$(bellhop exec "$name" -- cat file)" = precious ]
    done
    [ "$(stat -c %s "$BELLHOP_STATE_DIR/store.reserve")" -eq 524288 ]
    for name in $(bellhop ls -q); do
        bellhop rm "$name"
    done
    umount "$BOX_TMP/small"
}

# variables_left: how often the value of a variable is in the files of the store.
variables_left()
{
    cat "$BELLHOP_STATE_DIR"/store.db* | grep -c quite-secret-value || true
}

@test "gc overwrites the variables that a reader kept in the store's log" {
    up one >/dev/null
    up sec --env TOKEN=quite-secret-value >/dev/null
    # the reader keeps a snapshot, then the store open: its end would remove the log
    mkfifo "$BOX_TMP/go"
    python3 - "$BELLHOP_STATE_DIR/store.db" "$BOX_TMP/go" 3>&- >"$BOX_TMP/reader" <<'PY' &
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN")
db.execute("SELECT * FROM boxes").fetchall()
print("reads", flush=True)
open(sys.argv[2]).read()
db.execute("COMMIT")
print("idle", flush=True)
open(sys.argv[2]).read()
PY
    reader=$!
    wait_for 10 grep -q reads "$BOX_TMP/reader"
    bellhop rm sec
    before=$(variables_left)
    echo >"$BOX_TMP/go"
    wait_for 10 grep -q idle "$BOX_TMP/reader"
    bellhop gc
    after=$(variables_left)
    echo >"$BOX_TMP/go"
    wait "$reader"
    [ "$before" -gt 0 ]
    [ "$after" -eq 0 ]
}

# The exit and the length of the logs in the record of the last box called NAME.
record_of() # NAME
{
    python3 - "$BELLHOP_STATE_DIR/store.db" "$1" <<'PY'
import sqlite3, sys
print(*sqlite3.connect(sys.argv[1]).execute("SELECT exit, length(logs) > 0 FROM records WHERE name = ?"
    " ORDER BY rowid DESC", (sys.argv[2],)).fetchone())
PY
}

@test "rm that is killed before any removal of a file leaves a record with exit and logs" {
    up one >/dev/null
    strace -e trace=unlink,unlinkat,rmdir -o "$BOX_TMP/calls" "$BELLHOP_BUILD/bellhop" rm one >/dev/null
    expected=$(record_of one)
    [ "$expected" = '{"code":0,"signal":null} 1' ] || [ "$expected" = '{"code":null,"signal":9} 1' ] || fail "$expected"
    sed -n 's/^\([a-z0-9_]*\)(.*/\1/p' "$BOX_TMP/calls" | awk '{ print $1, ++n[$1] }' | tail -n 12 >"$BOX_TMP/list"
    [ "$(wc -l <"$BOX_TMP/list")" -ge 5 ]
    while read -r call n <&9; do
        up one >/dev/null
        strace -o /dev/null -e "trace=$call" -e "inject=$call:signal=KILL:when=$n" "$BELLHOP_BUILD/bellhop" rm one \
            >/dev/null 2>&1 3>&- || true
        bellhop gc >/dev/null
        [ -z "$(bellhop ls -q)" ] || bellhop rm one
        [ "$(record_of one)" = "$expected" ] || fail "$call $n: $(record_of one)"
        clean
    done 9<"$BOX_TMP/list"
}
