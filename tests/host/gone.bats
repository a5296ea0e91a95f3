# early
# A box that a command finds gone: what `up --on-gone` says, and what stays if the box cannot be made anew.
# needs: image

bats_require_minimum_version 1.5.0
load ../lib/box

setup()
{
    box_setup
    mkdir "$BOX_TMP/project"
    echo content >"$BOX_TMP/project/file"
}
teardown()
{
    box_teardown
}

up() # [OPTION...]
{
    bellhop up --name one --provider process --agent none --key first -e "A=b c" "$@" "$BOX_TMP/project" >/dev/null 2>&1
    ID=$(info .id)
}

info() # FILTER
{
    bellhop status one --json | jq -r "$1"
}

lose_disk()
{
    bellhop stop one >/dev/null
    rm -rf "$BELLHOP_STATE_DIR/boxes/$ID"
}

sql() # STATEMENT
{
    sqlite3 "$BELLHOP_STATE_DIR/store.db" "$1"
}

# Everything that the store has about boxes.
whole_store()
{
    for table in boxes keys events records; do
        sql "SELECT * FROM $table ORDER BY 1, 2"
    done
}

@test "a box that is gone is destroyed by default, and the error is typed" {
    up
    lose_disk
    run -3 --separate-stderr bellhop start one --json
    jq -e '.error.code == "not_found" and (.error.detail | fromjson | .gone.cause == "its disk is gone")' <<<"$output"
    [ "$(bellhop events one --json | jq -r '.events[-1] | "\(.after) \(.actor)"')" = "destroyed bellhop start" ]
}

@test "on-gone recreate makes the box anew: another id, the same name, key, variables and project" {
    local old

    up --on-gone recreate
    old=$ID
    sql "UPDATE boxes SET transcript = 'before' WHERE id = '$old'"
    bellhop exec one -- touch made-in-the-box
    lose_disk
    [ "$(bellhop exec one -- sh -c 'echo "$A"; cat file')" = "b c
content" ]
    bellhop exec one -- test ! -e made-in-the-box
    [ "$(info .id)" != "$old" ]
    [ ! -e "$BELLHOP_STATE_DIR/boxes/$old" ] # with its token
    [ "$(info '.keys | join(" ")')" = first ]
    [ "$(info '"\(.transcript) \(.options.on_gone) \(.state)"')" = "null recreate running" ]
    [ "$(info .project.path)" = "$(realpath "$BOX_TMP/project")" ]
    bellhop events one --json | jq -e --arg old "$old" '[.events[] | select(.kind == "recreated")] | length == 1 and
        (.[0] | .actor == "bellhop exec" and .cause == "it takes the place of \($old): its disk is gone")'
    # The old one has a record, with its name, its key and its transcript.
    bellhop ls --all --json | jq -e --arg old "$old" '[.boxes[] | select(.id == $old)] | length == 1 and
        (.[0] | .name == "one" and .state == "destroyed" and .cause == "its disk is gone" and
            .keys == ["first"] and .transcript == "before")'
    [ "$(bellhop up --key first --provider process --agent none --json "$BOX_TMP/project" 2>/dev/null | jq -r .id)" = "$(info .id)" ]
    [ "$(bellhop ls -q)" = one ]
}

@test "if the box cannot be made anew, the store is unchanged and the error has both causes" {
    up --on-gone recreate
    lose_disk
    whole_store >"$BOX_TMP/before"
    mv "$BOX_TMP/project" "$BOX_TMP/moved"
    run ! --separate-stderr bellhop put one "$BOX_TMP/before" :before
    [[ "$stderr" == *"the box 'one' is gone (its disk is gone), and it could not be made anew: "*"/project"* ]]
    whole_store | diff "$BOX_TMP/before" -
    [ "$(info .id)" = "$ID" ]
    mv "$BOX_TMP/moved" "$BOX_TMP/project"
    [ "$(bellhop cat one :file)" = content ]
}

@test "twenty commands at once recreate a box once" {
    local i

    up --on-gone recreate
    lose_disk
    for i in $(seq 20); do
        bellhop exec one -- echo "$i" >"$BOX_TMP/out.$i" 2>&1 3>&- &
    done
    wait
    for i in $(seq 20); do
        grep -qx "$i" "$BOX_TMP/out.$i" || fail "$(cat "$BOX_TMP/out.$i")"
    done
    [ "$(bellhop ls --all -q | wc -l)" -eq 2 ]
    [ "$(bellhop events --json | jq '[.events[] | select(.kind == "recreated")] | length')" -eq 1 ]
}

@test "up recreates with its own options; a box with secrets is recreated by up alone" {
    export S=hidden
    up --on-gone recreate --secret S
    lose_disk
    whole_store >"$BOX_TMP/before"
    run ! bellhop exec one -- true
    [[ "$output" == *"its secrets are gone with it"* ]]
    whole_store | diff "$BOX_TMP/before" -
    up --on-gone recreate --secret S
    [ "$(bellhop exec one -- cat "$BELLHOP_STATE_DIR/boxes/$ID/secrets/S")" = hidden ]
    bellhop events one --json | jq -e 'any(.events[]; .kind == "recreated" and .actor == "bellhop up")'
}

@test "a recreation that is killed anywhere is finished or undone by the next command" {
    local delay

    up --on-gone recreate
    for delay in 0.01 0.02 0.03 0.04 0.05 0.06 0.07 0.08 0.09 0.1 0.12 0.14 0.17; do
        ID=$(info .id)
        lose_disk
        timeout -s KILL "$delay" "$BELLHOP" exec one -- true >/dev/null 2>&1 || true
        [ "$(bellhop cat one :file)" = content ] || fail "after $delay s"
        [ "$(info '.keys | join(" ")')" = first ]
    done
    [ "$(bellhop ls -q)" = one ]
    [ "$(sql "SELECT name FROM boxes")" = one ]
}

@test "a box that was made from a snapshot is made from it again" {
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    bellhop up --name first --provider oci --agent none --network none --empty >/dev/null 2>&1
    bellhop exec first -- sh -c 'echo snapped >snapped'
    bellhop snapshot first --name snap >/dev/null
    bellhop up --name one --from snap --on-gone recreate >/dev/null 2>&1
    ID=$(info .id)
    lose_disk
    [ "$(bellhop exec one -- cat snapped)" = snapped ]
    [ "$(info .id)" != "$ID" ]
    bellhop rm one first >/dev/null
    bellhop snapshots rm snap >/dev/null
}
