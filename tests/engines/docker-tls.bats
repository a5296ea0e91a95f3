#!/usr/bin/env bats
# engines-only
# early
# time-limit: 900
# needs: image
# Docker by TCP with TLS, where both sides have a certificate: everything passes through the TLS library.

load ../lib/box
load ../lib/certs
bats_require_minimum_version 1.5.0

setup_file()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    export CERTS=$BATS_FILE_TMPDIR/certs ENGINES=$BATS_FILE_TMPDIR/engines
    mkdir "$CERTS"
    make_authority "$CERTS" ca
    make_authority "$CERTS" other
    make_certificate "$CERTS" server serverAuth
    make_certificate "$CERTS" client clientAuth
    client_files "$CERTS" "$CERTS/good" ca client
    client_files "$CERTS" "$CERTS/wrong-ca" other client
    client_files "$CERTS" "$CERTS/stranger" ca other
    client_files "$CERTS" "$CERTS/no-client" ca
    export BELLHOP_BUILD=${BELLHOP_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
    "$BELLHOP_BUILD/bellhop" image build "$BATS_TEST_DIRNAME/../lib/image" --form oci >/dev/null
    TLS_PORT=$(free_port)
    export TLS_PORT
    export DOCKERD_OPTIONS="-H tcp://127.0.0.1:$TLS_PORT --tlsverify --tlscacert=$CERTS/ca.pem
        --tlscert=$CERTS/server.pem --tlskey=$CERTS/server-key.pem"
    . "$BATS_TEST_DIRNAME/../lib/engines.sh"
    start_dockerd
    export LOCAL_DOCKER=$DOCKER_HOST
}

teardown_file()
{
    [ -d "${ENGINES:-}" ] || return 0
    . "$BATS_TEST_DIRNAME/../lib/engines.sh"
    export DOCKER_HOST=$LOCAL_DOCKER
    stop_engines
}

setup()
{
    box_setup
    export DOCKER_HOST=tcp://127.0.0.1:$TLS_PORT DOCKER_CERT_PATH=$CERTS/good
}
teardown()
{
    local status=0

    box_teardown || status=1
    [ -z "${PROXY:-}" ] || end_now "$PROXY"
    return "$status"
}

up() { bellhop up --provider docker --agent none --empty --name one "$@"; }

way() { jq -r .way "$BELLHOP_STATE_DIR"/boxes/*/docker.json; }

# The life of a box; $1: the way to its agent that is expected.
life_of_a_box()
{
    local want=$1
    shift
    up "$@"
    remember_box one
    [ "$(way)" = "$want" ]
    [ "$(bellhop exec one -- echo there)" = there ]
    run -7 bellhop exec one -- sh -c 'exit 7'
    head -c 5000000 /dev/urandom >"$BOX_TMP/big"
    bellhop put one "$BOX_TMP/big" :/tmp
    mkdir "$BOX_TMP/back"
    bellhop get one :/tmp/big "$BOX_TMP/back"
    cmp "$BOX_TMP/big" "$BOX_TMP/back/big"
    bellhop exec one -- cat /tmp/big | cmp - "$BOX_TMP/big"
    bellhop exec one -- cat <"$BOX_TMP/big" | cmp - "$BOX_TMP/big"
    bellhop pause one
    [ "$(docker -H "$LOCAL_DOCKER" ps --filter status=paused -q | wc -l)" -eq 1 ]
    bellhop resume one
    bellhop stop one
    bellhop start one
    bellhop exec one -- cat /tmp/big | cmp - "$BOX_TMP/big"
    bellhop rm one
    [ -z "$(docker -H "$LOCAL_DOCKER" ps -aq)" ]
}

@test "a box of an engine behind TLS lives, and its files are byte for byte the same" {
    life_of_a_box address
}

@test "a box of an engine behind TLS without a network is reached through the engine" {
    life_of_a_box exec --network none
}

# refused CODE MESSAGE: up says so (a regular expression), as JSON, and makes nothing.
refused()
{
    run ! --separate-stderr up --json
    [ "$(jq -r .error.code <<<"$output$stderr")" = "$1" ] || fail "$output$stderr"
    [[ "$output$stderr" =~ $2 ]] || fail "$output$stderr"
    [ -z "$(docker -H "$LOCAL_DOCKER" ps -aq)" ]
}

@test "an engine of another authority, and a client without its certificate, are typed errors" {
    export DOCKER_CERT_PATH=$CERTS/wrong-ca
    refused unauthenticated certificate
    # The refusal of our certificate comes as an alert, or the connection ends before it is read.
    export DOCKER_CERT_PATH=$CERTS/stranger
    refused unavailable 'bad certificate|peer'
    export DOCKER_CERT_PATH=$CERTS/no-client
    refused not_found cert.pem
    unset DOCKER_CERT_PATH
    refused unavailable 'wants TLS: name the directory of its certificates by DOCKER_CERT_PATH'
}

@test "an engine of another machine behind a socket of this one is not reached by an address that is somebody else's" {
    python3 "$BATS_TEST_DIRNAME/../lib/elsewhere.py" "$BOX_TMP/sock" "${LOCAL_DOCKER#unix://}" 3>&- &
    PROXY=$!
    wait_for 10 test -S "$BOX_TMP/sock"
    unset DOCKER_CERT_PATH
    export DOCKER_HOST=unix://$BOX_TMP/sock
    up
    remember_box one
    [ "$(way)" = exec ]
    [ "$(bellhop exec one -- echo there)" = there ]
    bellhop rm one
}
