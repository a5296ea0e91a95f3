#!/bin/sh
# cluster.sh COMMAND: a real, small Kubernetes on this machine, for tests (README.md).
#
#   build [--agent-sandbox] [--kwok]       make what is missing in the cache: ten minutes the first time
#   built [--agent-sandbox] [--kwok]       exit status 0 if the cache has it
#   up [--nodes N] [--agent-sandbox] [IMAGE.tar...]
#                                          build, and start N (1) nodes with the images; prints the environment for it
#   import IMAGE.tar [N]                   an OCI or Docker archive on every node, or on node nN alone
#   remove-image NAME                      no node has an image of that name
#   kwok N                                 N simulated nodes more, kwok-1 to kwok-N
#   kill-node N                            node nN loses its power
#   drain N                                evict the pods of node nN, which takes no new ones
#   stop-apiserver, start-apiserver        the API server is gone with what it starts, and comes back with the same data
#   env                                    the lines to eval: KUBECONFIG and PATH
#   audit                                  the calls of service accounts since up, as JSON lines
#   down                                   end and remove everything but the cache
#
# BELLHOP_KUBERNETES_SLOT=0..9 (0) is which of the clusters that can be up side by side.
#
# Root; up refuses when a cluster is up. Processes are ended by pid and start time alone.
set -eu

HERE=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
top=$(cd "$HERE/../../.." && pwd)

if [ -n "${BELLHOP_KUBERNETES_CACHE:-}" ]; then
    CACHE=$BELLHOP_KUBERNETES_CACHE
elif [ -d "$top/build/kubernetes" ]; then
    CACHE=$top/build/kubernetes
else
    CACHE=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/bellhop-kubernetes
fi
BIN=$CACHE/bin

# Clusters of different slots are up side by side.
SLOT=${BELLHOP_KUBERNETES_SLOT:-0}
case $SLOT in
[0-9]) ;;
*)
    echo "cluster.sh: BELLHOP_KUBERNETES_SLOT is 0 to 9, not $SLOT" >&2
    exit 2
    ;;
esac
RUN=$CACHE/run-$SLOT
LOG=$CACHE/log-$SLOT
# Names in the kernel and ports are of the slot.
PREFIX=bhk$SLOT
PORTS=$((12379 + 100 * SLOT))

# The host's end of the bridge is .0.1, node N is .0.(10 + N), its pods are in .(100 + N).0/24.
NET=10.$((231 - SLOT))
BRIDGE=$PREFIX-b
ADMIN=$RUN/admin.kubeconfig

die()
{
    echo "cluster.sh: $*" >&2
    exit 1
}

say()
{
    echo "cluster.sh: $*" >&2
}

# until_ok SECONDS COMMAND...: asks until the command succeeds.
until_ok()
{
    tries=$(($1 * 20))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.05
    done
}

kubectl()
{
    "$BIN/kubectl" --kubeconfig="$ADMIN" "$@"
}

nodes()
{
    for dir in "$RUN"/n[0-9]*/; do
        [ ! -d "$dir" ] || basename "$dir" | tr -d n
    done
}

# ---- processes: run/NAME.pid has a pid and its start time -------------------------------------

# PID: the time of its start; nothing if it is gone, or a zombie.
start_time()
{
    sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'
}

process_record()
{
    echo "$2 $(start_time "$2")" >"$RUN/$1.pid"
}

# process_start NAME COMMAND...: in a session of its own. 3 and 4 are bats' own.
process_start()
{
    name=$1
    shift
    setsid "$@" >>"$LOG/$name.log" 2>&1 </dev/null 3>&- 4>&- &
    process_record "$name" $!
}

process_pid()
{
    read -r pid start <"$RUN/$1.pid" && [ -n "$start" ] && [ "$(start_time "$pid")" = "$start" ] && echo "$pid"
}

process_is_up()
{
    [ -e "$RUN/$1.pid" ] && process_pid "$1" >/dev/null
}

process_is_gone()
{
    ! process_pid "$1"
}

# A process that is started once more is another one: the record goes with it.
process_kill()
{
    [ -s "$RUN/$1.pid" ] || return 0
    if pid=$(process_pid "$1"); then
        kill -9 "$pid" 2>/dev/null || true
        until_ok 10 process_is_gone "$1" || die "$1, process $pid, does not end"
    fi
    rm -f "$RUN/$1.pid"
}

# ---- commands ----------------------------------------------------------------------------------

