#!/bin/sh
# Grep and Glob of a running agent against rg and fd over the Linux source, alternating in one run:
# prints `what  ours  peer  ratio` with the median times, and last the median of the ratios. Each call
# is a request of its own over the agent's socket, by curl; nothing is kept from one to the next.
# Usage: tests/bench/search.sh [TREE] [ROUNDS]
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
rounds=${2:-5}
dir=$(mktemp -d "${TMPDIR:-/dev/shm}/bellhop-bench-XXXXXX")
agent=
clean_up()
{
    [ -z "$agent" ] || kill "$agent" 2>/dev/null || true
    rm -rf "$dir"
}
trap clean_up EXIT

tree=${1:-}
if [ -z "$tree" ]; then
    tree=$dir/linux
    "$top/tests/lib/linux-source.sh" "$tree"
    mkdir -p "$tree/.git" # its .gitignore files count in a repository only
fi

head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/token"
chmod 600 "$dir/token"
mkfifo "$dir/ready"
"$top/build/release/bellhopd" --unix "$dir/sock" --token-file "$dir/token" --ready-fd 3 \
    3>"$dir/ready" >"$dir/log" 2>&1 &
agent=$!
read -r _ <"$dir/ready"
cd "$tree"

# call METHOD FIELDS
call()
{
    curl -sS --unix-socket "$dir/sock" -H "Authorization: Bearer $(cat "$dir/token")" \
        -H 'Content-Type: application/json' --data-binary "{\"path\":\"$tree\",$2}" \
        -o "$dir/ours" "http://box/bellhop.v1.Search/$1"
}

# measure COMMAND...: appends the milliseconds it takes to $out
measure()
{
    start=$(date +%s%N)
    "$@" || true
    echo $((($(date +%s%N) - start) / 1000)) >>"$out"
}

median()
{
    sort -n "$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

peer()
{
    "$@" >"$dir/theirs" 2>/dev/null
}

# compare NAME METHOD FIELDS PEER-COMMAND...
compare()
{
    name=$1
    method=$2
    fields=$3
    shift 3
    rm -f "$dir/a" "$dir/b"
    for _ in $(seq "$rounds"); do
        out=$dir/a
        measure call "$method" "$fields"
        out=$dir/b
        measure peer "$@"
    done
    # The answer must be the same number of results, or the times mean nothing.
    ours=$(grep -c -v '^{"end"' "$dir/ours" || true)
    theirs=$(wc -l <"$dir/theirs")
    [ "$ours" -eq "$theirs" ] || echo "search.sh: $name: $ours results, $theirs of $1" >&2
    NAME=$name awk -v a="$(median "$dir/a")" -v b="$(median "$dir/b")" -v peer="$1" -v r="$dir/ratios" 'BEGIN {
        printf "%-44s %8.1f ms  %s %8.1f ms  ratio %.2f\n", ENVIRON["NAME"], a / 1000, peer, b / 1000, a / b
        print a / b >>r }'
}

grep_of()
{
    compare "grep $1" Grep "\"pattern\":$(printf %s "$1" | jq -Rs .)" rg -n --no-heading -e "$1" .
}

grep_of 'TODO|FIXME|XXX|HACK'
grep_of '\w{12}_\w{12}_\w{8}'
grep_of '\bspin_(un)?lock_irq(save|restore)\b'
grep_of 'struct [a-z_]+ \{$'
grep_of 'return -E[A-Z]+;'
grep_of '^#include <linux/mm'
grep_of 'zzzyyyxxx'
grep_of '[A-Z]+_[A-Z]+_MAX'
grep_of '(?i)deadlock'
grep_of '^\s*goto\s+(err|out)\w*;$'
compare 'glob *.c' Glob '"pattern":"*.c","type":"file"' fdfind --glob --type f '*.c'
compare 'glob Makefile, hidden' Glob '"pattern":"Makefile","hidden":true' fdfind --hidden --glob Makefile
compare 'glob drivers/**/*.h' Glob '"globs":["drivers/**/*.h"],"type":"file"' rg --files -g 'drivers/**/*.h'
compare 'glob everything, no ignore files' Glob '"hidden":true,"no_ignore":true' fdfind -H -I .
printf 'search: median ratio of the %s %.2f\n' "$(wc -l <"$dir/ratios")" "$(median "$dir/ratios")"
