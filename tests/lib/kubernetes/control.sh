# shellcheck shell=sh
# control.sh: keys, etcd, the API server, the controller manager, the scheduler, and the programs that come as clients:
# agent-sandbox and kwok. Sourced by cluster.sh.
set -eu

API=https://$NET.0.1:16443
ETCD=http://127.0.0.1:$PORTS
ETCD_PEER=http://127.0.0.1:$((PORTS + 1))
SANDBOX_HEALTH=127.0.0.1:$((PORTS + 5))
PKI=$RUN/pki

# ---- keys --------------------------------------------------------------------------------------

key_make()
{
    openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/$1.key" 2>>"$LOG/openssl.log"
}

# certificate_make NAME SUBJECT [ALTERNATIVE_NAMES]
certificate_make()
{
    key_make "$1"
    openssl req -new -key "$PKI/$1.key" -subj "$2" -out "$PKI/$1.csr" 2>>"$LOG/openssl.log"
    {
        printf 'keyUsage=digitalSignature\nextendedKeyUsage=clientAuth,serverAuth\n'
        [ -z "${3:-}" ] || echo "subjectAltName=$3"
    } >"$PKI/$1.ext"
    openssl x509 -req -in "$PKI/$1.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial -days 3650 \
        -extfile "$PKI/$1.ext" -out "$PKI/$1.crt" 2>>"$LOG/openssl.log"
}

kubeconfig_make()
{
    cat >"$RUN/$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters:
- name: test
  cluster: {server: "$API", certificate-authority-data: $(base64 -w 0 "$PKI/ca.crt")}
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w 0 "$PKI/$1.crt")
    client-key-data: $(base64 -w 0 "$PKI/$1.key")
contexts:
- name: test
  context: {cluster: test, user: $1}
current-context: test
YAML
}

# keys_make NODES
keys_make()
{
    mkdir -m 0700 "$PKI"
    key_make ca
    openssl req -x509 -new -key "$PKI/ca.key" -days 3650 -subj /CN=bellhop-test-ca \
        -addext keyUsage=critical,keyCertSign,cRLSign -out "$PKI/ca.crt"
    key_make service-accounts
    certificate_make apiserver /CN=kube-apiserver \
        "IP:127.0.0.1,IP:$NET.0.1,IP:10.233.0.1,DNS:localhost,DNS:kubernetes.default.svc"
    certificate_make admin /O=system:masters/CN=admin
    certificate_make scheduler /CN=system:kube-scheduler
    kubeconfig_make admin
    kubeconfig_make scheduler
    for n in $(seq "$1"); do
        certificate_make "n$n" "/O=system:nodes/CN=system:node:n$n" "IP:$NET.0.$((10 + n)),DNS:n$n"
        kubeconfig_make "n$n"
    done
}

# ---- the control plane -------------------------------------------------------------------------

# The API server has its default admission plugins, PodSecurity among them: a namespace's label
# pod-security.kubernetes.io/enforce counts.
apiserver_start()
{
    ! process_is_up apiserver || return 0
    process_start apiserver "$BIN/kube-apiserver" --etcd-servers="$ETCD" \
        --bind-address="$NET.0.1" --secure-port=16443 --client-ca-file="$PKI/ca.crt" \
        --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
        --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
        --kubelet-client-certificate="$PKI/admin.crt" --kubelet-client-key="$PKI/admin.key" \
        --kubelet-preferred-address-types=InternalIP --service-cluster-ip-range=10.233.0.0/16 \
        --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file="$PKI/service-accounts.key" \
        --service-account-signing-key-file="$PKI/service-accounts.key"
    until_ok 60 kubectl get --raw /readyz || die "the API server is not ready: see $LOG/apiserver.log"
}

# control_start NODES: all but the programs that try again only seconds later, when the API server is not ready yet.
control_start()
{
    keys_make "$1"
    ip link add "$BRIDGE" type bridge
    ip addr add "$NET.0.1/24" dev "$BRIDGE"
    ip link set "$BRIDGE" up
    process_start etcd "$BIN/etcd" --name=test --data-dir="$RUN/etcd" --listen-client-urls="$ETCD" \
        --advertise-client-urls="$ETCD" --listen-peer-urls="$ETCD_PEER" --initial-advertise-peer-urls="$ETCD_PEER" \
        --initial-cluster="test=$ETCD_PEER" --unsafe-no-fsync --log-level=warn
    apiserver_start
}

# A node is lost after 12 seconds without a word from it.
control_start_rest()
{
    process_is_up controller-manager ||
        process_start controller-manager "$BIN/kube-controller-manager" --kubeconfig="$ADMIN" --leader-elect=false \
            --service-account-private-key-file="$PKI/service-accounts.key" --root-ca-file="$PKI/ca.crt" \
            --bind-address=127.0.0.1 --secure-port=$((PORTS + 2)) \
            --node-monitor-grace-period=12s --node-monitor-period=1s
    process_is_up scheduler ||
        process_start scheduler "$BIN/kube-scheduler" --kubeconfig="$RUN/scheduler.kubeconfig" --leader-elect=false \
            --bind-address=127.0.0.1 --secure-port=$((PORTS + 3))
}

agent_sandbox_is_served()
{
    kubectl get sandboxes.agents.x-k8s.io,sandboxclaims,sandboxtemplates,sandboxwarmpools -A
}

# Without their webhook for conversion: only one version of the objects is used.
agent_sandbox_start()
{
    for file in "$CACHE"/agent-sandbox/*.yaml; do
        kubectl create --dry-run=client -o json -f "$file" | jq '.spec.conversion = {strategy: "None"}' |
            kubectl apply --server-side -f - >/dev/null
    done
    kubectl wait --for=condition=Established crd --all >/dev/null
    until_ok 30 agent_sandbox_is_served || die 'the definitions of agent-sandbox are not served'
    process_start agent-sandbox "$BIN/agent-sandbox-controller" --kubeconfig="$ADMIN" --extensions \
        --enable-webhook=false --leader-elect=false --metrics-bind-address=127.0.0.1:$((PORTS + 4)) \
        --health-probe-bind-address="$SANDBOX_HEALTH"
    until_ok 30 curl -sf -o /dev/null "http://$SANDBOX_HEALTH/readyz" || die "see $LOG/agent-sandbox.log"
}

# ---- simulated nodes ---------------------------------------------------------------------------

simulated_node()
{
    cat <<YAML
---
apiVersion: v1
kind: Node
metadata:
  name: kwok-$1
  annotations: {kwok.x-k8s.io/node: fake}
  labels: {type: kwok, kubernetes.io/hostname: kwok-$1, kubernetes.io/os: linux, kubernetes.io/arch: amd64}
spec:
  taints: [{key: kwok.x-k8s.io/node, value: fake, effect: NoSchedule}]
status:
  allocatable: {cpu: 32, memory: 256Gi, pods: 500}
  capacity: {cpu: 32, memory: 256Gi, pods: 500}
YAML
}

# simulate_nodes N: pods of these nodes are Running without a process. A pod needs a toleration of the taint.
simulate_nodes()
{
    build --kwok
    for n in $(seq "$1"); do
        simulated_node "$n"
    done | kubectl apply -f - >&2
    [ -e "$RUN/kwok.pid" ] || process_start kwok "$BIN/kwok" --kubeconfig="$ADMIN" --manage-all-nodes=false \
        --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake --node-lease-duration-seconds=40 \
        --server-address=127.0.0.1:$((PORTS + 6))
    for n in $(seq "$1"); do
        until_ok 60 node_is_ready "kwok-$n" || die "node kwok-$n is not ready: see $LOG/kwok.log"
    done
}
