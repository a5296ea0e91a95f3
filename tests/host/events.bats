# The history of boxes: events, the records of boxes that are gone, and the typed error. With the process provider.
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

@test "each change of a box's state is an event with its number, time, cause and actor" {
    up one >/dev/null
    bellhop stop one >/dev/null
    bellhop exec one -- true
    bellhop events one --json >"$BOX_TMP/events"
    jq -e '.events | map(.seq) == [range(1; length + 1)]' "$BOX_TMP/events"
    jq -e '.events | map(.after) == ["requested", "provisioning", "bootstrapping", "running",
        "stopping", "stopped", "provisioning", "bootstrapping", "running"]' "$BOX_TMP/events"
    jq -e '.events | [.[:-1], .[1:]] | transpose | all(.[0].after == .[1].before and .[0].time_ms <= .[1].time_ms)' \
        "$BOX_TMP/events"
    jq -e '.events | .[0].before == null and .[0].actor == "bellhop up" and .[5].actor == "bellhop stop" and
        .[5].cause == "stopped by a command" and .[8].actor == "bellhop exec"' "$BOX_TMP/events"
    jq -e '.events | map(.id) | length == (unique | length)' "$BOX_TMP/events"
    jq -e '.events | all(.box.name == "one" and .kind == "state")' "$BOX_TMP/events"
    [ "$(bellhop events one --since 7 | cut -f 1,3,4 | tr '\t\n' '  ')" = "8 bootstrapping bellhop exec 9 running bellhop exec " ]
    run bellhop events one --since -1 --json
    [ "$status" -eq 2 ]
    [ "$(jq -r .error.field <<<"$output")" = since ]
    run bellhop events nobox
    [ "$status" -eq 3 ]
}

@test "summaries of events and records have at most so many characters, and whole ones" {
    name=$(printf 'n%.0s' $(seq 63))
    up "$name" >/dev/null
    bellhop events "$name" --json | jq -e '.events | all(.summary | (.title | length <= 60) and .status != "" and .details != "")'
    # A long cause in several scripts, with controls, and output of the same kind.
    python3 "$BATS_TEST_DIRNAME/../lib/sql.py" "$BELLHOP_STATE_DIR/store.db" "INSERT INTO events
        SELECT NULL, box_id, seq + 1, 'x', 'noise', time_ms, after, after, ?, 'test' FROM events ORDER BY seq DESC LIMIT 1" \
        "$(printf 'é\t€\x1b😀%.0s' $(seq 70))"
    bellhop events "$name" --json | jq -e '.events[-1] | (.cause | length) > 180 and (.summary |
        (.title | length == 60 and endswith("nn…")) and (.status | length == 49 and startswith("noise: é € 😀é") and endswith("…")) and
        (.details | length == 180 and endswith("…")))'
    [ "$(bellhop events "$name" | tail -n 1 | cut -f 5)" = \
        "$(bellhop events "$name" --json | jq -r '.events[-1].cause | gsub("[\t\u001b]"; " ") | .[:179]')…" ]
    bellhop rm "$name"
    python3 "$BATS_TEST_DIRNAME/../lib/sql.py" "$BELLHOP_STATE_DIR/store.db" "UPDATE records SET logs = ?" \
        "$(printf '€%.0s' $(seq 300)) end"
    bellhop ls --all --json | jq -e '.boxes[-1].summary | .status == "destroyed: removed by a command" and
        .details == "removed by a command" and (.output | length == 260 and startswith("…€") and endswith("€ end"))'
}

@test "the monitor and the janitor are the actors of what they do" {
    up one --timeout 1s >/dev/null
    wait_for 20 eval '[ "$(bellhop events one --json | jq -r ".events[-1].after")" = stopped ]'
    bellhop events one --json | jq -e '.events[-1] | .actor == "monitor" and .cause == "its time to live is over"'
    bellhop gc --stopped-for 0
    bellhop events one --json | jq -e '.events[-1] | .actor == "janitor" and .after == "destroyed"'
    up two --timeout 1s --on-timeout rm >/dev/null
    wait_for 20 eval '[ "$(bellhop events two --json | jq -r ".events[-1].after")" = destroyed ]'
    bellhop events two --json | jq -e '.events[-1] | .actor == "monitor" and .cause == "it has expired: its time to live is over"'
}

