#!/usr/bin/env bats
# The test runner itself: its last line and exit status are what CI believes.

setup()
{
    unset TEST_AGAIN
    TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    mkdir -p "$BATS_TEST_TMPDIR/tree/tests/demo"
    cp -a "$TOP/tests/run" "$BATS_TEST_TMPDIR/tree/tests/"
    cp -a "$TOP/tests/lib" "$BATS_TEST_TMPDIR/tree/tests/"
    cd "$BATS_TEST_TMPDIR/tree"
}

# The outer runner's and bats' own settings must not leak into the one under test.
run_runner()
{
    run env -i ${TEST_JOBS:+TEST_JOBS="$TEST_JOBS"} ${TEST_AGAIN:+TEST_AGAIN="$TEST_AGAIN"} PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$HOME" tests/run "$@"
}

demo()
{
    cat >"tests/demo/$1.bats"
}

last_line()
{
    printf '%s\n' "${lines[$((${#lines[@]} - 1))]}"
}

@test "a run in which all tests pass ends with the count and exits 0" {
    printf '@test "one" { true; }\n@test "two" { true; }\n' | demo good
    run_runner
    [ "$status" -eq 0 ]
    [ "$(last_line)" = "2 passed, 0 failed" ]
    [ "$(cat build/test/results.tsv)" = "$(printf 'demo\tone\tok\ndemo\ttwo\tok')" ]
}

@test "a failed test makes the run fail and is named at the end" {
    printf '@test "good" { true; }\n@test "bad" { false; }\n' | demo mixed
    run_runner
    [ "$status" -ne 0 ]
    [ "$(last_line)" = "1 passed, 1 failed" ]
    [[ "$output" == *"failed:"*"demo: bad"* ]]
}

@test "a skipped test is counted apart and its reason printed" {
    printf '@test "good" { true; }\n@test "later" { skip "no such kernel"; }\n' | demo skip
    run_runner
    [ "$status" -eq 0 ]
    [ "$(last_line)" = "1 passed, 0 failed, 1 skipped" ]
    [[ "$output" == *"demo: later (no such kernel)"* ]]
}

@test "a skip that is not in the list fails a whole run, and none of some files" {
    printf '@test "good" { true; }\n@test "later" { skip "no such kernel"; }\n@test "never" { skip "no such kernels"; }\n' |
        demo skip
    printf '# A head.\ntests/demo/.*\tno such (kernel|disk)\tan old machine\n' >tests/skips.tsv
    run_runner
    [ "$status" -ne 0 ]
    [ "$(last_line)" = "1 passed, 1 failed, 2 skipped" ]
    [[ "$output" == *"demo: never: skipped, and tests/skips.tsv does not allow it: no such kernels"* ]]
    [[ "$output" != *"later: skipped"* ]]
    run_runner tests/demo/skip.bats
    [ "$status" -eq 0 ]
    printf 'tests/other/.*\tno such kernels?\tanother file\n' >tests/skips.tsv
    run_runner
    [ "$(last_line)" = "1 passed, 2 failed, 2 skipped" ]
    printf 'tests/demo/skip.bats\tno such kernels?\tan old machine\n' >tests/skips.tsv
    run_runner
    [ "$status" -eq 0 ]
    : >tests/skips.tsv
    run_runner
    [ "$(last_line)" = "1 passed, 2 failed, 2 skipped" ]
}

@test "the run of the engines is judged by the list of skips, too" {
    mkdir tests/engines
    printf '# engines-only\n@test "good" { true; }\n@test "lost" { skip "no engine"; }\n' >tests/engines/one.bats
    printf 'tests/demo/.*\tno engine\tanother file\n' >tests/skips.tsv
    run_runner --engines
    [ "$status" -ne 0 ]
    [ "$(last_line)" = "1 passed, 1 failed, 1 skipped" ]
    printf 'tests/engines/one.bats\tno engine\tan old machine\n' >tests/skips.tsv
    run_runner --engines
    [ "$status" -eq 0 ]
    printf '@test "else" { skip "no else"; }\n' >tests/engines/two.bats
    run_runner --engines tests/engines/one.bats
    [ "$(last_line)" = "1 passed, 0 failed, 1 skipped" ]
    run_runner --engines
    [ "$(last_line)" = "1 passed, 1 failed, 2 skipped" ]
}

@test "a run without any test fails" {
    run_runner
    [ "$status" -ne 0 ]
    [ "$(last_line)" = "0 passed, 0 failed" ]
}

@test "a file that does not exist fails the run" {
    run_runner tests/demo/absent.bats
    [ "$status" -ne 0 ]
    [ "$(last_line)" = "0 passed, 1 failed" ]
}

@test "a file that is stopped at its time limit fails the run" {
    printf '# time-limit: 10\n@test "fast" { true; }\n@test "slow" { sleep 600; }\n' | demo slow
    run_runner
    [ "$status" -ne 0 ]
    [[ "$output" == *"stopped after its limit of 10 s"* ]]
    [[ "$output" == *"1 of 2 tests did not run"* ]]
}

