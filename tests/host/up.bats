# `bellhop up` as a person types it, in a real oci box: what it prints, that it is idempotent, that
# many at once make one box, that ^C and kill -9 anywhere leave nothing that `gc` does not remove.
# needs: image

load ../lib/box
bats_require_minimum_version 1.5.0

setup()
{
    box_setup
    PROJECT=$BOX_TMP/project
    mkdir -p "$PROJECT"
    cd "$PROJECT"
    git init -q .
    git -c user.name=t -c user.email=t@example.org commit -q --allow-empty -m first
    echo hello >hello.txt
    echo secret >.env
    printf 'ignored.txt\n' >.gitignore
    echo no >ignored.txt
}
teardown()
{
    cd /
    box_teardown
}

up() # NAME [OPTION...]
{
    local name=$1

    shift
    bellhop up --name "$name" --agent none "$@" "$PROJECT"
}

@test "up prints the box and the five next commands" {
    run up one
    [ "$status" -eq 0 ]
    [[ "$output" == *"The box 'one' is ready."* ]]
    [ "$(grep -c '^  bellhop ' <<<"$output")" -eq 5 ]
}

@test "up --json is one document with the documented fields" {
    up one --json >"$BOX_TMP/out"
    [ "$(jq -s length "$BOX_TMP/out")" -eq 1 ]
    [ "$(jq -r .name "$BOX_TMP/out")" = one ]
    [ "$(jq -r .provider "$BOX_TMP/out")" = oci ]
    [ "$(jq -r .state "$BOX_TMP/out")" = running ]
    [ "$(jq -r .agent.name "$BOX_TMP/out")" = none ]
    jq -e '.id and (.guest | has("url") and has("socket"))' "$BOX_TMP/out"
}

@test "the project arrives as it is on the disk, without ignored files and secrets" {
    up one >/dev/null
    [ "$(bellhop exec one -- cat hello.txt)" = hello ]
    run bellhop exec one -- ls -A
    [[ "$output" == *".git"* ]]
    [[ "$output" != *"ignored.txt"* ]]
    ! grep -qx '.env' <<<"$output" || false
    [ "$(bellhop exec one -- git status --porcelain)" = "$(git status --porcelain | grep -v .env)" ]
}

@test "up again answers at once with the same box" {
    id=$(up one --json | jq -r .id)
    start=$(date +%s%N)
    [ "$(up one --json | jq -r .id)" = "$id" ]
    [ $((($(date +%s%N) - start) / 1000000)) -lt 60000 ]
}

@test "twenty ups at once make one box" {
    for i in $(seq 20); do
        up one --json >"$BOX_TMP/up.$i" 2>"$BOX_TMP/up.$i.err" 3>&- &
    done
    wait
    cat "$BOX_TMP"/up.*.err >&2
    [ "$(cat "$BOX_TMP"/up.[0-9] "$BOX_TMP"/up.[0-9][0-9] | jq -r .id | sort -u | wc -l)" -eq 1 ]
    [ "$(cat "$BOX_TMP"/up.[0-9] "$BOX_TMP"/up.[0-9][0-9] | jq -r .id | wc -l)" -eq 20 ]
    [ "$(bellhop ls -q | wc -l)" -eq 1 ]
}

@test "rm leaves no process, mount, cgroup, socket or directory" {
    up one >/dev/null
    remember_box one
    bellhop exec one -d -- sleep 1000 >/dev/null
    bellhop url one --port 8080 >/dev/null
    [ -n "$(traces)" ]
    bellhop rm one
    wait_for 10 no_traces
    run bellhop status one
    [ "$status" -eq 3 ]
    [ -z "$(find "$BELLHOP_STATE_DIR" -name '*.sock')" ]
}

@test "an oci box is undone whatever step fails, and the first error is the one reported" {
    recipe='{"name":"mine","description":"d","version":"1","port":8123,"start":{"argv":["sleep","600"],"mode":"server"},
        "health":{"http":{"path":"/h","expect":{}},"total_ms":120000}}'
    while IFS='|' read -r step change; do
        jq "$change" <<<"$recipe" >"$BOX_TMP/mine.json"
        run --separate-stderr bellhop up --name one --agent "$BOX_TMP/mine.json" --json "$PROJECT"
        [ "$status" -ne 0 ] || fail "$step did not fail"
        [ "$(jq -r .error.step <<<"$output")" = "$step" ] || fail "$step: $output"
        [ -z "$(bellhop ls -q)" ]
        [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ]
        wait_for 10 no_traces || fail "$step: $(traces)"
    done <<'STEPS'
