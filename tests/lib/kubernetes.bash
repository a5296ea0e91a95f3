# kubernetes.bash: the cluster of tests/lib/kubernetes for bats files:
#
#   load ../lib/kubernetes
#   setup_file() { find_cluster || return 0; start_cluster --nodes 2 IMAGE.tar; }        the options of `cluster.sh up`
#   setup() { need_cluster; }
#   teardown_file() { stop_cluster; }
#
# Then kubectl is in PATH and KUBECONFIG is the administrator's. Without a built cluster in the cache the tests are
# skipped; KUBERNETES_BUILD=1 builds it: ten minutes. One file at a time has the cluster of this machine.

source "${BASH_SOURCE[0]%/*}/wait.bash"
CLUSTER=${BASH_SOURCE[0]%/*}/kubernetes/cluster.sh
KUBERNETES_LOCK=/run/lock/bellhop-kubernetes

cluster() { "$CLUSTER" "$@" 3>&- 4>&-; }

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
start_cluster()
{
    local lock

    exec {lock}>"$KUBERNETES_LOCK"
    flock "$lock"
    if [ -e "$KUBERNETES_LOCK.test" ]; then
        cluster down {lock}>&-
    fi
    : >"$KUBERNETES_LOCK.test"
    cluster up "$@" >"$BATS_FILE_TMPDIR/cluster-env" {lock}>&-
    source "$BATS_FILE_TMPDIR/cluster-env"
    export PATH KUBECONFIG
}

stop_cluster()
{
    if [ -e "$BATS_FILE_TMPDIR/cluster-env" ]; then
        cluster down
        rm -f "$KUBERNETES_LOCK.test"
    fi
}