@test "events --follow goes on until the box is destroyed" {
    up one >/dev/null
    "$BELLHOP" events one -f --since 4 >"$BOX_TMP/out" 3>&- &
    of_one=$!
    "$BELLHOP" events --follow --json >"$BOX_TMP/all" 3>&- &
    of_all=$!
    bellhop stop one >/dev/null
    wait_for 10 grep -q stopped "$BOX_TMP/out"
    bellhop rm one >/dev/null
    wait "$of_one"
    [ "$(cut -f 1,3 "$BOX_TMP/out" | tr '\t\n' '  ')" = "5 stopping 6 stopped 7 destroying 8 destroyed " ]
    wait_for 10 grep -q '"destroyed"' "$BOX_TMP/all"
    up two >/dev/null
    wait_for 10 eval 'jq -e "select(.box.name == \"two\" and .after == \"running\")" "$BOX_TMP/all"'
    kill -INT "$of_all"
    status=0
    wait "$of_all" || status=$?
    [ "$status" -eq 130 ]
    jq -s -e 'map(.position // empty) | . == sort and length == (unique | length)' "$BOX_TMP/all"
}

@test "events --follow NAME stays with its box when the name is another's, and ends if the box has ended" {
    up one >/dev/null
    last=$(bellhop events one --json | jq '.events[-1].seq')
    "$BELLHOP" events one -f >"$BOX_TMP/out" 3>&- &
    follower=$!
    wait_for 10 grep -qP "^$last\t" "$BOX_TMP/out"
    # nothing is printed while it is stopped: it finds the next box of that name at its next look
    kill -STOP "$follower"
    id=$(bellhop status one --json | jq -r .id)
    bellhop rm one >/dev/null
    up one >/dev/null
    for _ in 1 2; do
        bellhop stop one >/dev/null
        bellhop start one >/dev/null
    done
    [ "$(bellhop events one --json | jq '.events[-1].seq')" -gt $((last + 2)) ]
    kill -CONT "$follower"
    wait_for 20 is_gone "$follower"
    wait "$follower"
    bellhop events "$id" | diff - "$BOX_TMP/out"
    # nothing comes after the last event of a box that is gone
    last=$(bellhop events "$id" --json | jq '.events[-1].seq')
    [ -z "$(timeout 30 "$BELLHOP" events "$id" -f --since "$last")" ]
    [ "$(timeout 30 "$BELLHOP" events "$id" -f --since $((last - 1)) | cut -f 3)" = destroyed ]
    [ -z "$(timeout 30 "$BELLHOP" events "$id" -f --since $((last + 100)))" ]
}

@test "a box that is removed leaves a record, and its name is free" {
    up one --label team=x >/dev/null
    id=$(bellhop status one --json | jq -r .id)
    bellhop rm one >/dev/null
    [ -z "$(bellhop ls -q)" ]
    [ "$(bellhop ls --all -q)" = one ]
    bellhop ls --all --json >"$BOX_TMP/all"
    jq -e --arg id "$id" '.boxes[0] | .id == $id and .state == "destroyed" and .provider == "process" and
        .cause == "removed by a command" and .labels == {team: "x"} and .exit.signal == 9 and .transcript == null and
        .created_ms <= .used_ms and .used_ms <= .destroyed_ms and .updated_ms == .destroyed_ms' "$BOX_TMP/all"
    bellhop ls --all | grep -P "^one\tdestroyed\tprocess"
    up one >/dev/null
    [ "$(bellhop ls --all --json | jq -r '.boxes | map(.state) | join(" ")')" = "running destroyed" ]
    # a name is that of the box that is there; the id is that of the one that was
    [ "$(bellhop events one --json | jq -r '.events[-1].after')" = running ]
    [ "$(bellhop events "$id" --json | jq -r '.events[-1].after')" = destroyed ]
}

@test "a box that is gone is told by type: id, provider and cause, in every command, and nothing else is" {
    up one >/dev/null
    id=$(bellhop status one --json | jq -r .id)
    bellhop rm one >/dev/null
    for command in "status one" "exec one true" "stop one" "start one" "rm one" "keep one --for 1h" "url one" \
        "logs one" "ls one" "glob one x" "cat one :x" "ports one" "hold one"; do
        [ "$command" != "ls one" ] || continue
        # shellcheck disable=SC2086 # words
        run bellhop $command --json
        [ "$status" -eq 3 ] || [ "$status" -eq 125 ] || fail "$command: $status"
        case $command in exec*) continue ;; esac
        jq -e --arg id "$id" '.error | .code == "not_found" and (.detail | fromjson | .gone |
            .id == $id and .provider == "process" and .cause == "removed by a command" and .destroyed_ms > 0)' \
            <<<"$output" || fail "$command: $output"
    done
    run bellhop status one
    [ "$status" -eq 3 ]
    [[ "$output" == *"it is gone since 20"*"removed by a command"* ]]
    run bellhop status nobox --json
    [ "$status" -eq 3 ]
    jq -e '.error | .code == "not_found" and has("detail") == false' <<<"$output"
    # an error of the box's whose text says so is none: a missing file, a message of its own
    up two >/dev/null
    run bellhop cat two :/no/such/file --json
    [ "$status" -eq 3 ]
    jq -e '.error.detail // "{}" | fromjson | has("gone") == false' <<<"$output"
    # gc forgets the record: then it is unknown
    bellhop gc --records-for 0
    run bellhop status one --json
    jq -e '.error | .code == "not_found" and has("detail") == false' <<<"$output"
    [ -z "$(bellhop ls --all --json | jq -r '.boxes[] | select(.name == "one")')" ]
}