install|.install.commands = [["false"]]
start|.start.argv = ["no-such-program"]
health|.start.argv = ["false"]
STEPS
    run --separate-stderr bellhop up --name one --agent none --repo "file:///nowhere" --json
    [ "$(jq -r .error.step <<<"$output")" = clone ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ]
    wait_for 10 no_traces || fail "$(traces)"
}

@test "an interrupt during up ends it with status 130 and leaves nothing" {
    for delay in 0.05 0.15 0.3 0.6 1.0; do
        # exec, so that the signal reaches bellhop itself.
        (exec "$BELLHOP" up --name one --agent none "$PROJECT" 3>&-) >"$BOX_TMP/log" 2>&1 &
        pid=$!
        read -r -t "$delay" <> <(:) || true
        kill -INT "$pid" 2>/dev/null || true
        status=0
        wait "$pid" || status=$?
        if [ "$status" -eq 0 ]; then # it was faster
            bellhop rm one
        else
            cat "$BOX_TMP/log"
            [ "$status" -eq 130 ]
        fi
        [ -z "$(bellhop ls -q)" ]
        wait_for 10 no_traces
    done
}

@test "kill -9 of up anywhere leaves what gc removes" {
    for delay in 0.03 0.1 0.2 0.4 0.7 1.0; do
        (exec "$BELLHOP" up --name one --agent none "$PROJECT" 3>&-) >/dev/null 2>&1 &
        pid=$!
        read -r -t "$delay" <> <(:) || true
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        bellhop gc >/dev/null
        state=$(bellhop ls --json | jq -r '.boxes[0].state // "none"')
        [ "$state" = none ] || [ "$state" = running ]
        [ "$state" = none ] || bellhop rm one
        wait_for 10 no_traces
    done
}

@test "an up after a killed up makes the box" {
    (exec "$BELLHOP" up --name one --agent none "$PROJECT" 3>&-) >/dev/null 2>&1 &
    pid=$!
    read -r -t 0.3 <> <(:) || true
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    up one >/dev/null
    [ "$(bellhop exec one -- cat hello.txt)" = hello ]
}

