#!/bin/sh
# sanitized.sh asan|tsan [FILE...]: bats files against the agent that was built with that sanitizer, from the
# system's shared libraries; default: all of the agent's own, and the daemon's clients that come and go. Reports are
# kept in build/test/asan (or tsan) and printed; exits 1 if there was a report. A failed test is named, but is no
# failure by itself: such a build has other memory and times, it does not run in another root, and the system's HTTP
# library lacks our patches.
set -eu

cd "$(dirname "$0")/../.."
profile=$1
shift
[ $# -gt 0 ] || set -- tests/integration/*.bats tests/contract/*.bats tests/e2b/*.bats tests/daemon/churn.bats
out=$PWD/build/test/$profile
rm -rf "$out" && mkdir -p "$out"

BELLHOPD=$PWD/build/$profile/bellhopd
LC_ALL=C.UTF-8
export BELLHOPD LC_ALL
bad=0
for file in "$@"; do
    name=$(basename "$(dirname "$file")")-$(basename "$file" .bats)
    case $file in tests/daemon/*) export BELLHOP_BUILD="$PWD/build/$profile" CHURN_ROUNDS=50 ;; esac
    export ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1:log_path=$out/$name.report"
    export UBSAN_OPTIONS="print_stacktrace=1:log_path=$out/$name.report"
    export TSAN_OPTIONS="second_deadlock_stack=1:suppressions=$PWD/tests/lib/tsan.supp:log_path=$out/$name.report"
    timeout -k 10 "${SANITIZED_LIMIT_S:-1200}" bats --tap "$file" >"$out/$name.tap" 2>&1 </dev/null || true
    reports=$(find "$out" -name "$name.report.*" | wc -l)
    passed=$(grep -c '^ok' "$out/$name.tap" || true)
    echo "$file: $passed ok, $(grep -c '^not ok' "$out/$name.tap" || true) not, $reports reports"
    grep '^not ok' "$out/$name.tap" || true
    [ "$reports" -eq 0 ] || { cat "$out/$name.report."*; bad=1; }
done
exit $bad
