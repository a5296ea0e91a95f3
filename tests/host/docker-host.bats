#!/usr/bin/env bats
# The engine that the provider docker uses is that of Docker's own command. The contexts are made by the real one; the
# engines are not, and say which of them was asked by the name of their runtime.

load ../lib/box
load ../lib/certs
bats_require_minimum_version 1.5.0

setup()
{
    command -v docker >/dev/null || skip "docker is not installed"
    box_setup
    unset DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG DOCKER_CERT_PATH DOCKER_TLS_VERIFY
    FAKES=()
}

teardown()
{
    [ -z "${FAKES[*]}" ] || end_now "${FAKES[@]}"
    box_teardown
}

# start_fake NAME: on the socket $BOX_TMP/NAME.
start_fake()
{
    python3 "$BATS_TEST_DIRNAME/../lib/fake_engine.py" "$1" "$BOX_TMP/$1" 3>&- &
    FAKES+=($!)
    wait_for 10 test -S "$BOX_TMP/$1"
}

# The runtime of the engine that is used, or the reason why none is.
engine_used()
{
    bellhop providers --json | jq -r '.providers[] | select(.name == "docker") | if .usable then .runtime else .why end'
}

@test "DOCKER_HOST beats DOCKER_CONTEXT, that the context of config.json, and default is none" {
    start_fake one
    start_fake two
    start_fake three
    export DOCKER_CONFIG=$BOX_TMP/config
    docker context create second --docker "host=unix://$BOX_TMP/two" >/dev/null
    docker context create third --docker "host=unix://$BOX_TMP/three" >/dev/null
    docker context use third >/dev/null
    [ "$(engine_used)" = three ]
    bellhop providers --json | json_is --arg at "unix://$BOX_TMP/three" '.providers[] | select(.name == "docker") |
        .engine | startswith("Docker ") and endswith(" at " + $at)'
    run bellhop providers
    [[ "$output" == *" at unix://$BOX_TMP/three"* ]] || fail "$output"
    run bellhop doctor
    [[ "$output" == *"provider docker "*" at unix://$BOX_TMP/three"* ]] || fail "$output"
    [ "$(DOCKER_CONTEXT=second engine_used)" = two ]
    [ "$(DOCKER_CONTEXT=second DOCKER_HOST=unix://$BOX_TMP/one engine_used)" = one ]
    mkdir -p "$HOME/.config/bellhop"
    echo "docker-host = \"unix://$BOX_TMP/one\"" >"$HOME/.config/bellhop/config.toml"
    [ "$(engine_used)" = one ]
    [ "$(DOCKER_HOST=unix://$BOX_TMP/two engine_used)" = two ]
    rm "$HOME/.config/bellhop/config.toml"
    # Without DOCKER_CONFIG, it is ~/.docker.
    mv "$BOX_TMP/config" "$HOME/.docker"
    unset DOCKER_CONFIG
    [ "$(engine_used)" = three ]
    [ "$(DOCKER_CONTEXT=default engine_used)" != three ]
}

