#!/usr/bin/env bats
# The wire contract: cases with their replies, and each method of rpc.def with every kind of wrong
# request. Every answer is checked against /v1/openapi.json.

load ../lib/agent
load ../lib/venv

setup_file()
{
    start_agent --workdir /
    export AGENT_PIDS_OF_FILE="${AGENT_PIDS[*]}" AGENT_DIRS_OF_FILE="${AGENT_DIRS[*]}"
}

teardown_file()
{
    read -ra AGENT_PIDS <<<"$AGENT_PIDS_OF_FILE"
    read -ra AGENT_DIRS <<<"$AGENT_DIRS_OF_FILE"
    stop_agents
}

contract() { python3 "$BATS_TEST_DIRNAME/contract.py" "$@"; }

@test "each case gets its reply, and there is a case of each method" {
    contract cases
}

@test "each method refuses what is wrong in its headers" {
    contract headers
}

@test "each method refuses a body that is no request" {
    contract raw
}

@test "each method refuses fields that are missing, unknown, doubled or of another type, by name" {
    contract fields
}

@test "each route takes the parameters that the document has, and refuses every other word by name" {
    contract parameters
}

@test "streams say the same in each encoding, and refuse broken envelopes" {
    contract encodings
}

@test "a client's deadline ends what waits" {
    contract deadline
}

@test "the document is valid OpenAPI 3.1" {
    local python

    python=$(venv_python openapi-spec-validator 0.7.1) || skip "the validator can't be installed"
    agent_curl /v1/openapi.json >"$BATS_TEST_TMPDIR/openapi.json"
    [ "$(jq -r .openapi "$BATS_TEST_TMPDIR/openapi.json")" = 3.1.0 ]
    "$python" -m openapi_spec_validator "$BATS_TEST_TMPDIR/openapi.json"
}
