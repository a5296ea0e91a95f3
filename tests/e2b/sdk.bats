#!/usr/bin/env bats
# E2B's SDKs, from npm and from PyPI, against the agent: open, and secured behind a control plane.
# needs: network

load ../lib/e2b

setup()
{
    export E2B_API_KEY=e2b_0000000000000000000000000000000000000000
}

teardown()
{
    stop_e2b
}

js()
{
    run_e2b_js "$BATS_TEST_DIRNAME/sdk.mjs" "$@"
}

python()
{
    run_e2b_python "$BATS_TEST_DIRNAME/sdk.py" "$@"
}

@test "e2b sdk: commands run, with their output, user, directory and environment" {
    start_e2b
    js run
    js where
    python run where
}

@test "e2b sdk: commands in the background are listed, joined, killed, and fed" {
    start_e2b
    js background
    js stdin
    js timeout
    python background stdin timeout
}

@test "e2b sdk: terminals are made, resized, killed" {
    start_e2b
    js pty
    python pty
}

@test "e2b sdk: a repository is made, committed to and branched through git" {
    start_e2b
    js git
    python git
}

# The first and the last version that raises an exception for an unknown field of a reply.
@test "e2b sdk: Python's 1.0 and 1.4 list, look, make, move and watch, though they know three fields of a file" {
    local version

    for version in 1.0.0 1.4.0; do
        start_e2b
        E2B_PYTHON_VERSION=$version run_e2b_python "$BATS_TEST_DIRNAME/legacy.py"
        stop_e2b
    done
}

@test "e2b sdk: three hundred commands at once from one client" {
    start_e2b
    js parallel
    js running
    python parallel
}

@test "e2b sdk: Sandbox.create() works unmodified behind a control plane, which closes the agent" {
    start_e2b
    AGENT_TOKEN=0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0
    start_control
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$AGENT_URL/envs")" = 200 ]
    E2B_DEBUG='' js created
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$AGENT_URL/envs")" = 401 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$AGENT_URL/v1/ready")" = 401 ]
    E2B_DEBUG='' python created run
}

@test "e2b sdk: the same when the agent was started with a token" {
    start_e2b_secured
    start_control
    E2B_DEBUG='' js created
    E2B_DEBUG='' js background
    E2B_DEBUG='' python created background
}
