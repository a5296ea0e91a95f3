#!/usr/bin/env bats
# Two hundred clients that vanish from idle streams are freed within two seconds: on TCP and on a unix
# socket and in gVisor. A client that half-closes is not kept either.
# early

load ../lib/agent
load ../lib/runsc

setup() { start_agent --workdir /; }
teardown()
{
    stop_in_runsc
    stop_agents
}

@test "two hundred clients that vanish from idle streams are freed within 2 s on TCP" {
    python3 "$BATS_TEST_DIRNAME/../lib/vanish.py" "$AGENT_PORT" "$AGENT_TOKEN" 200
}

@test "two hundred clients that vanish from idle streams are freed within 2 s on a unix socket" {
    python3 "$BATS_TEST_DIRNAME/../lib/vanish.py" "$AGENT_SOCKET" "$AGENT_TOKEN" 200
}

@test "a client that half-closes with its last byte gets its answers, and then the end" {
    python3 "$BATS_TEST_DIRNAME/../lib/half_close.py" "$AGENT_PORT"
    python3 "$BATS_TEST_DIRNAME/../lib/half_close.py" "$AGENT_SOCKET"
}

# In gVisor, whose kernel does not report every hang-up.
@test "two hundred clients that vanish from idle streams are freed within 2 s in runsc" {
    start_in_runsc
    python3 "$BATS_TEST_DIRNAME/../lib/vanish.py" "$RUNSC_BOX/in/s" "$RUNSC_TOKEN" 200
}
