#!/bin/sh
# A sync of 80,000 files: the first one sends them, the second one moves no file data, and the next one after a killed
# one finishes it. Prints the times.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
bellhop=$top/build/release/bellhop
dir=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-sync-XXXXXX")
export BELLHOP_STATE_DIR="$dir/state" BELLHOP_CACHE_DIR="$dir/cache" HOME="$dir"
cleanup()
{
    "$bellhop" rm one >/dev/null 2>&1 || true
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir "$dir/here"
python3 -c "
import os, sys
for i in range(800):
    os.mkdir(f'{sys.argv[1]}/{i}')
    for j in range(100):
        open(f'{sys.argv[1]}/{i}/{j}', 'w').write(str(i * j))
" "$dir/here"
"$bellhop" up --name one --provider process --agent none --empty >/dev/null 2>&1

# check WHAT SENT: the next sync sends so many, and nothing is left to send.
check()
{
    start=$(date +%s%N)
    sent=$("$bellhop" sync one "$dir/here" ":$dir/there" --json | jq .sent)
    echo "$1: sent $sent in $((($(date +%s%N) - start) / 1000000)) ms"
    [ "$sent" -eq "$2" ] || {
        echo "sync: $2 were expected" >&2
        exit 1
    }
}

check "first" 80000
check "second" 0
find "$dir/here" -name '7*' -type f -exec sh -c 'for f; do echo more >>"$f"; done' sh {} +
"$bellhop" sync one "$dir/here" ":$dir/there" >/dev/null 2>&1 &
pid=$!
for _ in $(seq 400); do
    [ -z "$(find "$dir/there" -maxdepth 1 -name '.bellhop-tmp*')" ] || break
done
kill -9 $pid 2>/dev/null || true
wait $pid 2>/dev/null || true
"$bellhop" sync one "$dir/here" ":$dir/there" --json | jq -c .
check "after one that was killed" 0
diff -r "$dir/here" "$dir/there"
echo "ok"