@test "a box whose directory was removed by hand is gone, with an event" {
    up one >/dev/null
    bellhop stop one >/dev/null
    rm -rf "$BELLHOP_STATE_DIR/boxes/$(bellhop status one --json | jq -r .id)"
    run bellhop start one --json
    [ "$status" -eq 3 ]
    jq -e '.error.detail | fromjson | .gone.cause == "its disk is gone"' <<<"$output"
    bellhop events one --json | jq -e '.events[-1] | .after == "destroyed" and .cause == "its disk is gone"'
    [ -z "$(bellhop ls -q)" ]
}

@test "a box keeps its row while the file system of the boxes is not mounted, and no other is made there" {
    up one --key k >/dev/null
    bellhop exec one -- sh -c 'echo work >file'
    bellhop stop one >/dev/null
    bellhop events one >"$BOX_TMP/events"
    mv "$BELLHOP_STATE_DIR/boxes" "$BOX_TMP/boxes"
    for command in "start one" "up --name one --provider process --agent none --empty" \
        "up --name two --provider process --agent none --empty" "up --key k --provider process --agent none --empty"; do
        # shellcheck disable=SC2086 # words
        run bellhop $command --json
        jq -e '.error.code == "unavailable"' <<<"$(tail -n 1 <<<"$output")" || fail "$command: $output"
    done
    bellhop gc >/dev/null
    [ "$(bellhop ls -q)" = one ]
    bellhop events one | diff "$BOX_TMP/events" -
    rm -rf "$BELLHOP_STATE_DIR/boxes"
    mv "$BOX_TMP/boxes" "$BELLHOP_STATE_DIR/boxes"
    bellhop gc
    [ "$(bellhop exec one -- cat file)" = work ]
}

@test "gc keeps the disk that comes back after its box was given up" {
    up one >/dev/null
    bellhop stop one >/dev/null
    id=$(bellhop status one --json | jq -r .id)
    mv "$BELLHOP_STATE_DIR/boxes/$id" "$BOX_TMP/disk"
    run bellhop start one
    [ "$status" -eq 3 ]
    mv "$BOX_TMP/disk" "$BELLHOP_STATE_DIR/boxes/$id"
    run bellhop gc
    [ "$status" -eq 0 ]
    [[ "$output" == *"is kept: "*"/boxes/$id"* ]]
    [ -e "$BELLHOP_STATE_DIR/boxes/$id/token" ]
    rm -rf "${BELLHOP_STATE_DIR:?}/boxes/$id"
}

@test "up of a box whose directory was removed by hand makes a new box" {
    up one >/dev/null
    bellhop stop one >/dev/null
    rm -rf "$BELLHOP_STATE_DIR/boxes/$(bellhop status one --json | jq -r .id)"
    up one >/dev/null
    [ "$(bellhop ls --all --json | jq -r '.boxes | map(.state) | join(" ")')" = "running destroyed" ]
}

@test "an up that fails leaves a record with the first error" {
    run bellhop up --name one --provider process --agent none --repo "file:///no/such/repository" --json
    [ "$status" -ne 0 ]
    message=$(tail -n 1 <<<"$output" | jq -r .error.message)
    [ -z "$(bellhop ls -q)" ]
    bellhop events one --json | jq -e --arg m "$message" '.events[-1] | .after == "destroyed" and .cause == $m'
}

