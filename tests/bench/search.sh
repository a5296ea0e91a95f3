#!/bin/sh
# Search against rg, alternating, on one tree: prints the median times and their ratio (ours / rg's).
# Usage: tests/bench/search.sh [TREE] [ROUNDS]
set -eu

tree=${1:-/usr/include}
rounds=${2:-5}
top=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-bench-XXXXXX")
trap 'rm -rf "$dir"' EXIT

for f in buf err str path io clock; do
    set -- "$@" "$top/guest/common/$f.c"
done
shift "$(($# - 6))"
cc -std=gnu11 -D_GNU_SOURCE -O2 -I "$top/guest" "$top"/guest/search/*.c "$@" "$top/tests/diff/driver.c" \
    -o "$dir/driver" -lpcre2-8 -lpthread
cd "$tree"

# measure COMMAND...: appends the milliseconds it takes to $out
measure()
{
    start=$(date +%s%N)
    "$@" >/dev/null 2>&1 || true
    echo $((($(date +%s%N) - start) / 1000)) >>"$out"
}

median()
{
    sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# compare NAME OUR-ARGUMENTS -- RG-ARGUMENTS
compare()
{
    name=$1
    shift
    ours=
    while [ "$1" != -- ]; do
        ours="$ours '$1'"
        shift
    done
    shift
    rm -f "$dir/a" "$dir/b"
    for _ in $(seq "$rounds"); do
        out=$dir/a
        eval "measure \"$dir/driver\" $ours"
        out=$dir/b
        measure rg "$@"
    done
    a=$(median "$dir/a")
    b=$(median "$dir/b")
    awk -v n="$name" -v a="$a" -v b="$b" \
        'BEGIN { printf "%-44s %8.1f ms  rg %8.1f ms  ratio %.2f\n", n, a / 1000, b / 1000, a / b }'
}

compare 'files' files -- --files
compare 'files *.h' files -g '*.h' -- --files -g '*.h'
for pattern in 'TODO|FIXME|XXX|HACK' '\w{12}_\w{12}_\w{8}' '\bspin_(un)?lock_irq(save|restore)\b' \
    'struct [a-z_]+ \{' 'return -E[A-Z]+;' '^#include <' 'zzzyyyxxx' '[A-Z]+_[A-Z]+_MAX' 'e' '^\s*$'; do
    compare "$pattern" grep -c "$pattern" -- -c "$pattern"
done
compare 'error, insensitive' grep -c -i error -- -c -i error
