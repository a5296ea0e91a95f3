#!/usr/bin/env bats
# early
# engines-only
# turn: kubernetes
# time-limit: 2400
# needs: image
# The provider kubernetes where a cluster refuses, fails or takes away: the error and the cause have Kubernetes' own
# reason, and nothing is left in the namespace.

load ../lib/box
load ../lib/kubernetes
bats_require_minimum_version 1.5.0

setup_file()
{
    find_cluster || return 0
    "$BELLHOP_BUILD/bellhop" image build "$BATS_TEST_DIRNAME/../lib/image" --form oci >/dev/null
    start_boxes_cluster --nodes 2
    start_kubectl_proxy
    make_role
    kube create serviceaccount boxer
    kube create rolebinding boxer --role=bellhop --serviceaccount=boxes:boxer
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
    kube get --raw /readyz >/dev/null 2>&1 || { cluster start-apiserver && wait_until 30 kube get pods; }
    if [ -n "$(kube delete resourcequotas --all)" ]; then
        wait_until 60 admits_pods
    fi
    uncordon
    rmdir -p /run/secrets/kubernetes.io/serviceaccount 2>/dev/null || true
    use_cluster kubernetes
    box_teardown
    wait_until 20 nothing_left
}

cordon() { kubectl --kubeconfig="$KUBE_ADMIN" cordon -l kubernetes.io/hostname >/dev/null; }
uncordon() { kubectl --kubeconfig="$KUBE_ADMIN" uncordon -l kubernetes.io/hostname >/dev/null; }

up() # [OPTION...]
{
    bellhop up --name one --provider kubernetes --agent none --empty "$@" >"$BOX_TMP/up" 2>&1 || fail "$(cat "$BOX_TMP/up")"
    ID=$(bellhop status one --json | jq -r .id)
    BOX_IDS+=("$ID")
}

# refuses CODE TEXT COMMAND [ARGUMENT...]: the command fails so, and no object and no box is there then.
refuses()
{
    local code=$1 text=$2

    run "${@:3}"
    [ "$status" -ne 0 ]
    [[ "$output" == *"\"code\":\"$code\""* && "$output" == *"$text"* ]] || fail "$output"
    has_no_boxes
    wait_until 20 nothing_left
}

up_json() { bellhop up --name one --provider kubernetes --agent none --empty --json "$@"; }

status_of() { bellhop status one --json | jq -r "$1"; }
is_state() { [ "$(status_of .state)" = "$1" ]; }

# has_event TEXT: in an event of the box.
has_event()
{
    bellhop events one --json | json_is --arg text "$1" 'any(.events[]; tostring | contains($text))'
}

@test "an image that cannot be pulled fails a start with Kubernetes' reason" {
    export BELLHOP_KUBE_REGISTRY=registry.invalid/bellhop
    refuses failed_precondition ErrImagePull up_json
}

# The dry run of a pod is what the API server refuses: nothing else is made.
@test "Pod Security refuses the pod of an image whose user is root, with its reason" {
    local image name

    image=$(readlink -f "$BATS_TEST_DIRNAME/../../build/image/tests")
    mkdir "$BOX_TMP/image"
    for name in .agent.oci oci oci.tar rootfs; do
        ln -s "$image/$name" "$BOX_TMP/image/$name"
    done
    jq '.user.uid = 0 | .user.gid = 0' "$image/manifest.json" >"$BOX_TMP/image/manifest.json"
    refuses failed_precondition 'violates PodSecurity \"restricted:latest\": runAsUser=0' up_json --image "$BOX_TMP/image"
}

@test "a pod that no node has room for says so at the deadline, and nothing is left" {
    refuses deadline_exceeded 'Unschedulable' up_json --cpus 1000 --start-timeout 60s
}

@test "a token that the API server refuses is a typed error" {
    kube config view --raw --flatten -o json | jq '.users[0].user = {token: "refused"}' >"$BOX_TMP/kubeconfig"
    KUBECONFIG=$BOX_TMP/kubeconfig refuses permission_denied Unauthorized up_json
}

