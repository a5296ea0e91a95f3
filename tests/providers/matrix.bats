# early
# The matrix of faults: every function of a provider x every way to fail x the commands that call it. Each gives a
# non-zero exit, an event, and a store that is true.
# needs: image

load ../lib/box
load drivers
load faulty
load matrix
bats_require_minimum_version 1.5.0

CELLS_AT_ONCE=4 # hangs wait; the rest is two processors' work

setup_file()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    build_faulty
}
teardown_file() { rm -rf --one-file-system "$FAULTY_DIR"; }

setup()
{
    box_setup
    BELLHOP=$FAULTY_DIR/bellhop
}
teardown() { box_teardown; }

run_matrix() # PROVIDER UP_OPTION -- MODE...
{
    local row rows mode n=0

    PROVIDER=$1
    UP=(--provider "$1")
    shift
    rows=("${MATRIX[@]}")
    [ "$PROVIDER" != oci ] || rows+=("${MATRIX_SNAPSHOTS[@]}")
    for row in "${rows[@]}"; do
        for mode in "$@"; do
            n=$((n + 1))
            while [ "$(jobs -rp | wc -l)" -ge "$CELLS_AT_ONCE" ]; do
                wait -n || true
            done
            (run_cell "$row" "$mode" "$(printf '%s/result.%03d' "$BOX_TMP" "$n")") 3>&- 4>&- &
        done
    done
    wait
    echo "# provider $PROVIDER: exit status, event, state afterwards" >&3
    print_table "$@" | sed 's/^/# /' >&3
    ! grep -h '|FAIL' "$BOX_TMP"/result.* || fail "$PROVIDER: cells have failed"
    [ "$(cat "$BOX_TMP"/result.* | wc -l)" -eq "$n" ]
}

@test "each fault of each function of the process provider is an exit status, an event and a true store" {
    run_matrix process error late hang kill killed
}

@test "a probe that fails or hangs is told, by the provider's name, and the other providers are probed" {
    mkdir -m 0700 "$BELLHOP_STATE_DIR"
    for mode in error hang; do
        echo "probe $mode" >"$BELLHOP_STATE_DIR/fault"
        BELLHOP_PROVIDER_TIMEOUT=1s bellhop providers --json >"$BOX_TMP/providers"
        jq -e '.providers | length > 1 and all(.usable == false and .why != "")' "$BOX_TMP/providers"
        rm "$BELLHOP_STATE_DIR/fault"
    done
    bellhop providers --json | jq -e '[.providers[] | select(.usable)] | length > 0'
}

@test "each fault of each function of the oci provider is an exit status, an event and a true store" {
    run_matrix oci error hang killed
}
