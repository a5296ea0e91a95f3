#!/bin/sh
# lint.sh C_FILE... -- SH_FILE...: the part of `make lint` that runs tools over the sources. Prints their findings, and
# fails if there are any.
set -eu

cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

for arg in "$@"; do
    if [ "$arg" = -- ]; then
        list=$tmp/sh
    elif [ -e "$arg" ]; then
        echo "$arg" >>"${list:-$tmp/c}"
    fi
done
touch "$tmp/c" "$tmp/sh"

# check NAME COMMAND...
check()
{
    name=$1
    shift
    if "$@" >"$tmp/out" 2>&1; then
        echo "  OK    $name"
    else
        cat "$tmp/out" >&2
        echo "  BAD   $name" >&2
        bad=1
    fi
}

over()
{
    list=$1
    shift
    xargs -r -d '\n' -a "$list" "$@"
}

run_cppcheck()
{
    # The compilers check macros and includes, and their warnings are errors.
    over "$1" cppcheck --quiet --std=c11 --language=c --enable=performance,portability \
        --inline-suppr --error-exitcode=1 --suppress=missingInclude --suppress=missingIncludeSystem \
        --suppress=unknownMacro --suppress=normalCheckLevelMaxBranches --suppress=unmatchedSuppression \
        --suppressions-list=.ci/cppcheck.txt -D_GNU_SOURCE -D__linux__ -D__x86_64__ -j 2 -I guest -I host-client \
        -I host-client/include
}

run_codespell()
{
    git ls-files --cached --others --exclude-standard |
        grep -v -E '^(LICENSE|tests/fuzz/|tests/fixtures/)' |
        xargs -r -d '\n' codespell --ignore-words=.ci/codespell.txt
}

no_long_lines()
{
    ! over "$1" grep -nE '^.{121,}$' /dev/null
}

# The tree names no host of a registry and no machine of a developer.
no_fixed_hosts()
{
    ! git grep -nIE --untracked 'registry\.np[m]|(deb|ftp|snapshot)\.de[b]ian' -- . \
        ':!LICENSE' ':!scripts/lint.sh'
}

# A failing command with `!` does not end a shell with -e, so bats ignores it unless it is the last one of its test.
seen_refusals()
{
    # shellcheck disable=SC2016 # awk's
    git ls-files --cached --others --exclude-standard 'tests/*.bats' | xargs awk '
        FNR == 1 { text = "" }
        /^[[:blank:]]/ && text != "" && !is_open { print where ": " text; bad = 1; text = "" }
        /^[^[:blank:]]/ { text = "" }
        is_open || /^ +! / {
            if (!is_open)
                where = FILENAME ":" FNR
            text = is_open ? text $0 : $0
            is_open = /[\\|&]$/
            if (!is_open && text ~ /(\|\| .+|&& .*)$/)
                text = ""
        }
        END { exit bad }'
}

# Nor does a failing condition before `&&` end it: two conditions are two lines, but at the end of a function.
seen_conditions()
{
    # shellcheck disable=SC2016 # awk's
    git ls-files --cached --others --exclude-standard 'tests/*.bats' | xargs awk '
        text != "" && !/^ *}/ { print where ": " text; bad = 1 }
        { text = "" }
        /^ +\[.*\] && [^|]*$/ && !/\] && (return|break|continue|echo|[a-z_]*=)/ { where = FILENAME ":" FNR; text = $0 }
        END { exit bad }'
}

grep '^[gh].*\.c$' "$tmp/c" >"$tmp/c-only" || true
check clang-format over "$tmp/c" clang-format-14 --dry-run -Werror
check cppcheck run_cppcheck "$tmp/c-only"
check shellcheck over "$tmp/sh" shellcheck -x
check 'short lines' no_long_lines "$tmp/sh"
check codespell run_codespell
check 'documents' scripts/check-docs.sh
check 'no fixed hosts' no_fixed_hosts
check 'refusals that are seen' seen_refusals
check 'conditions that are seen' seen_conditions
exit "$bad"
