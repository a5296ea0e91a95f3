# shellcheck shell=sh
# bench-kubernetes.sh: a cluster for tests/bench/engines.sh, and the rows of a box in it beside those of a bare Pod.
# Used after bench.sh; $top, $dir, $bellhop and $mb are the bench's own.
#
#   kube_start      fails where none is built; BELLHOP_KUBERNETES_SLOT is which of the clusters
#   kube_round      the lives of a box and of a Pod
#   kube_moves      the file in and out by each way
#   kube_rows, kube_sizes
#   kube_stop

# shellcheck disable=SC2154 # dir, top, bellhop, mb: set by the bench

kube_cluster() { "$top/tests/lib/kubernetes/cluster.sh" "$@"; }
kube() { kubectl -n boxes "$@"; }

# kube_volume NAME: a directory of this machine; each box takes one.
kube_volume()
{
    mkdir -p "$dir/volumes/$1"
    cat <<YAML
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: $1}
spec:
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  local: {path: $dir/volumes/$1}
  nodeAffinity:
    required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]}
YAML
}

kube_start()
{
    kube_cluster built || return 1
    kube_is_started=1
    kube_env=$(kube_cluster up "$(readlink -f "$top/build/image/tests")/oci.tar") || return 1
    eval "$kube_env"
    kubectl create namespace boxes >/dev/null
    for n in $(seq 40); do
        kube_volume "v$n"
    done | kubectl create -f - >/dev/null
    for _ in $(seq 100); do
        ! kube get serviceaccount default >/dev/null 2>&1 || break
        sleep 0.1
    done
    kube_image=$(jq -r '.name + ":" + .version' "$top/build/image/tests/manifest.json")
    kube_config=$KUBECONFIG
    export BELLHOP_KUBE_NAMESPACE=boxes
}

kube_stop()
{
    [ -z "${kube_is_started:-}" ] || kube_cluster down
}

# kube_reach WAY: how the boxes that are started now are reached.
kube_reach() { export KUBECONFIG="kubeconfig:$kube_config?reach=$1"; }

kube_peer_ready()
{
    kube run "$1" --image="docker.io/bellhop/$kube_image" --image-pull-policy=IfNotPresent --restart=Never \
        --command -- sleep 6000 && kube wait --for=condition=Ready "pod/$1" --timeout=60s && kube exec "$1" -- true
}

kube_round()
{
    for way in exec address; do
        kube_reach "$way"
        timed "kube-$way-ready" ready bench --provider kubernetes
        for _ in 1 2 3; do timed "kube-$way-exec" "$bellhop" exec bench -- true; done
        timed "kube-$way-stop" "$bellhop" stop bench
        timed "kube-$way-start" "$bellhop" start bench
        "$bellhop" rm bench >/dev/null
    done
    KUBECONFIG=$kube_config
    timed kube-peer-ready kube_peer_ready peer
    for _ in 1 2 3; do timed kube-peer-exec kube exec peer -- true; done
    timed kube-peer-stop kube delete pod peer --grace-period=1
}

kube_moves()
{
    KUBECONFIG=$kube_config
    kube_peer_ready moves >/dev/null
    timed kube-peer-up kube cp "$dir/big" moves:/tmp/big
    timed kube-peer-down kube cp moves:/tmp/big "$dir/out"
    cmp "$dir/big" "$dir/out"
    rm -f "$dir/out"
    kube delete pod moves --grace-period=1 >/dev/null
    for way in exec address; do
        kube_reach "$way"
        [ -e "$dir/kube-$way" ] || ready "kube-$way" --provider kubernetes >"$dir/said" 2>&1
        : >"$dir/kube-$way"
        move "kube-$way" "kube-$way"
    done
}

kube_rows()
{
    ratio kube-peer-ready "kubectl run, wait, exec (a bare Pod)"
    ratio kube-exec-ready "up --provider kubernetes, exec, by exec" kube-peer-ready
    ratio kube-address-ready "up --provider kubernetes, exec, by address" kube-peer-ready
    ratio kube-peer-exec "kubectl exec ... true"
    ratio kube-exec-exec "bellhop exec, by exec" kube-peer-exec
    ratio kube-address-exec "bellhop exec, by address" kube-peer-exec
    ratio kube-peer-stop "kubectl delete pod"
    ratio kube-exec-stop "bellhop stop (Kubernetes)" kube-peer-stop
    ratio kube-exec-start "bellhop start (Kubernetes)" kube-peer-ready
    for verb in up down; do
        [ $verb = up ] && text="into" || text="out of"
        ratio kube-peer-$verb "kubectl cp $text, $mb MB"
        ratio kube-address-$verb "bellhop, $text a pod, by address" kube-peer-$verb
        ratio kube-exec-$verb "bellhop, $text a pod, by exec" kube-peer-$verb
    done
}

# The agent's memory as its pod tells it; the disk is a directory here.
kube_sizes()
{
    for way in exec address; do
        id=$(id_of "kube-$way")
        monitor=$(monitor_of "$id")
        agent=$("$bellhop" exec "kube-$way" -- sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1 KiB/p' /proc/1/status)
        echo "box of Kubernetes, by $way: monitor $(rss_kib "$monitor") KiB resident" \
            "($(private_kib "$monitor") its own), guest agent $agent resident"
        "$bellhop" rm "kube-$way" >/dev/null
    done
    KUBECONFIG=$kube_config
    kube_reach address
    ready kube-new --provider kubernetes >"$dir/said" 2>&1
    volume=$(KUBECONFIG=$kube_config kube get pvc "bellhop-$(id_of kube-new)" -o 'jsonpath={.spec.volumeName}')
    echo "bytes on the claim of a new box: $(du -sb "$dir/volumes/$volume" | cut -f 1)"
    "$bellhop" rm kube-new >/dev/null
}
