#!/usr/bin/env bats
# engines-only
# early
# turn: kubernetes
# time-limit: 1800
# needs: image
# Boxes in Kubernetes as a person meets them: a wrong cluster, ^C, a project of some size, an API server that is away.

load ../lib/box
load ../lib/kubernetes
bats_require_minimum_version 1.5.0

setup_file()
{
    find_cluster || return 0
    "$BELLHOP_BUILD/bellhop" image build "$BATS_TEST_DIRNAME/../lib/image" --form oci >/dev/null
    start_boxes_cluster
    start_kubectl_proxy
}

teardown_file() { [ -n "$NO_CLUSTER" ] || stop_boxes_cluster; }

setup()
{
    need_cluster
    box_setup
    use_cluster kubernetes
}

teardown()
{
    [ -z "$NO_CLUSTER" ] || return 0
    cluster start-apiserver
    kubectl --kubeconfig="$KUBE_ADMIN" uncordon n1 >/dev/null
    use_cluster kubernetes
    box_teardown
    wait_until 20 nothing_left
}

has_pod() { kube_objects | grep -q '^Pod '; }
up() { bellhop up --name one --provider kubernetes --agent none "$@"; }
cordon() { kubectl --kubeconfig="$KUBE_ADMIN" cordon n1 >/dev/null; }

# fails_with STATUS TEXT COMMAND [ARGUMENT...]
fails_with()
{
    run "${@:3}"
    [ "$status" -eq "$1" ] || fail "$status: $output"
    [[ "$output" == *"$2"* ]] || fail "$output"
}

@test "a cluster that cannot be used is an error that names the variable or Kubernetes' reason" {
    local config=$BOX_TMP/kubeconfig

    BELLHOP_KUBE_NAMESPACE=absent fails_with 3 'namespaces "absent" not found' up --empty
    BELLHOP_KUBE_NAMESPACE=Not_One fails_with 2 "BELLHOP_KUBE_NAMESPACE: 'Not_One' is no name" up --empty
    KUBECONFIG=$config fails_with 3 "KUBECONFIG: open '$config'" up --empty
    kube config view --raw --flatten -o json | jq '.clusters[0].cluster.server = "https://127.0.0.1:1"' >"$config"
    KUBECONFIG=$config fails_with 5 "KUBECONFIG: the cluster: connect to 'https://127.0.0.1:1': connection refused" up --empty
    # kubectl refuses each of these, too.
    kube config view --raw --flatten -o json >"$BOX_TMP/good"
    jq '.contexts[0].context.user = "nobody"' "$BOX_TMP/good" >"$config"
    KUBECONFIG=$config fails_with 3 "has no user 'nobody' for the context" up --empty
    jq '.contexts[0].context.cluster = "nowhere"' "$BOX_TMP/good" >"$config"
    KUBECONFIG=$config fails_with 2 "names no server with https:// for the context '" up --empty
    jq '."current-context" = ""' "$BOX_TMP/good" >"$config"
    KUBECONFIG=$config fails_with 3 "has no current context" up --empty
    jq '.clusters[0].cluster."certificate-authority-data" = "!"' "$BOX_TMP/good" >"$config"
    KUBECONFIG=$config fails_with 2 "KUBECONFIG: 'certificate-authority-data'" up --empty
    BELLHOP_KUBE_REGISTRY=registry.invalid/boxes fails_with 4 'push it, or set kube-registry' up --empty
    has_no_boxes
}

@test "a path in the address of the cluster is from the directory of up, and the box is reached from elsewhere" {
    cd "$(dirname "$KUBE_PROXY")"
    KUBECONFIG="proxy:$(basename "$KUBE_PROXY")?reach=exec" up --empty >/dev/null
    cd /
    [ "$(bellhop exec one -- echo there)" = there ]
}

@test "a start whose time ends says why the pod does not run" {
    cordon
    fails_with 6 Unschedulable up --empty --start-timeout 60s
    nothing_left
}

@test "an up that is interrupted, and one that is killed, leave nothing" {
    local pid

    cordon
    env --default-signal=INT "$BELLHOP" up --name one --provider kubernetes --agent none --empty >/dev/null 2>&1 3>&- &
    pid=$!
    wait_until 20 has_pod
    kill -INT "$pid"
    wait_gone "$pid"
    has_no_boxes
    nothing_left
    env "$BELLHOP" up --name one --provider kubernetes --agent none --empty >/dev/null 2>&1 3>&- &
    pid=$!
    wait_until 20 has_pod
    end_now "$pid"
    bellhop gc
    has_no_boxes
    nothing_left
}

@test "two ups of one name at once make one pod" {
    local first

    up --empty >/dev/null 2>&1 3>&- &
    first=$!
    up --empty >/dev/null 2>&1
    wait "$first"
    [ "$(bellhop ls -q)" = one ]
    [ "$(kube_objects | grep -c '^Pod ')" -eq 1 ]
}

@test "a project of 64 MB arrives and comes back byte for byte, and a port of the box serves it" {
    local url

    mkdir "$BOX_TMP/project"
    head -c 64000000 /dev/urandom >"$BOX_TMP/project/large"
    up "$BOX_TMP/project" >/dev/null
    bellhop exec one -- cat large | cmp - "$BOX_TMP/project/large"
    bellhop get one :large "$BOX_TMP"
    cmp "$BOX_TMP/large" "$BOX_TMP/project/large"
    bellhop exec -d one -- python3 -m http.server 8000
    bellhop wait-port one 8000
    url=$(bellhop url one 8000)
    curl -sS "$url/large" | cmp - "$BOX_TMP/project/large"
}

@test "while the API server is away, ls answers and calls are typed errors; then the box goes on" {
    up --empty >/dev/null
    cluster stop-apiserver
    [ "$(bellhop ls --json | jq -r '.boxes[0].state')" = running ]
    run -125 bellhop exec one -- true
    fails_with 5 'the cluster' bellhop status one
    cluster start-apiserver
    wait_until 30 kube get pods
    [ "$(bellhop exec one -- echo there)" = there ]
}
