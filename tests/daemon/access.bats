#!/usr/bin/env bats
# Tokens, scopes and owners over TCP. The owner of the unix socket may do everything.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    daemon_start --listen 127.0.0.1:0
    URL=http://$(jq -r '.tcp[0]' <<<"$DAEMON_READY")
}

teardown()
{
    [ -z "${FOLLOW_PID:-}" ] || kill "$FOLLOW_PID" 2>/dev/null || true
    [ -z "${WEB_PID:-}" ] || { kill "$WEB_PID" && wait "$WEB_PID"; } 2>/dev/null || true
    daemon_stop
    box_teardown
}

token() # SCOPE [OPTION...]: prints it
{
    local scope=$1

    shift
    bellhop token create -q --scope "$scope" "$@"
}

# call TOKEN METHOD PATH [CURL OPTION...]: prints the body; CALL_STATUS gets the status.
call()
{
    local token=$1 method=$2 path=$3

    shift 3
    CALL_STATUS=$(curl -sS --max-time 20 -X "$method" -o "$BOX_TMP/answer" -w '%{http_code}' \
        ${token:+-H "Authorization: Bearer $token"} "$@" "$URL$path")
    cat "$BOX_TMP/answer"
}

# The status alone; of a stream too, which has no end.
status_of() # TOKEN METHOD PATH
{
    curl -sS --max-time 0.7 -X "$2" -o /dev/null -w '%{http_code}' ${1:+-H "Authorization: Bearer $1"} \
        -H 'Content-Type: application/json' --data '{"no_such_field":1}' "$URL$3" 2>/dev/null || true
}

knows() # TOKEN
{
    [ "$(status_of "$1" GET /v1/info)" = 200 ]
}

forgets() # TOKEN
{
    [ "$(status_of "$1" GET /v1/info)" = 401 ]
}

make_box() # NAME [OPTION...]
{
    local name=$1

    shift
    mkdir -p "$BOX_TMP/$name"
    bellhop up --provider process --agent none --name "$name" "$@" "$BOX_TMP/$name" >/dev/null 2>&1
}

# VERB PATH SCOPE FLAGS of each row of routes.def that needs a token; variables are of nothing that is there.
rows()
{
    routes=$BATS_TEST_DIRNAME/../../host-client/daemon/routes.def
    sed -n -E 's/^G\(([^,]*), "([^"]*)", [^,]*, ([^,]*), .*/\1;\2;USE;\3/p' "$routes" | as_rows
    sed -n -E 's/^[RJQ]\(([^,]*), "([^"]*)", ([A-Z]+), [a-z_]+, (NULL, )?([^,]*), .*/\1;\2;\3;\5/p' \
        "$routes" | grep -v ';OPEN;' | as_rows
}

as_rows()
{
    sed -E 's/ \| VERB_/|/g; s/\{[^}]*\}/none/g' | while IFS=';' read -r verbs path scope flags; do
        for verb in $(tr '|' ' ' <<<"$verbs"); do
            [ "$verb" = ANY ] && verb=GET
            echo "$verb $path $scope ${flags// /}"
        done
    done
}

