#!/usr/bin/env bats
# early
# engines-only
# turn: kubernetes
# time-limit: 1800
# needs: image
# Boxes from a SandboxWarmPool of agent-sandbox, with the template and the role of docs/kubernetes.md.

load ../lib/box
load ../lib/kubernetes
bats_require_minimum_version 1.5.0

setup_file()
{
    find_cluster --agent-sandbox || return 0
    "$BELLHOP_BUILD/bellhop" image build "$BATS_TEST_DIRNAME/../lib/image" --form oci >/dev/null
    start_boxes_cluster --agent-sandbox
    start_pool
}

teardown_file() { [ -n "$NO_CLUSTER" ] || stop_boxes_cluster; }

setup()
{
    need_cluster
    box_setup
    use_cluster kubernetes_pool
    wait_until 60 has_ready "$KUBE_POOL" 2
}

teardown()
{
    [ -z "$NO_CLUSTER" ] || return 0
    use_cluster kubernetes_pool
    box_teardown
    wait_until 30 nothing_left
}

up() # NAME [OPTION...]
{
    bellhop up --name "$1" --provider kubernetes --pool "$KUBE_POOL" --agent none --empty "${@:2}" >"$BOX_TMP/up" 2>&1 ||
        fail "$(cat "$BOX_TMP/up")"
    ID=$(bellhop status "$1" --json | jq -r .id)
    BOX_IDS+=("$ID")
}

# refuses CODE TEXT [OPTION...]: `up` with them fails so, and no box and no object is there then.
refuses()
{
    run bellhop up --name one --agent none --empty --json "${@:3}"
    [ "$status" -ne 0 ]
    [[ "$output" == *"\"code\":\"$1\""* && "$output" == *"$2"* ]] || fail "$output"
    has_no_boxes
    wait_until 30 nothing_left
}

status_of() { bellhop status one --json | jq -r "$1"; }
is_state() { [ "$(status_of .state)" = "$1" ]; }
pod_uid() { kube get pod "$(claim_of "$ID")" -o 'jsonpath={.metadata.uid}'; }

# pool NAME REPLICAS [JQ]: a pool whose template is that of the documentation, changed by a program of jq.
pool()
{
    local template=$KUBE_POOL

    if [ -n "${3:-}" ]; then
        template=$1
        kube get sandboxtemplate "$KUBE_POOL" -o json |
            jq --arg name "$1" '.metadata = {name: $name} | .spec.podTemplate.spec |= ('"$3"')' | kube create -f -
    fi
    kube create -f - <<Y
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxWarmPool
metadata: {name: $1}
spec: {replicas: $2, sandboxTemplateRef: {name: $template}}
Y
}

@test "a box of a pool is a pod that was there before, and rm leaves nothing of it" {
    local before

    before=$(kube get pods -o 'jsonpath={.items[*].metadata.uid}')
    up one
    [[ " $before " == *" $(pod_uid) "* ]]
    [ "$(status_of '.options.pool, .enforced.engine.pool, .enforced.limits.memory_bytes' | xargs)" = "bellhop bellhop unknown" ]
    [ "$(bellhop exec one -- sh -c 'pwd; id -un')" = $'/workspace\nuser' ]
    head -c 3000001 /dev/urandom >"$BOX_TMP/file"
    bellhop put one "$BOX_TMP/file" :file
    bellhop get one :file "$BOX_TMP/back"
    cmp "$BOX_TMP/file" "$BOX_TMP/back/file"
    bellhop rm one
    nothing_left
    wait_until 60 has_ready "$KUBE_POOL" 2
    [ "$(kube get pods -o name | wc -l)" = 2 ]
}

@test "a stop suspends the sandbox of a pool's box, and a start gives the next pod the token" {
    local uid

    up one
    uid=$(pod_uid)
    bellhop exec one -- sh -c 'echo kept >file; echo lost >~/file'
    bellhop stop one
    [ "$(kube get sandbox "$(claim_of "$ID")" -o 'jsonpath={.spec.operatingMode}')" = Suspended ]
    run ! pod_uid
    [ "$(bellhop exec one -- cat file)" = kept ]
    run ! bellhop exec one -- cat /home/user/file
    [ "$(pod_uid)" != "$uid" ]
    bellhop start one
    [ "$(bellhop exec one -- cat file)" = kept ]
}