@test "an engine by TLS gets the certificates of DOCKER_CERT_PATH, of Docker's directory, or of its context" {
    local certs=$BOX_TMP/certs port
    mkdir "$certs"
    make_authority "$certs" ca
    make_certificate "$certs" server serverAuth
    make_certificate "$certs" client clientAuth
    client_files "$certs" "$BOX_TMP/mine" ca client
    python3 "$BATS_TEST_DIRNAME/../lib/fake_engine.py" tls tcp "$certs/server.pem" "$certs/server-key.pem" \
        "$certs/ca.pem" >"$BOX_TMP/port" 2>/dev/null 3>&- &
    FAKES+=($!)
    wait_for 10 test -s "$BOX_TMP/port"
    port=$(cat "$BOX_TMP/port")

    export DOCKER_HOST=tcp://127.0.0.1:$port
    [ "$(DOCKER_CERT_PATH=$BOX_TMP/mine engine_used)" = tls ]
    [ "$(engine_used)" != tls ]
    [[ "$(DOCKER_CERT_PATH=$BOX_TMP/absent engine_used)" == *"the engine's certificates: '$BOX_TMP/absent/ca.pem'"* ]]
    # The reason is the TLS library's own.
    make_authority "$certs" other
    client_files "$certs" "$BOX_TMP/wrong" other client
    [[ "$(DOCKER_CERT_PATH=$BOX_TMP/wrong engine_used)" == *"SSL certificate problem: "* ]]
    [[ "$(DOCKER_HOST=tcp://localhost:$port DOCKER_CERT_PATH=$BOX_TMP/mine engine_used)" == *"target host name 'localhost'"* ]]
    cp -r "$BOX_TMP/mine" "$BOX_TMP/broken"
    echo none >"$BOX_TMP/broken/cert.pem"
    [[ "$(DOCKER_CERT_PATH=$BOX_TMP/broken engine_used)" == *"$BOX_TMP/broken/cert.pem"* ]] ||
        fail "$(DOCKER_CERT_PATH=$BOX_TMP/broken engine_used)"
    # The address is stored with a box: a relative path would be from another directory later.
    cd "$BOX_TMP"
    [ "$(DOCKER_CERT_PATH=mine engine_used)" = tls ]
    [[ "$(DOCKER_CERT_PATH=absent engine_used)" == *"the engine's certificates: '$BOX_TMP/absent/ca.pem'"* ]]
    cp -r "$BOX_TMP/mine" "$HOME/.docker"
    [ "$(DOCKER_TLS_VERIFY=1 engine_used)" = tls ]
    unset DOCKER_HOST
    docker context create far \
        --docker "host=tcp://127.0.0.1:$port,ca=$certs/ca.pem,cert=$certs/client.pem,key=$certs/client-key.pem" >/dev/null
    [ "$(DOCKER_CONTEXT=far engine_used)" = tls ]
}

@test "an address by ssh, and others that are none, are refused by name" {
    DOCKER_HOST=ssh://me@there run engine_used
    [ "$output" = "the engine's address 'ssh://me@there' is not supported: forward the engine's socket (ssh -L), and name it as unix:///PATH" ]
    DOCKER_HOST=tcp://127.0.0.1 run engine_used
    [ "$output" = "the engine's address 'tcp://127.0.0.1' has no port: 2375, or 2376 with TLS, is usual" ]
    for host in unix://relative tcp:// tcp://:2375 tcp://h:0 tcp://h:65536 tcp://h:2375x 'tcp://[::1]' http://127.0.0.1:1 'tcp://127.0.0.1:1 x'; do
        DOCKER_HOST=$host run engine_used
        [ "$output" = "the engine's address '$host' is neither unix:///PATH nor tcp://HOST:PORT" ] || fail "$host: $output"
    done
    docker context create away --docker "host=ssh://me@there" >/dev/null
    DOCKER_CONTEXT=away run engine_used
    [[ "$output" == "the engine's address 'ssh://me@there' is not supported: "* ]]
}