@test "each route takes the tokens of its scope and those above, and no other" {
    read_token=$(token read) use_token=$(token use) admin_token=$(token admin)
    expired=$(token admin --expires 1s) revoked=$(token admin --name gone) ann=$(token use --owner ann)
    wait_for 10 knows "$revoked"
    bellhop token revoke gone
    wait_for 10 forgets "$revoked"
    wait_for 10 forgets "$expired"
    wait_for 10 knows "$ann"
    rows >"$BOX_TMP/rows"
    [ "$(wc -l <"$BOX_TMP/rows")" -ge 11 ]
    while read -r verb path scope flags; do
        [ "$verb" != HEAD ] || continue # it is GET, without a body to look at
        case "$flags" in *ROUTE_SIGNED*) continue ;; esac
        for who in '' "bh_$(printf '0%.0s' $(seq 64))" "$expired" "$revoked"; do
            echo "$verb $path with '$who'"
            [ "$(status_of "$who" "$verb" "$path")" = 401 ]
        done
        level=$(case "$scope" in READ) echo 1 ;; USE) echo 2 ;; *) echo 3 ;; esac)
        i=0
        for who in "$read_token" "$use_token" "$admin_token"; do
            i=$((i + 1))
            got=$(status_of "$who" "$verb" "$path")
            echo "$verb $path, scope $scope, with token $i: $got"
            if [ "$i" -lt "$level" ]; then
                [ "$got" = 403 ]
            else
                [ "$got" != 401 ]
                [ "$got" != 403 ]
            fi
        done
        got=$(status_of "$ann" "$verb" "$path")
        echo "$verb $path, scope $scope, flags $flags, with an owner's token: $got"
        case "$scope $flags $path" in
        ADMIN*) [ "$got" = 403 ] ;;
        *ROUTE_OWNED* | *" /v1/boxes/none"* | *" /sandboxes/none"*) [ "$got" != 401 ] && [ "$got" != 403 ] ;;
        *) [ "$got" = 403 ] ;;
        esac
    done <"$BOX_TMP/rows"
}

@test "an error of a token is typed, and names what is missing" {
    call '' GET /v1/boxes | jq -e '.code == "unauthenticated"'
    curl -sS -o /dev/null -D - "$URL/v1/boxes" | grep -qi '^www-authenticate: Bearer'
    read_token=$(token read)
    wait_for 10 knows "$read_token"
    call "$read_token" POST /v1/boxes/x/stop | jq -e '.code == "permission_denied" and .field == "scope"'
    # The other ways to give a token.
    curl -sS -H "X-Access-Token: $read_token" "$URL/v1/boxes" | jq -e '.boxes == []'
    curl -sS -H "Sec-WebSocket-Protocol: x, bellhop.token.$read_token" "$URL/v1/boxes" | jq -e '.boxes == []'
}

@test "an owner's token sees the boxes of its owner alone, by name and by id, in lists and in events" {
    make_box anns --label owner=ann
    make_box bobs --label owner=bob
    make_box nobodys
    bob_id=$(bellhop status bobs --json | jq -r .id)
    ann=$(token use --owner ann) all=$(token use)
    wait_for 10 knows "$all"
    call "$all" GET /v1/boxes | jq -e '[.boxes[].name] == ["anns", "bobs", "nobodys"]'
    call "$ann" GET /v1/boxes | jq -e '[.boxes[].name] == ["anns"]'
    call "$ann" GET /v1/boxes/anns | jq -e '.name == "anns"'
    for box in bobs "$bob_id" nobodys; do
        for path in "/v1/boxes/$box" "/v1/boxes/$box/events" "/v1/boxes/$box/history"; do
            call "$ann" GET "$path" | jq -e '.code == "not_found"'
        done
        call "$ann" POST "/v1/boxes/$box/stop" | jq -e '.code == "not_found"'
        call "$ann" POST "/v1/boxes/$box/rpc/Exec/Run" --data '{"argv":["true"]}' | jq -e '.code == "not_found"'
        call "$ann" GET "/v1/boxes/$box/files/x" | jq -e '.code == "not_found"'
        call "$ann" GET "/v1/boxes/$box/terminal" -H 'Connection: Upgrade' -H 'Upgrade: websocket' \
            -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==' |
            jq -e '.code == "not_found"'
    done
    call "$ann" POST /v1/boxes/anns/rpc/Exec/Run -H 'Content-Type: application/json' --data '{"argv":["true"]}' | jq -e '.exit.code == 0'
    [ "$(bellhop status bobs --json | jq -r .state)" = running ]
    # A name of another owner cannot be taken, nor another owner be claimed.
    call "$ann" POST /v1/boxes --data '{"name":"bobs"}' | jq -e '.code == "already_exists" and .field == "name"'
    call "$ann" POST /v1/boxes --data '{"name":"new","labels":{"owner":"bob"}}' |
        jq -e '.code == "permission_denied" and .field == "labels"'
    # Events: of the owner's boxes, live and from the store.
    curl -sS -N -H "Authorization: Bearer $ann" "$URL/v1/events" >"$BOX_TMP/events" 2>/dev/null &
    FOLLOW_PID=$!
    wait_for 10 grep -q '^event: box' "$BOX_TMP/events"
    bellhop stop bobs anns
    wait_for 10 grep -q '"after":"stopped"' "$BOX_TMP/events"
    run ! grep -q bobs "$BOX_TMP/events"
    run ! grep -q "$bob_id" "$BOX_TMP/events"
    kill "$FOLLOW_PID"
    curl -sS -N --max-time 2 -H "Authorization: Bearer $ann" -H 'Last-Event-ID: 0' "$URL/v1/events" \
        >"$BOX_TMP/replay" 2>/dev/null || true
    grep -q '"after":"stopped"' "$BOX_TMP/replay"
    run ! grep -q "$bob_id" "$BOX_TMP/replay"
    # One that is destroyed stays another's.
    bellhop rm bobs
    call "$ann" GET "/v1/boxes/$bob_id" >"$BOX_TMP/gone"
    jq -e '.code == "not_found" and (has("detail") | not)' "$BOX_TMP/gone"
}

