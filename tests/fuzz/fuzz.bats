#!/usr/bin/env bats
# time-limit: 600
# Every fuzz target for ten seconds, from its corpus; the inputs that broke one once go first.

setup()
{
    TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    cd "$TOP"
}

@test "each fuzz target is built and has a corpus" {
    for f in tests/fuzz/fuzz_*.c; do
        name=$(basename "$f" .c)
        [ -x "build/fuzz/tests/$name" ]
        [ -n "$(ls "tests/fuzz/corpus/${name#fuzz_}")" ]
    done
}

@test "no input of ten seconds breaks the property of any fuzz target" {
    nice -n 10 tests/fuzz/run.sh all "${FUZZ_S:-10}" 2
}
