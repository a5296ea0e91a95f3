#!/bin/sh
# search-diff.sh [SECONDS [TREE...]]: the differential test of search for SECONDS (600) with a seed of
# its own, then the search modules against rg and fd over real trees (/usr/include, /usr/share/doc and
# the Linux source): the same files, and for each pattern the same lines. Prints what differs and
# ends with `N passed, N failed`.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1:-600}
[ $# -eq 0 ] || shift
dir=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-diff-XXXXXX")
trap 'rm -rf "$dir"' EXIT
if [ $# -eq 0 ]; then
    "$top/tests/lib/linux-source.sh" "$dir/linux"
    mkdir -p "$dir/linux/.git"
    set -- /usr/include /usr/share/doc "$dir/linux"
fi
passed=0
failed=0

verdict()
{
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "differs: $2"
        [ ! -e "$dir/diff" ] || head -n 10 "$dir/diff"
    fi
}

make -s >/dev/null -C "$top" -j2 PROFILE=debug build/debug/tests/test_search_diff
seed=${SEARCH_DIFF_SEED:-$(date +%s)}
status=0
(cd "$dir" && SEARCH_DIFF_SECONDS=$((seconds / 4)) SEARCH_DIFF_SEED=$seed \
    "$top/build/debug/tests/test_search_diff") || status=1
verdict $status "random trees with SEARCH_DIFF_SEED=$seed"

cc -std=gnu11 -D_GNU_SOURCE -O2 -I "$top/guest" "$top"/guest/search/*.c "$top"/guest/common/buf.c \
    "$top"/guest/common/err.c "$top"/guest/common/str.c "$top"/guest/common/path.c \
    "$top"/guest/common/io.c "$top"/guest/common/clock.c "$top/tests/diff/driver.c" \
    -o "$dir/driver" -lpcre2-8 -lpthread

# compare NAME: $dir/a against $dir/b, in any order
compare()
{
    LC_ALL=C sort "$dir/a" >"$dir/a.sorted"
    LC_ALL=C sort "$dir/b" >"$dir/b.sorted"
    status=0
    diff "$dir/a.sorted" "$dir/b.sorted" >"$dir/diff" || status=1
    verdict $status "$1"
}

for tree in "$@"; do
    cd "$tree"
    "$dir/driver" files >"$dir/a" 2>/dev/null || true
    rg --files >"$dir/b" 2>/dev/null || true
    compare "$tree: files"
    for glob in '*.h' '[a-m]*' '*READ*' '*.{c,S,txt}' 'Makefile'; do
        "$dir/driver" files -a "$glob" >"$dir/a" 2>/dev/null || true
        fdfind --strip-cwd-prefix --case-sensitive --glob "$glob" 2>/dev/null | sed 's|/$||' >"$dir/b" || true
        compare "$tree: fd $glob"
    done
    # In both syntaxes: rg and rg -P.
    for pattern in 'TODO|FIXME' '\bif \(' '^#define\s+\w+_MAX\b' '[0-9a-f]{8}-[0-9a-f]{4}' 'colou?r' \
        '(?i)copyright \d{4}' 'x+y' '\.\s*$' '^.{100,}$' 'é|ü' 'static inline .*\(void\)$'; do
        "$dir/driver" grep "$pattern" >"$dir/a" 2>/dev/null || true
        rg -n --no-heading --no-messages -e "$pattern" . 2>/dev/null | sed 's|^\./||' |
            grep -av 'WARNING: stopped searching' >"$dir/b" || true
        compare "$tree: rg $pattern"
    done
    # What only PCRE2 has. With -P rg looks for NUL bytes in other pieces (D5) and mends bytes that are
    # not UTF-8 (D1): compressed files are left out, and what stands for such bytes elsewhere.
    for pattern in 'foo(?=bar)' '(?<!un)lock\(' '(\w)\1\1' '\bchar\b(?!.*;)' '^\s*+#'; do
        "$dir/driver" grep -b -g '!*.gz' -g '!*.pdf' "$pattern" 2>/dev/null |
            iconv -c -f UTF-8 -t UTF-8 | sed 's/\xef\xbf\xbd//g' >"$dir/a" || true
        rg -P -a -n --no-heading --no-messages -g '!*.gz' -g '!*.pdf' -e "$pattern" . 2>/dev/null |
            sed 's|^\./||; s/\xef\xbf\xbd//g' >"$dir/b" || true
        compare "$tree: rg -P $pattern"
    done
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
