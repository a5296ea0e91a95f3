# gc with more than one store on the machine: it touches only the boxes of its own store.
# needs: image

load ../lib/box

setup() { box_setup; }
teardown()
{
    BELLHOP_STATE_DIR=$BOX_TMP/other "$BELLHOP" rm -f theirs >/dev/null 2>&1 || true
    box_teardown
}

theirs() { BELLHOP_STATE_DIR=$BOX_TMP/other "$BELLHOP" "$@"; }

# Everything of the other store: its processes, mounts in their namespaces, control groups, files.
of_theirs()
{
    local id=$1

    processes_naming "$BOX_TMP/other" | cut -d : -f 1 | sort
    find /sys/fs/cgroup -type d -name "*$id*" 2>/dev/null | sort
    find "$BOX_TMP/other/boxes" "$BOX_TMP/other/userns" -maxdepth 3 ! -path '*/disk/*' ! -name '*.log' | sort
}

@test "gc of one store leaves the boxes of another alone, also those that it does not know itself" {
    bellhop up --name mine --agent none --empty 2>/dev/null >/dev/null
    remember_box mine
    theirs up --name theirs --agent none --empty >/dev/null 2>&1
    id=$(theirs status theirs --json | jq -r .id)
    of_theirs "$id" >"$BOX_TMP/before"
    [ "$(grep -c '^process' "$BOX_TMP/before")" -ge 2 ]
    [ "$(grep -c cgroup "$BOX_TMP/before")" -ge 1 ]

    # The box of this store has no record any more: gc removes it, and says so.
    mv "$BELLHOP_STATE_DIR/store.db" "$BOX_TMP/store.db"
    rm -f "$BELLHOP_STATE_DIR"/store.db-*
    run bellhop gc
    [ "$status" -eq 0 ]
    [ "$output" != "nothing to clean up" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ]
    wait_for 10 no_traces

    of_theirs "$id" >"$BOX_TMP/after"
    diff "$BOX_TMP/before" "$BOX_TMP/after"
    [ "$(theirs exec theirs -- echo alive)" = alive ]
    # A box that its own store has forgotten is not this store's to remove, either.
    mv "$BOX_TMP/other/store.db" "$BOX_TMP/their-store.db"
    bellhop gc >/dev/null
    of_theirs "$id" | diff "$BOX_TMP/before" -
    mv "$BOX_TMP/their-store.db" "$BOX_TMP/other/store.db"
    [ "$(theirs exec theirs -- echo alive)" = alive ]
}
