#!/usr/bin/env bats
# engines-only
# early
# needs: image
# The engines of tests/lib/engines.sh, which other files of this folder stand on: what each can do on this machine with
# the image of the boxes, and that nothing of them is left.

bats_require_minimum_version 1.5.0
source "$BATS_TEST_DIRNAME/../lib/wait.bash"
. "$BATS_TEST_DIRNAME/../lib/engines.sh"

setup_file()
{
    [ "$(id -u)" -eq 0 ] || skip "a container engine needs root"
    export TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    export ENGINES=$BATS_FILE_TMPDIR/engines IMAGE=$BATS_FILE_TMPDIR/image.tar
    "${BELLHOP_BUILD:-$TOP/build/release}/bellhop" image build slim --form oci >/dev/null
    cp "$TOP/build/image/slim/oci.tar" "$IMAGE"
}

# A test that failed half-way is cleared here.
teardown_file()
{
    [ "$(id -u)" -eq 0 ] || return 0
    [ ! -d "$ENGINES" ] || stop_engines
}

# api SOCKET METHOD PATH [CURL_OPTION...]
api()
{
    local socket=$1 method=$2 path=$3

    shift 3
    curl -sS --max-time 120 --unix-socket "$socket" -X "$method" -H 'Content-Type: application/json' \
        "$@" "http://engine/v1.41$path"
}

# run_agent SOCKET: the image with a token, its port published on a port of the loopback that the engine chooses.
run_agent()
{
    local start='umask 077; echo 0123456789abcdef0123456789abcdef >/tmp/t
        exec bellhopd --listen 0.0.0.0:4711 --token-file /tmp/t'

    api "$1" POST /images/load -f -H 'Content-Type: application/x-tar' -T "$IMAGE" >/dev/null
    jq -n --arg start "$start" '{Image: "docker.io/bellhop/slim:1.0.0", Entrypoint: ["sh", "-c", $start], Cmd: [],
        ExposedPorts: {"4711/tcp": {}}, HostConfig: {PortBindings: {"4711/tcp": [{HostIp: "127.0.0.1"}]}}}' |
        api "$1" POST '/containers/create?name=agent' -f -d @- >/dev/null
    api "$1" POST /containers/agent/start -f
    wait_until 30 agent_answers "$1"
}

agent_answers()
{
    local port

    port=$(api "$1" GET /containers/agent/json | jq -r '.NetworkSettings.Ports["4711/tcp"][0].HostPort')
    curl -sf --max-time 5 "http://127.0.0.1:$port/v1/health"
}

# status SOCKET METHOD PATH: the HTTP status alone.
status() { api "$@" -o /dev/null -w '%{http_code}'; }

# Of this file's engines alone: others run beside them.
nothing_left()
{
    local home=${ROOTLESS_HOME:-$ENGINES}

    [ ! -e "$ENGINES" ]
    [ ! -e "$home" ]
    [ -z "$(ps -eo args= | grep -F -e "$ENGINES" -e "$home" | grep -v grep)" ]
    ! grep -F -e "$ENGINES" -e "$home" /proc/self/mountinfo || return 1
    [ -z "${ROOTLESS_USER:-}" ] || ! getent passwd "$ROOTLESS_USER" || return 1
}

# Sets AFTER: the state of the agent's container once its Docker was killed and is back, and whether it is the process
# that it was. To be called plainly: in a substitution no check counts.
container_after_kill()
{
    local socket=${DOCKER_HOST#unix://} pid

    run_agent "$socket"
    pid=$(api "$socket" GET /containers/agent/json | jq .State.Pid)
    stop_dockerd_hard
    [ "$(status "$socket" GET /_ping)" = 000 ]
    [ -d "/proc/$pid" ]
    restart_dockerd
    AFTER=$(api "$socket" GET /containers/agent/json | jq -c --argjson pid "$pid" '[.State.Status, .State.Pid == $pid]')
}

@test "containers outlive a Docker that is killed, until it comes back" {
    start_dockerd
    container_after_kill
    [ "$AFTER" = '["exited",false]' ]
    stop_dockerd_hard
    stop_engines
    nothing_left
}

@test "containers outlive a Docker that is killed and comes back, with live-restore" {
    export DOCKERD_OPTIONS=--live-restore
    start_dockerd
    container_after_kill
    [ "$AFTER" = '["running",true]' ]
    agent_answers "${DOCKER_HOST#unix://}"
    restart_dockerd
    agent_answers "${DOCKER_HOST#unix://}"
    stop_engines
    nothing_left
}

# In a network of their own, where forwarding is off. The first to start is the first to end.
overlap()
{
    local n

    . "$TOP/tests/lib/engines.sh"
    sysctl -qw net.ipv4.ip_forward=0
    for n in 1 2; do
        ENGINES=$1/$n
        start_dockerd
    done
    for n in 1 2; do
        ENGINES=$1/$n
        export DOCKER_HOST=unix://$ENGINES/docker/sock
        stop_engines
    done
    iptables -S FORWARD
}

@test "two Dockers that overlap leave the policy of FORWARD as it was" {
    mkdir "$ENGINES"
    export -f overlap
    run -0 unshare --net bash -euc 'overlap "$1"' bash "$ENGINES"
    echo "$output"
    [ "${lines[0]}" = '-P FORWARD ACCEPT' ]
    rmdir "$ENGINES"
    nothing_left
}

# On a machine where /run/netns was never used. The remount is what `ip netns add` and Podman try first: if it fails, each
# makes a mount point.
share_anew()
{
    local n

    . "$TOP/tests/lib/engines.sh"
    ! mountpoint -q /run/netns || umount -l /run/netns
    mount -t tmpfs tmpfs /run
    mkdir /run/lock
    for n in 1 2 3 4 5 6 7 8; do
        share_run_netns &
    done
    wait
    mount --make-rshared /run/netns
    [ "$(grep -c ' /run/netns ' /proc/self/mountinfo)" -eq 1 ]
    ip netns add bellhop
    ip netns exec bellhop true
}

@test "tests that share the directory of network namespaces at once share one" {
    export -f share_anew
    unshare --mount --propagation private bash -euc share_anew
}

@test "Podman's service runs the image, and pauses it" {
    set_up_podman
    start_podman_service
    run_agent "$PODMAN_SOCKET"
    [ "$(status "$PODMAN_SOCKET" POST /containers/agent/pause)" = 204 ]
    stop_engines
    nothing_left
}

@test "Podman and Docker of an ordinary user run the image, and cannot pause it without cgroup v2" {
    [ -x "$(command -v rootlesskit)" ] || skip "rootlesskit is not installed"
    start_rootless_podman
    start_rootless_dockerd
    local socket

    for socket in "$ROOTLESS_PODMAN_SOCKET" "$ROOTLESS_DOCKER_SOCKET"; do
        [ "$(stat -c %U "$socket")" = "$ROOTLESS_USER" ]
        run_agent "$socket"
        if [ ! -e /sys/fs/cgroup/cgroup.controllers ]; then
            [ "$(status "$socket" POST /containers/agent/pause)" = 500 ]
        fi
    done
    [ "$(as_rootless id -un)" = "$ROOTLESS_USER" ]
    stop_engines
    nothing_left
}
