#!/usr/bin/env bats
# GET, HEAD and PUT /v1/files through HTTP: bytes, ranges, conditions, users, roots.

load ../lib/agent

setup()
{
    start_agent --workdir /
    D=$AGENT_DIR/d
    mkdir "$D"
}
teardown()
{
    [ -z "${FULL:-}" ] || umount "$FULL" || true
    stop_agents
}

etag_of() { agent_curl "/v1/files/$1" -I | tr -d '\r' | sed -n 's/^ETag: //Ip'; }

@test "files come back byte for byte, also with no byte and with 200 MB" {
    need_mb 700
    local size sum

    for size in 0 1 65536 65537 1000000 209715200; do
        head -c "$size" /dev/urandom >"$AGENT_DIR/in"
        agent_curl "/v1/files/$D/sub/f$size" -T "$AGENT_DIR/in" | jq -e ".bytes == $size and .created"
        cmp "$AGENT_DIR/in" "$D/sub/f$size"
        agent_curl "/v1/files/$D/sub/f$size" -o "$AGENT_DIR/out"
        cmp "$AGENT_DIR/in" "$AGENT_DIR/out"
        sum=$(agent_curl "/v1/files/$D/sub/f$size" -I | tr -d '\r' | sed -n 's/^Content-Length: //Ip')
        [ "$sum" = "$size" ]
        rm "$AGENT_DIR/in" "$AGENT_DIR/out"
    done
}

@test "files by chunked upload have no length beforehand and arrive whole" {
    need_mb 16
    head -c 3000000 /dev/urandom >"$AGENT_DIR/in"
    agent_curl "/v1/files/$D/f" -T - <"$AGENT_DIR/in" | jq -e '.bytes == 3000000'
    cmp "$AGENT_DIR/in" "$D/f"
}

@test "files keep mode and say whether they were made or replaced" {
    [ "$(agent_status "/v1/files/$D/f" -X PUT --data-binary one)" = 201 ]
    [ "$(stat -c %a "$D/f")" = 644 ]
    chmod 755 "$D/f"
    [ "$(agent_status "/v1/files/$D/f" -X PUT --data-binary two)" = 200 ]
    [ "$(stat -c %a "$D/f")" = 755 ]
    agent_status "/v1/files/$D/f?mode=0600" -X PUT --data-binary three
    [ "$(stat -c %a "$D/f")" = 600 ]
    [ "$(cat "$D/f")" = three ]
    ln "$D/f" "$D/g"
    agent_curl "/v1/files/$D/f" -X PUT --data-binary four | jq -e '.in_place'
    [ "$(cat "$D/g")" = four ]
}

@test "file ranges are exact" {
    seq 10000 >"$D/f"
    cmp <(agent_curl "/v1/files/$D/f" -r 0-0) <(head -c 1 "$D/f")
    cmp <(agent_curl "/v1/files/$D/f" -r 100-2099) <(tail -c +101 "$D/f" | head -c 2000)
    cmp <(agent_curl "/v1/files/$D/f" -r 48000-) <(tail -c +48001 "$D/f")
    cmp <(agent_curl "/v1/files/$D/f" -r -10) <(tail -c 10 "$D/f")
    [ "$(agent_status "/v1/files/$D/f" -r 5-9)" = 206 ]
    [ "$(agent_status "/v1/files/$D/f" -r 999999-)" = 416 ]
    : >"$D/empty"
    [ "$(agent_status "/v1/files/$D/empty")" = 200 ]
    [ "$(agent_status "/v1/files/$D/empty" -r 0-0)" = 416 ]
}

@test "file conditions are answered with 412 and the tag that is there" {
    local tag tag2

    echo one >"$D/f"
    tag=$(etag_of "$D/f")
    [ -n "$tag" ]
    [ "$(agent_status "/v1/files/$D/f" -H "If-None-Match: $tag")" = 304 ]
    [ "$(agent_status "/v1/files/$D/f" -X PUT --data-binary x -H 'If-None-Match: *')" = 412 ]
    [ "$(agent_status "/v1/files/$D/f" -X PUT --data-binary x -H 'If-Match: "other"')" = 412 ]
    [ "$(agent_status "/v1/files/$D/none" -X PUT --data-binary x -H 'If-Match: *')" = 412 ]
    [ ! -e "$D/none" ]
    [ "$(cat "$D/f")" = one ]
    tag2=$(agent_curl "/v1/files/$D/f" -X PUT --data-binary x -H 'If-Match: "other"' -D - -o /dev/null |
        tr -d '\r' | sed -n 's/^ETag: //Ip')
    [ "$tag2" = "$tag" ]
    [ "$(agent_status "/v1/files/$D/f" -X PUT --data-binary two -H "If-Match: $tag")" = 200 ]
    [ "$(cat "$D/f")" = two ]
    [ "$(agent_status "/v1/files/$D/f" -X PUT --data-binary three -H "If-Match: $tag")" = 412 ]
    [ "$(agent_status "/v1/files/$D/new" -X PUT --data-binary x -H 'If-None-Match: *')" = 201 ]
}

