# shellcheck shell=sh
# node.sh: nodes. Each has network, mount and process namespaces of its own, with containerd and a kubelet in them; its
# first process is BIN/pause, with which everything in it ends. Sourced by cluster.sh.
set -eu

node_address()
{
    echo "$NET.0.$((10 + $1))"
}

node_pods()
{
    echo "$NET.$((100 + $1)).0/24"
}

node_is_ready()
{
    [ "$(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = True ]
}

# in_node N COMMAND...
in_node()
{
    node_init=$(process_pid "n$1-init")
    shift
    nsenter -t "$node_init" --net --mount --pid "$@"
}

node_network_config()
{
    cat <<JSON
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(node_pods "$1")"}]], "routes": [{"dst": "0.0.0.0/0"}],
           "dataDir": "$RUN/n$1/ipam"}}]}
JSON
}

# Without CAP_SYS_RESOURCE no score of the OOM killer can be lowered.
node_runtime_config()
{
    cat <<TOML
version = 2
root = "$RUN/n$1/containerd"
state = "$RUN/n$1/run/containerd"
oom_score = 0
[grpc]
address = "$RUN/n$1/run/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "$RUN/n$1/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/bellhop/pause:1"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "$BIN/runtime/usr/lib/cni"
conf_dir = "$RUN/n$1/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
TOML
}

node_kubelet_config()
{
    cat <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /$PREFIX-n$1
enforceNodeAllocatable: []
oomScoreAdj: 0
failSwapOn: false
protectKernelDefaults: true
makeIPTablesUtilChains: false
address: $(node_address "$1")
healthzBindAddress: 127.0.0.1
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $PKI/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $PKI/n$1.crt
tlsPrivateKeyFile: $PKI/n$1.key
containerRuntimeEndpoint: unix://$RUN/n$1/run/containerd.sock
podLogsDir: $RUN/n$1/podlogs
resolvConf: ""
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 50Mi}
nodeLeaseDurationSeconds: 8
nodeStatusUpdateFrequency: 2s
YAML
}

# The control groups of a node: of each hierarchy of version 1 that is mounted, and of version 2.
node_cgroups()
{
    for name in blkio cpu cpuacct cpuset devices freezer memory pids systemd unified; do
        [ ! -d "/sys/fs/cgroup/$name" ] || echo "/sys/fs/cgroup/$name/$PREFIX-n$1"
    done
}

node_prepare()
{
    dir=$RUN/n$1
    mkdir -p "$dir/run" "$dir/cni" "$dir/kubelet" "$dir/podlogs" "$dir/sysctl"
    node_network_config "$1" >"$dir/cni/10-bridge.conflist"
    node_runtime_config "$1" >"$dir/containerd.toml"
    node_kubelet_config "$1" >"$dir/kubelet.yaml"
    for group in $(node_cgroups "$1"); do
        mkdir -p "$group"
        for file in cpuset.cpus cpuset.mems; do
            [ ! -e "$group/$file" ] || cat "$group/../$file" >"$group/$file"
        done
    done
}

# node_connect N NODES: its interface on the bridge, and the routes to its pods and to those of the others.
node_connect()
{
    ip netns add "$PREFIX-n$1"
    ip link add "$PREFIX-v$1" type veth peer name eth0 netns "$PREFIX-n$1"
    ip link set "$PREFIX-v$1" master "$BRIDGE" up
    ip -n "$PREFIX-n$1" addr add "$(node_address "$1")/24" dev eth0
    ip -n "$PREFIX-n$1" link set eth0 up
    ip -n "$PREFIX-n$1" link set lo up
    ip -n "$PREFIX-n$1" route add default via "$NET.0.1"
    ip netns exec "$PREFIX-n$1" sysctl -qw net.ipv4.ip_forward=1
    ip route replace "$(node_pods "$1")" via "$(node_address "$1")"
    for other in $(seq "$2"); do
        [ "$other" -eq "$1" ] || ip -n "$PREFIX-n$1" route add "$(node_pods "$other")" via "$(node_address "$other")"
    done
}

