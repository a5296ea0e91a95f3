#!/usr/bin/env bats
# engines-only
# early
# time-limit: 900
# needs: image
# An ordinary user's bellhop with the user's own engines: nothing of it is root's.

bats_require_minimum_version 1.5.0
source "$BATS_TEST_DIRNAME/../lib/wait.bash"
. "$BATS_TEST_DIRNAME/../lib/engines.sh"

TOP=$BATS_TEST_DIRNAME/../..

setup_file()
{
    local build=${BELLHOP_BUILD:-$TOP/build/release}

    [ "$(id -u)" -eq 0 ] || skip "needs root"
    export ENGINES=$BATS_FILE_TMPDIR/engines
    "$build/bellhop" image build "$TOP/tests/lib/image" --form oci >/dev/null
    start_rootless_podman
    start_rootless_dockerd
    # The user cannot reach this tree everywhere.
    mkdir -p "$ROOTLESS_HOME/bin" "$ROOTLESS_HOME/images/tests"
    cp "$build"/bellhop "$build"/bellhop-monitor "$build"/bellhopd "$build"/libbellhop.so* "$ROOTLESS_HOME/bin"
    cp -r "$TOP/build/image/tests/oci" "$TOP/build/image/tests/oci.tar" "$TOP/build/image/tests/manifest.json" \
        "$TOP/build/image/tests/.agent.oci" "$ROOTLESS_HOME/images/tests"
    chown -R "$ROOTLESS_USER:" "$ROOTLESS_HOME/bin" "$ROOTLESS_HOME/images"
}

teardown_file() { [ ! -d "${ENGINES:-}" ] || stop_engines; }

bellhop()
{
    as_rootless env DOCKER_HOST="unix://$SOCKET" BELLHOP_STATE_DIR="$ROOTLESS_HOME/state" \
        BELLHOP_CACHE_DIR="$ROOTLESS_HOME/cache" BELLHOP_IMAGES="$ROOTLESS_HOME/images" BELLHOP_IMAGE=tests \
        "$ROOTLESS_HOME/bin/bellhop" "$@" </dev/null
}

n_containers() { curl -sS --unix-socket "$SOCKET" 'http://engine/v1.41/containers/json?all=1' | jq length; }

life_of_a_box()
{
    bellhop up --name one --provider docker --agent none --empty
    [ "$(bellhop exec one -- sh -c 'echo kept >file; cat file')" = kept ]
    # The user's own engine publishes the port.
    [ "$(jq -r .way "$ROOTLESS_HOME"/state/boxes/*/docker.json)" = published ]
    bellhop status one --json | jq -e '.enforced | .engine.rootless and .isolation.user_namespace'
    bellhop stop one
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop stop one # with cgroup v1 nothing of a user's is paused, which a snapshot of a running box needs
    bellhop snapshot one --name s
    bellhop exec one -- sh -c 'echo changed >file'
    bellhop restore one s
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop rm one
    bellhop snapshots rm s
    [ "$(n_containers)" -eq 0 ]
    [ -z "$(bellhop ls -q)" ]
}

@test "an ordinary user's boxes live in the user's own Podman, and nothing is left" {
    SOCKET=$ROOTLESS_PODMAN_SOCKET
    life_of_a_box
}

@test "an ordinary user's boxes live in the user's own dockerd, and nothing is left" {
    SOCKET=$ROOTLESS_DOCKER_SOCKET
    life_of_a_box
}
