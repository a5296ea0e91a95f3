#!/usr/bin/env bats
# Two hundred clients that vanish from idle streams are freed within two seconds: on TCP and on a unix
# socket. In gVisor: tests/host/vanish.bats.

load ../lib/agent

setup() { start_agent --workdir /; }
teardown() { stop_agents; }

@test "two hundred clients that vanish from idle streams are freed within 2 s on TCP" {
    python3 "$BATS_TEST_DIRNAME/../lib/vanish.py" "$AGENT_PORT" "$AGENT_TOKEN" 200
}

@test "two hundred clients that vanish from idle streams are freed within 2 s on a unix socket" {
    python3 "$BATS_TEST_DIRNAME/../lib/vanish.py" "$AGENT_SOCKET" "$AGENT_TOKEN" 200
}
