#!/usr/bin/env bats
# The System service within a default box, where much is not permitted: what it says then, holds from
# inside, and a hostile command that wants the token.

bats_require_minimum_version 1.5.0
load ../lib/agent
load ../lib/oci

setup_file()
{
    oci_setup_file
}

setup()
{
    oci_setup
}

teardown()
{
    oci_teardown
}

# box_rpc METHOD JSON: of the box b1.
box_rpc()
{
    box_curl b1 "/bellhop.v1.System/$1" -H 'Content-Type: application/json' --data-binary "$2"
}

# What a hostile command got at: as USER.
attack()
{
    box_curl b1 /v1/files//tmp/hostile.py -X PUT --data-binary "@$BATS_TEST_DIRNAME/../lib/hostile.py" -o /dev/null
    run_in_box b1 "$1" "python3 /tmp/hostile.py 1 $(printf secret-token | sha256sum | cut -d ' ' -f 1):12 \
        /run/bellhop/token /proc/1/environ /run/secrets/token"
}

holds()
{
    box_rpc Activity '{}' | jq -c "$1"
}

check_holds() # USER
{
    run_in_box b1 "$1" 'bellhopd hold --reason "from inside" --id mine --for 5m' >/dev/null
    [ "$(holds '.holds | map([.id, .reason, .local])')" = '[["mine","from inside",true]]' ]
    run_in_box b1 "$1" 'bellhopd hold --release mine && bellhopd hold -- sh -c "exit 9"' && fail 'no status' || [ $? = 9 ]
    [ "$(holds '.holds')" = '[]' ]
}

@test "a default box holds from inside, keeps its token, and says what it may not do" {
    box_make b1
    check_holds user
    check_holds root
    run attack user
    [ "$output" = done ] || fail "$output"
    run attack root
    [ "$output" = done ] || fail "$output"
    entropy=$(head -c 32 /dev/urandom | base64 -w 0)
    run box_rpc Resync "{\"now_ms\":$(($(date +%s%3N) + 3600000)),\"entropy\":{\"b64\":\"$entropy\"}}"
    [ "$(jq -c '[.clock.result, .entropy, .reseed, .generation]' <<<"$output")" = '["not_permitted","mixed","not_permitted",2]' ]
    run box_rpc Ready '{"fresh":true}'
    [ "$(jq -c '[.ready, .users.uid, .users.user_namespace, (.kernel.limits | map(.) | any)]' <<<"$output")" = '[true,0,true,false]' ] ||
        fail "$output"
    # The server is the user's: the agent, root without CAP_SYS_PTRACE, sees whose it is all the same.
    box_curl b1 /bellhop.v1.Exec/Start -H 'Content-Type: application/json' -o /dev/null \
        -d '{"id":"web","argv":["python3","-m","http.server","-b","127.0.0.1","8123"]}' 3>&- &
    run box_rpc WaitPort '{"port":8123,"path":"/","timeout_ms":20000}'
    [ "$(jq .status <<<"$output")" = 200 ]
    run box_rpc Ports '{"port":8123}'
    [ "$(jq -c '.ports[0] | [.loopback, .process.command, .uid > 0]' <<<"$output")" = '[true,"web",true]' ] || fail "$output"
    [ "$(box_rpc Activity '{}' | jq -c '[.reasons | index("commands", "calls")] | map(. != null)')" = '[true,true]' ]
}

@test "a strict box holds from inside, and keeps its token" {
    box_make b1 privilege=strict
    check_holds user
    run attack user
    [ "$output" = done ] || fail "$output"
}
