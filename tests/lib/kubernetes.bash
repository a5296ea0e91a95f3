# kubernetes.bash: the cluster of tests/lib/kubernetes for bats files:
#
#   load ../lib/kubernetes
#   setup_file() { start_cluster --nodes 2 IMAGE.tar; }        the options of `cluster.sh up`
#   teardown_file() { stop_cluster; }
#
# Then kubectl is in PATH and KUBECONFIG is the administrator's. Without a built cluster in the cache the file is
# skipped; KUBERNETES_BUILD=1 builds it: ten minutes. One file at a time has the cluster of this machine.

source "${BASH_SOURCE[0]%/*}/wait.bash"
CLUSTER=${BASH_SOURCE[0]%/*}/kubernetes/cluster.sh
KUBERNETES_LOCK=/run/lock/bellhop-kubernetes

cluster() { "$CLUSTER" "$@" 3>&- 4>&-; }

# The lock is held by bats itself until the file ends. A cluster that is up then was left by a test that was killed, or
# is a person's.
start_cluster()
{
    local option build=() lock

    [ "$(id -u)" -eq 0 ] || skip "a cluster needs root"
    for option in "$@"; do
        [ "$option" != --agent-sandbox ] || build=(--agent-sandbox)
    done
    if [ -z "${KUBERNETES_BUILD:-}" ] && ! cluster built "${build[@]}"; then
        skip "no Kubernetes is built here (make test-engines builds it)"
    fi
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
    [ -e "$BATS_FILE_TMPDIR/cluster-env" ] || return 0
    cluster down
    rm -f "$KUBERNETES_LOCK.test"
}
