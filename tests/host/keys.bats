# Keys: any string of the caller's, such as the id of a conversation, is one box. With the process provider.

load ../lib/box

setup()
{
    box_setup
}
teardown()
{
    box_teardown
}

up() # [OPTION...]
{
    bellhop up --provider process --agent none --empty "$@" 2>/dev/null
}

@test "twenty ups at once with one key make one box" {
    for i in $(seq 20); do
        up --key 1234.5678 --json >"$BOX_TMP/up.$i" 3>&- &
    done
    wait
    [ "$(cat "$BOX_TMP"/up.* | jq -r .id | wc -l)" -eq 20 ]
    [ "$(cat "$BOX_TMP"/up.* | jq -r .id | sort -u | wc -l)" -eq 1 ]
    [ "$(bellhop ls -q | wc -l)" -eq 1 ]
    [ "$(bellhop events --json | jq '[.events[] | select(.after == "requested")] | length')" -eq 1 ]
}

@test "the name of a key's box is a hash of the key, and the same again after rm" {
    name=$(up --key 1234.5678 --json | jq -r .name)
    [ "$name" = "key-$(printf 1234.5678 | sha256sum | cut -c 1-32)" ]
    id=$(bellhop status "$name" --json | jq -r .id)
    [ "$(bellhop status "$name" --json | jq -r '.keys[0]')" = 1234.5678 ]
    bellhop rm "$name" >/dev/null
    [ "$(up --key 1234.5678 --json | jq -r .name)" = "$name" ]
    [ "$(bellhop status "$name" --json | jq -r .id)" != "$id" ]
}

@test "a key is any bytes, and its box may have a name and more keys" {
    long=$(printf '%0512d' 7)
    odd=$'\xff/ \n"'
    id=$(up --key "$odd" --name one --json | jq -r .id)
    [ "$(up --key "$long" --name one --json | jq -r .id)" = "$id" ]
    [ "$(up --key "$odd" --json | jq -r .id)" = "$id" ]
    [ "$(up --key "$long" --json | jq -r .id)" = "$id" ]
    bellhop status one --json | jq -e --arg long "$long" '.keys | length == 2 and any(. == $long) and any(.b64? == "/y8gCiI=")'
    bellhop status one | grep -qxF "keys                     $long"
    bellhop status one | grep -qF '\xff/ \n"'
    for bad in "" "${long}x"; do
        run bellhop up --provider process --agent none --empty --key "$bad" --json
        [ "$status" -eq 2 ]
        [ "$(tail -n 1 <<<"$output" | jq -r .error.field)" = key ]
    done
}

@test "a key of one box is refused for another, and freed by rm" {
    up --key k --name one >/dev/null
    run bellhop up --provider process --agent none --empty --key k --name two --json
    [ "$status" -eq 4 ]
    tail -n 1 <<<"$output" | jq -e '.error | .field == "key" and (.message | contains("one"))'
    [ "$(bellhop ls -q)" = one ]
    bellhop rm one >/dev/null
    up --key k --name two >/dev/null
    [ "$(bellhop ls -q)" = two ]
    # the record of the first still says which key it had
    bellhop ls --all --json | jq -e '.boxes[] | select(.name == "one") | .keys == ["k"]'
}

@test "ups at once with one key and different names make one box, the others say whose it is" {
    for i in 1 2 3 4 5 6; do
        up --key k --name "n$i" --json >"$BOX_TMP/up.$i" 3>&- &
    done
    wait
    [ "$(jq -r 'select(.id) | .id' "$BOX_TMP"/up.* | wc -l)" -eq 1 ]
    [ "$(jq -r 'select(.error) | .error.code' "$BOX_TMP"/up.* | sort -u)" = already_exists ]
    [ "$(bellhop ls -q | wc -l)" -eq 1 ]
}

@test "an up by key returns the box that got the key while it was about to make one" {
    up --name one >/dev/null
    # A writer gives the key to the box. The up has looked for the key and waits for the writer's end.
    mkfifo "$BOX_TMP/end"
    python3 - "$BELLHOP_STATE_DIR/store.db" "$(bellhop status one --json | jq -r .id)" "$BOX_TMP/end" \
        >"$BOX_TMP/writer" 3>&- <<'P' &
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
db.execute("INSERT INTO keys(key, box_id) VALUES(CAST('k' AS BLOB), ?)", (sys.argv[2],))
print("locked", flush=True)
open(sys.argv[3]).read()
db.execute("COMMIT")
P
    writer=$!
    wait_for 10 grep -q locked "$BOX_TMP/writer"
    "$BELLHOP" up --provider process --agent none --empty --key k --json >"$BOX_TMP/up" 2>"$BOX_TMP/err" 3>&- &
    up=$!
    wait_for 10 grep -q nanosleep "/proc/$up/wchan"
    : >"$BOX_TMP/end"
    wait "$writer"
    wait "$up" || fail "$(cat "$BOX_TMP/up" "$BOX_TMP/err")"
    [ "$(jq -r .name "$BOX_TMP/up")" = one ]
    [ "$(bellhop ls -q)" = one ]
}

@test "a box that dies between two calls is started once, and one that is removed is gone" {
    name=$(up --key thread --json | jq -r .name)
    dir=$BELLHOP_STATE_DIR/boxes/$(bellhop status "$name" --json | jq -r .id)
    end_now "$(jq .pid "$dir/run.json")"
    bellhop exec "$name" -- true
    [ "$(bellhop events "$name" --json | jq '[.events[] | select(.after == "running")] | length')" -eq 2 ]
    bellhop rm "$name" >/dev/null
    run bellhop exec "$name" -- true
    [ "$status" -eq 125 ]
    [[ "$output" == *"it is gone since"* ]]
    [ "$(bellhop events "$name" --json | jq -r '.events[-1].after')" = destroyed ]
}