# open_streams TOKEN: all kinds of streams; false if the token has ended before they were open.
open_streams()
{
    wait_for 10 knows "$1" || return 1
    python3 "$BATS_TEST_DIRNAME/../lib/open_streams.py" "${URL#http://}" "$1" "$WEB_PORT" >"$BOX_TMP/streams" 3>&- &
    FOLLOW_PID=$!
    opened() { grep -q open "$BOX_TMP/streams" || ! kill -0 "$FOLLOW_PID" 2>/dev/null; }
    wait_for 30 opened
    grep -q open "$BOX_TMP/streams"
}

# streams_ended WORDS: each has ended by itself, and says why where it can.
streams_ended()
{
    wait "$FOLLOW_PID"
    FOLLOW_PID=
    cat "$BOX_TMP/streams"
    for stream in all events; do
        grep -q "^$stream event: error data: {.*\"code\":\"unauthenticated\".*\"message\":\"$1\".* end$" "$BOX_TMP/streams"
    done
    grep -q '^terminal closed 1008 the token was revoked or has expired$' "$BOX_TMP/streams"
    grep -q '^command cut$' "$BOX_TMP/streams"
    # Through the gateway: with a close frame where no other frame has begun, else cut.
    grep -q '^frames closed 1008 access has ended$' "$BOX_TMP/streams"
    for stream in socket head size payload closed masked; do
        grep -q "^$stream cut$" "$BOX_TMP/streams"
    done
}

@test "a token that is revoked or expires ends the streams that it has opened, and no other's" {
    make_box one
    python3 "$BATS_TEST_DIRNAME/../lib/web_server.py" >"$BOX_TMP/port" 2>/dev/null 3>&- &
    WEB_PID=$!
    wait_for 10 test -s "$BOX_TMP/port"
    WEB_PORT=$(cat "$BOX_TMP/port")
    other=$(token use)
    wait_for 10 knows "$other"
    curl -sS -N -H "Authorization: Bearer $other" "$URL/v1/events" >"$BOX_TMP/others" 2>/dev/null 3>&- &
    other_pid=$!
    open_streams "$(token use --name gone)"
    bellhop token revoke gone
    streams_ended 'the token was revoked'
    for seconds in 2 5 15 45; do # a slow machine needs some for the start
        open_streams "$(token use --expires "${seconds}s")" && break
    done
    streams_ended 'the token has expired'
    bellhop stop one
    wait_for 10 grep -q '"after":"stopped"' "$BOX_TMP/others"
    kill "$other_pid"
    ! grep -q error "$BOX_TMP/others"
}

