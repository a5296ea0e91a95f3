#!/usr/bin/env bats
# engines-only
# early
# turn: kubernetes
# time-limit: 2400
# needs: image
# 300 boxes of the daemon over three simulated nodes: a pod there runs nothing, and one guest agent answers at the
# addresses of all of them. The daemon, the monitors and the agent are in a network of their own, where these addresses
# are local; the API server is reached through unix sockets.

load ../lib/box
load ../lib/daemon
load ../lib/kubernetes
bats_require_minimum_version 1.5.0

N=${BELLHOP_SCALE_BOXES:-300}
PODS=198.18.0.0/15 # of the simulated nodes

setup_file()
{
    find_cluster --kwok || return 0
    "$BELLHOP_BUILD/bellhop" image build "$BATS_TEST_DIRNAME/../lib/image" --form oci >/dev/null
    start_boxes_cluster
    start_kubectl_proxy
    make_volumes "$N" 10Gi
    # The pods are to be on the simulated nodes, without a toleration.
    cluster kwok 3
    kubectl --kubeconfig="$KUBE_ADMIN" taint nodes -l type=kwok kwok.x-k8s.io/node- >/dev/null
    kubectl --kubeconfig="$KUBE_ADMIN" cordon n1 >/dev/null
}
teardown_file() { [ -n "$NO_CLUSTER" ] || stop_boxes_cluster; }

setup()
{
    need_cluster
    box_setup
    PIDS=()
    unshare --net sh -c "ip link set lo up && ip route add local $PODS dev lo && exec sleep infinity" 3>&- &
    NETWORK=$!
    PIDS+=("$NETWORK")
    wait_until 10 is_network_up
    nsenter --net="/proc/$NETWORK/ns/net" "$(readlink -f "$BELLHOP_BUILD/bellhopd")" \
        --listen 0.0.0.0:4711 --auth=open --allow-host box \
        --workdir "$BOX_TMP" --max-connections 4000 --log error >"$BOX_TMP/agent.log" 2>&1 3>&- &
    PIDS+=("$!")
    : >"$BOX_TMP/api.log"
    python3 "$BATS_TEST_DIRNAME/../lib/engine_proxy.py" "$BOX_TMP/api" "$KUBE_PROXY" "$BOX_TMP/no-fault" \
        >"$BOX_TMP/proxy.out" 2>&1 3>&- &
    PIDS+=("$!")
    wait_until 10 grep -q ready "$BOX_TMP/proxy.out"
    wait_until 10 in_network curl -sf http://198.18.1.1:4711/v1/health
    export KUBECONFIG="proxy:$BOX_TMP/api?reach=address"
}

teardown()
{
    [ -z "$NO_CLUSTER" ] || return 0
    daemon_stop
    box_teardown
    end_now "${PIDS[@]}"
}

in_network() { nsenter --net="/proc/$NETWORK/ns/net" "$@"; }
is_network_up() { in_network ip route show table local | grep -q "^local $PODS"; }

# The process of `bellhop daemon` becomes the daemon.
daemon_start_in_network()
{
    DAEMON_SOCKET=$BOX_TMP/daemon.sock
    mkfifo "$BOX_TMP/ready"
    nsenter --net="/proc/$NETWORK/ns/net" "$BELLHOP" daemon --json --socket "$DAEMON_SOCKET" \
        >"$BOX_TMP/ready" 2>"$BOX_TMP/daemon.log" 3>&- &
    DAEMON_PID=$!
    read -r DAEMON_READY <"$BOX_TMP/ready"
    json_is 'has("error") | not' <<<"$DAEMON_READY"
}

@test "300 boxes of the daemon on three nodes cost the same calls each, and are removed without a trace" {
    daemon_start_in_network
    python3 "$BATS_TEST_DIRNAME/../lib/kube_scale.py" "$DAEMON_SOCKET" "$DAEMON_PID" "$BOX_TMP/api.log" "$N" \
        >"$BOX_TMP/figures" 2>&1 || fail "$(cat "$BOX_TMP/figures")"
    sed 's/^/# /' "$BOX_TMP/figures" >&3
    wait_until 60 nothing_left
}
