#!/bin/sh
# Checks the names and the comments of the sources, and prints each finding as `FILE:LINE: ...`:
#
#   1. A static function or variable has a name of more than one word: `digest_decode`, not `decode`.
#   2. No two static functions or variables of one folder share a name.
#   3. No comment starts with "What", "Who", "Those", "That" or "Which".
#   4. The base name of a .c or .h file is unique in its program. Two files may share one if they play the same role
#      in sibling folders of host-client/lib/provider/ or guest/dialect/.
#
# With folders or files as arguments, only findings in those are printed; the comparison is with the whole tree.
set -eu

cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
: >"$tmp/found"

# Sources of the programs, then all files whose comments are checked.
find guest host-client -name '*.[ch]' -not -path 'guest/deps/*' | LC_ALL=C sort >"$tmp/c"
find Makefile Dockerfile.template .ci bootstrap docs guest host-client image scripts tests \( -name '*.[chS]' -o \
    -name '*.sh' -o -name '*.def' -o -name '*.proto' -o -name '*.bats' -o -name '*.bash' -o -name '*.py' -o \
    -name '*.awk' -o -name '*.mjs' -o -name '*.toml' -o -path .ci/run -o -path tests/run -o -name Makefile -o \
    -name 'Dockerfile*' \) -type f -not -path 'guest/deps/*' -not -path 'tests/fixtures/*' 2>/dev/null |
    LC_ALL=C sort >"$tmp/all"

# Rules 1 and 2. A definition begins in the first column, as clang-format has it.
# shellcheck disable=SC2016 # awk's
xargs -r awk '
    FNR == 1 {
        folder = FILENAME
        sub(/\/[^\/]*$/, "", folder)
    }
    # The name of a table of unnamed structs stands behind its last field.
    /^static (const )?struct \{/ {
        at = FILENAME ":" FNR
        while ((getline next_line) > 0 && next_line !~ /^\}/)
            ;
        $0 = "static " substr(next_line, 3)
        in_table = 1
    }
    !/^static / || /^static (inline )?(struct|union|enum) [a-z0-9_]+ \{/ || /^static_assert/ { next }
    {
        text = $0
        if (!in_table)
            at = FILENAME ":" FNR
        in_table = 0
        if (text !~ /[(=;\[]/ && (getline next_line) > 0)
            text = text " " next_line
        gsub(/__attribute__\(\([^)]*(\([^)]*\))?[^)]*\)\)/, "", text)
        if (match(text, /^[^(]*\(\*[a-z0-9_]+/) && match(text, /\(\*[a-z0-9_]+/)) # a pointer to a function
            name = substr(text, RSTART + 2, RLENGTH - 2)
        else {
            sub(/[(=;\[].*/, "", text)
            if (!match(text, /[A-Za-z0-9_]+ *$/))
                next
            name = substr(text, RSTART, RLENGTH)
            sub(/ *$/, "", name)
        }
        if (seen[FILENAME, name]++) # declared before it is defined
            next
        if (name !~ /[^_]_[^_]/)
            print at ": one-word static \"" name "\""
        if ((folder, name) in first)
            print at ": static \"" name "\" is also at " first[folder, name]
        else
            first[folder, name] = at
    }' <"$tmp/c" >>"$tmp/found"

# Rule 3. The first word after the mark of a comment; in a block whose first line is empty, the second line counts.
# shellcheck disable=SC2016 # awk's
xargs -r awk '
    function is_headless(text) { return text ~ /^[ \t]*([Ww]hat|[Ww]ho|[Tt]hose|[Tt]hat|[Ww]hich)([^A-Za-z0-9_]|$)/ }
    function report(text)
    {
        sub(/^[ \t]*/, "", text)
        print FILENAME ":" FNR ": comment starts with \"" substr(text, 1, match(text, /[^A-Za-z]|$/) - 1) "\": " \
            substr(text, 1, 60)
    }
    FNR == 1 {
        is_c = FILENAME ~ /\.([chS]|def|proto|mjs)$/
        was_open = was_hash = 0
    }
    is_c {
        if (was_open && match($0, /^ *\* ?/) && is_headless(substr($0, RLENGTH + 1)))
            report(substr($0, RLENGTH + 1))
        was_open = /^[ \t]*\/\*+[ \t]*$/
        text = $0
        while (match(text, /(\/\*+|(^|[^:"])\/\/) /)) {
            text = substr(text, RSTART + RLENGTH)
            if (is_headless(text))
                report(text)
        }
        next
    }
    {
        if (match($0, /^[ \t]*#+ /)) {
            if (!was_hash && is_headless(substr($0, RLENGTH + 1)))
                report(substr($0, RLENGTH + 1))
            was_hash = 1
            next
        }
        was_hash = 0
        if (FILENAME ~ /\.py$/ && match($0, /^[ \t]*"""/) && is_headless(substr($0, RLENGTH + 1)))
            report(substr($0, RLENGTH + 1))
        if (match($0, /[ \t]# /) && is_headless(substr($0, RSTART + RLENGTH)))
            report(substr($0, RSTART + RLENGTH))
    }' <"$tmp/all" >>"$tmp/found"

# Rule 4. The host programs link guest/common; those that serve HTTP also event and http.
unique_in() # PROGRAM FOLDER-PATTERN
{
    grep -E "$2" "$tmp/c" | awk -v program="$1" '
        {
            base = $0
            sub(/.*\//, "", base)
            sub(/\.[ch]$/, "", base)
            folder = $0
            sub(/\/[^\/]*$/, "", folder)
            family = folder
            if (!sub(/^(host-client\/lib\/provider|guest\/dialect)\/[^\/]+/, "&", family) ||
                !match(family, /^(host-client\/lib\/provider|guest\/dialect)\//))
                family = ""
            else
                family = substr(family, 1, RLENGTH)
            if (!(base in first)) {
                first[base] = $0
                folders[base] = folder
                families[base] = family
            } else if (folders[base] != folder && (family == "" || families[base] != family))
                print $0 ":1: base name \"" base "\" is also " first[base] " (" program ")"
        }' >>"$tmp/found"
}
unique_in bellhopd '^guest/'
unique_in bellhop '^(guest/common|host-client/(lib|include|cli))/'
unique_in bellhop-monitor '^(guest/(common|event|http)|host-client/(lib|include|monitor))/'
LC_ALL=C sort -t : -k 1,1 -k 2,2n "$tmp/found" | awk '
    { line = $0; sub(/ \(bellhop[a-z-]*\)$/, "", line) }
    !(line in seen) { seen[line] = 1; print }' >"$tmp/sorted"

if [ $# -gt 0 ]; then
    for place in "$@"; do
        place=${place%/}
        awk -v place="$place" 'index($0, place "/") == 1 || index($0, place ":") == 1' "$tmp/sorted"
    done >"$tmp/wanted"
else
    mv "$tmp/sorted" "$tmp/wanted"
fi
cat "$tmp/wanted" >&2
n=$(wc -l <"$tmp/wanted")
if [ "$n" -gt 0 ]; then
    echo "$n findings (scripts/check-names.sh)" >&2
    exit 1
fi
echo "  OK    names and comments"
