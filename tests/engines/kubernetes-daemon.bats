#!/usr/bin/env bats
# engines-only
# needs: image
# turn: kubernetes
# time-limit: 2400
# The daemon in a cluster, as image/kubernetes has it: one leader by a Lease, its rights, and boxes that neither notice
# its end nor are lost by it. When a Lease is free, either pod may take it.

bats_require_minimum_version 1.5.0
load ../lib/kubernetes

setup_file()
{
    local top images place

    top=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    images=$top/build/image
    export DOCUMENT=$top/docs/kubernetes.md
    find_cluster || return 0
    "$top/image/kubernetes/image.sh" "$BATS_TEST_DIRNAME/../lib/image" >/dev/null
    start_cluster "$(readlink -f "$images/tests")/oci.tar" "$images/daemon.oci.tar"
    export KUBE_ADMIN=$KUBECONFIG KUBE_NAMESPACE=bellhop TOKEN
    mkdir -p "$BATS_FILE_TMPDIR/volumes" "$BATS_FILE_TMPDIR/overlay"
    make_volumes 1 5Gi
    make_volumes 8 10Gi
    place=$(realpath --relative-to="$BATS_FILE_TMPDIR/overlay" "$top/image/kubernetes")
    # This cluster has no address of a Service: pods reach the API server at its own.
    cat >"$BATS_FILE_TMPDIR/overlay/kustomization.yaml" <<YAML
resources: [$place]
patches:
- target: {kind: Deployment, name: bellhop}
  patch: |
    - op: add
      path: /spec/template/spec/containers/0/env/-
      value: {name: KUBECONFIG, value: "incluster:$KUBERNETES_ADDRESS:16443"}
YAML
    kube apply -k "$BATS_FILE_TMPDIR/overlay"
    wait_until 120 leads || fail_with_logs
    HOME=$BATS_FILE_TMPDIR bash -c "$(documented 'bellhop token create')" || fail_with_logs
    TOKEN=$(cat "$BATS_FILE_TMPDIR/.bellhop-token")
}

teardown_file() { [ -n "$NO_CLUSTER" ] || stop_cluster; }

setup()
{
    need_cluster
    wait_until 120 stands_by
}

teardown()
{
    [ -z "$NO_CLUSTER" ] || return 0
    [ -n "$BATS_TEST_COMPLETED" ] || fail_with_logs || true
    [ -z "${FOLLOWER:-}" ] || kill "$FOLLOWER" 2>/dev/null || true
    [ -z "${WATCH:-}" ] || kill "$WATCH" 2>/dev/null || true
    cluster start-apiserver >/dev/null 2>&1 || true
    wait_until 120 leads
    wait_until 120 remove_boxes
    wait_until 60 nothing_left
}

# documented WORDS: the line of the document with them.
documented() { grep -m 1 -F "$1" "$DOCUMENT"; }

fail_with_logs()
{
    local pod

    {
        kube get pods,persistentvolumeclaims -o wide
        kube get lease bellhop -o yaml
        kube get events --sort-by=.lastTimestamp | tail -n 20
        for pod in $(daemon_pods); do
            echo "$pod:"
            kube logs --tail=30 "$pod"
            kube logs --tail=10 --previous "$pod" || true
        done
    } >&2 2>&1
    return 1
}

# ---- the daemon ----

daemon_pods() { kube get pods -l app.kubernetes.io/name=bellhop -o 'jsonpath={.items[*].metadata.name}'; }
restarts_of() { kube get pod "$1" -o 'jsonpath={.status.containerStatuses[0].restartCount}'; }
lease_of() { kube get lease bellhop -o "jsonpath={.spec.$1}"; }

# Where the Service leads to.
service_pods()
{
    kube get endpointslices -l kubernetes.io/service-name=bellhop -o json |
        jq -r '.items[].endpoints[]? | select(.conditions.ready) | .targetRef.name'
}

# The one pod that the Service leads to: LEADER, at URL. It answers, and has the Lease.
leads()
{
    LEADER=$(service_pods)
    [ -n "$LEADER" ] && [ "$(wc -w <<<"$LEADER")" = 1 ] || return 1
    URL=http://$(kube get pod "$LEADER" -o 'jsonpath={.status.podIP}'):7070
    [[ "$(lease_of holderIdentity)" == "$LEADER"_* ]] && curl -sf -m 10 -o /dev/null "$URL/v1/health"
}

# And the other pod runs.
stands_by()
{
    leads || return 1
    STANDBY=$(daemon_pods | tr ' ' '\n' | grep -vx "$LEADER")
    [ "$(wc -w <<<"$STANDBY")" = 1 ] &&
        [ "$(kube get pod "$STANDBY" -o 'jsonpath={.status.containerStatuses[0].state.running.startedAt}')" ] &&
        kube logs "$STANDBY" | grep -q 'standby:'
}

