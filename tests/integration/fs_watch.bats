#!/usr/bin/env bats
# Fs/Watch through HTTP: its events, its beginning and end, slow clients, clients that leave.
# early

load ../lib/agent

setup()
{
    start_agent --workdir / --keepalive 1h # a client that has left is detected without writing to it
    D=$AGENT_DIR/d
    mkdir "$D"
    WATCHERS=()
}
teardown()
{
    local pid

    for pid in "${WATCHERS[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    stop_agents
}

# watch PARAMS [CURL OPTION...]: runs in the background, writes to $OUT; returns after its first line.
watch()
{
    local params=$1

    shift
    OUT=$AGENT_DIR/out${#WATCHERS[@]}
    : >"$OUT"
    curl -sSN -H "Authorization: Bearer $AGENT_TOKEN" -H 'Content-Type: application/json' "$@" \
        --data-binary "$params" "$AGENT_URL/bellhop.v1.Fs/Watch" >"$OUT" 2>/dev/null &
    WATCHER=$!
    WATCHERS+=("$WATCHER")
    has_line() { [ "$(wc -l <"$OUT")" -ge 1 ]; }
    wait_until 10 has_line
}

# told FILTER: waits for an event for which the filter is true.
told()
{
    is_told() { jq -se "any(.[]; .event? | values | $1)" "$OUT"; }
    wait_until 10 is_told "$1" || fail "never told: $1; the last was $(tail -n 5 "$OUT")"
}

n_inotify() { find "/proc/$AGENT_PID/fd" -lname 'anon_inode:inotify' | wc -l; }

@test "watch says that it has started only when every directory is watched, and misses nothing from then on" {
    local round

    mkdir -p "$D"/{a,b,c}/{1,2,3}/{x,y,z}
    for round in 1 2 3 4 5; do
        watch "{\"path\":\"$D\"}"
        touch "$D/c/3/z/f$round"
        head -n 1 "$OUT" | jq -e '.started.directories == 40 and .started.unwatched == []'
        told ".type == \"created\" and .path == \"$D/c/3/z/f$round\" and .directory == false"
    done
}

@test "watch tells of each change with its kind" {
    mkdir "$D/dir"
    echo one >"$D/f"
    watch "{\"path\":\"$D\"}"
    echo two >>"$D/f"
    told '.type == "modified"'
    told ".type == \"written\" and .path == \"$D/f\""
    chmod 600 "$D/f"
    told '.type == "attributes"'
    mv "$D/f" "$D/dir/g"
    told ".type == \"renamed\" and .from == \"$D/f\" and .path == \"$D/dir/g\" and .directory == false"
    mv "$D/dir" "$D/dir2"
    told ".type == \"renamed\" and .from == \"$D/dir\" and .path == \"$D/dir2\" and .directory"
    touch "$D/dir2/new"
    told ".type == \"created\" and .path == \"$D/dir2/new\""
    mv "$D/dir2/g" "$AGENT_DIR/out-of-it"
    told '.type == "removed" and .moved'
    mv "$AGENT_DIR/out-of-it" "$D/back"
    told ".type == \"created\" and .moved and .path == \"$D/back\""
    touch "$D/$(printf 'caf\351\nx')"
    told '.type == "created" and (.path | type) == "object"'
    rm -r "$D/dir2"
    told ".type == \"removed\" and .path == \"$D/dir2\" and .directory"
    rpc Fs/Watch '{"path":"/none/at/all"}' | jq -e '(.error // .) | .code == "not_found" and .field == "path"'
    rpc Fs/Watch "{\"path\":\"$D\",\"exclude\":[\"a{b\"]}" | jq -e '(.error // .) | .code == "invalid_argument" and .field == "exclude"'
    rpc Fs/Watch "{\"path\":\"$D\",\"depth\":1}" | jq -e '(.error // .) | .field == "depth"'
    rpc Fs/Watch '{"path":"/proc"}' | jq -e '(.error // .) | .code == "failed_precondition" and .field == "path"'
}

@test "watch leaves out what is excluded and our own temporary files" {
    mkdir -p "$D/node_modules/x" "$D/src"
    watch "{\"path\":\"$D\",\"exclude\":[\"node_modules\",\"*.o\"]}"
    jq -e '.started.directories == 2' "$OUT"
    touch "$D/node_modules/x/f" "$D/src/a.o"
    mkdir "$D/src/node_modules"
    echo hello | tee "$AGENT_DIR/hostname" >"$AGENT_DIR/hosts"
    agent_curl "/v1/files/$D/src/up" -T "$AGENT_DIR/hostname" -o /dev/null
    tar -C "$AGENT_DIR" -c hostname hosts | agent_curl "/v1/archive?path=$D/src" -T - -o /dev/null
    touch "$D/src/a.c"
    told ".path == \"$D/src/up\""
    told ".path == \"$D/src/hosts\""
    told ".path == \"$D/src/a.c\""
    if grep -E 'node_modules|a\.o|bellhop-tmp|#' "$OUT"; then fail "told of what is hidden"; fi
}

@test "watch ends with a reason when its directory goes" {
    mkdir "$D/x" "$D/y"
    watch "{\"path\":\"$D/x\"}"
    rmdir "$D/x"
    wait_gone "$WATCHER" 10
    [ "$(tail -n 1 "$OUT" | jq -r .end.reason)" = removed ]
    watch "{\"path\":\"$D/y\"}"
    mv "$D/y" "$D/z"
    wait_gone "$WATCHER" 10
    [ "$(tail -n 1 "$OUT" | jq -r .end.reason)" = moved ]
}

@test "watch tells a client that was too slow to look again, and goes on from there" {
    local pid path

    mkfifo "$AGENT_DIR/slow"
    path=$D/$(head -c 200 /dev/zero | tr '\0' n)
    mkdir "$path"
    curl -sSN -H "Authorization: Bearer $AGENT_TOKEN" -H 'Content-Type: application/json' \
        --data-binary "{\"path\":\"$D\"}" "$AGENT_URL/bellhop.v1.Fs/Watch" >"$AGENT_DIR/slow" &
    WATCHERS+=("$!")
    exec 8<"$AGENT_DIR/slow"
    IFS= read -r -t 60 line <&8
    jq -e .started <<<"$line"
    seq -f "$path/%g" 30000 | xargs touch
    seq -f "$path/%g" 30000 | xargs rm
    OUT=$AGENT_DIR/late
    cat <&8 >"$OUT" &
    WATCHERS+=("$!")
    exec 8<&-
    told '.type == "overflow" and (.reason == "slow_client" or .reason == "kernel")'
    touch "$path/after"
    told '.type == "created" and (.path | endswith("/after"))'
}

@test "watch of a client that has gone is given back at once" {
    local i

    [ -r "/proc/$AGENT_PID/fd/0" ] || skip "the agent's descriptors can't be read here"
    mkdir -p "$D"/{1..20}/{1..20}
    for i in 1 2 3 4 5; do
        watch "{\"path\":\"$D\"}"
    done
    [ "$(n_inotify)" = 5 ]
    for i in "${WATCHERS[@]}"; do
        kill "$i"
    done
    is_free() { [ "$(n_inotify)" = 0 ]; }
    wait_until 3 is_free
}

@test "watch that would pass the kernel's limit says which" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    mkdir -p "$D"/{1..10}/{1..10}
    unshare --user --map-root-user sh -c 'echo 50 >/proc/sys/user/max_inotify_watches' ||
        skip "no user namespace with limits of its own"
    stop_agents
    mkdir -p "$D"/{1..10}/{1..10}
    AGENT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-agent-XXXXXX")
    AGENT_DIRS+=("$AGENT_DIR")
    D=$AGENT_DIR/d
    mkdir -p "$D"/{1..10}/{1..10}
    BELLHOPD=$AGENT_DIR/limited
    printf '#!/bin/sh\necho 50 >/proc/sys/user/max_inotify_watches\nexec "%s" "$@"\n' \
        "$BELLHOP_BUILD/bellhopd" >"$AGENT_DIR/inner"
    printf '#!/bin/sh\nexec unshare --user --map-root-user "%s" "$@"\n' "$AGENT_DIR/inner" >"$BELLHOPD"
    chmod +x "$AGENT_DIR/inner" "$BELLHOPD"
    run_agent --listen 127.0.0.1:0 --auth=open
    rpc Fs/Watch "{\"path\":\"$D\"}" |
        jq -e '(.error // .) | .code == "resource_exhausted" and (.message | contains("max_user_watches"))'
    watch "{\"path\":\"$D/1\"}"
    jq -e '.started.directories == 11' "$OUT"
    mkdir -p "$D/1/new"/{1..60}
    told '.type == "unwatched" and .error.code == "resource_exhausted"'
}

@test "watch by a named user sees what he may see" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    chmod 755 "$AGENT_DIR"
    mkdir "$D/ours" "$D/his"
    chmod 700 "$D/ours"
    watch "{\"path\":\"$D\",\"user\":\"nobody\"}"
    jq -e ".started | .unwatched_count == 1 and .unwatched[0].path == \"$D/ours\" and
        .unwatched[0].error.code == \"permission_denied\"" "$OUT"
    touch "$D/ours/secret" "$D/his/f"
    told ".path == \"$D/his/f\""
    if grep secret "$OUT"; then fail "told of what he may not see"; fi
    rpc Fs/Watch "{\"path\":\"$D/ours\",\"user\":\"nobody\"}" | jq -e '(.error // .) | .code == "permission_denied"'
}

@test "an agent with open watches stops when it is asked to" {
    watch "{\"path\":\"$D\"}"
    kill "$AGENT_PID"
    wait_gone "$AGENT_PID" 10
    wait_gone "$WATCHER" 10
}