# A new quota is in force only after the controller has counted.
is_refused_by_quota() { [[ "$(admits_pods 2>&1)" == *"quota: $1"* ]]; }

@test "a quota refuses a box before anything is made" {
    kube create quota few --hard=pods=0
    wait_until 60 is_refused_by_quota few
    refuses resource_exhausted 'exceeded quota: few' up_json
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes" 2>/dev/null)" ]
    kube delete quota few
    wait_until 60 admits_pods
    kube create quota limits --hard=limits.cpu=4
    wait_until 60 is_refused_by_quota limits
    refuses resource_exhausted 'must specify limits.cpu' up_json
    up --cpus 0.5
}

@test "options that pods lack are refused by name" {
    refuses unimplemented '"field":"privilege"' up_json --privilege sudo
    refuses unimplemented '"field":"network"' up_json --network host
    refuses unimplemented '"field":"pids"' up_json --pids 100
    refuses unimplemented '"field":"on-idle"' up_json --on-idle pause
    refuses permission_denied 'absent' up_json --runtime absent
}

@test "the role of the documentation suffices for a service account, and less is refused with its reason" {
    kube create serviceaccount newcomer
    sa_config newcomer >"$BOX_TMP/kubeconfig"
    export KUBECONFIG=$BOX_TMP/kubeconfig
    unset BELLHOP_KUBE_NAMESPACE
    refuses permission_denied 'cannot create resource' up_json
    kube create rolebinding newcomer --role=bellhop --serviceaccount=boxes:newcomer
    up --network none
    [ "$(bellhop exec one -- echo there)" = there ]
    bellhop stop one
    bellhop start one
    bellhop rm one
}

@test "a network policy of a box that somebody has opened is closed again at its next start" {
    up --network none
    bellhop stop one
    kube patch networkpolicy "bellhop-$ID" --type merge -p '{"spec": {"egress": [{}]}}'
    bellhop start one
    kube get networkpolicy "bellhop-$ID" -o json |
        json_is '.spec | .egress == null and (.policyTypes | length) == 2'
}

# The class of start_boxes_cluster; its handler is a runtime of the nodes' containerd.
@test "--runtime is the runtime class of the box's pod, also after a stop, and without it there is none" {
    runtime_class() { kube get pod "bellhop-$ID" -o json | jq -r '.spec.runtimeClassName'; }

    up --runtime runc
    [ "$(runtime_class)" = runc ]
    bellhop stop one
    bellhop start one
    [ "$(runtime_class)" = runc ]
    bellhop rm one
    up
    [ "$(runtime_class)" = null ]
}

# in_pod COMMAND...: with the files that a pod of the service account has, in a mount namespace of its own.
in_pod()
{
    local files=$BOX_TMP/account

    mkdir -p "$files" /run/secrets/kubernetes.io/serviceaccount
    kube config view --raw --flatten -o json | jq -r '.clusters[0].cluster["certificate-authority-data"]' |
        base64 -d >"$files/ca.crt"
    kube create token boxer >"$files/token"
    printf %s "$KUBE_NAMESPACE" >"$files/namespace"
    KUBERNETES_SERVICE_HOST=$KUBERNETES_ADDRESS KUBERNETES_SERVICE_PORT=16443 unshare --mount --propagation private sh -c '
        mount --bind "$1" /run/secrets/kubernetes.io/serviceaccount && shift && exec "$@"' in_pod "$files" "$@"
}

@test "in a pod, the service account and the address of the pod are enough" {
    unset KUBECONFIG BELLHOP_KUBE_NAMESPACE
    in_pod "$BELLHOP" up --name one --provider kubernetes --agent none --empty >"$BOX_TMP/up" 2>&1 || fail "$(cat "$BOX_TMP/up")"
    [ "$(jq -r .way "$BELLHOP_STATE_DIR"/boxes/*/kubernetes.json)" = address ]
    [ "$(in_pod "$BELLHOP" status one --json | jq -r .enforced.engine.address)" = "incluster:$KUBERNETES_ADDRESS:16443" ]
    [ "$(bellhop exec one -- echo there)" = there ]
    in_pod "$BELLHOP" rm one
}