# Fails the first time it is run.
flaky_once()
{
    printf '@test "sound" { true; }\n@test "%s" {\n  [ -e %s ] && return\n  touch %s\n  false\n}\n' \
        "$1" "$BATS_TEST_TMPDIR/$1" "$BATS_TEST_TMPDIR/$1" | demo "$1"
}

@test "what fails among others and passes alone is flaky where that is asked for, and fails elsewhere" {
    flaky_once shy
    TEST_AGAIN=1 run_runner
    [ "$status" -eq 0 ]
    [ "$(last_line)" = "2 passed, 0 failed, 1 flaky" ]
    [[ "$output" == *"not ok 2 shy"*"flaky, failed among others and passed alone:"*"demo: shy"* ]]
    rm "$BATS_TEST_TMPDIR/shy"
    run_runner
    [ "$status" -ne 0 ]
    [ "$(last_line)" = "1 passed, 1 failed" ]
}

@test "a file that did not get to its end is flaky too when it does so alone" {
    printf '# time-limit: 10\n@test "slow" {\n  [ -e %s ] && return\n  touch %s\n  sleep 600\n}\n' \
        "$BATS_TEST_TMPDIR/slow" "$BATS_TEST_TMPDIR/slow" | demo slow
    TEST_AGAIN=1 run_runner
    [ "$status" -eq 0 ]
    [ "$(last_line)" = "1 passed, 0 failed, 1 flaky" ]
    [[ "$output" == *"demo: tests/demo/slow.bats: 1 of 1 tests did not run"* ]]
}

@test "what fails twice has failed, and where many files fail none is run again" {
    printf '@test "bad" { false; }\n' | demo bad
    TEST_AGAIN=1 run_runner
    [ "$status" -ne 0 ]
    [ "$(last_line)" = "0 passed, 1 failed" ]
    flaky_once shy
    TEST_AGAIN=1 run_runner
    [ "$status" -ne 0 ]
    [ "$(last_line)" = "1 passed, 2 failed" ]
}

@test "a feature whose named test did not run fails a whole run" {
    printf '@test "one" { true; }\n' | demo good
    printf 'F1\tone\nF2\tlater\nF3\tno such test\nF4\tone\tnor this one\n' >tests/features.tsv
    run_runner
    [ "$status" -ne 0 ]
    [[ "$output" == *"F3 names a test that did not run: no such test"* ]]
    [[ "$output" == *"F4 names a test that did not run: nor this one"* ]]
    [[ "$output" == *$'\nlater, in tests/features.tsv: F2 \n'* ]]
    [[ "$output" != *"F2 names"* && "$output" != *"F1"* ]]
}

@test "background files run beside all others, and are waited for" {
    printf '# background\n@test "behind" { mkfifo go; read -r line <go; [ "$line" = go ]; }\n' | demo a-behind
    printf '# serial\n@test "last" { [ -e was-busy ]; until [ -p go ]; do sleep 0.05; done; echo go >go; }\n' | demo b-last
    printf '@test "other" { touch was-busy; }\n' | demo c-other
    run_runner
    [ "$(last_line)" = "3 passed, 0 failed" ]
}

@test "make check leaves out what needs an image or the network, and long files, and says so to tests" {
    printf '@test "plain" { [ "$TEST_OFFLINE" = 1 ]; }\n' | demo plain
    printf '# A head.\n# needs: image\n@test "image" { false; }\n' | demo image
    printf '# needs: image network\n@test "network" { false; }\n' | demo network
    printf '# early\n@test "long" { false; }\n' | demo long
    printf '# background\n@test "behind" { false; }\n' | demo behind
    run_runner --check
    [ "$status" -eq 0 ]
    [ "$(last_line)" = "1 passed, 0 failed" ]
}

@test "early files are begun before others" {
    printf '@test "late" { [ -e begun ]; }\n' | demo a-late
    printf '# early\n@test "early" { touch begun; }\n' | demo b-early
    TEST_JOBS=1 run_runner
    [ "$(last_line)" = "2 passed, 0 failed" ]
}

@test "files of one turn run one at a time, and the limit does not count while a file waits" {
    local name

    for name in a b c; do
        printf '# turn: demo\n# time-limit: 6\n@test "%s" { mkdir busy && sleep 4 && rmdir busy; }\n' "$name" | demo "$name"
    done
    printf '@test "other" { until [ -e busy ]; do sleep 0.05; done; }\n' | demo d-other
    TEST_JOBS=4 run_runner
    [ "$(last_line)" = "4 passed, 0 failed" ]
}

@test "serial files run alone and after the others" {
    printf '# serial\n@test "alone" { [ ! -e busy ] && [ -e was-busy ]; }\n' | demo a-serial
    printf '@test "other" { touch busy was-busy; sleep 0.3; rm busy; }\n' | demo b-other
    run_runner
    [ "$(last_line)" = "2 passed, 0 failed" ]
}
