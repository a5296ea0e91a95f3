#!/usr/bin/env bats
# background
# Every fuzz target for ten seconds, from its corpus; the inputs that broke one once go first.
# needs: fuzz

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

# A new one stands in tests/fuzz/parsers.tsv, with the target that calls it or the reason why none does. A target
# may call it by way of a helper of the unit tests.
@test "each function that parses foreign bytes has a fuzz target, or a reason" {
    local name target reason helpers

    grep -hoE '^[a-z_ ]+ \*?[a-z0-9_]*(parse|decode|extract|unpack|detect|ws_read)[a-z0-9_]*\(' \
        $(git ls-files 'guest/*.h' 'host-client/lib/*.h' 'host-client/daemon/*.h') | sed 's/($//; s/.*[ *]//' | sort -u >"$BATS_TEST_TMPDIR/there"
    diff <(cut -f 1 tests/fuzz/parsers.tsv) "$BATS_TEST_TMPDIR/there"
    while IFS=$'\t' read -r name target reason; do
        if [ "$target" = - ]; then
            [ -n "$reason" ]
        else
            helpers=$(sed -n 's|^#include "\.\./\(unit/.*\)"|tests/\1|p' "tests/fuzz/fuzz_$target.c")
            # shellcheck disable=SC2086 # a list
            grep -qw "$name" "tests/fuzz/fuzz_$target.c" $helpers || { echo "fuzz_$target does not call $name"; return 1; }
        fi
    done <tests/fuzz/parsers.tsv
}

@test "no input of four seconds breaks the property of any fuzz target" {
    # The same inputs, so that a change is judged and not the day's luck; `make fuzz` looks for new ones.
    FUZZ_SEED=1 nice -n 5 tests/fuzz/run.sh all "${FUZZ_S:-4}" 2
}
