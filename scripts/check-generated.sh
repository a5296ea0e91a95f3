#!/bin/sh
# Regenerates every generated file that is committed, and compares. A generator is a script scripts/gen-*.sh; with a
# directory as argument it writes its files there, under their paths in the tree.
set -eu

cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

for generator in scripts/gen-*.sh; do
    [ ! -e "$generator" ] || "$generator" "$tmp"
done

find "$tmp" -type f | sort | sed "s|^$tmp/||" >"$tmp.list"
bad=0
while IFS= read -r file; do
    cmp -s "$tmp/$file" "$file" || {
        echo "check-generated: $file is not what its generator makes of its source now" >&2
        bad=1
    }
done <"$tmp.list"
n=$(wc -l <"$tmp.list")
rm -f "$tmp.list"
[ "$bad" -eq 0 ] || exit 1
echo "  OK    $n generated files are current"