# shellcheck source=tests/lib/engines.sh
. "$top/tests/lib/engines.sh"
# shellcheck source=tests/lib/kubernetes/build.sh
. "$HERE/build.sh"
# shellcheck source=tests/lib/kubernetes/control.sh
. "$HERE/control.sh"
# shellcheck source=tests/lib/kubernetes/node.sh
. "$HERE/node.sh"

need_up()
{
    [ -e "$RUN/up" ] || die 'no cluster is up'
}

need_node()
{
    need_up
    [ -d "$RUN/n${1:-}" ] || die "there is no node n${1:-}"
}

refuse_second()
{
    [ ! -e "$RUN/up" ] || die "a cluster is up in $CACHE: 'cluster.sh down' first"
    [ ! -e "$RUN" ] || die "a cluster was started half in $CACHE: 'cluster.sh down' first"
    ! ip link show "$BRIDGE" >/dev/null 2>&1 ||
        die "a cluster with another cache is up (its bridge is $BRIDGE): BELLHOP_KUBERNETES_SLOT=1 to 9 is another"
}

cluster_up()
{
    count=1
    images=
    build_options=
    while [ $# -gt 0 ]; do
        case $1 in
        --nodes)
            count=$2
            shift
            ;;
        --agent-sandbox) build_options=$1 ;;
        -*) die "up: there is no option $1" ;;
        *)
            [ -r "$1" ] || die "up: there is no image $1"
            images="$images $(readlink -f "$1")"
            ;;
        esac
        shift
    done
    refuse_second
    build "$build_options"
    mkdir -p "$LOG"
    mkdir -m 0755 "$RUN" || die "a cluster is being started in $CACHE"
    rm -f "$LOG"/*.log
    control_start "$count"
    share_run_netns
    for n in $(seq "$count"); do
        node_prepare "$n"
        node_connect "$n" "$count"
    done
    for n in $(seq "$count"); do
        node_start_runtime "$n"
    done
    for image in "$BIN/pause.oci.tar" $images; do
        for n in $(seq "$count"); do
            node_import "$n" "$image"
        done
    done
    control_start_rest
    for n in $(seq "$count"); do
        node_start_kubelet "$n"
    done
    for n in $(seq "$count"); do
        until_ok 60 node_is_ready "n$n" || die "node n$n is not ready: see $LOG"
    done
    until_ok 30 kubectl -n default get serviceaccount default || die "no default service account: see $LOG"
    [ -z "$build_options" ] || agent_sandbox_start
    : >"$RUN/up"
    print_env
}

print_env()
{
    echo "export KUBECONFIG=$ADMIN PATH=$BIN:\$PATH"
}

import_image()
{
    need_up
    [ -r "${1:-}" ] || die "import: there is no image ${1:-}"
    for n in ${2:-$(nodes)}; do
        need_node "$n"
        node_import "$n" "$1"
    done
}

remove_image()
{
    need_up
    for n in $(nodes); do
        node_remove_image "$n" "$1"
    done
}

cluster_down()
{
    for n in $(nodes); do
        node_kill "$n"
    done
    for name in kwok agent-sandbox scheduler controller-manager apiserver etcd; do
        process_kill "$name"
    done
    for n in $(nodes); do
        node_remove "$n"
    done
    [ ! -e "$RUN" ] || ip link del "$BRIDGE" 2>/dev/null || true
    rm -rf --one-file-system "$RUN"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
build | built | env | audit) ;;
up | import | remove-image | kwok | kill-node | drain | stop-apiserver | start-apiserver | down)
    [ "$(id -u)" -eq 0 ] || die "$command needs root"
    ;;
esac
case $command in
build) build "$@" ;;
built) is_built "$@" ;;
up) cluster_up "$@" ;;
import) import_image "$@" ;;
remove-image) remove_image "$1" ;;
kwok)
    need_up
    simulate_nodes "$1"
    ;;
kill-node)
    need_node "${1:-}"
    node_kill "$1"
    ;;
drain)
    need_node "${1:-}"
    kubectl drain "n$1" --ignore-daemonsets --force --delete-emptydir-data --timeout=120s
    ;;
stop-apiserver)
    need_up
    # Both would see events in another order afterwards: the scheduler ends then, as its cache is "corrupted".
    process_kill scheduler
    process_kill controller-manager
    process_kill apiserver
    ;;
start-apiserver)
    need_up
    apiserver_start
    control_start_rest
    ;;
env)
    need_up
    print_env
    ;;
audit)
    need_up
    cat "$LOG/audit.log"
    ;;
down) cluster_down ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
