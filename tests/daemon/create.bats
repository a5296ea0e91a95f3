#!/usr/bin/env bats
# Boxes that are made, kept, forked and listed over HTTP. With the provider `process`.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    daemon_start
}

teardown()
{
    daemon_stop
    box_teardown
}

post() # STATUS FILTER PATH JSON [CURL OPTION...]; the answer stays in $BOX_TMP/expected
{
    local status=$1 filter=$2 path=$3 body=$4

    shift 4
    expect "$status" "$filter" POST "$path" -H 'Content-Type: application/json' --data "$body" "$@"
}

keep_answer() # FILE
{
    jq -S . "$BOX_TMP/expected" >"$1"
}

@test "a box is made with its options, labels and variables, and the same again is that box" {
    post 201 '.name == "one" and .state == "running" and .labels.team == "a" and .options.timeout_ms == 1200000
        and .options.on_idle == "keep"' /v1/boxes '{"name":"one","provider":"process","agent":"none",
        "labels":{"team":"a"},"env":{"COLOUR":"blue"},"timeout_ms":1200000,"on_idle":"keep"}'
    id=$(jq -r .id "$BOX_TMP/expected")
    run ! grep -q password "$BOX_TMP/expected"
    [ "$(bellhop exec one -- sh -c 'echo $COLOUR')" = blue ]
    post 200 ".id == \"$id\"" /v1/boxes '{"name":"one"}'
}

@test "a body that is wrong is refused by the name of its field, and makes nothing" {
    local body field n=0

    while IFS=' ' read -r field body; do
        post 400 ".code == \"invalid_argument\" and .field == \"$field\"" /v1/boxes "$body"
        n=$((n + 1))
    done <<'END'
nam {"nam":"one"}
name {"name":7}
name {"name":"Not a name"}
memory_bytes {"memory_bytes":-1}
agent_port {"agent_port":70000}
env {"env":{"A":1}}
labels {"labels":["a=b"]}
network {"provider":"process","network":"moon"}
END
    [ "$n" = 8 ]
    post 400 '.field == "waits"' '/v1/boxes?waits=false' '{}'
    [ "$(bellhop ls -q)" = "" ]
}

@test "a creation that is repeated with its Idempotency-Key gives the first answer, also after a restart" {
    body='{"provider":"process","agent":"none"}'
    post 201 true /v1/boxes "$body" -H 'Idempotency-Key: k-1'
    keep_answer "$BOX_TMP/first"
    bellhop stop "$(jq -r .name "$BOX_TMP/first")"
    post 201 true /v1/boxes "$body" -H 'Idempotency-Key: k-1'
    keep_answer "$BOX_TMP/again"
    cmp "$BOX_TMP/first" "$BOX_TMP/again"
    daemon_stop
    daemon_start
    post 201 true /v1/boxes "$body" -H 'Idempotency-Key: k-1'
    keep_answer "$BOX_TMP/again"
    cmp "$BOX_TMP/first" "$BOX_TMP/again"
    post 409 '.code == "aborted" and .field == "Idempotency-Key"' /v1/boxes \
        '{"provider":"process","agent":"none","name":"other"}' -H 'Idempotency-Key: k-1'
    post 400 '.field == "Idempotency-Key"' /v1/boxes "$body" -H "Idempotency-Key: $(printf '%0300d' 1)"
    [ "$(bellhop ls -q | wc -l)" = 1 ]
}

@test "an answer is kept for a day, and without it the name that the key makes finds the box" {
    body='{"provider":"process","agent":"none"}'
    post 201 true /v1/boxes "$body" -H 'Idempotency-Key: k-1'
    id=$(jq -r .id "$BOX_TMP/expected")
    file=$(ls "$BELLHOP_STATE_DIR"/answers/*)
    jq '.made_ms -= 24 * 3600 * 1000' "$file" >"$BOX_TMP/old"
    cat "$BOX_TMP/old" >"$file"
    post 200 ".id == \"$id\"" /v1/boxes "$body" -H 'Idempotency-Key: k-1'
    [ "$(bellhop ls -q | wc -l)" = 1 ]
}

@test "without waiting, the answer is the box as it begins, and it is made when its client has left" {
    post 202 '.name == "one" and (.state | IN("requested", "provisioning", "bootstrapping", "running"))' \
        '/v1/boxes?wait=false' '{"name":"one","provider":"process","agent":"none"}'
    wait_for 30 expect 200 '.state == "running"' GET /v1/boxes/one
    # One that fails before there is a box says so.
    post 404 '.field == "provider"' '/v1/boxes?wait=false' '{"name":"two","provider":"none"}'
}

@test "lists come in pages, by label and by state" {
    for name in a b c; do
        post 201 true /v1/boxes \
            "{\"name\":\"$name\",\"provider\":\"process\",\"agent\":\"none\",\"labels\":{\"k\":\"$name\"}}"
    done
    expect 200 true POST /v1/boxes/b/stop
    expect 200 '[.boxes[].name] == ["a", "b"] and .next_cursor == "b"' GET '/v1/boxes?limit=2'
    expect 200 '[.boxes[].name] == ["c"] and .next_cursor == null' GET '/v1/boxes?limit=2&cursor=b'
    expect 200 '.next_cursor == null' GET '/v1/boxes?limit=3'
    expect 200 '[.boxes[].name] == ["c"]' GET '/v1/boxes?label=k%3Dc'
    expect 200 '.boxes | length == 3' GET '/v1/boxes?label=k'
    expect 200 '.boxes == []' GET '/v1/boxes?label=none'
    expect 200 '[.boxes[].name] == ["b"]' GET '/v1/boxes?state=stopped'
    expect 200 '.boxes | length == 3' GET '/v1/boxes?state=running,stopped'
    expect 400 '.field == "state"' GET '/v1/boxes?state=asleep'
    expect 400 '.field == "state"' GET '/v1/boxes?state='
    expect 400 '.field == "state"' GET '/v1/boxes?state=running,'
    expect 400 '.field == "limit"' GET '/v1/boxes?limit=0'
}

@test "a box's time to live is lengthened" {
    post 201 true /v1/boxes '{"name":"one","provider":"process","agent":"none","timeout_ms":600000}'
    before=$(jq .deadline_ms "$BOX_TMP/expected")
    post 200 ".deadline_ms > $before + 3600000" /v1/boxes/one/keep '{"for_ms":7200000}'
    post 400 '.field == "for_ms"' /v1/boxes/one/keep '{}'
    post 400 '.code == "invalid_argument"' /v1/boxes/one/keep '{"for_ms":-1}'
}