@test "gc --dry-run tells what gc would do and changes nothing" {
    up old >/dev/null
    gone=$(up gone --json | jq -r .id)
    bellhop stop old >/dev/null
    bellhop rm gone >/dev/null
    mkdir "$BELLHOP_STATE_DIR/boxes/$gone" # as if the removal had been killed
    find "$BELLHOP_STATE_DIR" -name 'store.db*' -prune -o -print | sort >"$BOX_TMP/before"
    bellhop events --json >"$BOX_TMP/events"
    run bellhop gc --dry-run --stopped-for 0 --records-for 0
    [ "$status" -eq 0 ]
    [[ "$output" == *"old: stopped for"*"would be removed"* ]]
    [[ "$output" == *"1 old record would be forgotten"* ]]
    [[ "$output" == *"would be removed: $gone"* ]]
    find "$BELLHOP_STATE_DIR" -name 'store.db*' -prune -o -print | sort | diff "$BOX_TMP/before" -
    bellhop events --json | diff "$BOX_TMP/events" -
    bellhop gc --stopped-for 0 --records-for 1h
    [ "$(bellhop ls --all --json | jq -r '.boxes | map(.name) | sort | join(" ")')" = "gone old" ]
    [ ! -e "$BELLHOP_STATE_DIR/boxes/$gone" ]
}

set_provider() # NAME
{
    python3 - "$BELLHOP_STATE_DIR/store.db" "$1" <<'PY'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE boxes SET spec = json_set(spec, '$.provider', ?)", (sys.argv[2],))
db.commit()
PY
}

@test "gc --every is a janitor: it does in the next round what has become due, and an interrupt ends it" {
    run bellhop gc --every 0.5s
    [ "$status" -eq 2 ]
    up one >/dev/null
    "$BELLHOP" gc --every 1s --stopped-for 0 >"$BOX_TMP/janitor" 2>&1 3>&- &
    janitor=$!
    bellhop stop one
    wait_for 20 grep -q '^one: stopped for .*, removed$' "$BOX_TMP/janitor"
    # a round that fails is told, and the next one tries again
    up two >/dev/null
    set_provider nowhere
    wait_for 20 grep -q "nowhere" "$BOX_TMP/janitor"
    set_provider process
    bellhop stop two
    wait_for 20 grep -q '^two: stopped for .*, removed$' "$BOX_TMP/janitor"
    kill -INT "$janitor"
    status=0
    wait "$janitor" || status=$?
    [ "$status" -eq 130 ]
    bellhop events one --json | jq -e '.events[-1] | .after == "destroyed" and .actor == "janitor"'
}

@test "two gcs at once remove each box once" {
    for i in 1 2 3 4 5 6; do
        up "b$i" >/dev/null
    done
    bellhop stop b1 b2 b3 b4 b5 b6 >/dev/null
    for i in 1 2 3; do
        "$BELLHOP" gc --stopped-for 0 >"$BOX_TMP/gc.$i" 3>&- &
    done
    wait
    [ "$(cat "$BOX_TMP"/gc.? | grep -c removed)" -eq 6 ]
    [ "$(bellhop events --json | jq '[.events[] | select(.after == "destroyed")] | length')" -eq 6 ]
    [ -z "$(bellhop ls -q)" ]
}

@test "a record stays as long as a removal that was killed has left a directory, which gc then knows" {
    up one >/dev/null
    id=$(bellhop status one --json | jq -r .id)
    bellhop rm one >/dev/null
    mkdir "$BELLHOP_STATE_DIR/boxes/$id" # as a removal leaves it that is killed when the row is gone
    touch "$BELLHOP_STATE_DIR/boxes/$id/exit.json"
    up two >/dev/null
    BELLHOP_RECORDS_FOR=1ms bellhop rm two >/dev/null
    [[ "$(bellhop ls --all -q)" = *one* ]]
    run bellhop gc --records-for 0
    [[ "$output" = *"removed the directory of a box that is gone: $id"* ]]
    [ ! -e "$BELLHOP_STATE_DIR/boxes/$id" ]
    [ -z "$(bellhop ls --all -q)" ]
}

@test "BELLHOP_RECORDS_FOR says how long records are kept, and a monitor forgets none" {
    up one >/dev/null
    bellhop rm one >/dev/null
    up two >/dev/null
    BELLHOP_RECORDS_FOR=1h bellhop rm two >/dev/null
    [ "$(bellhop ls --all -q | tr '\n' ' ')" = "two one " ]
    up three --timeout 1s --on-timeout rm >/dev/null
    wait_for 20 eval '[ "$(bellhop events three --json | jq -r ".events[-1].after")" = destroyed ]'
    [ "$(bellhop ls --all -q | tr '\n' ' ')" = "three two one " ]
    up four >/dev/null
    BELLHOP_RECORDS_FOR=1ms bellhop rm four >/dev/null
    [ -z "$(bellhop ls --all -q | grep -v four)" ]
    BELLHOP_RECORDS_FOR=soon run bellhop ls --json
    [ "$status" -eq 2 ]
    [ "$(jq -r .error.field <<<"$output")" = records-for ]
}
