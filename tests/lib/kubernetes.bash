# kubernetes.bash: the cluster of tests/lib/kubernetes for bats files:
#
#   load ../lib/kubernetes
#   setup_file() { find_cluster || return 0; start_cluster --nodes 2 IMAGE.tar; }        the options of `cluster.sh up`
#   setup() { need_cluster; }
#   teardown_file() { stop_cluster; }
#
# Then kubectl is in PATH and KUBECONFIG is the administrator's. Without a built cluster in the cache the tests are
# skipped; KUBERNETES_BUILD=1 builds it: ten minutes. One file at a time has the
# cluster of a slot: tests/run starts the files with `# turn: kubernetes` one after the other.

source "${BASH_SOURCE[0]%/*}/wait.bash"
CLUSTER=${BASH_SOURCE[0]%/*}/kubernetes/cluster.sh
# box_setup changes HOME, where cluster.sh would look for the cache.
if [ -z "${BELLHOP_KUBERNETES_CACHE:-}" ] && [ ! -d "${CLUSTER%/tests/*}/build/kubernetes" ]; then
    export BELLHOP_KUBERNETES_CACHE=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/bellhop-kubernetes
fi
KUBERNETES_SLOT=${BELLHOP_KUBERNETES_SLOT:-0}
KUBERNETES_LOCK=/run/lock/bellhop-kubernetes-$KUBERNETES_SLOT
# The address of its API server.
KUBERNETES_ADDRESS=10.$((231 - KUBERNETES_SLOT)).0.1

# Programs of the cluster outlive their test: none inherits bats' descriptors, or that of the lock.
cluster()
(
    [ -z "${KUBERNETES_LOCK_FD:-}" ] || exec {KUBERNETES_LOCK_FD}>&-
    exec "$CLUSTER" "$@" 3>&- 4>&-
)

# find_cluster [--agent-sandbox]: fails if there is none; NO_CLUSTER is the reason then.
find_cluster()
{
    export NO_CLUSTER=
    if [ "$(id -u)" -ne 0 ]; then
        NO_CLUSTER='a cluster needs root'
    elif [ -z "${KUBERNETES_BUILD:-}" ] && ! cluster built "$@"; then
        NO_CLUSTER='no Kubernetes is built here (make test-engines builds it)'
    fi
    [ -z "$NO_CLUSTER" ]
}

need_cluster()
{
    [ -z "${NO_CLUSTER:-}" ] || skip "$NO_CLUSTER"
}

# The lock is held by bats itself until the file ends. A cluster that is marked and up then was left by a test that was
# killed.
KUBERNETES_LOCK_WAIT_S=600
start_cluster()
{
    exec {KUBERNETES_LOCK_FD}>"$KUBERNETES_LOCK"
    export KUBERNETES_LOCK_FD
    flock -w "$KUBERNETES_LOCK_WAIT_S" "$KUBERNETES_LOCK_FD" || {
        echo "another test has had the cluster of slot $KUBERNETES_SLOT for $KUBERNETES_LOCK_WAIT_S s" \
            "($KUBERNETES_LOCK): BELLHOP_KUBERNETES_SLOT=0 to 9 is another" >&2
        return 1
    }
    if [ -e "$KUBERNETES_LOCK.test" ]; then
        cluster down
    fi
    : >"$KUBERNETES_LOCK.test"
    cluster up "$@" >"$BATS_FILE_TMPDIR/cluster-env"
    source "$BATS_FILE_TMPDIR/cluster-env"
    export PATH KUBECONFIG
}

# start_boxes_cluster [OPTION...]: a cluster with the image of the tests, the namespace `boxes` under Pod Security
# `restricted`, disks for claims, and the runtime class `runc`. Then KUBE_ADMIN is the administrator's kubeconfig.
start_boxes_cluster()
{
    local top=${CLUSTER%/tests/*}

    start_cluster "$@" "$(readlink -f "$top/build/image/tests")/oci.tar"
    export KUBE_ADMIN=$KUBECONFIG KUBE_NAMESPACE=boxes KUBE_PROXY=$BATS_FILE_TMPDIR/kubectl-proxy
    export BELLHOP_KUBE_NAMESPACE=$KUBE_NAMESPACE
    mkdir -p "$BATS_FILE_TMPDIR/volumes"
    kube create namespace "$KUBE_NAMESPACE"
    kube label namespace "$KUBE_NAMESPACE" pod-security.kubernetes.io/enforce=restricted
    make_volumes 100 10Gi
    make_volumes 10 1Gi
    kube create -f - <<<'{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "runc"}, "handler": "runc"}'
    wait_until 30 kube get serviceaccount default
}

# start_pool: in a cluster with --agent-sandbox, the template and the pool of docs/kubernetes.md, with our image.
start_pool()
{
    sed -n '/^kind: SandboxTemplate$/,/^```/p' "${CLUSTER%/tests/*}/docs/kubernetes.md" |
        sed -e '/^```/d' -e 's,bellhop/slim:[0-9.]*,bellhop/tests:1,' |
        { echo 'apiVersion: extensions.agents.x-k8s.io/v1beta1' && cat; } | kube create -f -
    export KUBE_POOL=bellhop
    wait_until 60 has_ready "$KUBE_POOL" 2
}

# has_ready POOL N: so many of the pool's boxes wait.
has_ready() { [ "$(kube get sandboxwarmpool "$1" -o 'jsonpath={.status.readyReplicas}')" = "$2" ]; }

# claim_of ID: what the claim of a box of a pool leads to, NAME of the Sandbox and the pod; fails without.
claim_of()
{
    local name

    name=$(kube get sandboxclaim "bellhop-$1" -o 'jsonpath={.status.sandbox.name}' 2>/dev/null) && [ -n "$name" ] && echo "$name"
}

# start_kubectl_proxy: with the calls that it refuses by default.
start_kubectl_proxy()
{
    kubectl --kubeconfig="$KUBE_ADMIN" proxy --reject-paths='^$' --unix-socket="$KUBE_PROXY" \
        >"$KUBE_PROXY.log" 2>&1 </dev/null 3>&- 4>&- {KUBERNETES_LOCK_FD}>&- &
    echo $! >"$KUBE_PROXY.pid"
    wait_until 30 curl -sf --unix-socket "$KUBE_PROXY" http://localhost/readyz
}

stop_boxes_cluster()
{
    [ ! -e "$KUBE_PROXY.pid" ] || kill "$(cat "$KUBE_PROXY.pid")"
    stop_cluster
}

kube() { kubectl --kubeconfig="$KUBE_ADMIN" -n "$KUBE_NAMESPACE" "$@"; }

# make_volumes N SIZE: a claim takes the smallest that is large enough. They are directories of this machine, which each
# node sees; a cluster of people has a storage class that makes them.
make_volumes()
{
    local i dir

    for ((i = 0; i < $1; i++)); do
        dir=$(mktemp -d "$BATS_FILE_TMPDIR/volumes/v-$2-XXXXXX")
        jq -n --arg dir "$dir" --arg name "$(basename "$dir" | tr 'A-Z' 'a-z')-$i" --arg size "$2" '
            {apiVersion: "v1", kind: "PersistentVolume", metadata: {name: $name}, spec: {
            capacity: {storage: $size}, accessModes: ["ReadWriteOnce"], persistentVolumeReclaimPolicy: "Retain",
            local: {path: $dir}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [
            {key: "kubernetes.io/hostname", operator: "Exists"}]}]}}}}'
    done | kube create -f - >/dev/null
}

# use_cluster (kubernetes|kubernetes_pool|kubernetes_proxy): the commands and the driver of tests/providers use it.
use_cluster()
{
    case $1 in
    kubernetes | kubernetes_pool) KUBE_PLACE=kubeconfig:$KUBE_ADMIN ;;
    kubernetes_proxy) KUBE_PLACE="proxy:$KUBE_PROXY?reach=address" ;;
    esac
    export KUBE_PLACE KUBECONFIG=$KUBE_PLACE
}

# make_role: the one of docs/kubernetes.md, which is called bellhop.
make_role()
{
    sed -n '/^kind: Role$/,/^```/p' "${CLUSTER%/tests/*}/docs/kubernetes.md" | sed '/^```/d' |
        { echo 'apiVersion: rbac.authorization.k8s.io/v1' && cat; } | kube create -f -
}

# sa_config NAME: a kubeconfig with the token of a service account.
sa_config()
{
    jq -n --arg server "$(kube config view --raw -o json | jq -r '.clusters[0].cluster.server')" \
        --arg ca "$(kube config view --raw -o json --flatten | jq -r '.clusters[0].cluster["certificate-authority-data"]')" \
        --arg token "$(kube create token "$1")" --arg namespace "$KUBE_NAMESPACE" '
        {"current-context": "c", clusters: [{name: "k", cluster: {server: $server, "certificate-authority-data": $ca}}],
        users: [{name: "u", user: {token: $token}}],
        contexts: [{name: "c", context: {cluster: "k", user: "u", namespace: $namespace}}]}'
}

# kube_objects [SELECTOR]: what boxes have in the namespace: "Pod bellhop-...". Fails if the API server does not answer:
# an empty output alone does not prove that nothing is there.
kube_objects()
{
    local all

    all=$(kube get pods,secrets,persistentvolumeclaims,networkpolicies -l "${1:-dev.bellhop.box}" -o json) || return 1
    jq -r '.items[] | .kind + " " + .metadata.name' <<<"$all" || return 1
    [ -z "${KUBE_POOL:-}" ] || pool_objects "$@"
}

# nothing_left [SELECTOR]
nothing_left()
{
    local left

    left=$(kube_objects "$@") && [ -z "$left" ]
}

# pool_objects [SELECTOR]: the claims of boxes, and Sandboxes and pods that are neither the pool's own nor of other claims.
pool_objects()
{
    local all claims

    claims=$(kube get sandboxclaims -l "${1:-dev.bellhop.box}" -o json) || return 1
    jq -r '.items[] | .kind + " " + .metadata.name' <<<"$claims" || return 1
    # The pods first: one that the pool makes meanwhile would have no Sandbox yet.
    all=$(kube get pods -o json) || return 1
    all+=$(kube get sandboxclaims,sandboxes -o json) || return 1
    jq -rs --argjson asked "$(jq '[.items[].metadata.uid]' <<<"$claims")" '
        def is_owned_by(uids): any(.metadata.ownerReferences[]?; .uid as $uid | uids | index($uid));
        {items: map(.items[])} | ([.items[] | select(.kind == "SandboxClaim") | .metadata.uid] - $asked) as $others |
        [.items[] | select(.kind == "Sandbox" and (is_owned_by($others) or
            any(.metadata.ownerReferences[]?; .kind == "SandboxWarmPool"))) | .metadata.uid] as $own |
        .items[] | select(.kind != "SandboxClaim") | select(.metadata.uid as $uid | $own | index($uid) | not) |
        select(is_owned_by($own) | not) | .kind + " " + .metadata.name' <<<"$all"
}

# A pod that breaks no rule is admitted: the API server keeps a quota or a policy in force for some seconds after its
# deletion. A test that deletes one waits for this.
admits_pods()
{
    jq -n '{apiVersion: "v1", kind: "Pod", metadata: {generateName: "trial-"}, spec: {
        securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: "RuntimeDefault"}},
        containers: [{name: "trial", image: "trial.invalid/trial:1", securityContext: {
        allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}}}]}}' | kube create --dry-run=server -f -
}

# kube_pid ID: the first process of the box's pod, on this machine: the nodes are here.
kube_pid()
{
    local uid file pod=bellhop-$1

    [ -z "${KUBE_POOL:-}" ] || pod=$(claim_of "$1") || return 1
    uid=$(kube get pod "$pod" -o 'jsonpath={.metadata.uid}' 2>/dev/null) || return 1
    for file in $(grep -lE "pod($uid|${uid//-/_})" /proc/[0-9]*/cgroup 2>/dev/null); do
        if [ "$(cat "${file%/cgroup}/comm")" = bellhopd ] && grep -q '^NSpid:.*[[:space:]]1$' "${file%/cgroup}/status"; then
            basename "${file%/cgroup}"
            return
        fi
    done
    return 1
}

stop_cluster()
{
    if [ -e "$BATS_FILE_TMPDIR/cluster-env" ]; then
        cluster down
        rm -f "$KUBERNETES_LOCK.test"
    fi
}