@test "a kubeconfig that wants a plug-in or a wrong context is refused, with the way out" {
    kube config view --raw -o json | jq '.users[0].user = {exec: {command: "aws"}}' >"$BOX_TMP/kubeconfig"
    KUBECONFIG=$BOX_TMP/kubeconfig refuses unimplemented 'kubectl proxy --unix-socket=SOCKET' up_json
    BELLHOP_KUBE_CONTEXT=absent KUBECONFIG=$KUBE_ADMIN refuses not_found "no context 'absent'" up_json
    echo '[' >"$BOX_TMP/kubeconfig"
    KUBECONFIG=$BOX_TMP/kubeconfig refuses invalid_argument 'no YAML' up_json
    KUBECONFIG=proxy:$BOX_TMP/absent refuses unavailable 'the cluster' up_json
}

# A kubeconfig as clouds write them: a plug-in has the credentials.
plugin_config()
{
    kube config view --raw --flatten -o json >"$BOX_TMP/admin"
    jq '{apiVersion: "client.authentication.k8s.io/v1", kind: "ExecCredential", status: {
        clientCertificateData: (.users[0].user["client-certificate-data"] | @base64d),
        clientKeyData: (.users[0].user["client-key-data"] | @base64d)}}' "$BOX_TMP/admin" >"$BOX_TMP/credential"
    printf '#!/bin/sh\ncat %s\n' "$BOX_TMP/credential" >"$BOX_TMP/plugin"
    chmod +x "$BOX_TMP/plugin"
    jq --arg plugin "$BOX_TMP/plugin" '.users[0].user = {exec: {command: $plugin, interactiveMode: "Never",
        apiVersion: "client.authentication.k8s.io/v1"}}' "$BOX_TMP/admin"
}

@test "the way out of a kubeconfig with a plug-in works as the message has it" {
    local socket=$BOX_TMP/kubectl.sock command

    plugin_config >"$BOX_TMP/kubeconfig"
    export KUBECONFIG=$BOX_TMP/kubeconfig
    run ! up_json
    command=$(sed -n "s/.*: '\(kubectl proxy [^']*\) &' reaches.*/\1/p" <<<"$output" | sed "s|SOCKET|$socket|")
    [ -n "$command" ] || fail "$output"
    [[ "$output" == *' KUBECONFIG=proxy:SOCKET'* ]] || fail "$output"
    sh -c "exec $command" >"$BOX_TMP/proxy.log" 2>&1 3>&- 4>&- &
    echo $! >"$BOX_TMP/proxy.pid"
    wait_until 30 test -S "$socket"
    export KUBECONFIG=proxy:$socket
    up
    [ "$(bellhop exec one -- echo there)" = there ]
    bellhop rm one
    end_now "$(cat "$BOX_TMP/proxy.pid")"
}

@test "port-forward carries files and commands byte for byte" {
    export KUBECONFIG="proxy:$KUBE_PROXY?reach=forward"
    up
    head -c 3000001 /dev/urandom >"$BOX_TMP/file"
    bellhop put one "$BOX_TMP/file" :file
    bellhop get one :file "$BOX_TMP/back"
    cmp "$BOX_TMP/file" "$BOX_TMP/back/file"
    bellhop exec one -- sh -c 'cat >copy; cat copy' <"$BOX_TMP/file" | cmp - "$BOX_TMP/file"
}

@test "an evicted box is stopped with the reason of the eviction, and comes back with its disk" {
    up
    bellhop exec one -- sh -c 'echo kept >file; echo home >~/file'
    jq -n --arg name "bellhop-$ID" '{apiVersion: "policy/v1", kind: "Eviction", metadata: {name: $name}}' |
        kube create --raw "/api/v1/namespaces/$KUBE_NAMESPACE/pods/bellhop-$ID/eviction" -f -
    wait_until 20 is_state stopped
    [[ "$(status_of .cause)" == *EvictionByEvictionAPI* ]] || fail "$(status_of .cause)"
    [ "$(bellhop exec one -- sh -c 'cat file ~/file')" = $'kept\nhome' ]
}

