#!/usr/bin/env bats
# early
# needs: image
# turn: kubernetes
# time-limit: 2400
# The cluster of tests/lib/kubernetes, and the image of the boxes in it: a pod under Pod Security `restricted` with the
# token of a Secret, reached at its address, by port-forward and through the API server.

bats_require_minimum_version 1.5.0
load ../lib/kubernetes

TOKEN=0123456789abcdef0123456789abcdef

setup_file()
{
    local top

    top=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    export FORWARD=$top/tests/lib/kube_forward.py PROXY=$BATS_FILE_TMPDIR/proxy
    export IMAGE=$BATS_FILE_TMPDIR/image.tar
    find_cluster || return 0
    start_cluster --nodes 2
    "${BELLHOP_BUILD:-$top/build/release}/bellhop" image build slim --form oci >/dev/null
    cp "$top/build/image/slim/oci.tar" "$IMAGE"
    cluster import "$IMAGE" 1
    kubectl proxy --unix-socket="$PROXY" >"$BATS_FILE_TMPDIR/proxy.log" 2>&1 3>&- 4>&- {KUBERNETES_LOCK_FD}>&- &
    echo $! >"$BATS_FILE_TMPDIR/proxy.pid"
    wait_until 30 curl -sf --unix-socket "$PROXY" http://localhost/readyz
    kubectl create namespace boxes
    kubectl label namespace boxes pod-security.kubernetes.io/enforce=restricted
    kubectl -n boxes create secret generic one --from-literal=token="$TOKEN"
    wait_until 30 kubectl -n boxes get serviceaccount default
    pod_of one n1 | kubectl create -f -
    kubectl -n boxes wait --for=condition=Ready pod/one --timeout=120s
}

teardown_file()
{
    if [ -e "$BATS_FILE_TMPDIR/proxy.pid" ]; then
        kill "$(cat "$BATS_FILE_TMPDIR/proxy.pid")"
    fi
    stop_cluster
}

setup() { need_cluster; }

# pod_of NAME NODE: with the agent, and the token of its Secret. A mounted Secret is readable for a group, which the
# agent refuses for a token's file: it gets a descriptor.
pod_of()
{
    cat <<YAML
apiVersion: v1
kind: Pod
metadata: {name: $1, namespace: boxes}
spec:
  nodeName: $2
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 5
  securityContext:
    {runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: box
    image: docker.io/bellhop/slim:1.0.0
    imagePullPolicy: Never
    command: [sh, -c, "exec bellhopd --listen 0.0.0.0:4711 --token-fd 3 3</run/secrets/bellhop/token"]
    readinessProbe: {tcpSocket: {port: 4711}, periodSeconds: 1}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: token, mountPath: /run/secrets/bellhop, readOnly: true}]
  volumes:
  - {name: token, secret: {secretName: $1, defaultMode: 256}}
YAML
}

pod_field() { kubectl -n boxes get pod "$1" -o "jsonpath={.status.$2}"; }
condition_of() { kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'; }
is_not_ready() { [ "$(condition_of "$1")" = Unknown ]; }

@test "a pod under Pod Security restricted runs the agent with the token of a Secret" {
    local url
    url=http://$(pod_field one podIP):4711

    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/v1/openapi.json")" = 401 ]
    curl -sf -H "Authorization: Bearer $TOKEN" "$url/v1/openapi.json"
}

@test "a port-forward through kubectl's proxy reaches the agent" {
    printf '%s\r\n' 'GET /v1/openapi.json HTTP/1.1' 'Host: box' 'Connection: close' "Authorization: Bearer $TOKEN" '' |
        "$FORWARD" "$PROXY" boxes one 4711 >"$BATS_TEST_TMPDIR/answer"
    head -n 1 "$BATS_TEST_TMPDIR/answer" | grep -q '^HTTP/1.1 200'
    run -1 "$FORWARD" "$PROXY" boxes one 4712 </dev/null
    [[ "$output" == *'error forwarding port 4712'* ]]
}

