# wrong-inputs.txt: each line is a wrong command line, the exit status and the exact message that it
# must get. Afterwards the machine must be unchanged.
# needs: image

load ../lib/box

setup()
{
    box_setup
    mkdir -p "$BOX_TMP/p" "$BOX_TMP/empty"
    echo a >"$BOX_TMP/p/a"
    echo '{"name": 3}' >"$BOX_TMP/broken.json"
    echo 'no equals sign' >"$BOX_TMP/badenv"
    mkfifo "$BOX_TMP/fifo"
    EMPTY=$BOX_TMP/empty BROKEN=$BOX_TMP/broken.json BADENV=$BOX_TMP/badenv FIFO=$BOX_TMP/fifo
    IMAGES=$(realpath "$BELLHOP_BUILD/..")/image
    cd "$BOX_TMP/p"
}
teardown()
{
    cd /
    box_teardown
}

# Processes, mounts, control groups, namespaces and files of this state directory; other boxes on
# the machine come and go. MARK is the beginning of the names of its control groups.
everything()
{
    all_of_it | LC_ALL=C sort -u
}

all_of_it()
{
    local pid

    traces
    # An entry that vanishes meanwhile makes find and readlink fail.
    find /sys/fs/cgroup -type d -name "$MARK*" 2>/dev/null || true
    for pid in $(grep -lF "/$MARK" /proc/[0-9]*/cgroup 2>/dev/null | cut -d / -f 3); do
        readlink "/proc/$pid/ns/net" "/proc/$pid/ns/user" 2>/dev/null || true
    done
    find "$BOX_TMP" -path "$BOX_TMP/state/*.db*" -prune -o -path "$BOX_TMP/state/locks/*" -prune \
        -o -path "$BOX_TMP/got.*" -prune -o -print
}

as_before()
{
    everything >"$BOX_TMP/got.after"
    cmp -s "$BOX_TMP/got.before" "$BOX_TMP/got.after"
}

# The mark is learned from a box that is there for a moment.
learn_mark()
{
    local id name

    id=$(bellhop up --name mark --agent none --empty --json | jq -r .id)
    name=$(basename "$(find /sys/fs/cgroup -type d -name "*$id" | head -n 1)")
    MARK=${name%"$id"}
    [ -n "$MARK" ]
    everything | grep -q '^net:'
    bellhop rm mark
}

@test "sixty and more wrong inputs get the exact message and leave everything as it was" {
    n=0
    learn_mark
    wait_for 10 no_traces
    everything >"$BOX_TMP/got.before"
    while IFS= read -r line; do
        [[ "$line" != "#"* ]] || continue
        want_status=${line%% | *}
        rest=${line#* | }
        words=${rest%% | *}
        eval "want=\"${rest#* | }\""
        status=0
        eval "bellhop $words" >"$BOX_TMP/got.out" 2>"$BOX_TMP/got.err" </dev/null 3>&- || status=$?
        got=$(grep '^bellhop: ' "$BOX_TMP/got.err" | tail -n 1)
        if [ "$status" != "$want_status" ] || [ "$got" != "bellhop: $want" ]; then
            fail "bellhop $words: status $status, '$got', wanted $want_status, 'bellhop: $want'"
        fi
        [ ! -s "$BOX_TMP/got.out" ] || fail "bellhop $words: wrote to standard output"
        wait_for 10 as_before || {
            diff "$BOX_TMP/got.before" "$BOX_TMP/got.after" >&2 || true
            fail "bellhop $words: left something"
        }
        n=$((n + 1))
    done <"$BATS_TEST_DIRNAME/wrong-inputs.txt"
    [ "$n" -ge 60 ]
}