@test "a drain of the node stops the box with the reason, and the next command starts it on another node" {
    local node

    up
    bellhop exec one -- sh -c 'echo kept >file'
    node=$(kube get pod "bellhop-$ID" -o 'jsonpath={.spec.nodeName}')
    cluster drain "${node#n}"
    wait_until 20 is_state stopped
    [[ "$(status_of .cause)" == *EvictionByEvictionAPI* ]] || fail "$(status_of .cause)"
    [ "$(bellhop exec one -- cat file)" = kept ]
    [ "$(kube get pod "bellhop-$ID" -o 'jsonpath={.spec.nodeName}')" != "$node" ]
    kubectl --kubeconfig="$KUBE_ADMIN" uncordon "$node"
}

@test "a pod that another has put in place of the box's is not taken for it" {
    local uid

    up
    kube get pod "bellhop-$ID" -o json | jq 'del(.metadata.uid, .metadata.resourceVersion, .status, .spec.nodeName)' >"$BOX_TMP/pod"
    kube replace --force --grace-period=0 -f "$BOX_TMP/pod" >"$BOX_TMP/replaced" 2>&1 || fail "$(cat "$BOX_TMP/replaced")"
    wait_until 30 is_state stopped
    [ "$(bellhop exec one -- echo there)" = there ]
    uid=$(kube get pod "bellhop-$ID" -o 'jsonpath={.metadata.uid}')
    [ "$(jq -r .uid "$BELLHOP_STATE_DIR"/boxes/*/kubernetes.json)" = "$uid" ]
}

@test "a pod that is deleted behind our back stops its box, and the next command makes it anew" {
    local uid

    up
    bellhop exec one -- sh -c 'echo kept >file'
    uid=$(kube get pod "bellhop-$ID" -o 'jsonpath={.metadata.uid}')
    kube delete pod "bellhop-$ID" --grace-period=1
    wait_until 20 is_state stopped
    [ "$(bellhop exec one -- cat file)" = kept ]
    [ "$(kube get pod "bellhop-$ID" -o 'jsonpath={.metadata.uid}')" != "$uid" ]
}

@test "a stopped box whose claim is deleted behind our back is gone" {
    up
    bellhop stop one
    kube delete persistentvolumeclaim "bellhop-$ID"
    run -3 --separate-stderr bellhop start one --json
    json_is '.error.code == "not_found"' <<<"$output" || fail "$output"
}

@test "the cause of an end after memory ran out is OOMKilled" {
    up --memory 128M
    run -137 bellhop exec one -- python3 -c 'x = bytearray(300 << 20); print(len(x))'
    kill -9 "$(kube_pid "$ID")"
    wait_until 20 is_state stopped
    [[ "$(status_of .cause)" == "the box's first process was killed by signal 9 (OOMKilled"* ]] || fail "$(status_of .cause)"
}

@test "an object of somebody else with a box's name is not touched" {
    up
    bellhop stop one
    kube run "bellhop-$ID" --image=none.invalid/x --dry-run=client -o json |
        jq '.spec += {securityContext: {runAsNonRoot: true, seccompProfile: {type: "RuntimeDefault"}}} |
            .spec.containers[0].securityContext = {allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}}' |
        kube create -f -
    run ! bellhop start one
    [[ "$output" == *'that is not of this box'* ]]
    kube get pod "bellhop-$ID"
    kube delete pod "bellhop-$ID" --grace-period=0 --force
    bellhop start one
}

@test "two stores on one namespace do not see each other's boxes" {
    up
    BELLHOP_STATE_DIR=$BOX_TMP/other bellhop up --name two --provider kubernetes --agent none --empty >/dev/null
    bellhop gc
    BELLHOP_STATE_DIR=$BOX_TMP/other bellhop gc
    [ "$(bellhop exec one -- echo there)" = there ]
    [ "$(BELLHOP_STATE_DIR=$BOX_TMP/other bellhop exec two -- echo there)" = there ]
    [ "$(kube_objects | wc -l)" = 6 ]
    BELLHOP_STATE_DIR=$BOX_TMP/other bellhop rm two
    [ "$(kube_objects | wc -l)" = 3 ]
}