@test "each process of a box can be killed and gc or rm leaves no trace" {
    up one >/dev/null
    remember_box one
    n=$(traces | grep -c '^process ')
    [ "$n" -ge 1 ]
    for i in $(seq "$n"); do
        pid=$(traces | sed -n 's/^process \([0-9]*\):.*/\1/p' | sed -n "${i}p")
        [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
        bellhop gc >/dev/null
        bellhop rm -f one
        wait_for 10 no_traces
        up one >/dev/null
        remember_box one
    done
}

@test "a stopped box keeps its disk and starts again by itself" {
    up one >/dev/null
    bellhop exec one -- sh -c 'echo kept >kept.txt'
    bellhop stop one
    [ "$(bellhop ls --json | jq -r '.boxes[0].state')" = stopped ]
    run bellhop exec one --no-resume -- true
    [ "$status" -ne 0 ]
    [ "$(bellhop exec one -- cat kept.txt)" = kept ]
}

@test "put, get, glob and grep work on a box" {
    up one >/dev/null
    mkdir -p "$BOX_TMP/in/deep"
    head -c 300000 /dev/urandom >"$BOX_TMP/in/deep/blob"
    echo 'find the needle here' >"$BOX_TMP/in/hay.txt"
    bellhop put one "$BOX_TMP/in" :/workspace
    bellhop get one :/workspace/in "$BOX_TMP/out"
    cmp "$BOX_TMP/in/deep/blob" "$BOX_TMP/out/in/deep/blob"
    run bellhop grep one needle
    [ "$status" -eq 0 ]
    [[ "$output" == *"in/hay.txt:1:find the needle here" ]]
    run bellhop grep one no-such-needle
    [ "$status" -eq 1 ]
    run bellhop glob one '**/*.txt' --sort path
    [[ "$output" == *"hello.txt"* ]]
}

@test "exec passes input, output, errors and the exit status exactly" {
    up one >/dev/null
    head -c 1000000 /dev/urandom >"$BOX_TMP/data"
    bellhop exec one -- cat <"$BOX_TMP/data" >"$BOX_TMP/back"
    cmp "$BOX_TMP/data" "$BOX_TMP/back"
    run bellhop exec one -- sh -c 'exit 42'
    [ "$status" -eq 42 ]
    run -127 bellhop exec one -- no-such-command
    [ "$status" -eq 127 ]
    run bellhop exec one --timeout 300ms -- sleep 60
    [ "$status" -eq 124 ]
    run bellhop exec one -- sh -c 'kill -TERM $$'
    [ "$status" -eq 143 ]
    [ "$(bellhop exec one -- sh -c 'echo err >&2' 2>&1 >/dev/null)" = err ]
}

@test "a server in the box answers on a loopback URL" {
    up one --network none >/dev/null
    bellhop exec one -d -- node -e 'require("http").createServer((q, s) => s.end("from the box")).listen(8080, "127.0.0.1")'
    url=$(bellhop url one --port 8080)
    [[ "$url" == http://127.0.0.1:* ]]
    wait_for 10 curl -fsS --max-time 2 "$url"
    [ "$(curl -fsS --max-time 60 "$url")" = "from the box" ]
}

@test "a secret is a file 0600 of the box's user and stands in no argument, log or store" {
    export DEPLOY_KEY=s3cr3t-$RANDOM-value
    up one --secret DEPLOY_KEY >/dev/null
    [ "$(bellhop exec one -- cat /run/secrets/DEPLOY_KEY)" = "$DEPLOY_KEY" ]
    [ "$(bellhop exec one -- stat -c '%a %U' /run/secrets/DEPLOY_KEY)" = "600 user" ]
    ! bellhop exec one -- env | grep -qF "$DEPLOY_KEY" || false
    ! grep -lF "$DEPLOY_KEY" /proc/[0-9]*/cmdline || false
    ! bellhop status one --json | grep -F "$DEPLOY_KEY" || false
    ! grep -aqF "$DEPLOY_KEY" "$BELLHOP_STATE_DIR"/*.db* || false
    ! grep -rlF "$DEPLOY_KEY" "$BELLHOP_STATE_DIR"/boxes/*/*.log || false
    bellhop stop one
    [ "$(bellhop exec one -- cat /run/secrets/DEPLOY_KEY)" = "$DEPLOY_KEY" ]
}

@test "variables reach the box exactly, whatever is in them" {
    export ODD=$'a b $(touch /tmp/x) `id` "q" \'s\' \nline'
    printf 'FROM_FILE=x=y z\n# a comment\n\n' >"$BOX_TMP/env"
    up one -e ODD -e 'PLAIN=1' --env-file "$BOX_TMP/env" >/dev/null
    [ "$(bellhop exec one -- sh -c 'printf "%s|%s|%s" "$ODD" "$PLAIN" "$FROM_FILE"')" = "$ODD|1|x=y z" ]
}

@test "a certificate authority of the host's own is trusted in the box" {
    command -v openssl >/dev/null || skip "openssl is not installed"
    openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=bellhop-test -keyout "$BOX_TMP/key" \
        -out "$BOX_TMP/ca.crt" 2>/dev/null
    SSL_CERT_FILE=$BOX_TMP/ca.crt up one >/dev/null
    line=$(sed -n 2p "$BOX_TMP/ca.crt")
    bellhop exec one -- sh -c "grep -qF '$line' \"\$SSL_CERT_FILE\""
}

@test "make run puts a project of any name into a box, also a second of that name" {
    for dir in "$BOX_TMP/one/My_App.v2" "$BOX_TMP/two/My_App.v2"; do
        mkdir -p "$dir"
        echo "$dir" >"$dir/file"
        PROJECT=$dir AGENT=none sh "$BATS_TEST_DIRNAME/../../scripts/run.sh" >>"$BOX_TMP/out"
    done
    grep -qF "The box 'my-app-v2' is ready." "$BOX_TMP/out"
    second=$(bellhop ls -q | grep -x 'my-app-v2-[0-9a-f]*')
    [ "$(bellhop exec "$second" -- cat file)" = "$BOX_TMP/two/My_App.v2" ]
    PROJECT=$BOX_TMP/one/My_App.v2 NAME=other AGENT=none sh "$BATS_TEST_DIRNAME/../../scripts/run.sh"
    [ "$(bellhop exec other -- cat file)" = "$BOX_TMP/one/My_App.v2" ]
}
