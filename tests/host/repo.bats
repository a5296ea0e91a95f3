# `up --repo` of a private repository: a real clone over HTTP with a token, which leaves no trace of the token.
# needs: image network

load ../lib/box

setup()
{
    box_setup
    export BELLHOP_CACHE_DIR=$BOX_TMP/cache
    TOKEN_FILE=$BOX_TMP/token
    printf 'tok_%s\n' "$(head -c 20 /dev/urandom | od -An -tx1 | tr -d ' \n')" >"$TOKEN_FILE"
    chmod 600 "$TOKEN_FILE"
    TOKEN=$(cat "$TOKEN_FILE")
    git init -q "$BOX_TMP/work"
    git -C "$BOX_TMP/work" -c user.name=t -c user.email=t@example.org commit -q --allow-empty -m first
    git clone -q --bare "$BOX_TMP/work" "$BOX_TMP/served/private.git"
    python3 "$BATS_TEST_DIRNAME/../fakes/git_server.py" --root "$BOX_TMP/served" --token-file "$TOKEN_FILE" \
        --ready "$BOX_TMP/port" --seen "$BOX_TMP/seen" >"$BOX_TMP/server.log" 2>&1 3>&- &
    SERVER=$!
    wait_for 10 test -s "$BOX_TMP/port"
    URL=http://127.0.0.1:$(cat "$BOX_TMP/port")/private.git
    # The server is on this machine's loopback: no proxy on the way.
    unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
}
teardown()
{
    kill "$SERVER"
    wait "$SERVER" || true
    box_teardown
}

# Prints every place on this machine that shows the token, except the caller's own file and this test's variables,
# which are not exported.
token_shown()
{
    # Patterns come by a pipe: they would stand in a command line otherwise.
    local patterns

    patterns=$(printf '%s\n%s\n' "$TOKEN" "$(printf 'x-access-token:%s' "$TOKEN" | base64 -w0)")
    grep -rlaF -f <(printf '%s\n' "$patterns") "$BELLHOP_STATE_DIR" "$HOME" "$BELLHOP_CACHE_DIR" \
        2>/dev/null
    grep -laF -f <(printf '%s\n' "$patterns") /tmp/.bellhop-token-* 2>/dev/null
    grep -laF -f <(printf '%s\n' "$patterns") /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null
    # And in the box itself, as its own root sees it: all of its files, also those in its memory.
    if [ -n "${1:-}" ]; then
        printf '%s\n' "$patterns" | bellhop exec -u root "$1" -- sh -c 'cat >/dev/shm/.patterns
            grep -rlaF -f /dev/shm/.patterns --exclude-dir=proc --exclude-dir=sys --exclude=.patterns /
            grep -laF -f /dev/shm/.patterns /proc/[0-9]*/environ /proc/[0-9]*/cmdline
            rm /dev/shm/.patterns' 2>/dev/null
    fi
    return 0
}

# refused OPTION...: up fails because of the repository; its answer is in $BOX_TMP/answer.
refused()
{
    ! bellhop up --name one --provider process --agent none --json "$@" >"$BOX_TMP/answer" 2>"$BOX_TMP/err" ||
        fail "not refused"
    [ "$(jq -r .error.field "$BOX_TMP/answer")" = repo ] || fail "$(cat "$BOX_TMP/answer")"
    [ -z "$(bellhop ls -q)" ]
}

# The clone used the token, and no other process could see it meanwhile.
check_requests()
{
    jq -se 'map(.authorized) | any and (all | not)' "$BOX_TMP/seen" >/dev/null || fail "$(cat "$BOX_TMP/seen")"
    jq -se 'map(.shown[]) | length == 0' "$BOX_TMP/seen" >/dev/null || fail "$(cat "$BOX_TMP/seen")"
}

clone() # NAME [OPTION...]
{
    bellhop up --name "$1" --agent none --repo "$URL" --git-token-file "$TOKEN_FILE" "${@:2}" 2>"$BOX_TMP/err" ||
        fail "$(cat "$BOX_TMP/err" "$BOX_TMP/server.log")"
}

@test "a private repository is cloned in a process box and its token is nowhere afterwards" {
    clone one --provider process >"$BOX_TMP/out"
    [ "$(bellhop exec one -- git log --format=%s)" = first ]
    [ "$(bellhop exec one -- git remote get-url origin)" = "$URL" ]
    check_requests
    run token_shown
    [ -z "$output" ] || fail "$output"
    run grep -F "$TOKEN" "$BOX_TMP/out" "$BOX_TMP/err"
    [ "$status" -eq 1 ]
    # The box itself cannot fetch with it any more, nor after it was stopped and started.
    bellhop stop one
    run bellhop exec one -e GIT_TERMINAL_PROMPT=0 -- git fetch
    [ "$status" -ne 0 ]
    run token_shown
    [ -z "$output" ] || fail "$output"
}

@test "a private repository is cloned in an oci box and its token is nowhere afterwards" {
    clone one --network host >"$BOX_TMP/out"
    [ "$(bellhop exec one -- git log --format=%s)" = first ]
    check_requests
    run token_shown one
    [ -z "$output" ] || fail "$output"
    run grep -F "$TOKEN" "$BOX_TMP/out" "$BOX_TMP/err"
    [ "$status" -eq 1 ]
    # The search itself finds what is there.
    printf '%s' "$TOKEN" | bellhop exec -u root one -- sh -c 'cat >/var/planted'
    run token_shown one
    [[ "$output" == *"/var/planted"* ]]
}

@test "a private repository is not cloned without its token, nor with another one" {
    refused --repo "$URL"
    printf 'wrong_%s\n' "$TOKEN" >"$BOX_TMP/wrong"
    refused --repo "$URL" --git-token-file "$BOX_TMP/wrong"
    run grep -F "$TOKEN" "$BOX_TMP/answer" "$BOX_TMP/err"
    [ "$status" -eq 1 ]
    run token_shown
    [ -z "$output" ] || fail "$output"
    [ "$(jq -s 'map(select(.authorized)) | length' "$BOX_TMP/seen")" -eq 0 ]
}

@test "a password in the URL of a repository is refused: it would stand in command lines" {
    refused --repo "http://user:hunter2@127.0.0.1:1/private.git"
    [ "$(jq -r .error.code "$BOX_TMP/answer")" = invalid_argument ]
    run grep -F hunter2 "$BOX_TMP/answer" "$BOX_TMP/err"
    [ "$status" -eq 1 ]
}