# The box's new pod is there, and no node has it.
is_pending() { kube get pod "bellhop-$ID" -o json | json_is '.spec.nodeName == null'; }

@test "an API server that restarts ends neither a watch nor a start" {
    local start

    up
    bellhop exec one -- sh -c 'echo kept >file'
    cluster stop-apiserver
    cluster start-apiserver
    wait_until 30 kube get pods
    [ "$(bellhop exec one -- cat file)" = kept ]
    kill -9 "$(kube_pid "$ID")"
    wait_until 30 is_state stopped
    cordon
    bellhop start one >"$BOX_TMP/start" 2>&1 3>&- 4>&- &
    start=$!
    wait_until 20 is_pending
    is_state provisioning
    cluster stop-apiserver
    run ! is_gone "$start"
    cluster start-apiserver
    uncordon
    wait "$start" || fail "$(cat "$BOX_TMP/start")"
    [ "$(bellhop exec one -- cat file)" = kept ]
}

@test "a command runs on over a restart of the API server, and its output is whole" {
    local pid

    up
    bellhop exec one -- sh -c 'echo begun; until [ -e go ]; do sleep 0.1; done; echo over' >"$BOX_TMP/exec" 2>"$BOX_TMP/err" 3>&- 4>&- &
    pid=$!
    wait_until 20 grep -q begun "$BOX_TMP/exec"
    cluster stop-apiserver
    cluster start-apiserver
    bellhop exec one -- touch go
    wait "$pid" || fail "$(cat "$BOX_TMP/err")"
    [ "$(cat "$BOX_TMP/exec")" = $'begun\nover' ]
}

@test "a stop and a removal go on when the API server comes back, and a command tells that it is away" {
    local pid

    up
    cluster stop-apiserver
    run ! bellhop exec one -- echo there
    [[ "$output" == *'the cluster'* ]] || fail "$output"
    bellhop stop one >"$BOX_TMP/stop" 2>&1 3>&- 4>&- &
    pid=$!
    cluster start-apiserver
    wait "$pid" || fail "$(cat "$BOX_TMP/stop")"
    bellhop start one
    cluster stop-apiserver
    bellhop rm one >"$BOX_TMP/rm" 2>&1 3>&- 4>&- &
    pid=$!
    cluster start-apiserver
    wait "$pid" || fail "$(cat "$BOX_TMP/rm")"
    wait_until 20 nothing_left
}

# The pod of a lost node may still run: only an administrator who ends it makes way for another one.
@test "the loss of a node ends a command and is a fault of its boxes; one is removed, and one starts elsewhere without its pod" {
    local pid status=0

    kubectl --kubeconfig="$KUBE_ADMIN" cordon n2
    bellhop up --name two --provider kubernetes --agent none --empty >/dev/null
    up
    uncordon
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop exec one -- sh -c 'echo begun; exec sleep 1000' >"$BOX_TMP/exec" 2>&1 3>&- 4>&- &
    pid=$!
    wait_until 20 grep -q begun "$BOX_TMP/exec"
    cluster kill-node 1
    wait_until 120 is_gone "$pid" || { end_now "$pid" && fail "$(cat "$BOX_TMP/exec")"; }
    wait "$pid" || status=$?
    [ "$status" -eq 125 ] || fail "$status: $(cat "$BOX_TMP/exec")"
    wait_until 60 has_event NodeStatusUnknown
    is_state running
    bellhop rm two
    [ "$(bellhop ls -q)" = one ]
    run -5 bellhop start one
    [[ "$output" == *"the node 'n1' of the pod does not answer"*NodeStatusUnknown* ]] || fail "$output"
    kube delete pod "bellhop-$ID" --force --grace-period=0
    bellhop start one
    [ "$(kube get pod "bellhop-$ID" -o 'jsonpath={.spec.nodeName}')" = n2 ]
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop rm one
    nothing_left
}
