#!/bin/sh
# run.sh NAME|all [SECONDS [JOBS]]: one fuzz target, or each of them: first the inputs that broke it
# once (tests/fuzz/regress), then SECONDS of new ones, from the seeds and what earlier runs found. An
# input that breaks a property is kept in tests/fuzz/regress and fails the run. FUZZ_SEED=N begins where
# another run with it has begun, else each run is a new one.
# run.sh min NAME: the smallest set of the inputs found so far with the same coverage becomes the
# target's corpus. The programs must have been built: `make fuzz T=... S=...` does both.
set -eu

cd "$(dirname "$0")/../.."

bin=${FUZZ_BIN:-build/fuzz/tests}
grown=build/fuzz/corpus
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1:handle_abort=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}"

targets()
{
    for f in tests/fuzz/fuzz_*.c; do
        basename "$f" .c | sed 's/^fuzz_//'
    done
}

# `fuzz-flags: -max_len=...` in the first lines of a target's source; a dictionary beside it.
flags_of()
{
    sed -n '1,20s/^.*fuzz-flags: *\([^*]*\).*/\1/p' "tests/fuzz/fuzz_$1.c"
    [ ! -e "tests/fuzz/$1.dict" ] || echo "-dict=tests/fuzz/$1.dict"
}

replay()
{
    set -- "$1" "tests/fuzz/regress/$1"
    [ -d "$2" ] || return 0
    find "$2" -type f | sort | xargs -r -d '\n' "$bin/fuzz_$1" -timeout=20 -rss_limit_mb=1024
}

fuzz_one()
{
    mkdir -p "$grown/$1" "tests/fuzz/corpus/$1"
    replay "$1" || return 1
    # shellcheck disable=SC2046 # one word a flag
    set -- "$1" "$2" $(flags_of "$1")
    name=$1 seconds=$2
    shift 2
    mkdir -p "tests/fuzz/regress/$name"
    status=0
    "$bin/fuzz_$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=1024 -max_len=65536 \
        -print_final_stats=1 -seed="${FUZZ_SEED:-0}" \
        -artifact_prefix="tests/fuzz/regress/$name/" "$@" \
        "$grown/$name" "tests/fuzz/corpus/$name" || status=1
    rmdir "tests/fuzz/regress/$name" 2>/dev/null || true
    return $status
}

# Its story, in one piece, and its verdict in a file.
report_one()
{
    log=build/fuzz/log/$1
    if fuzz_one "$1" "$2" >"$log" 2>&1; then
        printf 'ok    %s: %s inputs\n' "$1" \
            "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)"
    else
        : >"$log.failed"
        printf 'FAIL  %s:\n%s\n' "$1" "$(grep -v '^#[0-9]' "$log" | tail -n 60)"
    fi
}

minimise()
{
    out=tests/fuzz/corpus/$1
    new=$(mktemp -d build/fuzz/min-XXXXXX)
    mkdir -p "$grown/$1" "$out"
    "$bin/fuzz_$1" -merge=1 -max_len=4096 "$new" "$out" "$grown/$1"
    rm -rf "$out" && mv "$new" "$out" && chmod 0755 "$out"
    echo "$1: $(find "$out" -type f | wc -l) inputs"
}

case $1 in
min) minimise "$2" ;;
all)
    rm -rf build/fuzz/log && mkdir -p build/fuzz/log
    targets | xargs -P "${3:-1}" -I '{}' "$0" report '{}' "${2:-10}"
    [ -z "$(find build/fuzz/log -name '*.failed')" ]
    ;;
report) report_one "$2" "$3" ;;
*) fuzz_one "$1" "${2:-60}" ;;
esac