node_init_runs()
{
    node_init=$(pgrep -P "$(process_pid "n$1")") && [ "$(cat "/proc/$node_init/comm")" = pause ]
}

# The kubelet wants kernel settings that only the whole machine could change: files of the node stand in for them.
node_start_runtime()
{
    dir=$RUN/n$1
    process_start "n$1" nsenter --net="/run/netns/$PREFIX-n$1" \
        unshare --mount --pid --fork --kill-child --propagation private "$BIN/pause"
    until_ok 10 node_init_runs "$1" || die "node n$1 does not start: see $LOG/n$1.log"
    process_record "n$1-init" "$(pgrep -P "$(process_pid "n$1")")"
    # shellcheck disable=SC2016 # for the shell in the node
    in_node "$1" sh -eu -c '
        mount -t proc proc /proc
        stand_in() { echo "$2" >"$1/sysctl/${3##*/}"; mount --bind "$1/sysctl/${3##*/}" "$3"; }
        stand_in "$1" 1 /proc/sys/vm/overcommit_memory
        stand_in "$1" 10 /proc/sys/kernel/panic
        stand_in "$1" 1 /proc/sys/kernel/panic_on_oops
        for dir in /run/containerd /var/lib/cni /var/log/containers /var/log/pods; do
            mkdir -p "$dir"
            mount -t tmpfs tmpfs "$dir"
        done
        mount --make-rshared /' sh "$dir" >>"$LOG/n$1.log" 2>&1
    process_start "n$1-containerd" nsenter -t "$(process_pid "n$1-init")" --net --mount --pid \
        env PATH="$RUNTIME:$PATH" "$RUNTIME/containerd" -c "$dir/containerd.toml"
    until_ok 30 node_ctr "$1" version || die "containerd does not answer: see $LOG/n$1-containerd.log"
}

node_ctr()
{
    dir=$RUN/n$1
    shift
    "$RUNTIME/ctr" -a "$dir/run/containerd.sock" -n k8s.io "$@"
}

node_import()
{
    node_ctr "$1" images import --digests=false "$2" >>"$LOG/n$1-import.log" 2>&1 ||
        die "$2 is not imported: see $LOG/n$1-import.log"
}

# node_remove_image N NAME: also by its digest, which is a name of its own.
node_remove_image()
{
    node_digest=$(node_ctr "$1" images ls "name==$2" | awk 'NR == 2 { print $3 }')
    [ -n "$node_digest" ] || die "node n$1 has no image $2"
    for name in $(node_ctr "$1" images ls | awk -v digest="$node_digest" '$3 == digest { print $1 }'); do
        node_ctr "$1" images rm --sync "$name" >>"$LOG/n$1-import.log" 2>&1
    done
}

node_start_kubelet()
{
    process_start "n$1-kubelet" nsenter -t "$(process_pid "n$1-init")" --net --mount --pid "$BIN/kubelet" \
        --config="$RUN/n$1/kubelet.yaml" --kubeconfig="$RUN/n$1.kubeconfig" --root-dir="$RUN/n$1/kubelet" \
        --cert-dir="$RUN/n$1/kubelet/pki" --hostname-override="n$1" --node-ip="$(node_address "$1")" --v=1
}

# The kernel ends everything in the node with its first process.
node_kill()
{
    process_kill "n$1-init"
    for name in "n$1" "n$1-containerd" "n$1-kubelet"; do
        process_kill "$name"
    done
}

group_is_removed()
{
    [ ! -d "$1" ] || find "$1" -depth -type d -exec rmdir {} +
}

node_remove()
{
    ip netns del "$PREFIX-n$1" 2>/dev/null || true
    ip link del "$PREFIX-v$1" 2>/dev/null || true
    for group in $(node_cgroups "$1"); do
        until_ok 10 group_is_removed "$group" || say "$group is still in use"
    done
}
