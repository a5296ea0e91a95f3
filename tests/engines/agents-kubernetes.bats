#!/usr/bin/env bats
# engines-only
# early
# turn: kubernetes
# time-limit: 1800
# needs: image network
# The life of a box with the real coding agents (tests/bootstrap/loop.bats), as a pod. A pod has neither pause nor
# snapshots.

load ../lib/box
load ../lib/kubernetes
bats_require_minimum_version 1.5.0

setup_file()
{
    find_cluster || return 0
    "$BELLHOP_BUILD/bellhop" image build "$BATS_TEST_DIRNAME/../lib/image" --form oci >/dev/null
    start_boxes_cluster
}
teardown_file() { [ -n "$NO_CLUSTER" ] || stop_boxes_cluster; }
setup() { need_cluster; }

# run_loop AGENT: the file as it is, with boxes of the cluster. Its bats is another one than ours.
run_loop()
{
    local name unset=()

    use_cluster kubernetes
    while read -r name; do
        unset+=(-u "$name")
    done < <(env | sed -n 's/^\(BATS_[A-Z_]*\)=.*/\1/p')
    env "${unset[@]}" TEST_PROVIDER=kubernetes TEST_STEPS=stop BELLHOP_BUILD="$(readlink -f "$BELLHOP_BUILD")" \
        bats -f "^$1 keeps" "$BATS_TEST_DIRNAME/../bootstrap/loop.bats" >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- || {
        cat "$BATS_TEST_TMPDIR/out"
        return 1
    }
    [ "$(grep '^ok' "$BATS_TEST_TMPDIR/out" | grep -vc '# skip')" -eq 1 ]
    nothing_left || fail "left behind: $(kube_objects)"
}

@test "opencode keeps its session through stop and start in Kubernetes, and rm leaves nothing" { run_loop opencode; }

@test "pi keeps its session through stop and start in Kubernetes, and rm leaves nothing" { run_loop pi; }
