#!/bin/sh
# Runs one test file (a unit test program or a bats file) under a time limit, keeps its TAP output
# in OUT, and prints it in one piece at the end, so that the output of parallel files does not mix.
# Its own exit status is always 0: tests/lib/tally.awk reads the verdict from OUT. Files of one turn run one at a time;
# the limit counts from when a file has its turn.
set -eu

file=$1
name=$(printf '%s' "$file" | tr '/' '_')
out=$TEST_DIR/out/$name

limit=$(sed -n '1,10s/^# *time-limit: *\([0-9][0-9]*\).*/\1/p' "$file" 2>/dev/null | head -n 1)
limit=${limit:-$TEST_LIMIT_S}
turn=$(sed -n '1,10s/^# *turn: *\([a-z][a-z]*\).*/\1/p' "$file" 2>/dev/null | head -n 1)
if [ -n "$turn" ]; then
    exec 8>"$TEST_DIR/turn-$turn.lock"
    flock 8
fi

case $file in
*.bats)
    PATH=${WIRE_BIN:+$WIRE_BIN:}$PATH
    export PATH
    set -- bats --tap "$file"
    ;;
*) set -- "$file" ;;
esac

start=$(date +%s%N)
status=0
timeout --kill-after=10 "$limit" "$@" >"$out.tap" 2>&1 </dev/null 8>&- || status=$?
[ -z "$turn" ] || exec 8>&-
took=$((($(date +%s%N) - start) / 1000000))
times >"$out.times" # of its children in the second line: the processor time that makes a run long
processor=$(sed -n 2p "$out.times")

{
    [ "$status" -ne 124 ] || echo "# $file: stopped after its limit of $limit s"
    echo "# exit $status"
} >>"$out.tap"
printf '%s\t%s\t%s\n' "$file" "$out.tap" "$took" >"$out.done"

{
    flock 9
    printf '\n== %s (%d.%03d s; processor %s)\n' "$file" $((took / 1000)) $((took % 1000)) "$processor"
    cat "$out.tap"
} 9>"$TEST_DIR/print.lock"
