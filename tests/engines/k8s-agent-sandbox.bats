#!/usr/bin/env bats
# early
# engines-only
# turn: kubernetes
# time-limit: 900
# needs: image network
# agent-sandbox's Python client, unmodified, with our image in a real cluster: a claim from a warm pool, commands and files.

load ../lib/box
load ../lib/kubernetes
load ../lib/venv
bats_require_minimum_version 1.5.0

CLIENT_VERSION=1.0.8 # as in tests/sandboxd

# The template of docs/dialect-sandboxd.md, with our image.
start_open_pool()
{
    sed -n '/^apiVersion: extensions.agents.x-k8s.io/,/^```/p' "$BATS_TEST_DIRNAME/../../docs/dialect-sandboxd.md" |
        sed -e '/^```/d' -e 's,bellhop/slim:[0-9.]*,bellhop/tests:1,' | kube create -f -
    wait_until 60 has_ready runtime 1
}

setup_file()
{
    find_cluster --agent-sandbox || return 0
    "$BELLHOP_BUILD/bellhop" image build "$BATS_TEST_DIRNAME/../lib/image" --form oci >/dev/null
    start_boxes_cluster --agent-sandbox
    start_open_pool
}

teardown_file() { [ -n "$NO_CLUSTER" ] || stop_boxes_cluster; }
setup() { need_cluster; }

nothing_left()
{
    local left

    left=$(pool_objects agents.x-k8s.io/created-by) && [ -z "$left" ]
}

@test "k8s-agent-sandbox claims a box of our image from a warm pool and works in it" {
    local python before

    python=$(venv_python k8s-agent-sandbox $CLIENT_VERSION) || skip "k8s-agent-sandbox can't be installed"
    before=$(kube get sandboxes -o 'jsonpath={.items[*].metadata.name}')
    KUBECONFIG=$KUBE_ADMIN NAMESPACE=$KUBE_NAMESPACE POOL=runtime NO_PROXY='*' no_proxy='*' \
        run "$python" "$BATS_TEST_DIRNAME/claim_client.py"
    [ "$status" -eq 0 ] && [ "${lines[-1]}" = ok ] || fail "$output"
    [[ " $before " == *" ${lines[0]#sandbox } "* ]] || fail "the box is not one that was there before: $output"
    wait_until 60 nothing_left
}