# processes_of POD NAME: the pids, on this machine, of the pod's processes with that name, by their control group.
processes_of()
{
    local uid

    uid=$(kube get pod "$1" -o 'jsonpath={.metadata.uid}') || return 1
    processes_of_uid "$uid" "$2"
}

processes_of_uid()
{
    local file

    for file in $(grep -lE "pod($1|${1//-/_})" /proc/[0-9]*/cgroup 2>/dev/null); do
        [ "$(cat "${file%/cgroup}/comm" 2>/dev/null)" != "$2" ] || basename "${file%/cgroup}"
    done
}

# children_of_uid UID: the pid and the name of each process of the pod that is not the first one of its container.
children_of_uid()
{
    local file name

    for file in $(grep -lE "pod($1|${1//-/_})" /proc/[0-9]*/cgroup 2>/dev/null); do
        if [ "$(sed -n 's/^NSpid:.*[[:space:]]//p' "${file%/cgroup}/status" 2>/dev/null)" != 1 ] &&
            name=$(cat "${file%/cgroup}/comm" 2>/dev/null); then
            echo "$(basename "${file%/cgroup}") $name"
        fi
    done
}

# first_process POD [NAME]: of the processes with that name, the one that is the first in its container.
first_process()
{
    local pid

    for pid in $(processes_of "$1" "${2:-bellhop-daemon}"); do
        ! grep -q '^NSpid:.*[[:space:]]1$' "/proc/$pid/status" || echo "$pid"
    done
}

# ---- boxes ----

# ask METHOD PATH [CURL OPTION...]
ask() { curl -sS --fail-with-body -m 120 -H "Authorization: Bearer $TOKEN" -X "$1" "${@:3}" "$URL$2"; }

make_box() # [FIELD]
{
    local fields='"name": "one", "provider": "kubernetes", "image": "tests", "agent": "none", "no_upload": true'

    ask POST /v1/boxes --json "{$fields${1:+, $1}}" \
        >"$BATS_TEST_TMPDIR/box" || { cat "$BATS_TEST_TMPDIR/box" && return 1; }
    POD=bellhop-$(jq -r .id "$BATS_TEST_TMPDIR/box")
    POD_UID=$(kube get pod "$POD" -o 'jsonpath={.metadata.uid}')
    answers_in_box || return 1
    ask POST /v1/boxes/one/rpc/Exec/Start --json '{"argv": ["sleep", "1000"]}' >/dev/null 2>&1 3>&- 4>&- &
    FOLLOWER=$!
    wait_until 30 runs_sleep
}

answers_in_box() # through the leader of now
{
    leads &&
        [ "$(ask POST /v1/boxes/one/rpc/Exec/Run --json '{"argv": ["echo", "hello"]}' | jq -r .stdout.text)" = hello ]
}

runs_sleep() { ask POST /v1/boxes/one/rpc/Exec/List --json '{}' | grep -q sleep; }

# was_always_running: by the box's events since it first ran.
was_always_running()
{
    ask GET /v1/boxes/one/history | jq -s -e 'length == 1 and (.[0] | .more == false and ([.events[].after] |
        index("running") as $first | $first != null and all(.[$first:][]; . == "running")))'
}

# The same pod, whose command runs on; its state was never another one.
is_undisturbed()
{
    was_always_running || { ask GET /v1/boxes/one/history >&2 && return 1; }
    [ "$(kube get pod "$POD" -o 'jsonpath={.metadata.uid}')" = "$POD_UID" ] &&
        [ "$(kube get pod "$POD" -o 'jsonpath={.status.containerStatuses[0].restartCount}')" = 0 ] &&
        [ "$(ask GET /v1/boxes/one | jq -r .state)" = running ] &&
        runs_sleep
}

remove_boxes()
{
    local name

    leads || return 1
    for name in $(ask GET /v1/boxes | jq -r '.boxes[].name'); do
        ask DELETE "/v1/boxes/$name" >/dev/null || return 1
    done
}

has_monitor() { leads && [ -n "$(processes_of "$LEADER" bellhop-monitor)" ]; }

# ---- one leader ----

@test "of the two pods one leads, which has the Lease, and the Service leads to it alone" {
    [ "$(lease_of leaseDurationSeconds)" = 15 ]
    [ "$(restarts_of "$LEADER")" = 0 ]
    [ "$(restarts_of "$STANDBY")" = 0 ]
    [ "$(kube get pod "$STANDBY" -o 'jsonpath={.status.containerStatuses[0].ready}')" = false ]
    run ! curl -s -m 10 "http://$(kube get pod "$STANDBY" -o 'jsonpath={.status.podIP}'):7070/v1/health"
    # It does not open the store.
    for pid in $(processes_of "$STANDBY" bellhop-daemon); do
        run ! grep -q state/ <<<"$(readlink "/proc/$pid"/fd/*)"
    done
    [ "$(processes_of "$STANDBY" bellhop-daemon | wc -l)" = 1 ]
}

