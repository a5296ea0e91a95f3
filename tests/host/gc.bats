# gc with more than one store on the machine: it touches only what is its own store's, and reports what is no store's.
# needs: image

bats_require_minimum_version 1.5.0
load ../lib/box

setup()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    box_setup
    OTHER=$BOX_TMP/other
}

teardown()
{
    [ -z "${LABELLED:-}" ] || end_now "$LABELLED" || true
    [ -z "${GROUP:-}" ] || rmdir "$GROUP" || true
    [ ! -e "$BOX_TMP/away" ] || give_store_back
    for name in theirs cheap third; do
        BELLHOP_STATE_DIR=$OTHER "$BELLHOP" rm -f "$name" >/dev/null 2>&1 || true
    done
    box_teardown
}

theirs() { BELLHOP_STATE_DIR=$OTHER "$BELLHOP" "$@"; }

# make_boxes STORE OCI PROCESS: a box of each provider.
make_boxes()
{
    BELLHOP_STATE_DIR=$1 "$BELLHOP" up --name "$2" --agent none --empty >/dev/null 2>&1
    BELLHOP_STATE_DIR=$1 "$BELLHOP" up --name "$3" --agent none --empty --provider process >/dev/null 2>&1
}

their_ids() { theirs ls --json | jq -r '.boxes[].id'; }

# Everything of the other store: its processes, mounts in their namespaces, control groups, files.
of_theirs()
{
    local id

    processes_naming "$OTHER" | cut -d : -f 1 | sort
    for id in $IDS; do
        find /sys/fs/cgroup -type d -name "*$id*" 2>/dev/null | sort
    done
    find "$OTHER/boxes" "$OTHER/userns" -maxdepth 3 ! -path '*/disk/*' ! -name '*.log' ! -name lease.json | sort
}

take_store_away()
{
    mkdir "$BOX_TMP/away"
    mv "$OTHER"/store.db* "$BOX_TMP/away"
}