@test "tokens are listed without their text, of which the store has the hash alone" {
    text=$(token use --name laptop --owner ann --expires 30d)
    [[ "$text" =~ ^bh_[0-9a-f]{64}$ ]]
    bellhop token ls --json | jq -e '.tokens | length == 1 and .[0].name == "laptop" and .[0].owner == "ann" and
        .[0].scope == "use" and .[0].expires_ms > .[0].created_ms and .[0].used_ms == 0'
    run ! grep -rqF "${text#bh_}" "$BELLHOP_STATE_DIR"
    wait_for 10 knows "$text"
    used() { bellhop token ls --json | jq -e '.tokens[0].used_ms > 0' >/dev/null; }
    wait_for 10 used
    bellhop token ls | grep -q laptop
    id=$(bellhop token ls --json | jq -r '.tokens[0].id')
    bellhop token revoke "$id"
    wait_for 10 forgets "$text"
    run bellhop token revoke "$id"
    [ "$status" -eq 3 ]
}

@test "a token of an owner has not the rights of an administrator, whatever its row says" {
    ann=$(token use --name anns --owner ann)
    sqlite3 "$BELLHOP_STATE_DIR/store.db" "UPDATE tokens SET scope = 3 WHERE name = 'anns'"
    wait_for 10 knows "$ann"
    for body in '"project":"/etc"' '"agent_config":"/etc"' '"git_token_file":"/etc/passwd"' '"agent":"/etc/passwd"' \
        '"image":"/etc"' '"image":"host"' '"network":"host"' '"provider":"process"' '"allow_missing":["memory"]'; do
        call "$ann" POST /v1/boxes --data "{\"name\":\"x\",$body}" | jq -e '.code == "permission_denied"'
    done
    call "$ann" DELETE /v1/boxes/none | jq -e '.code == "permission_denied" and .field == "scope"'
    call "$ann" GET /v1/config | jq -e '.code == "permission_denied"'
}

@test "wrong options of tokens are named" {
    run bellhop token create
    [ "$status" -eq 2 ]
    [[ "$output" = *"which rights? --scope read, --scope use or --scope admin"* ]]
    run bellhop token create --scope root
    [ "$status" -eq 2 ]
    [[ "$output" = *"scope: 'root' is not one of 'read', 'use' and 'admin'"* ]]
    run bellhop token create --scope admin --owner ann
    [ "$status" -eq 2 ]
    [[ "$output" = *"owner: an admin token is of all boxes, not of an owner"* ]]
    run bellhop token create --scope use --owner 'a b'
    [ "$status" -eq 2 ]
    [[ "$output" = *"owner: 'a b' is not 1 to 64 letters"* ]]
    run bellhop token frobnicate
    [ "$status" -eq 2 ]
}

@test "a browser is answered at known names alone, so that a name that leads elsewhere shows no page" {
    all=$(token read)
    wait_for 10 knows "$all"
    for host in evil.example evil.example:7070 localhost.evil.example; do
        call "$all" GET /v1/boxes -H "Host: $host" -H 'Sec-Fetch-Site: same-origin' |
            jq -e '.code == "permission_denied" and .field == "Host"'
    done
    call "$all" GET /v1/boxes -H 'Host: localhost:1' -H 'Sec-Fetch-Site: same-origin' | jq -e .boxes
    # A page of another site has no token: the browser sends none by itself.
    call '' GET /v1/boxes -H 'Origin: http://evil.example' | jq -e '.code == "unauthenticated"'
    daemon_stop
    daemon_start --listen 127.0.0.1:0 --domain bellhop.example
    URL=http://$(jq -r '.tcp[0]' <<<"$DAEMON_READY")
    call "$all" GET /v1/boxes -H 'Host: bellhop.example' -H 'Sec-Fetch-Site: same-origin' | jq -e .boxes
}