@test "file updates by If-Match from several clients are never lost" {
    local pids=()

    echo 0 >"$D/n"
    add()
    {
        local done=0 tag value

        while [ "$done" -lt 8 ]; do
            agent_curl "/v1/files/$D/n" -D "$AGENT_DIR/h$1" -o "$AGENT_DIR/v$1" || continue
            tag=$(tr -d '\r' <"$AGENT_DIR/h$1" | sed -n 's/^ETag: //Ip')
            value=$(($(cat "$AGENT_DIR/v$1") + 1))
            [ "$(agent_status "/v1/files/$D/n" -X PUT --data-binary "$value" -H "If-Match: $tag")" = 412 ] ||
                done=$((done + 1))
        done
    }
    for i in 1 2 3 4; do
        add "$i" &
        pids+=("$!")
    done
    wait "${pids[@]}"
    [ "$(cat "$D/n")" = 32 ]
}

@test "file digests are checked" {
    local good

    good=$(printf abc | openssl dgst -sha256 -binary | base64)
    [ "$(agent_status "/v1/files/$D/f" -X PUT --data-binary abd -H "Repr-Digest: sha-256=:$good:")" -ge 400 ]
    [ ! -e "$D/f" ]
    [ "$(agent_status "/v1/files/$D/f" -X PUT --data-binary abc -H "Repr-Digest: sha-256=:$good:")" = 201 ]
}

@test "file errors are typed" {
    mkfifo "$D/fifo"
    mkdir "$D/dir"
    agent_curl "/v1/files/$D/none" | jq -e '.code == "not_found" and .field == "path"'
    agent_curl "/v1/files/$D/dir" -H 'Accept: application/octet-stream' | jq -e '.code == "failed_precondition" and .field == "path"'
    agent_curl "/v1/files/$D/fifo" | jq -e '.code == "failed_precondition"'
    agent_curl "/v1/files/$D/fifo" -X PUT --data-binary x | jq -e '.code == "failed_precondition"'
    agent_curl "/v1/files//dev/null" | jq -e '.code == "failed_precondition"'
    agent_curl "/v1/files/$D/dir" -X PUT --data-binary x | jq -e '.code == "failed_precondition"'
    agent_curl "/v1/files/$D/a/b?parents=false" -X PUT --data-binary x | jq -e '.code == "not_found"'
    agent_curl "/v1/files/$D/f?user=nobody-at-all" | jq -e '.code == "not_found" and .field == "user"'
    # Files with the agent's own names would be invisible to their maker.
    agent_curl "/v1/files/$D/.bellhop-tmp-x" -X PUT --data-binary x | jq -e '.code == "invalid_argument" and .field == "path"'
    rpc Fs/Copy "{\"from\":\"$D/fifo\",\"to\":\"$D/.bellhop-tmp-x\"}" | jq -e '.code == "invalid_argument" and .field == "to"'
    rpc Fs/MakeDir "{\"path\":\"$D/a/.bellhop-tmp-x/b\"}" | jq -e '.code == "invalid_argument" and .field == "path"'
    [ "$(find "$D" -mindepth 1 | wc -l)" = 2 ]
}

