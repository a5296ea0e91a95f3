#!/usr/bin/env bats
# A dialect is one file and one row: the agent that `make PROFILE=asan unit` builds with that of echo.c.

load ../lib/agent

setup()
{
    BELLHOPD=$BATS_TEST_DIRNAME/../../${UNIT_DIR:-build/asan/tests}/echo_agent
    start_agent
}

teardown() { stop_agents; }

@test "a dialect's unary method takes and gives JSON, its stream gives NDJSON" {
    run agent_curl /echo.v1.Echo/Say -d '{"text":"hi"}' -w '\n%{http_code} %{content_type}'
    [ "$output" = '{"text":"hi"}
200 application/json' ]
    run agent_curl /echo.v1.Echo/Count -d '{"to":3}' -w '%{http_code} %{content_type}'
    [ "$output" = '{"n":1}
{"n":2}
{"n":3}
200 application/x-ndjson' ]
    [ "$(agent_curl /echo/hello -o /dev/null -w '%{http_code}')" = 204 ]
}

@test "a dialect's errors are its own, at its routes alone" {
    run agent_curl /echo.v1.Echo/Say -d '{}' -w ' %{http_code} %{content_type}'
    [ "$output" = '{"oops":"nothing to say"} 400 application/oops+json' ]
    run agent_curl /echo.v1.Echo/Count -d '{"to":-1}' -w ' %{http_code}'
    [ "$output" = '{"oops":"cannot count to that"} 400' ]
    run agent_curl /echo/hello -X PUT -w ' %{http_code}'
    [ "$output" = "{\"oops\":\"PUT is not a method of '/echo/hello'\"} 405" ]
    run curl -s "$AGENT_URL/echo/hello" -w ' %{http_code}'
    [ "$output" = '{"oops":"a token is needed: Authorization: Bearer TOKEN"} 401' ]
    run agent_curl /echo.v1.Echo/Shout -d '{}'
    [[ $output == '{"code":"not_found",'* ]]
}

@test "a dialect's methods and routes have counters, and the native API is as it was" {
    agent_curl /echo.v1.Echo/Say -d '{"text":"hi"}' >/dev/null
    agent_curl /echo/hello
    agent_curl /v1/metrics | grep -q 'route="Echo/Say",.* 1$'
    agent_curl /v1/metrics | grep -q 'route="echo_hello"'
    [ "$(agent_curl /process.Process/List -d '{}' -o /dev/null -w '%{http_code}')" = 404 ]
    [ "$(agent_curl /v1/health -o /dev/null -w '%{http_code}')" = 200 ]
}