@test "the socket, led to a port of a person's browser, is closed to the pages of others" {
    # A page whose name was led to that port (DNS rebinding) sends neither header with a GET.
    for host in evil.example evil.example.:7070 127.0.0.1.evil.example; do
        for path in /v1/boxes / /v1/health; do
            expect 403 '.code == "permission_denied" and .field == "Host"' GET "$path" -H "Host: $host"
        done
        expect 403 '.field == "Host"' POST /v1/boxes -H "Host: $host" -H "Origin: http://$host" --data '{}'
    done
    expect 403 '.field == "Host"' GET /v1/boxes -H 'Host: bellhop' -H 'Origin: http://bellhop'
    for origin in http://evil.example http://127.0.0.1:7071 null; do
        expect 403 '.code == "permission_denied"' GET /v1/boxes -H 'Host: 127.0.0.1:7070' -H "Origin: $origin"
        expect 403 '.code == "permission_denied"' POST /v1/boxes -H 'Host: 127.0.0.1:7070' -H "Origin: $origin" --data '{}'
    done
    expect 403 .field GET /v1/boxes -H 'Host: localhost:7070' -H 'Sec-Fetch-Site: same-site'
    # Its own page, and programs.
    for host in 127.0.0.1:7070 127.0.0.1.:7070 localhost:7070 localhost.:7070 '[::1]:7070'; do
        expect 200 .boxes GET /v1/boxes -H "Host: $host" -H "Origin: http://$host" -H 'Sec-Fetch-Site: same-origin'
    done
    for host in bellhop x localhost; do
        expect 200 .boxes GET /v1/boxes -H "Host: $host"
    done
}

# Prints "ready", and ends once somebody has opened the file.
wait_for_open() # FILE
{
    python3 -c 'import ctypes, os, sys
libc = ctypes.CDLL(None)
fd = libc.inotify_init()
assert libc.inotify_add_watch(fd, sys.argv[1].encode(), 0x20) > 0
print("ready", flush=True)
os.read(fd, 4096)' "$1"
}

@test "a name that goes to another owner between the check and the lock is taken" {
    ann=$(token use --owner ann)
    make_box bobs --label owner=bob
    wait_for 10 knows "$ann"
    exec 8>>"$BELLHOP_STATE_DIR/locks/wanted"
    for query in '' '?wait=false'; do
        # The lock is held, as by another command. Who tries it is past the first check.
        flock 8
        : >"$BOX_TMP/ready"
        wait_for_open "$BELLHOP_STATE_DIR/locks/wanted" >"$BOX_TMP/ready" 8>&- 3>&- &
        open_pid=$!
        wait_for 10 grep -q ready "$BOX_TMP/ready"
        call "$ann" POST "/v1/boxes$query" --data '{"name":"wanted"}' 8>&- >"$BOX_TMP/taken" 3>&- &
        FOLLOW_PID=$!
        wait "$open_pid"
        sqlite3 "$BELLHOP_STATE_DIR/store.db" "UPDATE boxes SET name = 'wanted' WHERE name = 'bobs'"
        flock -u 8
        wait "$FOLLOW_PID"
        FOLLOW_PID=
        jq -e '.code == "already_exists" and .field == "name"' "$BOX_TMP/taken"
        sqlite3 "$BELLHOP_STATE_DIR/store.db" "UPDATE boxes SET name = 'bobs' WHERE name = 'wanted'"
    done
    exec 8>&-
    [ "$(bellhop ls -q)" = bobs ]
    rm -f "$BELLHOP_STATE_DIR/locks/wanted"
}

@test "an owner's quota bounds the boxes, before anything is made" {
    bellhop quota set ann --boxes 1
    make_box first --label owner=ann
    run bellhop up --provider process --agent none --name second --label owner=ann
    [ "$status" -eq 8 ]
    [[ "$output" = *"boxes: the boxes of 'ann' use 1 of 1, no room for 1 more"* ]]
    [ "$(bellhop ls -q)" = first ]
    [ "$(bellhop ls --all --json | jq '[.records[]?] | length')" = 0 ]
    make_box third --label owner=bob
    bellhop quota set ann --boxes 5 --memory 1G
    run bellhop up --provider process --agent none --name second --label owner=ann
    [ "$status" -eq 8 ]
    [[ "$output" = *"memory: the quota of 'ann' bounds it: the box needs a limit"* ]]
    bellhop quota ls --json | jq -e '.quotas == [{"owner":"ann","boxes":5,"cpu_millis":0,
        "memory_bytes":1073741824,"disk_bytes":0}]'
    bellhop quota set ann
    [ "$(bellhop quota ls --json | jq '.quotas | length')" = 0 ]
    make_box second --label owner=ann
}