@test "a box is made over the Service's pod with the token of the documented command, and leaves nothing" {
    [ "$(stat -c %a "$BATS_FILE_TMPDIR/.bellhop-token")" = 600 ]
    make_box
    [ "$(kube_objects | sort | cut -d ' ' -f 1 | paste -sd ' ')" = 'PersistentVolumeClaim Pod Secret' ]
    ask DELETE /v1/boxes/one
    wait_until 60 nothing_left
}

@test "the documented overlay names the registry of the daemon and of its boxes" {
    mkdir -p "$BATS_TEST_TMPDIR/documented"
    ln -s "$(readlink -f "$BATS_TEST_DIRNAME/../../image")" "$BATS_TEST_TMPDIR/image"
    sed -n '/^resources: \[/,/^```/p' "$DOCUMENT" | sed '$d' >"$BATS_TEST_TMPDIR/documented/kustomization.yaml"
    kube kustomize "$BATS_TEST_TMPDIR/documented" >"$BATS_TEST_TMPDIR/yaml"
    grep -Fq 'image: registry.example/boxes/daemon:' "$BATS_TEST_TMPDIR/yaml"
    grep -Fxq '          value: registry.example/boxes' "$BATS_TEST_TMPDIR/yaml"
    run ! grep -Fq docker.io "$BATS_TEST_TMPDIR/yaml"
}

@test "when the leader is killed, the box runs on, and the next leader has it" {
    local first

    make_box
    first=$(lease_of holderIdentity)
    kill -9 "$(first_process "$LEADER")"
    wait_until 120 eval '[ "$(lease_of holderIdentity)" != "$first" ] && leads'
    wait_until 120 has_monitor
    wait_until 60 answers_in_box
    is_undisturbed
}

@test "when the leader's pod is deleted by force, the box runs on, and the next leader has it" {
    local first

    make_box
    first=$LEADER
    kube delete pod "$first" --force --grace-period=0
    wait_until 120 eval 'leads && [ "$LEADER" != "$first" ]'
    wait_until 120 has_monitor
    wait_until 60 answers_in_box
    is_undisturbed
}

# look_at_release UID: copies the holders of the Lease from a watch. When there is none, it adds which children of the
# pod are there at this moment: 2 s later another leader may be at work.
look_at_release()
{
    local holder

    while read -r holder; do
        echo "holder ${holder:-none: $(children_of_uid "$1" | paste -sd ,)}"
    done
}

@test "a leader that is asked to end gives the Lease up when all of it has ended" {
    local first uid holders=$BATS_TEST_TMPDIR/holders

    make_box
    first=$LEADER
    uid=$(kube get pod "$first" -o 'jsonpath={.metadata.uid}')
    mkfifo "$BATS_TEST_TMPDIR/watch"
    look_at_release "$uid" <"$BATS_TEST_TMPDIR/watch" >"$holders" 3>&- 4>&- &
    kubectl --kubeconfig="$KUBE_ADMIN" -n bellhop get lease bellhop -w -o 'jsonpath={.spec.holderIdentity}{"\n"}' \
        >"$BATS_TEST_TMPDIR/watch" 3>&- 4>&- &
    WATCH=$!
    wait_until 30 grep -q "^holder ${first}_" "$holders"
    wait_until 30 eval 'children_of_uid "$uid" | grep -q " bellhop-monitor$"'
    kube delete pod "$first" --wait=false
    wait_until 120 eval 'leads && [ "$LEADER" != "$first" ]'
    wait_until 30 grep -q '^holder none' "$holders"
    [ "$(grep -c '^holder none' "$holders")" -eq 1 ] || { cat "$holders" && return 1; }
    grep -qx 'holder none: ' "$holders" || { cat "$holders" && return 1; }
    wait_until 120 has_monitor
    wait_until 60 answers_in_box
    is_undisturbed
}

@test "a standby that ends does not touch the Lease" {
    local holder

    holder=$(lease_of holderIdentity)
    kube delete pod "$STANDBY"
    wait_until 120 stands_by
    [ "$(lease_of holderIdentity)" = "$holder" ]
    kill -9 "$(first_process "$STANDBY")"
    wait_until 120 eval '[ "$(restarts_of "$STANDBY")" = 1 ] && stands_by'
    [ "$(lease_of holderIdentity)" = "$holder" ]
}