give_store_back()
{
    rm -f "$OTHER"/store.db*
    mv "$BOX_TMP/away"/* "$OTHER"
    rmdir "$BOX_TMP/away"
}

their_boxes_work()
{
    [ "$(theirs exec theirs -- echo alive)" = alive ]
    [ "$(theirs exec cheap -- echo alive)" = alive ]
}

@test "gc of one store leaves the boxes of another alone, also those that it does not know itself" {
    make_boxes "$BELLHOP_STATE_DIR" mine my-process
    remember_box mine
    remember_box my-process
    make_boxes "$OTHER" theirs cheap
    IDS=$(their_ids)
    of_theirs >"$BOX_TMP/before"
    [ "$(grep -c '^process' "$BOX_TMP/before")" -ge 4 ]
    for id in $IDS; do
        grep -q "cgroup.*$id" "$BOX_TMP/before"
    done
    # A box of a store that knows it is no news.
    bellhop gc >"$BOX_TMP/out"
    for id in $IDS; do
        run ! grep "$id" "$BOX_TMP/out"
    done
    of_theirs | diff "$BOX_TMP/before" -

    # Also those that are removed of this store.
    bellhop rm mine my-process
    bellhop gc >/dev/null
    wait_for 10 no_traces
    of_theirs | diff "$BOX_TMP/before" -
    their_boxes_work
}

@test "when its store is lost, gc reports every box with the size of its disk, and every snapshot, and nothing of them is touched" {
    make_boxes "$OTHER" theirs cheap
    theirs exec theirs -- sh -c 'echo work >file; head -c 3000000 /dev/urandom >much'
    theirs snapshot theirs --name before
    theirs fork theirs third >/dev/null 2>&1 # its disk has the layer
    layer=$(ls "$OTHER/snapshots/layers")
    mkdir -p "$OTHER/snapshots/making/00000000000000ef"
    theirs stop theirs # one without processes, one that runs
    IDS=$(their_ids)
    of_theirs >"$BOX_TMP/before"
    take_store_away
    for round in gone empty; do
        theirs gc >"$BOX_TMP/out"
        for id in $IDS; do
            grep -Eqx "not ours, kept: '$OTHER/boxes/$id' is of a box that the store does not know, its disk has [0-9]+ bytes; remove it with rm -r, or put its store back" \
                "$BOX_TMP/out" || fail "$round: $(cat "$BOX_TMP/out")"
        done
        # Boxes that run are reported with their processes, too.
        [ "$(grep -Ec "^not ours, kept: the box [0-9a-f]{16} whose store does not know it \\('$OTHER'\\): control group '.*', processes [0-9]+" "$BOX_TMP/out")" -eq 2 ] ||
            fail "$round: $(cat "$BOX_TMP/out")"
        for path in "layers/$layer" making/00000000000000ef; do
            grep -q "^not ours, kept: '$OTHER/snapshots/$path' is of a snapshot that the store does not know, it has [0-9]* bytes; " "$BOX_TMP/out" ||
                fail "$round: $(cat "$BOX_TMP/out")"
        done
        run ! grep -v '^not ours, kept: ' "$BOX_TMP/out"
        of_theirs | diff "$BOX_TMP/before" -
        rm -f "$OTHER"/store.db*
        python3 -c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute("VACUUM")' "$OTHER/store.db"
    done
    give_store_back
    rmdir "$OTHER/snapshots/making/00000000000000ef"
    their_boxes_work
    [ "$(theirs exec theirs -- cat file)" = work ]
    [ "$(theirs exec third -- cat file)" = work ]
    theirs snapshots verify before
    theirs rm third
    theirs snapshots rm before
    theirs rm theirs
    theirs gc >/dev/null
    [ -z "$(ls "$OTHER/snapshots/layers")" ]
}

@test "a store at the same path in another mount namespace has the same mark, and its gc ends no box of this one" {
    make_boxes "$OTHER" theirs cheap
    IDS=$(their_ids)
    of_theirs >"$BOX_TMP/before"
    # shellcheck disable=SC2016
    BELLHOP_STATE_DIR=$OTHER unshare -m sh -c 'mount -t tmpfs -o mode=0700 none "$1" && exec "$0" gc' "$BELLHOP" "$OTHER" >"$BOX_TMP/out"
    for id in $IDS; do
        grep -q "^not ours, kept: the box $id whose store does not know it ('$OTHER'): control group " "$BOX_TMP/out" || fail "$(cat "$BOX_TMP/out")"
    done
    of_theirs | diff "$BOX_TMP/before" -
    their_boxes_work
}

@test "a box that its own store has forgotten is reported by the gc of another: what, where and whose, and nothing of it is touched" {
    make_boxes "$OTHER" theirs cheap
    IDS=$(their_ids)
    of_theirs >"$BOX_TMP/before"

    take_store_away
    bellhop gc >"$BOX_TMP/out"
    for id in $IDS; do
        grep -Eq "^not ours, kept: the box $id whose store is gone \\('$OTHER'\\): control group '/bellhop-[0-9a-f]{8}-$id', processes [0-9]+" \
            "$BOX_TMP/out" || fail "$(cat "$BOX_TMP/out")"
    done
    of_theirs | diff "$BOX_TMP/before" -
    # In JSON, and with --dry-run.
    for id in $IDS; do
        bellhop gc --dry-run --json | jq -e --arg id "$id" '.done | any(startswith("not ours, kept: the box \($id) "))' >/dev/null
    done
    # A new store in its place does not know them, either.
    theirs ls >/dev/null
    bellhop gc >"$BOX_TMP/out"
    for id in $IDS; do
        grep -q "^not ours, kept: the box $id whose store does not know it ('$OTHER'): " "$BOX_TMP/out" || fail "$(cat "$BOX_TMP/out")"
    done
    of_theirs | diff "$BOX_TMP/before" -
    # Nothing was made in the other store's directory by looking into it.
    rm -f "$OTHER"/store.db-*
    ls -A "$OTHER" >"$BOX_TMP/files"
    bellhop gc >/dev/null
    ls -A "$OTHER" | diff "$BOX_TMP/files" -
    give_store_back
    their_boxes_work
}

@test "a control group or a process with the label of no known box, and a copy among the boxes, are reported and kept" {
    bellhop up --name mine --agent none --empty >/dev/null 2>&1
    remember_box mine
    group=$(find /sys/fs/cgroup -maxdepth 2 -type d -name "bellhop-*-${BOX_IDS[0]}" | head -n 1)
    GROUP=$(dirname "$group")/bellhop-0badcafe-00000000000000ab
    mkdir "$GROUP"
    BELLHOP_BOX_ID=00000000000000cd sleep 1000 3>&- &
    LABELLED=$!
    copy=$BELLHOP_STATE_DIR/boxes/copy-of-mine
    mkdir -p "$copy/oci/disk"
    echo work >"$copy/oci/disk/file"

    bellhop gc >"$BOX_TMP/out"
    grep -qx "not ours, kept: the box 00000000000000ab of a store that nothing here names: control group '/${GROUP##*/}', no processes" \
        "$BOX_TMP/out" || fail "$(cat "$BOX_TMP/out")"
    grep -qx "not ours, kept: the box 00000000000000cd of a store that nothing here names: processes $LABELLED" "$BOX_TMP/out"
    grep -qx "not ours, kept: '$copy' is not the directory of a box" "$BOX_TMP/out"
    [ -d "$GROUP" ]
    kill -0 "$LABELLED"
    [ "$(cat "$copy/oci/disk/file")" = work ]
    [ "$(bellhop exec mine -- echo alive)" = alive ]
    rm -r "$copy"
}

@test "gc needs no engine and no cluster that never had a box of the store" {
    make_boxes "$BELLHOP_STATE_DIR" one cheap
    head -c 32 /dev/zero | tr '\0' a >"$BELLHOP_STATE_DIR/mark" # as a box of another engine leaves it
    chmod 0600 "$BELLHOP_STATE_DIR/mark"
    cat >"$BOX_TMP/kubeconfig" <<'END'
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
END
    KUBECONFIG=$BOX_TMP/kubeconfig DOCKER_HOST=tcp://127.0.0.1:1 bellhop gc
}
