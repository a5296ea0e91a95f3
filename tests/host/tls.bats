#!/usr/bin/env bats
# The TLS of the host's client: with a CA file, that file's authorities count and no others; HTTP/1.1; a name that is
# looked up for ever does not hold a command that is canceled.

load ../lib/box
load ../lib/certs
bats_require_minimum_version 1.5.0

setup()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    box_setup
    unset KUBECONFIG DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG DOCKER_CERT_PATH
    SERVER=
}

teardown()
{
    [ -z "${SERVER:-}" ] || end_now "$SERVER"
    [ ! -d "${BOX_TMP:-}" ] || box_teardown
}

# A server whose certificate is of the authority "ca", which the fake store of the system has; "other" is another one.
start_tls_server()
{
    local dir=$BOX_TMP/certs

    mkdir -p "$dir" "$BOX_TMP/store"
    make_authority "$dir" ca
    make_authority "$dir" other
    make_certificate "$dir" server serverAuth
    make_certificate "$dir" client clientAuth
    cp "$dir/ca.pem" "$BOX_TMP/store/ca-certificates.crt"
    cp "$dir/ca.pem" "$BOX_TMP/store/ca.pem"
    ln -s ca.pem "$BOX_TMP/store/$(openssl x509 -hash -noout -in "$dir/ca.pem").0"
    python3 "$BATS_TEST_DIRNAME/../lib/tls_server.py" "$BOX_TMP/port" "$dir/server.pem" "$dir/server-key.pem" \
        "$BOX_TMP/requests" 3>&- 4>&- &
    SERVER=$!
    wait_for 20 test -s "$BOX_TMP/port"
    PORT=$(cat "$BOX_TMP/port")
}

# In a mount namespace, whose system trusts the authority "ca".
with_store()
{
    SSL_CERT_FILE=$BOX_TMP/store/ca.pem SSL_CERT_DIR=$BOX_TMP/store unshare --mount --propagation private \
        sh -c 'mount --bind "$1" /etc/ssl/certs && shift && exec "$@"' with_store "$BOX_TMP/store" "$@"
}

# kubeconfig [AUTHORITY]
kubeconfig()
{
    jq -n --arg server "https://127.0.0.1:$PORT" --arg ca "${1:+$BOX_TMP/certs/$1.pem}" '
        {"current-context": "c", clusters: [{name: "k", cluster: ({server: $server} +
        if $ca == "" then {} else {"certificate-authority": $ca} end)}],
        users: [{name: "u", user: {token: "secret"}}], contexts: [{name: "c", context: {cluster: "k", user: "u"}}]}' \
        >"$BOX_TMP/kubeconfig"
}

why_not() { jq -r --arg name "$1" '.providers[] | select(.name == $name) | .why' <<<"$output"; }

@test "an authority of the system does not count beside that of a kubeconfig, and HTTP/1.1 is spoken" {
    start_tls_server
    export KUBECONFIG=$BOX_TMP/kubeconfig
    kubeconfig ca
    run -0 --separate-stderr bellhop providers --json
    [[ "$(why_not kubernetes)" == *'the server has seen the request'* ]] || fail "$output"
    grep -q '^http/1.1 GET /api/v1/namespaces/default/pods' "$BOX_TMP/requests" || fail "$(cat "$BOX_TMP/requests")"
    # Without an authority in the kubeconfig, the system's count: the store is in force.
    kubeconfig
    run -0 --separate-stderr with_store "$BELLHOP" providers --json
    [[ "$(why_not kubernetes)" == *'the server has seen the request'* ]] || fail "$output"
    : >"$BOX_TMP/requests"
    kubeconfig other
    run -0 --separate-stderr with_store "$BELLHOP" providers --json
    [[ "$(why_not kubernetes)" == *certificate* ]] || fail "$output"
    [ ! -s "$BOX_TMP/requests" ]
}

@test "an authority of the system does not count beside docker's ca.pem" {
    start_tls_server
    client_files "$BOX_TMP/certs" "$BOX_TMP/good" ca client
    client_files "$BOX_TMP/certs" "$BOX_TMP/wrong" other client
    export DOCKER_HOST=tcp://127.0.0.1:$PORT DOCKER_TLS_VERIFY=1 DOCKER_CERT_PATH=$BOX_TMP/good
    run -0 --separate-stderr with_store "$BELLHOP" providers --json
    [ -s "$BOX_TMP/requests" ] || fail "$output"
    : >"$BOX_TMP/requests"
    export DOCKER_CERT_PATH=$BOX_TMP/wrong
    run -0 --separate-stderr with_store "$BELLHOP" providers --json
    [[ "$(why_not docker)" == *certificate* ]] || fail "$output"
    [ ! -s "$BOX_TMP/requests" ]
}

@test "a command that waits for a name server ends when it is canceled" {
    PORT=6443
    kubeconfig
    jq '.clusters[0].cluster.server = "https://api.cluster.test:6443"' "$BOX_TMP/kubeconfig" >"$BOX_TMP/named"
    printf 'nameserver 127.0.0.1\noptions timeout:30 attempts:5\n' >"$BOX_TMP/resolv.conf"
    printf 'hosts: dns\n' >"$BOX_TMP/nsswitch.conf"
    # A network of its own, in which the name server takes questions and answers none.
    cat >"$BOX_TMP/run" <<'END'
set -e
mount --bind "$1/resolv.conf" /etc/resolv.conf
mount --bind "$1/nsswitch.conf" /etc/nsswitch.conf
ip link set lo up
python3 -c '
import os, signal, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 53))
with open(sys.argv[1] + ".new", "w") as f:
    f.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
signal.pause()' "$1/names" &
until [ -s "$1/names" ]; do kill -0 $!; done
exec env KUBECONFIG="$1/named" "$2" providers
END
    unshare --net --mount --propagation private sh "$BOX_TMP/run" "$BOX_TMP" "$BELLHOP" >"$BOX_TMP/out" 2>&1 3>&- 4>&- &
    local pid=$!
    wait_for 20 test -s "$BOX_TMP/names"
    SERVER=$(cat "$BOX_TMP/names")
    wait_for 20 asks_for_name "$pid"
    kill -INT "$pid"
    wait_for 20 is_gone "$pid" || { end_now "$pid" && fail "$(cat "$BOX_TMP/out")"; }
    wait "$pid" || true
}

# Its question to the name server is out.
asks_for_name() { grep -q ' 0100007F:0035 01 ' "/proc/$1/net/udp"; }
