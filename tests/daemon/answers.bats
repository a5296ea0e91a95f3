#!/usr/bin/env bats
# Answers of the daemon about boxes, snapshots, records, images and the machine. With the provider `process`.

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

make_box() # NAME
{
    bellhop up --empty --provider process --agent none --name "$1" >/dev/null 2>&1
}

@test "a box's status, health, activity, ports, url, metrics and readiness are as the command has them" {
    make_box one
    expect 200 '.name == "one" and (.enforced | type == "object")' GET /v1/boxes/one/status
    [ "$(jq -S .enforced "$BOX_TMP/expected")" = "$(bellhop status --json one | jq -S .enforced)" ]
    ask GET /v1/boxes/one/health
    [ "$ASK_STATUS" = 204 ]
    expect 200 'has("busy") and has("idle_ms")' GET /v1/boxes/one/activity
    expect 200 '.ports | type == "array"' GET /v1/boxes/one/ports
    expect 200 '.url | startswith("http://127.0.0.1:")' GET '/v1/boxes/one/url?port=8080'
    expect 400 '.code == "failed_precondition" and .field == "port"' GET /v1/boxes/one/url
    expect 400 '.field == "port"' GET '/v1/boxes/one/url?port=0'
    ask GET /v1/boxes/one/metrics >"$BOX_TMP/metrics"
    grep -q '^# TYPE ' "$BOX_TMP/metrics"
    bellhop stop one
    expect 200 '.enforced == null' GET /v1/boxes/one/status
    expect 400 '.code == "failed_precondition"' GET /v1/boxes/one/health
    expect 400 '.code == "failed_precondition"' GET /v1/boxes/one/activity
}

@test "logs are the bytes that a command printed, of both streams or of one" {
    make_box one
    id=$(bellhop exec -d one -- sh -c 'printf "a\000b\377"; printf err >&2')
    bellhop wait one "$id"
    ask GET "/v1/boxes/one/logs?id=$id&stream=stdout" >"$BOX_TMP/out"
    printf 'a\000b\377' | cmp - "$BOX_TMP/out"
    ask GET "/v1/boxes/one/logs?id=$id" >"$BOX_TMP/out"
    printf 'a\000b\377err' | cmp - "$BOX_TMP/out"
    expect 404 '.field == "id"' GET /v1/boxes/one/logs
    expect 404 '.code == "not_found"' GET '/v1/boxes/one/logs?id=none'
    expect 400 '.field == "stream"' GET "/v1/boxes/one/logs?id=$id&stream=both"
}

@test "events and records come in pages that leave nothing out" {
    make_box one
    make_box two
    bellhop rm one two
    expect 200 '.more == false' GET /v1/history
    all=$(jq -c '[.events[].position]' "$BOX_TMP/expected")
    since=0 pages='[]'
    while :; do
        expect 200 '.events | length <= 3' GET "/v1/history?limit=3&since=$since"
        pages=$(jq -c --argjson p "$pages" '$p + [.events[].position]' "$BOX_TMP/expected")
        since=$(jq .next_since "$BOX_TMP/expected")
        jq -e .more "$BOX_TMP/expected" >/dev/null || break
    done
    [ "$pages" = "$all" ]
    expect 200 '[.records[].name] == ["two"] and .next_cursor' GET '/v1/records?limit=1'
    expect 200 '[.records[].name] == ["one"] and .next_cursor == null' \
        GET "/v1/records?limit=1&cursor=$(jq -r .next_cursor "$BOX_TMP/expected")"
    id=$(jq -r '.records[0].id' "$BOX_TMP/expected")
    expect 200 '.name == "one" and (.logs | type == "string")' GET "/v1/records/$id"
    expect 404 '.field == "id"' GET /v1/records/none
    # A box that is gone has its events still, from any of them on.
    expect 200 '.events | length > 2' GET "/v1/boxes/$id/history"
    n=$(jq '.events | length' "$BOX_TMP/expected")
    expect 200 ".events | length == $n - 2" GET "/v1/boxes/$id/history?since=2"
}

@test "images, providers, settings and leftovers are as the command has them" {
    expect 200 true GET /v1/images
    [ "$(jq -S .images "$BOX_TMP/expected")" = "$(bellhop image ls --json | jq -S .images)" ]
    expect 404 '.code == "not_found"' GET /v1/images/nothing
    expect 200 '.providers | map(select(.name == "process"))[0].usable' GET /v1/providers
    expect 200 ".state_dir == \"$BELLHOP_STATE_DIR\"" GET /v1/config
    make_box one
    bellhop stop one
    expect 200 '.done | length > 0' POST /v1/gc --data '{"dry_run":true,"stopped_for_ms":1}'
    [ "$(bellhop ls -q)" = one ]
    expect 200 '.done | length > 0' POST /v1/gc --data '{"stopped_for_ms":1}'
    [ "$(bellhop ls -q)" = "" ]
    expect 400 '.field == "stopped_for_ms"' POST /v1/gc --data '{"stopped_for_ms":-1}'
}

@test "snapshots are listed, and what a provider cannot do is refused by name" {
    make_box one
    expect 200 '.snapshots == []' GET /v1/snapshots
    expect 200 '.snapshots == []' GET /v1/boxes/one/snapshots
    expect 404 '.field == "snapshot"' GET /v1/snapshots/none
    expect 404 '.code == "not_found"' DELETE /v1/snapshots/none
    expect 404 '.code == "not_found"' POST /v1/snapshots/none/verify
    expect 501 '.code == "unimplemented"' POST /v1/boxes/one/snapshots --data '{"name":"s"}'
    expect 501 '.code == "unimplemented"' POST /v1/boxes/one/fork --data '{"name":"s"}'
    expect 501 '.code == "unimplemented" and .field == "pool"' POST /v1/boxes \
        --data '{"name":"two","provider":"process","agent":"none","pool":"small"}'
    expect 400 '.field == "snapshot"' POST /v1/boxes/one/restore --data '{}'
    expect 400 '.field == "nam"' POST /v1/boxes/one/snapshots --data '{"nam":"s"}'
}
