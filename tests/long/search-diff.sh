#!/bin/sh
# search-diff.sh [TREES [TREE...]]: the differential test of search over TREES (2,000) random trees for each
# of its four tests, with a seed of its own (SEARCH_DIFF_SEED), then the search modules against rg and
# fd over real trees (this repository, /usr/share, an npm package's node_modules and the Linux source): the
# same files with each set of options, and for each pattern the same lines. Prints the differences and ends
# with `N passed, N failed`; the random trees of wrong answers are kept in build/diff.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
trees=${1:-2000}
[ $# -eq 0 ] || shift
dir=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-diff-XXXXXX")
trap 'rm -rf "$dir"' EXIT
if [ $# -eq 0 ]; then
    "$top/tests/lib/linux-source.sh" "$dir/linux"
    mkdir -p "$dir/linux/.git"
    mkdir -p "$dir/npm"
    (cd "$dir/npm" && npm install --silent --no-audit --no-fund --ignore-scripts typescript@5.4.5 \
        express@4.19.2 webpack@5.91.0 >/dev/null)
    set -- "$top" /usr/share "$dir/npm" "$dir/linux"
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
rm -rf "$top/build/diff" && mkdir "$top/build/diff"
(cd "$dir" && SEARCH_DIFF_CASES=$((trees * 2)) SEARCH_DIFF_SEED=$seed SEARCH_DIFF_KEEP=$top/build/diff \
    "$top/build/debug/tests/test_search_diff") || status=1
verdict $status "random trees with SEARCH_DIFF_SEED=$seed"

cc -std=gnu11 -D_GNU_SOURCE -O2 -I "$top/guest" "$top/tests/diff/driver.c" "$top/build/debug/obj/agent.a" \
    -o "$dir/driver" -lpcre2-8 -lpthread

# Replaces bytes that are not UTF-8 by U+FFFD, as rg -P prints them; our answer has them unchanged.
cat >"$dir/replace.c" <<'END'
#include <stdio.h>

#include "search/encoding.h"

int main(void)
{
    struct buf in = {.max = 1u << 30};
    struct lossy l;
    char block[8192];
    size_t n;

    lossy_init(&l, in.max);
    while ((n = fread(block, 1, sizeof(block), stdin)) > 0)
        if (buf_add(&in, block, n, NULL) < 0)
            return 1;
    if (in.len && lossy_convert(&l, in.data, in.len, NULL) < 0)
        return 1;
    return fwrite(l.text.data ? l.text.data : "", 1, l.text.len, stdout) != l.text.len;
}
END
cc -std=gnu11 -D_GNU_SOURCE -O2 -I "$top/guest" "$dir/replace.c" "$top/build/debug/obj/agent.a" -o "$dir/replace"

# compare NAME: $dir/a against $dir/b, in any order
compare()
{
    LC_ALL=C sort "$dir/a" >"$dir/a.sorted"
    LC_ALL=C sort "$dir/b" >"$dir/b.sorted"
    status=0
    diff "$dir/a.sorted" "$dir/b.sorted" >"$dir/diff" || status=1
    verdict $status "$1"
}

# files OUR-OPTIONS RG-OPTIONS: the files of both
files()
{
    set -f
    # shellcheck disable=SC2086
    "$dir/driver" files $1 >"$dir/a" 2>/dev/null || true
    # shellcheck disable=SC2086
    rg --files --no-messages $2 >"$dir/b" 2>/dev/null || true
    set +f
    compare "$tree: rg --files $2"
}

for tree in "$@"; do
    cd "$tree"
    files '' ''
    files '-H' '--hidden'
    files '-I' '--no-ignore'
    files '-HI' '--hidden --no-ignore'
    files '-d 3' '--max-depth 3'
    files '-z 1000' '--max-filesize 1000'
    files '-t c' '-t c'
    files '-T md -H' '-T md --hidden'
    files '-g *.h -g !a*' '-g *.h -g !a*'
    files '-g /[a-f]*/** -I' '-g /[a-f]*/** --no-ignore'
    for glob in '*.h' '[a-m]*' '*READ*' '*.{c,S,txt}' 'Makefile'; do
        "$dir/driver" files -a "$glob" >"$dir/a" 2>/dev/null || true
        fdfind --strip-cwd-prefix --case-sensitive --glob "$glob" 2>/dev/null | sed 's|/$||' >"$dir/b" || true
        compare "$tree: fd $glob"
    done
    # In both syntaxes. With bytes that are not UTF-8, or with late NUL bytes, rg differs (D1, D2) from rg -P, which
    # decides.
    for pattern in 'TODO|FIXME' '\bif \(' '^#define\s+\w+_MAX\b' '[0-9a-f]{8}-[0-9a-f]{4}' 'colou?r' \
        '(?i)copyright \d{4}' '(?i)DEADlock|k[a-z]+SPIN' 'x+y' '\.\s*$' '^.{100,}$' 'é|ü' \
        'static inline .*\(void\)$' 'foo(?=bar)' '(?<!un)lock\(' '(\w)\1\1' '\bchar\b(?!.*;)' '^\s*+#'; do
        "$dir/driver" grep "$pattern" 2>/dev/null | "$dir/replace" >"$dir/a" || true
        rg -P -n --no-heading --no-messages -e "$pattern" . 2>/dev/null | sed 's|^\./||' |
            grep -av ': WARNING: stopped searching binary file' >"$dir/b" || true
        compare "$tree: rg -P $pattern"
    done
    for pattern in 'TODO|FIXME' 'colou?r' '(?i)copyright \d{4}' 'static inline .*\(void\)$'; do
        "$dir/driver" grep -b -g '*.[chs]' "$pattern" >"$dir/a" 2>/dev/null || true
        rg -a -n --no-heading --no-messages -g '*.[chs]' -e "$pattern" . 2>/dev/null | sed 's|^\./||' >"$dir/b" ||
            true
        compare "$tree: rg $pattern"
    done
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
