#!/usr/bin/env bats
# background
# The whole agent, as root and open, under raw requests for a minute, in a throw-away machine with canaries beside it: see
# tests/fuzz/agent.py.
# needs: fuzz

setup()
{
    TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    cd "$TOP"
    [ "$(id -u)" = 0 ] || skip "needs root"
    unshare -m -p -n -C -f true 2>/dev/null || skip "no namespaces here"
    BELLHOPD=${BELLHOPD:-${BELLHOP_BUILD:-$TOP/build/release}/bellhopd}
}

# Its answers, made of anything, are not recorded.
fuzz_agent() { env -u WIRE_DIR nice -n 5 python3 tests/fuzz/agent.py "$BELLHOPD" "$@" 3>&- 4>&-; }

@test "the agent's fuzz sees a canary that is ended" {
    run fuzz_agent --seconds 60 --seed 1 --save "$BATS_TEST_TMPDIR" --kill-canary
    echo "$output"
    [ "$status" -eq 1 ]
    # The keeper's word, or /proc's if that is read before the keeper has waited for it.
    [[ $output == *"FAIL: canary 3: process "*" has status 0x9"* ||
        $output == *"FAIL: canary process "*": state is 'ended', was 'runs'"* ]]
}

@test "raw requests that once broke the agent or reached others do so no more" {
    local f

    for f in tests/fuzz/regress/agent/*.json; do
        fuzz_agent --seconds 0 --seed 1 --save "$BATS_TEST_TMPDIR" --replay "$f"
    done
}

@test "no raw request of a minute signals, stops, moves or starves what no command started, or stays in the agent" {
    # The same seed, so that a change is judged and not the day's luck; `make fuzz-agent` looks for new ones.
    fuzz_agent --seconds "${FUZZ_AGENT_S:-60}" --seed 1
}
