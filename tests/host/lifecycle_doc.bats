# The examples of docs/lifecycle.md do what they say.
# early
# needs: image

load ../lib/box

setup()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    box_setup
    DOC=$BATS_TEST_DIRNAME/../../docs/lifecycle.md
    PATH=$(dirname "$BELLHOP"):$PATH
    mkdir "$BOX_TMP/empty"
    cd "$BOX_TMP/empty"
}
teardown()
{
    local name

    for name in $(bellhop snapshots ls --json 2>/dev/null | jq -r '.snapshots[].name'); do
        bellhop snapshots rm "$name" >/dev/null 2>&1 || true
    done
    cd /
    box_teardown
}

# block N: the Nth example.
block()
{
    awk -v want="$1" '/^```sh$/ { n++; on = n == want; next } /^```$/ { on = 0 } on' "$DOC"
}

@test "the examples of docs/lifecycle.md run, in their order, and leave nothing" {
    local n=0 count

    count=$(grep -c '^```sh$' "$DOC")
    [ "$count" -ge 6 ]
    while [ "$n" -lt "$count" ]; do
        n=$((n + 1))
        echo "# example $n"
        block "$n" >"$BOX_TMP/example"
        [ -s "$BOX_TMP/example" ]
        timeout 300 sh -eu "$BOX_TMP/example" </dev/null
    done
    [ -z "$(bellhop ls -q)" ]
    [ "$(bellhop snapshots ls --json | jq '.snapshots | length')" -eq 0 ]
}
