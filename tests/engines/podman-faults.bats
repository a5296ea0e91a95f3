#!/usr/bin/env bats
# engines-only
# early
# time-limit: 1800
# needs: image
# Podman that ends, comes back and fills its disk, under the provider docker; and, with both engines, an image whose
# load breaks off and memory that really runs out.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/faulty_engine

TOP=$BATS_TEST_DIRNAME/../..

setup_file() { faulty_setup_file; }
teardown_file() { faulty_teardown_file; }
setup() { faulty_setup; }
teardown()
{
    local status=0

    faulty_teardown || status=1
    stop_small_podman || status=1
    return "$status"
}

stop_podman_hard()
{
    kill -9 "$(cat "$ENGINES/podman/started")"
    wait_for 10 is_gone "$(cat "$ENGINES/podman/started")"
}

# Podman has no process of its own that its containers need: they run on.
@test "a Podman service that is killed is unavailable and one fault; its box is found again when it is back" {
    local command

    behind_proxy podman
    make_box
    bellhop exec one -- sh -c 'echo kept >file'
    is_usable
    stop_podman_hard
    ! is_usable || fail "a dead service is usable"
    [ "$(bellhop exec one -- cat file)" = kept ]
    for command in pause snapshot status; do
        run --separate-stderr bellhop "$command" one --json
        [ "$(jq -r '.error | .code, .field' <<<"$output")" = "unavailable
engine" ] || fail "$command: $output"
    done
    wait_for 10 has_monitor_fault
    few_requests 4
    [ "$(monitor_faults)" -eq 1 ]
    [ "$(bellhop ls --json | jq -r '.boxes[].state')" = running ]
    daemon_does start_podman_service
    is_usable
    [ "$(bellhop exec one -- cat file)" = kept ]
    is_state running
    api POST "/containers/$CONTAINER/kill"
    wait_for 20 is_state stopped
    [ -n "$(info .cause)" ] || fail "no cause: $(bellhop events one)"
    # Away while its box is stopped, and while it is started.
    stop_podman_hard
    run --separate-stderr bellhop start one --json
    [ "$(jq -r .error.code <<<"$output")" = unavailable ] || fail "$output"
    daemon_does start_podman_service
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop rm one
    left_nothing "in the end"
}

# The Podman of the next test.
stop_small_podman()
(
    ENGINES=$BATS_TEST_TMPDIR/engines
    [ -d "$ENGINES" ] || return 0
    . "$TOP/tests/lib/engines.sh"
    export CONTAINERS_CONF=$ENGINES/podman/containers.conf CONTAINERS_STORAGE_CONF=$ENGINES/podman/storage.conf
    stop_engines
)

@test "a full disk of Podman is exhausted and leaves nothing, and one that fills up later leaves the agent alive" {
    export ENGINES=$BATS_TEST_TMPDIR/engines
    mkdir -p "$ENGINES/podman/root"
    mount -t tmpfs -o size=100m tmpfs "$ENGINES/podman/root"
    . "$TOP/tests/lib/engines.sh"
    set_up_podman
    start_podman_service
    ENGINE=$PODMAN_SOCKET
    ENGINE_NAME=podman
    export DOCKER_HOST=unix://$ENGINE
    run --separate-stderr up
    [ "$(jq -r .error.code <<<"$output")" = resource_exhausted ] || fail "$output"
    [[ "$output" == *"no space left on device"* ]]
    left_nothing full
    [ "$(api GET '/containers/json?all=1')" = '[]' ]
    mount -o remount,size=700m "$ENGINES/podman/root"
    make_box
    run bellhop exec one -- sh -c 'dd if=/dev/zero of=fill bs=1M count=2000'
    [ "$status" -ne 0 ]
    [[ "$output" == *"No space left on device"* ]]
    [ "$(bellhop exec one -- echo alive)" = alive ]
    bellhop exec one -- rm fill
    bellhop rm one
    left_nothing "in the end"
}

# The engine has the layers of a part of it, or nothing: either way the next box gets the whole image.
case_half_load()
{
    local image

    make_box
    image=$(image_id)
    bellhop rm one
    api DELETE "/images/${image#sha256:}?force=1" >/dev/null
    broken half '^POST /images/load'
    run --separate-stderr up
    is_hit || fail "$ENGINE_NAME: no image was loaded: $output"
    mend
    if [ "$status" -ne 0 ]; then
        # Podman resets the connection after it has begun to answer.
        json_is '.error.code | IN("unavailable", "data_loss")' <<<"$output" || fail "$ENGINE_NAME: $output"
        left_nothing "$ENGINE_NAME"
    fi
    make_box
    [ "$(image_id)" = "$image" ]
    bellhop exec one -- python3 -c 'print("whole")'
    bellhop rm one
}

@test "a load of the image that breaks off half-way leaves nothing in the way of the next one" {
    each_engine case_half_load
}

first_pid() { api GET "/containers/$CONTAINER/json" | jq .State.Pid; }

# A command that takes too much is killed and its box lives. Then the kernel is told to take the first process, which has a
# higher score than each of the small ones.
case_memory()
{
    local cause

    make_box --memory 128M
    run -137 bellhop exec one -- python3 -c 'x = bytearray(300 << 20); print(len(x))'
    [ "$(bellhop exec one -- echo alive)" = alive ]
    is_state running
    echo 1000 >"/proc/$(first_pid)/oom_score_adj"
    run bellhop exec one -- sh -c 'for i in 1 2 3 4; do python3 -c "import time; x = bytearray(50 << 20); time.sleep(60)" & done; wait'
    [ "$status" -ne 0 ]
    wait_for 20 is_state stopped || fail "$ENGINE_NAME: $status $output"
    cause="the box's first process was killed by signal 9"
    [ "$(api GET "/containers/$CONTAINER/json" | jq .State.OOMKilled)" = false ] || cause+=': out of memory'
    [ "$(info .cause)" = "$cause" ] || fail "$ENGINE_NAME: $(info .cause)"
    # Podman's conmon sees no end of memory where control groups are of version 1.
    [[ "$cause" == *': out of memory' || "$ENGINE_NAME" == podman && ! -e /sys/fs/cgroup/cgroup.controllers ]] ||
        fail "$ENGINE_NAME: $cause"
    [ "$(bellhop exec one -- echo again)" = again ]
    bellhop rm one
}

@test "memory that runs out ends a command and not its box, and where it ends the box, that is the cause if the engine says so" {
    each_engine case_memory
}

# The last one.
@test "no container, image, volume or network is more than before these tests" {
    nothing_new_in_engines
}