@test "files of proc and sys give their content" {
    agent_curl /v1/files//proc/self/status | grep -q '^Name:.*bellhopd'
    [ "$(agent_curl /v1/files//proc/sys/kernel/ostype)" = Linux ]
    cmp <(agent_curl /v1/files//sys/kernel/mm/transparent_hugepage/enabled) \
        /sys/kernel/mm/transparent_hugepage/enabled
    # A file without a size is copied to its end, too.
    rpc Fs/Copy "{\"from\":\"/proc/version\",\"to\":\"$D/version\"}" |
        jq -e --argjson bytes "$(wc -c </proc/version)" '.bytes == $bytes'
    cmp /proc/version "$D/version"
    # And written in place: it can't be replaced.
    sleep 60 &
    agent_curl "/v1/files//proc/$!/oom_score_adj" -X PUT --data-binary 500 | jq -e '.in_place and .created == false'
    [ "$(cat "/proc/$!/oom_score_adj")" = 500 ]
    agent_curl "/v1/files//proc/$!/oom_score_adj" -X PUT --data-binary none | jq -e '.code == "invalid_argument"'
    agent_curl "/v1/files//proc/$!/none" -X PUT --data-binary 500 | jq -e '.code == "not_found"'
    kill $!
}

@test "file names that are not UTF-8 work" {
    agent_curl "/v1/files/$D/caf%E9%0Ax" -X PUT --data-binary latin | jq -e '.path.b64 | length > 0'
    [ "$(cat "$D/$(printf 'caf\351\nx')")" = latin ]
    [ "$(agent_curl "/v1/files/$D/caf%E9%0Ax")" = latin ]
    rpc Fs/List "{\"path\":\"$D\"}" | jq -e '.entries[0].name.b64 == "Y2Fm6Qp4"'
    rpc Fs/Stat "$(rpc Fs/List "{\"path\":\"$D\"}" | jq -c '{path: .entries[0].path}')" |
        jq -e '.size == 5'
}

@test "an upload that is cut leaves the old file and nothing else" {
    need_mb 64
    echo old >"$D/f"
    head -c 20000000 /dev/zero >"$AGENT_DIR/in"
    agent_curl "/v1/files/$D/f" -T "$AGENT_DIR/in" --limit-rate 4M --max-time 1 && fail "was not cut"
    is_alone() { [ "$(ls -A "$D")" = f ]; }
    wait_until 5 is_alone
    [ "$(cat "$D/f")" = old ]
}

@test "a full disk is 507 and leaves nothing" {
    need_mb 16
    [ "$(id -u)" = 0 ] || skip "needs root"
    FULL=$AGENT_DIR/full
    mkdir "$FULL"
    mount -t tmpfs -o size=4m none "$FULL" || { FULL=; skip "can't mount a tmpfs"; }
    head -c 8000000 /dev/urandom >"$AGENT_DIR/in"
    echo old >"$FULL/f"
    [ "$(agent_status "/v1/files/$FULL/f" -T "$AGENT_DIR/in")" = 507 ]
    [ "$(agent_status "/v1/files/$FULL/g" -T - <"$AGENT_DIR/in")" = 507 ]
    [ "$(cat "$FULL/f")" = old ]
    [ "$(ls -A "$FULL")" = f ]
}

@test "files under --root: nothing outside can be reached" {
    local code path

    mkdir -p "$D/in/d"
    echo inside >"$D/in/d/f"
    echo outside >"$D/secret"
    ln -s ../secret "$D/in/up"
    ln -s /etc "$D/in/etc"
    ln -s "$D/in/d/f" "$D/in/within"
    run_agent --listen 127.0.0.1:0 --token-file "$AGENT_DIR/token" --root "$D/in" --workdir "$D/in"
    [ "$(agent_curl "/v1/files/d/f")" = inside ]
    [ "$(agent_curl "/v1/files/$D/in/d/f")" = inside ]
    [ "$(agent_curl "/v1/files/within")" = inside ]
    for path in up etc/passwd "$D/secret" /etc/passwd d/%2e%2e/%2e%2e/secret ..%2fsecret; do
        code=$(agent_curl "/v1/files/$path" --path-as-is | jq -r .code)
        [ "$code" = permission_denied ] || fail "$path: $code"
        code=$(agent_curl "/v1/files/$path" --path-as-is -X PUT --data-binary x | jq -r .code)
        [ "$code" = permission_denied ] || fail "PUT $path: $code"
    done
    [ "$(cat "$D/secret")" = outside ]
}

@test "files as a user belong to him and have his rights" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    chmod 755 "$AGENT_DIR"
    mkdir "$D/his" "$D/ours"
    echo secret >"$D/ours/secret"
    chmod 600 "$D/ours/secret"
    chown nobody: "$D/his"
    agent_curl "/v1/files/$D/his/a/f?user=nobody" -X PUT --data-binary x | jq -e .created
    [ "$(stat -c %U "$D/his/a/f")" = nobody ]
    [ "$(stat -c %U "$D/his/a")" = nobody ]
    agent_curl "/v1/files/$D/ours/secret?user=nobody" | jq -e '.code == "permission_denied"'
    agent_curl "/v1/files/$D/ours/f?user=nobody" -X PUT --data-binary x |
        jq -e '.code == "permission_denied"'
    # The next call runs with the agent's own identity again.
    agent_curl "/v1/files/$D/ours/f" -X PUT --data-binary x | jq -e .created
    [ "$(stat -c %U "$D/ours/f")" = root ]
}

@test "no descriptor is left open by files" {
    local before

    agent_curl "/v1/files/$D/f" -X PUT --data-binary x
    before=$(n_fds)
    for _ in $(seq 20); do
        agent_curl "/v1/files/$D/f" -X PUT --data-binary y -o /dev/null
        agent_curl "/v1/files/$D/f" -o /dev/null
        agent_curl "/v1/files/$D/none" -o /dev/null
        agent_curl "/v1/files/$D" -X PUT --data-binary y -o /dev/null
    done
    is_back() { [ "$(n_fds)" -le "$((before + 2))" ]; }
    wait_until 5 is_back
}