@test "an engine that cannot be reached is named with the reason" {
    : >"$BOX_TMP/file"
    DOCKER_HOST=unix://$BOX_TMP/absent run engine_used
    [ "$output" = "the engine: connect to '$BOX_TMP/absent': no such file or directory" ] || fail "$output"
    DOCKER_HOST=unix://$BOX_TMP/file run engine_used
    [ "$output" = "the engine: '$BOX_TMP/file' is no socket" ] || fail "$output"
    if [ "$(id -u)" -eq 0 ]; then
        start_fake one
        chmod 0600 "$BOX_TMP/one"
        chmod 0711 "$BOX_TMP"
        mkdir -m 0777 "$BOX_TMP/theirs"
        run setpriv --reuid 65534 --regid 65534 --clear-groups env HOME="$BOX_TMP/theirs" \
            BELLHOP_STATE_DIR="$BOX_TMP/theirs/state" DOCKER_HOST="unix://$BOX_TMP/one" "$BELLHOP" providers
        [[ "$output" == *"the engine: connect to '$BOX_TMP/one': permission denied"* ]] || fail "$output"
    fi
    DOCKER_HOST=tcp://127.0.0.1:1 run engine_used
    [ "$output" = "the engine: connect to 'http://127.0.0.1:1': connection refused" ] || fail "$output"
    # It ends each connection at once.
    python3 -c 'import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    s.accept()[0].close()' >"$BOX_TMP/port" 3>&- &
    FAKES+=($!)
    wait_for 10 test -s "$BOX_TMP/port"
    DOCKER_HOST=tcp://127.0.0.1:$(cat "$BOX_TMP/port") run engine_used
    [[ "$output" == *": if it wants TLS, name the directory of its certificates by DOCKER_CERT_PATH" ]] || fail "$output"
}

@test "a context that is not there is named, and stops no command that needs no engine" {
    local want="Docker has no context 'gone' ('docker context ls' lists them)"
    DOCKER_CONTEXT=gone run engine_used
    [ "$output" = "$want" ]
    mkdir "$HOME/.docker"
    echo '{"currentContext": "gone"}' >"$HOME/.docker/config.json"
    [ "$(engine_used)" = "$want" ]
    bellhop ls
}

@test "a config.json that cannot be read is named in a warning, as by Docker's own command, unless it decides nothing" {
    local file="$HOME/.docker/config.json" text
    mkdir "$HOME/.docker"
    for text in 'no json' '[]' '{"currentContext": 5}' ''; do
        echo "$text" >"$file"
        bellhop ls 2>"$BOX_TMP/err"
        [[ "$(cat "$BOX_TMP/err")" == "bellhop: no context of Docker's is used: '$file'"* ]] || fail "$text: $(cat "$BOX_TMP/err")"
        bellhop ls --json 2>/dev/null | jq -e '.boxes == []'
        bellhop -q ls 2>"$BOX_TMP/err"
        [ ! -s "$BOX_TMP/err" ]
        DOCKER_CONTEXT=default bellhop ls 2>"$BOX_TMP/err"
        [ ! -s "$BOX_TMP/err" ]
        DOCKER_HOST=unix://$BOX_TMP/one bellhop ls 2>"$BOX_TMP/err"
        [ ! -s "$BOX_TMP/err" ]
    done
    rm "$file"
    mkdir "$file"
    bellhop ls 2>"$BOX_TMP/err"
    grep -qF "$file" "$BOX_TMP/err"
    rmdir "$file"
    echo '{"auths": {}}' >"$file"
    bellhop ls 2>"$BOX_TMP/err"
    [ ! -s "$BOX_TMP/err" ]
}

# in_empty_run COMMAND...: where the sockets of this machine are hidden.
in_empty_run()
{
    # shellcheck disable=SC2016 # the inner shell's
    unshare -m sh -c 'mount -t tmpfs none /run && exec "$@"' sh "$@"
}

@test "without an address the sockets of Docker and Podman are tried, and an error lists them" {
    local uid functions
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    uid=$(id -u)
    export BELLHOP
    functions=$(declare -f bellhop engine_used)
    run -0 in_empty_run bash -c "$functions; engine_used"
    [ "$output" = "no engine is here: start Docker or Podman, or set DOCKER_HOST (none of these is there: \
/var/run/docker.sock, /run/user/$uid/docker.sock, /run/podman/podman.sock, /run/user/$uid/podman/podman.sock)" ] || fail "$output"
    start_fake one
    for path in docker.sock "user/$uid/docker.sock" podman/podman.sock "user/$uid/podman/podman.sock"; do
        run in_empty_run bash -c "$functions; mkdir -p \$(dirname /run/$path); ln -s $BOX_TMP/one /run/$path; engine_used"
        [ "$output" = one ] || fail "$path: $output"
    done
}