@test "the API server's proxy reaches the agent, and takes the token in a header of its own" {
    local url=http://localhost/api/v1/namespaces/boxes/pods/one:4711/proxy/v1/openapi.json

    answer_to() { curl -s --unix-socket "$PROXY" -H "$1: $2" -o /dev/null -w '%{http_code}' "$url"; }
    [ "$(answer_to Authorization "Bearer $TOKEN")" = 401 ]
    [ "$(answer_to X-Access-Token "$TOKEN")" = 200 ]
}

@test "Pod Security restricted refuses a pod that could gain privileges" {
    run -1 kubectl create -f - < <(pod_of two n1 | sed 's/Escalation: false/Escalation: true/')
    [[ "$output" == *'violates PodSecurity "restricted:latest"'* ]]
}

@test "an image that one node has is not there on the other" {
    kubectl -n boxes create secret generic three --from-literal=token="$TOKEN"
    pod_of three n2 | kubectl create -f -
    wait_until 30 eval '[ "$(pod_field three containerStatuses[0].state.waiting.reason)" = ErrImageNeverPull ]'
    cluster import "$IMAGE" 2
    kubectl -n boxes wait --for=condition=Ready pod/three --timeout=120s
}

@test "the API server comes back with its objects, and pods run on meanwhile" {
    local url
    url=http://$(pod_field one podIP):4711/v1/health

    cluster stop-apiserver
    run ! kubectl get nodes --request-timeout=5s
    curl -sf -o /dev/null "$url"
    cluster start-apiserver
    wait_until 30 kubectl -n boxes get pod one
}

@test "simulated nodes run 300 pods" {
    cluster built --kwok || skip "kwok is not built here (make test-engines builds it)"
    cluster kwok 3
    kubectl create namespace many
    wait_until 30 kubectl -n many get serviceaccount default
    kubectl -n many create deployment many --image=none --replicas=300 --dry-run=client -o json |
        jq '.spec.template.spec += {nodeSelector: {type: "kwok"}, tolerations: [{operator: "Exists"}]}' |
        kubectl create -f -
    wait_for 120 eval '[ "$(kubectl -n many get deployment many -o jsonpath={.status.readyReplicas})" = 300 ]'
    [ "$(kubectl -n many get pods -o json | jq '[.items[].spec.nodeName] | unique | length')" = 3 ]
    kubectl delete namespace many --wait=false
}

@test "a node that loses its power is NotReady, and its pods cannot be reached" {
    local address
    cluster import "$IMAGE" 2
    kubectl -n boxes create secret generic four --from-literal=token="$TOKEN"
    pod_of four n2 | kubectl create -f -
    kubectl -n boxes wait --for=condition=Ready pod/four --timeout=120s
    address=$(pod_field four podIP)

    curl -sf -o /dev/null "http://$address:4711/v1/health"
    cluster kill-node 2
    run ! curl -sf --max-time 2 -o /dev/null "http://$address:4711/v1/health"
    wait_until 60 is_not_ready n2
    [ "$(condition_of n1)" = True ]
}

@test "a second cluster is refused, and down leaves nothing" {
    run -1 cluster up
    [[ "$output" == *'a cluster is up'* ]]
    run -1 env BELLHOP_KUBERNETES_CACHE="$BATS_TEST_TMPDIR" "$CLUSTER" kill-node 1
    [[ "$output" == *'no cluster is up'* ]]
    cluster down
    run ! grep -q "bhk$KUBERNETES_SLOT-" /proc/self/mountinfo
    [ -z "$(ip -o link | grep -o "bhk$KUBERNETES_SLOT[^:@]*")" ]
    [ -z "$(ip netns list | grep "bhk$KUBERNETES_SLOT-")" ]
    [ -z "$(find /sys/fs/cgroup -maxdepth 2 -name "bhk$KUBERNETES_SLOT-*")" ]
    [ -z "$(ps -eo args= | grep -F "${KUBECONFIG%/*}" | grep -v grep)" ]
    cluster down
}
