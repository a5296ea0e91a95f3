#!/bin/sh
# Writes the files that are made from the programs' own tables and from bellhop.h, under DIR (default: the tree
# itself): the man pages and the completion scripts. The programs must be built. docs/man/source has the pages, and
# the parts of pages, that are written by hand.
set -eu

cd "$(dirname "$0")/.."
dir=${1:-.}
built=${BELLHOP_BUILD:-build/release}
bellhop=$built/bellhop

for program in "$bellhop" "$built/bellhopd"; do
    if [ ! -x "$program" ]; then
        echo "gen-docs: $program is not built" >&2
        exit 1
    fi
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Functions of awk: characters that roff would take for requests or print as a typographer would.
# shellcheck disable=SC2016 # awk's
ROFF='
    function roff(s)
    {
        gsub(/\\/, "\\e", s)
        gsub(/-/, "\\-", s)
        gsub(/\047/, "\\(aq", s)
        gsub(/`/, "\\(ga", s)
        gsub(/\^/, "\\(ha", s)
        gsub(/~/, "\\(ti", s)
        sub(/^\./, "\\\\\\&.", s)
        return s
    }
    # Filled text in lines of at most 72 columns and what the escapes add.
    function put(s, i, n, word, line)
    {
        n = split(s, word, " ")
        line = ""
        for (i = 1; i <= n; i++) {
            if (line != "" && length(line) + length(word[i]) > 70) {
                print roff(line)
                line = ""
            }
            line = line (line == "" ? "" : " ") word[i]
        }
        if (line != "")
            print roff(line)
    }'

# The rows of `bellhopd --help`: "  --NAME ARG   TEXT"; two spaces behind the name where there is no ARG.
options_of_agent()
{
    # shellcheck disable=SC2016 # awk's
    "$built/bellhopd" --help | awk "$ROFF"'
        match($0, /^  --[a-z-]+/) {
            name = substr($0, 3, RLENGTH - 2)
            rest = substr($0, RLENGTH + 1)
            arg = ""
            if (rest ~ /^ [^ ]/ && match(rest, /^ [^ ]+/)) {
                arg = substr(rest, 2, RLENGTH - 1)
                rest = substr(rest, RLENGTH + 1)
            }
            sub(/^ +/, "", rest)
            print ".TP"
            print ".B " roff(name) (arg == "" ? "" : " \\fI" roff(arg) "\\fR")
            put(rest)
        }'
}

# The functions of bellhop.h with their comments, by the header's sections. A comment is for the declaration right
# behind it, or for the one that it ends the line of.
functions_of_library()
{
    # shellcheck disable=SC2016 # awk's
    awk "$ROFF"'
        # A declaration in lines of 72 columns at most.
        function put_declaration(text, i, n, word, line)
        {
            n = split(text, word, ", ")
            line = word[1]
            for (i = 2; i <= n; i++) {
                line = line ","
                if (length(line) + length(word[i]) > 71) {
                    print ".B \"" roff(line) "\""
                    line = "   "
                }
                line = line " " word[i]
            }
            print ".B \"" roff(line) "\""
        }
        function new_paragraph()
        {
            if (!is_first)
                print ".PP"
            is_first = 0
        }
        function put_function(text)
        {
            if (!was_bare || comment != "")
                new_paragraph()
            print ".nf"
            put_declaration(text)
            print ".fi"
            was_bare = comment == ""
            if (comment != "") {
                print ".RS 4"
                put(comment)
                print ".RE"
            }
            comment = ""
        }
        function put_object()
        {
            if (comment != "") {
                new_paragraph()
                put(comment)
            }
            was_bare = 0
            comment = ""
        }
        function strip_comment(s)
        {
            sub(/ *\*\/ *$/, "", s)
            sub(/^ *\/\*+ ?/, "", s)
            sub(/^ *\* ?/, "", s)
            return s
        }
        /extern "C"/ { is_begun = 1; getline; next }
        !is_begun { next }
        /^\/\* ---- .* ---- \*\/$/ {
            title = $0
            gsub(/^\/\* ---- | ---- \*\/$/, "", title)
            print ".SS " toupper(substr(title, 1, 1)) roff(substr(title, 2))
            is_first = 1
            was_bare = 0
            comment = ""
            next
        }
        in_comment {
            comment = comment " " strip_comment($0)
            if (/\*\//)
                in_comment = 0
            next
        }
        /^\/\*/ {
            comment = strip_comment($0)
            in_comment = !/\*\//
            next
        }
        in_body { in_body = !/^}/; next }
        /^(struct|enum) [a-z_]+ \{$/ { in_body = 1; comment = ""; next }
        /^struct [a-z_]+;/ { put_object(); next }
        /^#|^typedef|^}|^enum .*};/ { comment = ""; next }
        /^$/ { comment = ""; next }
        /^[a-z]/ || is_open {
            text = is_open ? text " " $0 : $0
            is_open = !(text ~ /;/)
            if (is_open)
                next
            gsub(/ +/, " ", text)
            if (match(text, /; *\/\*.*/)) {
                rest = substr(text, RSTART + 1)
                text = substr(text, 1, RSTART)
                if (rest !~ /\*\//) {
                    getline
                    rest = rest " " strip_comment($0)
                }
                comment = comment (comment == "" ? "" : " ") strip_comment(rest)
            }
            put_function(text)
        }' host-client/include/bellhop/bellhop.h
}

# page NAME MARK PART: docs/man/source/NAME with the file PART in the place of the line @MARK@.
page()
{
    # shellcheck disable=SC2016 # awk's
    awk -v mark="@$2@" -v part="$3" -v version="$version" -v date="$date" '
        $0 == mark { while ((getline line <part) > 0) print line; next }
        { gsub(/@VERSION@/, version); gsub(/@DATE@/, date); print }' "docs/man/source/$1" >"$dir/docs/man/$1"
}

mkdir -p "$dir/docs/man" "$dir/docs/completion"
"$bellhop" help --man >"$dir/docs/man/bellhop.1"
for command in $("$bellhop" help | sed -n 's/^  \([a-z][a-z-]\{1,\}\)  .*/\1/p' | sort -u); do
    "$bellhop" help --man "$command" >"$dir/docs/man/bellhop-$command.1"
done
version=$(sed -n '1s/.*"Bellhop \([^"]*\)".*/\1/p' "$dir/docs/man/bellhop.1")
date=$(sed -n '1s/^[^"]*"\([^"]*\)".*/\1/p' "$dir/docs/man/bellhop.1")
options_of_agent >"$tmp/options"
page bellhopd.8 OPTIONS "$tmp/options"
functions_of_library >"$tmp/functions"
page libbellhop.3 FUNCTIONS "$tmp/functions"
page bellhop-recipe.5 NOTHING /dev/null
page e2b.toml.5 NOTHING /dev/null
page bellhop.toml.5 NOTHING /dev/null
for shell in bash zsh fish; do
    "$bellhop" completion "$shell" >"$dir/docs/completion/bellhop.$shell"
done
