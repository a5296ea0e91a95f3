#!/bin/sh
# Checks the documents and prints each finding as `FILE:LINE: ...`:
#
#   1. A line of a .md file has at most 120 columns.
#   2. A cell of a table holds a phrase, not prose: no two sentences.
#   3. mandoc has nothing to warn of in a man page.
set -eu

cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C.UTF-8

find . -name '*.md' -not -path './build/*' -not -path './.git/*' -not -path '*/node_modules/*' |
    sed 's|^\./||' | sort >"$tmp/md"

# Columns are characters: grep counts them by the locale, mawk does not.
xargs -r grep -nE '^.{121,}$' /dev/null <"$tmp/md" | while IFS=: read -r file line text; do
    echo "$file:$line: $(printf '%s' "$text" | wc -m) columns, 120 are allowed"
done >"$tmp/found"

# shellcheck disable=SC2016 # awk's
xargs -r awk '
    /^```/ { is_code = !is_code }
    FNR == 1 { is_code = 0 }
    !is_code && /^\|/ {
        text = $0
        gsub(/`[^`]*`/, "", text)
        gsub(/e\.g\.|i\.e\.|etc\.|\.\.\./, "", text)
        if (text ~ /[a-z)][.;:] +[A-Z][a-z]*[^|]* [a-z]/)
            print FILENAME ":" FNR ": prose in a table: say it in a paragraph below"
    }' <"$tmp/md" >>"$tmp/found"

for page in docs/man/*.[1-8]; do
    [ ! -e "$page" ] || mandoc -Tlint "$page" >>"$tmp/found" || true
done

if [ -s "$tmp/found" ]; then
    sed 's/^mandoc: //' "$tmp/found" >&2
    exit 1
fi
echo "  OK    documents"
