# inner.bash: bats files run by a bats test, somewhere else. A file of inner tests lies in
# tests/integration/env/, where tests/run does not find it.
#
# inner DIR FILTER FILE...: the tests of the files whose names FILTER matches, with TMPDIR=DIR and
# without anything else of ours. Fails unless all of them passed; prints the failed ones. INNER_AS is a
# command to put before bats (another user, say); skips that say "needs root" are then accepted.
# Sets INNER_PASSED. (bats puts its own directory into PATH, where another bats lies.)
inner()
{
    local dir=$1 filter=$2 out path status=0

    shift 2
    path=$(tr : '\n' <<<"$PATH" | grep -v bats-core | paste -sd :)
    # shellcheck disable=SC2086 # INNER_AS is several words
    out=$(env -i PATH="$path" HOME="$dir" TERM=dumb LC_ALL=C.UTF-8 TMPDIR="$dir" \
        BELLHOP_BUILD="${INNER_BUILD:-$BELLHOP_BUILD}" ${WIRE_DIR:+WIRE_DIR="$WIRE_DIR"} \
        ${INNER_AS:-} bats --tap --filter "$filter" "$@" 3>&- 4>&- 2>&1 </dev/null) || status=$?
    # shellcheck disable=SC2034 # for the caller
    INNER_PASSED=$(grep -c '^ok ' <<<"$out" || true)
    if [ "$status" -ne 0 ] || grep '^ok .*# skip' <<<"$out" | grep -qv "${INNER_SKIPS:-^$}"; then
        grep -v '^ok ' <<<"$out" >&2
        grep '# skip' <<<"$out" >&2
        return 1
    fi
}