@test "a leader that does not reach the API server ends all of its processes, and the box runs on" {
    local uid address

    make_box
    uid=$(kube get pod "$LEADER" -o 'jsonpath={.metadata.uid}')
    address=$URL
    [ -n "$(processes_of_uid "$uid" bellhop-monitor)" ]
    cluster stop-apiserver
    wait_until 60 eval '! curl -s -m 5 -o /dev/null "$address/v1/health"'
    wait_until 60 eval '[ -z "$(processes_of_uid "$uid" bellhop-monitor)" ]'
    cluster start-apiserver
    wait_until 120 leads
    wait_until 120 has_monitor
    wait_until 60 answers_in_box
    is_undisturbed
}

@test "after a restart of the API server one pod leads, and the box runs on" {
    make_box
    cluster stop-apiserver
    cluster start-apiserver
    wait_until 120 answers_in_box
    wait_until 120 has_monitor
    is_undisturbed
}

@test "a creation that the leader's end interrupted leaves nothing" {
    ask POST '/v1/boxes?wait=false' \
        --json '{"name": "two", "provider": "kubernetes", "image": "tests", "agent": "none", "no_upload": true,
            "disk_bytes": 109951162777600}' >/dev/null # no volume is so large
    wait_until 60 eval '[ -n "$(kube_objects)" ]'
    kill -9 "$(first_process "$LEADER")"
    wait_until 120 nothing_left
    wait_until 120 leads
    [ "$(ask GET /v1/boxes | jq '.boxes | length')" = 0 ]
}

# ---- its rights ----

as_daemon() { kube --as=system:serviceaccount:bellhop:bellhop "$@"; }

@test "the role has what the daemon does in its namespace, and nothing else" {
    rights_of() { kube --as="system:serviceaccount:bellhop:$1" auth can-i --list --no-headers | tr -s ' ' | sort; }
    comm -23 <(rights_of bellhop) <(rights_of default) | diff - <(sort <<'LIST'
events [] [] [list]
leases.coordination.k8s.io [] [] [create]
leases.coordination.k8s.io [] [bellhop] [get update]
networkpolicies.networking.k8s.io [] [] [create get list delete]
persistentvolumeclaims [] [] [create get list delete]
pods [] [] [create get list watch delete]
pods/exec [] [] [create get]
pods/log [] [] [get]
secrets [] [] [create get list delete]
LIST
    )
}

# used_rights: "VERB RESOURCE" of each call that the daemon was allowed.
used_rights()
{
    cluster audit | jq -r 'select(.user.username == "system:serviceaccount:bellhop:bellhop" and
        .objectRef.namespace == "bellhop" and .annotations["authorization.k8s.io/decision"] == "allow") |
        .verb + " " + .objectRef.resource + (if .objectRef.subresource then "/" + .objectRef.subresource else "" end)' |
        sort -u
}

# role_rights: the same of the Role.
role_rights()
{
    kube get role bellhop -o json | jq -r '.rules[] | .verbs[] as $v | .resources[] | $v + " " + .' | sort -u
}

box_state_is() { leads && [ "$(ask GET /v1/boxes/one | jq -r .state)" = "$1" ]; }

@test "each right of the role is one that the daemon uses" {
    make_box '"network": "none"'
    wait_until 60 has_monitor
    kill -9 "$(first_process "$POD" bellhopd)"
    wait_until 120 box_state_is stopped
    ask POST /v1/boxes/one/start >/dev/null
    ask GET /v1/boxes/one/status >/dev/null # the capacity of the claim
    ask POST /v1/gc >/dev/null
    ask DELETE /v1/boxes/one
    run ! ask POST /v1/boxes --json '{"name": "two", "provider": "kubernetes", "image": "tests", "agent": "none",
        "no_upload": true, "disk_bytes": 109951162777600, "start_timeout_ms": 5000}' # no volume is so large
    # The upgrade to a WebSocket is a `get`, and is asked for `create` too. The events of a pod are for a start that
    # fails without a reason in the pod's state.
    diff <(role_rights) <({ used_rights && printf '%s\n' 'create pods/exec' 'list events'; } | sort -u)
}

@test "a call outside of the role is refused" {
    local call

    for call in 'get nodes' 'get pods -n default' 'get secrets -n kube-system' 'get deployments' 'get configmaps' \
        'get lease other' 'delete lease bellhop' 'delete deployment bellhop' "port-forward $LEADER :7070" \
        'label pod -l app.kubernetes.io/name=bellhop a=b' 'create token bellhop' 'create serviceaccount more'; do
        # shellcheck disable=SC2086 # words
        run ! as_daemon $call
        [[ "$output" == *'Forbidden'* || "$output" == *'forbidden'* ]] || {
            echo "$call: $output"
            return 1
        }
    done
    as_daemon get lease bellhop
}