@test "tokens and quotas are made, listed and ended over HTTP as by the commands, by an admin of the whole daemon" {
    admin=$(token admin) ann=$(token use --owner ann)
    wait_for 10 knows "$ann"
    call "$admin" POST /v1/tokens --data '{"scope":"use","owner":"bob","name":"bobs","for_ms":60000}' >"$BOX_TMP/made"
    [ "$CALL_STATUS" = 201 ]
    jq -e '.scope == "use" and .owner == "bob" and .expires_ms - .created_ms == 60000 and (.token | test("^bh_[0-9a-f]{64}$"))' "$BOX_TMP/made"
    text=$(jq -r .token "$BOX_TMP/made")
    # It is known at once, and its text is told once.
    knows "$text"
    # The time of a token's last use is stored a moment later.
    is_list_of_command() { call "$admin" GET /v1/tokens >"$BOX_TMP/list" && diff <(jq -S . "$BOX_TMP/list") <(bellhop token ls --json | jq -S .); }
    wait_for 10 is_list_of_command
    jq -e '[.tokens[].name] == ["", "", "bobs"] and all(.tokens[]; has("token") | not)' "$BOX_TMP/list"
    run ! grep -rqF "${text#bh_}" "$BELLHOP_STATE_DIR"
    # Everybody is told the rights that its own token gives.
    call "$ann" GET /v1/access | jq -e --slurpfile list "$BOX_TMP/list" \
        '. == {scope: "use", token: $list[0].tokens[1].id, name: "", owner: "ann"}'
    call "$admin" GET /v1/access | jq -e '.scope == "admin" and .owner == ""'
    ask GET /v1/access | jq -e '. == {scope: "admin", token: "", name: "", owner: ""}'
    call "$ann" GET /v1/tokens | jq -e '.code == "permission_denied"'
    call "$ann" POST /v1/tokens --data '{"scope":"read"}' | jq -e '.code == "permission_denied"'
    call "$admin" DELETE /v1/tokens/bobs
    [ "$CALL_STATUS" = 204 ]
    forgets "$text"
    call "$admin" DELETE /v1/tokens/bobs | jq -e '.code == "not_found" and .field == "token"'
    while IFS=';' read -r body field; do
        echo "$body"
        call "$admin" POST /v1/tokens --data "$body" | jq -e --arg f "$field" '.code == "invalid_argument" and .field == $f'
    done <<'WRONG'
{};scope
{"scope":"root"};scope
{"scope":"admin","owner":"ann"};owner
{"scope":"use","owner":"a b"};owner
{"scope":"use","name":""};name
{"scope":"use","for_ms":-1};for_ms
{"scope":"use","for_ms":9223372036854775807};for_ms
{"scope":"use","expires":"30d"};expires
WRONG
    call "$admin" PUT /v1/quotas/ann --data '{"boxes":3,"memory_bytes":1073741824}' |
        jq -e '. == {"owner":"ann","boxes":3,"cpu_millis":0,"memory_bytes":1073741824,"disk_bytes":0}'
    diff <(call "$admin" GET /v1/quotas | jq -S .) <(bellhop quota ls --json | jq -S .)
    call "$admin" GET /v1/quotas | jq -e '.quotas | length == 1'
    call "$admin" PUT /v1/quotas/a%20b --data '{"boxes":3}' | jq -e '.field == "owner"'
    call "$admin" PUT /v1/quotas/ann --data '{"boxes":-3}' | jq -e '.field == "boxes"'
    call "$admin" PUT /v1/quotas/ann --data '{"memory_bytes":9223372036854775808}' | jq -e '.code == "invalid_argument"'
    call "$ann" POST /v1/boxes --data '{"name":"large"}' | jq -e '.code == "resource_exhausted" and .field == "memory"'
    call "$admin" DELETE /v1/quotas/ann
    call "$admin" GET /v1/quotas | jq -e '.quotas == []'
}
