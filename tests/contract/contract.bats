#!/usr/bin/env bats
# The wire contract: cases with their replies, and each method of rpc.def against what can be wrong
# with a request. Every answer is checked against /v1/openapi.json.

load ../lib/agent

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

@test "streams say the same in each encoding, and refuse broken envelopes" {
    contract encodings
}

@test "a client's deadline ends what waits" {
    contract deadline
}
