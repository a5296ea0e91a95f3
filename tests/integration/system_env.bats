#!/usr/bin/env bats
# The variables that every later command gets.

bats_require_minimum_version 1.5.0
load ../lib/agent

setup()
{
    start_agent
}

teardown()
{
    stop_agents
}

# printed NAME [FIELDS]: prints the variable as a command sees it.
printed()
{
    rpc Exec/Run "{\"argv\":[\"sh\",\"-c\",\"printf %s \\\"\$$1\\\"\"]${2:+,$2}}" | jq -r '.stdout | .text // .b64'
}

@test "env goes over the defaults and under the request" {
    [ "$(rpc System/Env | jq -c .env)" = '{}' ]
    [ "$(rpc System/Env '{"set":{"A":"one","HOME":"/opt","EMPTY":""}}' | jq -c .env)" = '{"A":"one","HOME":"/opt","EMPTY":""}' ]
    [ "$(printed A)" = one ]
    [ "$(printed HOME)" = /opt ]
    [ "$(printed A '"env":{"A":"two"}')" = two ]
    [ "$(printed HOME '"env":{"HOME":"/tmp"}')" = /tmp ]
    [ "$(rpc Exec/Run '{"argv":["env"]}' | jq -j .stdout.text | sed 's/=.*//' | sort | tr '\n' ' ')" = \
        "A EMPTY HOME LOGNAME PATH USER " ]
}

@test "env is changed whole or not at all, and bytes are kept" {
    rpc System/Env '{"set":{"A":"one","B":"two","C":{"b64":"/wA="}}}' -o "$AGENT_DIR/reply"
    [ "$(jq -r .code "$AGENT_DIR/reply")" = invalid_argument ]
    [ "$(rpc System/Env '{"set":{"A":"one","B":"two","C":{"b64":"/2E="}}}' | jq -c .env)" = '{"A":"one","B":"two","C":{"b64":"/2E="}}' ]
    [ "$(printed C)" = /2E= ]
    [ "$(rpc System/Env '{"set":{"D":"x","1bad":"y"}}' | jq -r '.code + " " + .field')" = 'invalid_argument set' ]
    [ "$(rpc System/Env '{"unset":["B","nobody"],"set":{"A":"three"}}' | jq -c '.env | [.A, .B, .D]')" = '["three",null,null]' ]
    [ "$(rpc System/Env '{"replace":true,"set":{"Z":"z"}}' | jq -c .env)" = '{"Z":"z"}' ]
    [ "$(rpc System/Env '{"replace":true}' | jq -c .env)" = '{}' ]
}

@test "env is bounded in count and bytes" {
    many=$(seq 256 | jq -R '{("V" + .): "x"}' | jq -cs add)
    [ "$(rpc System/Env "{\"set\":$many}" | jq '.env | length')" = 256 ]
    [ "$(rpc System/Env '{"set":{"ONE_MORE":"x"}}' | jq -r .code)" = resource_exhausted ]
    [ "$(rpc System/Env '{"set":{"V7":"y"}}' | jq -r .env.V7)" = y ]
    big=$(head -c 131072 /dev/zero | tr '\0' b)
    printf '{"replace":true,"set":{"BIG":"%s"}}' "$big" >"$AGENT_DIR/big"
    run agent_curl /bellhop.v1.System/Env -H 'Content-Type: application/json' --data-binary "@$AGENT_DIR/big"
    [ "$(jq -r .code <<<"$output")" = resource_exhausted ]
    [ "$(rpc System/Env | jq '.env | length')" = 256 ]
}

@test "env leaves running commands alone, and is not to be had of a read-only agent" {
    rpc Exec/Start '{"id":"r","argv":["sh","-c","read -r x; echo \"[$A]\""],"stdin_open":true}' -o /dev/null --max-time 30 3>&- &
    has_it() { [ "$(rpc Exec/Get '{"id":"r"}' | jq -r .state)" = running ]; }
    wait_until 10 has_it
    rpc System/Env '{"set":{"A":"late"}}' -o /dev/null
    rpc Exec/Write '{"id":"r","data":{"text":"\n"}}' -o /dev/null
    rpc Exec/Wait '{"id":"r"}' -o /dev/null
    [ "$(rpc Exec/Read '{"id":"r","stream":"stdout"}' | jq -r .text)" = "[]" ]
    stop_agents
    start_agent --read-only
    [ "$(rpc System/Env '{"set":{"A":"b"}}' | jq -r .code)" = permission_denied ]
}