# answer_of ID TOKEN: the status with which the agent of the box answers, by the address of its pod.
answer_of()
{
    curl -s --noproxy '*' -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $2" \
        "http://$(kube get pod "$(claim_of "$1")" -o 'jsonpath={.status.podIP}'):4711/v1/ready"
}

@test "no box of a pool can use another's token, and one that waits serves nobody" {
    local one two address addresses secrets

    up one
    one=$ID
    up two
    two=$ID
    [ "$(answer_of "$one" "$(cat "$BELLHOP_STATE_DIR/boxes/$one/token")")" = 200 ]
    [ "$(answer_of "$two" "$(cat "$BELLHOP_STATE_DIR/boxes/$two/token")")" = 200 ]
    [ "$(answer_of "$one" "$(cat "$BELLHOP_STATE_DIR/boxes/$two/token")")" = 401 ]
    [ "$(answer_of "$two" "$(cat "$BELLHOP_STATE_DIR/boxes/$one/token")")" = 401 ]
    secrets=$(kube get secrets -o name)
    [ -z "$secrets" ] || fail "$secrets"
    run -0 bellhop exec one -- find /run/bellhop -type f -o -type p
    [ -z "$output" ] || fail "$output"
    wait_until 60 has_ready "$KUBE_POOL" 2
    mapfile -t addresses < <(kube get sandboxes -o json | jq -r '.items[] |
        select(.metadata.ownerReferences[0].kind == "SandboxWarmPool") | .status.podIPs[0]')
    [ "${#addresses[@]}" -eq 2 ]
    for address in "${addresses[@]}"; do
        run -0 kube get pods -o "jsonpath={.items[?(@.status.podIP==\"$address\")].status.phase}"
        [ "$output" = Running ]
        run -7 curl -s --noproxy '*' "http://$address:4711/v1/health"
    done
}

@test "options that a pool's template decides, and pools of other providers, are refused by name" {
    local pooled=(--provider kubernetes --pool "$KUBE_POOL") option

    for option in "image slim" "runtime runc" "network user" "privilege strict" "cpus 1" "memory 1G" "disk 1G"; do
        # shellcheck disable=SC2086
        refuses unimplemented "\"field\":\"${option% *}\"" "${pooled[@]}" --$option
    done
    refuses unimplemented '"field":"read-only"' "${pooled[@]}" --read-only
    for option in oci docker process; do
        refuses unimplemented '"field":"pool"' --provider "$option" --pool "$KUBE_POOL"
    done
    refuses invalid_argument '"field":"pool"' --provider kubernetes --pool ../secrets
    refuses not_found 'sandboxwarmpools.extensions.agents.x-k8s.io \"absent\" not found' --provider kubernetes --pool absent
}

@test "a box of an empty pool starts cold" {
    local before

    before=$(kube get pods -o 'jsonpath={.items[*].metadata.uid}')
    pool empty 0
    KUBE_POOL=empty up one
    [[ " $before " != *" $(pod_uid) "* ]]
    [ "$(bellhop exec one -- echo there)" = there ]
    bellhop rm one
    kube delete sandboxwarmpool empty
}

@test "a template that no box can come from fails the start with the reason" {
    pool unnamed 0 '.containers[0].name = "main"'
    pool silent 0 '.containers[0].args = null | .containers[0].command = ["sleep", "600"]'
    pool ended 0 '.containers[0].args = null | .containers[0].command = ["false"]'
    pool imageless 0 '.containers[0].image = "registry.invalid/none:1"'
    pool nowhere 0 '.nodeSelector = {absent: "true"}'
    refuses failed_precondition "has no container 'box'" --provider kubernetes --pool unnamed
    refuses failed_precondition "does not wait for the box's token" --provider kubernetes --pool silent
    refuses unavailable "exit code 1" --provider kubernetes --pool ended
    refuses failed_precondition ErrImagePull --provider kubernetes --pool imageless
    refuses deadline_exceeded Unschedulable --provider kubernetes --pool nowhere --start-timeout 40s
    kube delete sandboxwarmpools,sandboxtemplates unnamed silent ended imageless nowhere
}

restarts() { kube get pod "$(claim_of "$ID")" -o 'jsonpath={.status.containerStatuses[0].restartCount}'; }

# The documented template has restartPolicy: Never.
@test "a container of a pool that is started again while its box starts, or later, gets the token again" {
    pool again 0 '.restartPolicy = "Always" | .containers[0].command[2] |= "cd /run/bellhop &&
        if [ ! -e once ]; then : >once; mkfifo token; read -r t <token; exit 7; fi; " + .'
    KUBE_POOL=again up one
    [ "$(restarts)" = 1 ]
    is_state running
    [ "$(bellhop exec one -- echo there)" = there ]
    kill -9 "$(kube_pid "$ID")"
    wait_until 30 is_state stopped
    # By when the monitor looks: the container has ended, waits, or runs again.
    [[ "$(status_of .cause)" =~ signal\ 9|CrashLoopBackOff|Restarted ]] || fail "$(status_of .cause)"
    # A container that has ended and is not started again yet makes way for a new pod.
    [ "$(bellhop exec one -- echo there)" = there ]
    is_state running
    bellhop rm one
    kube delete sandboxwarmpools,sandboxtemplates again
}

@test "a readiness probe that fails is said by a start that waits for it, and ends no box" {
    is_unready() { kube get pod "$(claim_of "$ID")" -o json |
        json_is 'any(.status.conditions[]; .type == "Ready" and .reason == "ContainersNotReady")'; }

    pool unready 0 '.containers[0].readinessProbe = {exec: {command: ["test", "-e", "/workspace/ready"]}, periodSeconds: 1}'
    refuses deadline_exceeded 'Readiness probe failed' --provider kubernetes --pool unready --start-timeout 60s
    kube delete sandboxwarmpools,sandboxtemplates unready
    pool unready 0 '.containers[0].readinessProbe = {exec: {command: ["test", "-e", "/workspace/ready"]}, periodSeconds: 1} |
        .containers[0].command[2] |= ": >/workspace/ready; " + .'
    KUBE_POOL=unready up one
    bellhop exec one -- rm ready
    wait_until 60 is_unready
    is_state running
    [ "$(bellhop exec one -- echo there)" = there ]
    is_state running
    bellhop rm one
    kube delete sandboxwarmpools,sandboxtemplates unready
}

@test "a pod that is deleted behind a pool's back is replaced, and the box has its files and its token again" {
    local uid

    up one
    bellhop exec one -- sh -c 'echo kept >file'
    uid=$(pod_uid)
    kube delete pod "$(claim_of "$ID")" --grace-period=1
    wait_until 30 is_state stopped
    [ "$(bellhop exec one -- cat file)" = kept ]
    [ "$(pod_uid)" != "$uid" ]
}

@test "a claim or a sandbox that is deleted takes its box along, and what is made in its place is not the box's" {
    local sandbox

    up one
    kube delete sandboxclaim "bellhop-$ID" --wait=false
    wait_until 30 is_state stopped
    run ! bellhop start one
    [[ "$output" == *'does not exist'* || "$output" == *'gone'* || "$output" == *'removed'* ]] || fail "$output"
    up one
    bellhop stop one
    sandbox=$(claim_of "$ID")
    kube delete sandbox "$sandbox"
    run ! bellhop start one
    [[ "$output" == *'does not exist'* || "$output" == *'gone'* || "$output" == *'removed'* ]] || fail "$output"
}

@test "the role of the documentation suffices for boxes of a pool" {
    kube create serviceaccount boxer
    make_role
    kube create rolebinding boxer --role=bellhop --serviceaccount=boxes:boxer
    sa_config boxer >"$BOX_TMP/kubeconfig"
    export KUBECONFIG=$BOX_TMP/kubeconfig
    unset BELLHOP_KUBE_NAMESPACE
    up one
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop stop one
    bellhop start one
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop gc
    bellhop rm one
}
