#!/usr/bin/env bats
# engines-only
# early
# time-limit: 2400
# needs: image
# Engines that fail, hang, lie, die and come back, under the provider docker: the error is typed, the state is true, an
# event has the cause, and nothing of a box is left in the engine or on this machine. tests/lib/engine_proxy.py stands
# between the two.

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
    stop_small_engine || status=1
    return "$status"
}

# typed WHAT: the output of `run` is an error with a code that says whose fault it is, in plain text.
typed()
{
    json_is '.error | (.code | IN("unavailable", "deadline_exceeded", "data_loss", "already_exists", "resource_exhausted"))
        and (.message | length > 0 and (test("[\u0000-\u001f\u007f]| $") | not))' 2>/dev/null <<<"$output" ||
        fail "$1: $status $output"
}

# no_crash WHAT: the command of `run` ended by itself and wrote one JSON document.
no_crash()
{
    [ "$status" -lt 128 ] || fail "$1: status $status: $output" || return
    json_is 'type == "object"' <<<"$output" || fail "$1: $status: no document: $output"
}

# The request that goes wrong | the faults. The first two are of the check, before there is a box.
STEPS=(
    '^GET /_ping|500 lost nonsense shape header endless hang'
    '^GET /(libpod/)?info|500 shape endless hang'
    '^GET /images/|500 nonsense hang'
    '^POST /containers/create|500 lost shape header hang'
    '^PUT /containers/.*/archive|500 lost nonsense hang'
    '^POST /containers/.*/attach|500 cut nonsense shape header hang'
    '^POST /containers/.*/start|500 lost nonsense hang'
    '^GET /containers/.*/json|500 other shape hang'
)

last_position() { bellhop events --json | jq '.events[-1].position // 0'; }

# undone_with_events WHAT STEP POSITION: since POSITION, the events are a fault and the end of a box, with causes; of a
# failed check there are none.
undone_with_events()
{
    local events

    events=$(bellhop events --json --since "$3")
    case $2 in
    *_ping* | *info*) json_is '.events == []' <<<"$events" ;;
    *)
        json_is '.events | any(.kind == "fault" and .cause != "") and
            (.[-1] | .after == "destroyed" and .cause != "")' <<<"$events"
        ;;
    esac || fail "$1: the events are $events"
}

# The lines of the engine's containers.
containers() { list_objects '.[] | "\(.Names[0]) \(.State)"' '/containers/json?all=1'; }

up_under_fault() # FAULT STEP
{
    local what="$ENGINE_NAME: $*" timeout=$BELLHOP_PROVIDER_TIMEOUT is_late=false position have

    position=$(last_position)
    # The deadline is that of a whole call of the provider, whose other requests take time on a busy machine.
    [ "$1" != hang ] || timeout=20s is_late=true
    broken "$1" "$2"
    BELLHOP_PROVIDER_TIMEOUT=$timeout run --separate-stderr up
    is_hit || fail "$what: no such request was sent: $output"
    mend
    echo "$what: $status $(jq -c '.error | .code, .field, .message' <<<"$output" | tr '\n' ' ')"
    # A request that hangs ends at its deadline, and no other fault is waited for until then.
    no_crash "$what"
    json_is --argjson is_late "$is_late" '(.error.code == "deadline_exceeded") == $is_late' <<<"$output" ||
        fail "$what: $output"
    if [ "$status" -eq 0 ]; then # a failure that a second try mends
        bellhop exec one -- true
        have=$(containers) || fail "$what: the engine does not list its containers"
        [[ "$have" = *bellhop-*' running' && "$have" != *$'\n'* ]] || fail "$what: the containers are $have"
        bellhop rm one
    else
        # The second try finds the container of the first one.
        [[ "$*" != "lost ^POST /containers/create" ]] || fail "$what: the container is not adopted: $output"
        typed "$what"
        undone_with_events "$what" "$2" "$position"
    fi
    left_nothing "$what"
    bellhop gc >/dev/null
    left_nothing "$what: after gc"
}

@test "each request of an up that goes wrong ends in a typed error, and nothing is left" {
    local row step faults fault

    behind_proxy docker
    make_box # loads the image
    bellhop rm one
    for row in "${STEPS[@]}"; do
        IFS='|' read -r step faults <<<"$row"
        for fault in $faults; do
            up_under_fault "$fault" "$step"
        done
    done
}

@test "each request of an up with Podman that goes wrong ends in a typed error, and nothing is left" {
    local step fault

    behind_proxy podman
    make_box # loads the image
    bellhop rm one
    for step in '^GET /libpod/info' '^POST /containers/create' '^POST /containers/.*/start'; do
        for fault in 500 lost shape hang; do
            up_under_fault "$fault" "$step"
        done
    done
}

# true_state WHAT: what status says is how the engine has it, or it is a state that the next command settles, with a cause.
true_state()
{
    local state engine

    state=$(info .state)
    engine=$(engine_state)
    case $state,$engine in
    running,running | paused,paused | stopped,exited | stopped,stopped | stopped,created) return 0 ;;
    error,* | stopping,* | destroying,* | pausing,* | resuming,*) [ -n "$(info .cause)" ] && return 0 ;;
    esac
    fail "$1: the state is $state, and the engine has $engine"
}

has_fault_event() # SINCE
{
    bellhop events one --since "$1" --json | json_is 'any(.events[]; .cause != "" and
        (.kind == "fault" or .kind == "snapshot failed" or .after == "error"))'
}

last_event() { bellhop events one --json | jq '.events[-1].seq'; }

# A command | the request that goes wrong | the faults. The monitor and the command both stop a box: both go wrong.
COMMANDS=(
    'stop one|^POST /containers/.*/stop|500 cut lost nonsense hang words'
    'stop one|^GET /containers/.*/json|500 shape other hang'
    'pause one|^POST /containers/.*/pause|500 cut lost nonsense hang'
    'snapshot one --name s|^POST /commit|500 cut lost nonsense shape hang'
    'restore one s0|^POST /containers/create|500 cut lost nonsense hang'
    'restore one s0|^HEAD /containers/.*/archive|500 hang'
    'restore one s0|^DELETE /containers/|500 cut lost nonsense hang'
    'restore one s0|^POST /containers/.*/rename|500 cut lost nonsense hang'
    'rm one|^DELETE /containers/|500 cut lost nonsense hang'
)

# command_under_fault COMMAND STEP FAULT: of a box that runs.
command_under_fault()
{
    local since left what="$ENGINE_NAME: $*" words timeout=$BELLHOP_PROVIDER_TIMEOUT

    since=$(last_event)
    read -r -a words <<<"$1"
    if [ "${words[0]}" = stop ]; then broken "$3" "$2" 1000; else broken "$3" "$2"; fi
    [ "$3" != hang ] || timeout=10s # a busy machine needs some of it for the requests before
    BELLHOP_PROVIDER_TIMEOUT=$timeout run --separate-stderr bellhop "${words[@]}" --json
    is_hit || fail "$what: no such request was sent: $output $stderr"
    mend
    echo "$what: $status $(jq -c '.error | .code, .field, .message' <<<"$output" | tr '\n' ' ')"
    no_crash "$what"
    if [ "$status" -eq 0 ] && [ "${words[0]}" = rm ]; then
        left=$(bellhop ls -q)
        [ -z "$left" ] || fail "$what: left: $left"
    else
        true_state "$what"
    fi
    if [ "$status" -ne 0 ]; then
        typed "$what"
        has_fault_event "$since" || fail "$what: no event: $(bellhop events one)"
    fi
}

stand_again()
{
    bellhop snapshots rm s >/dev/null 2>&1 || true
    if [ -z "$(bellhop ls -q)" ]; then
        make_box
        bellhop exec one -- sh -c 'echo kept >file'
    fi
    if is_state destroying; then
        bellhop gc >/dev/null
        make_box
        bellhop exec one -- sh -c 'echo kept >file'
    fi
    [ "$(bellhop exec one -- cat file)" = kept ]
    is_state running
}

@test "each request of stop, pause, snapshot, restore and rm that goes wrong is typed, and the state stays true" {
    local row command step faults fault

    behind_proxy docker
    make_box # loads the image
    bellhop rm one
    export BELLHOP_PROVIDER_TIMEOUT=20s # the monitor's, which pauses the box
    make_box
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop snapshot one --name s0
    for row in "${COMMANDS[@]}"; do
        IFS='|' read -r command step faults <<<"$row"
        for fault in $faults; do
            command_under_fault "$command" "$step" "$fault"
            stand_again
        done
    done
    bellhop rm one
    bellhop snapshots rm s0
    is_nothing_left || wait_for 10 is_nothing_left || left_nothing "in the end"
}

# ---- an engine that dies ----

@test "an engine that is killed is unavailable and one fault; its box is found again when it is back" {
    local from command

    behind_proxy docker
    daemon_does restart_dockerd --live-restore
    make_box
    bellhop exec one -- sh -c 'echo kept >file'
    is_usable
    daemon_does stop_dockerd_hard
    ! is_usable || fail "a dead engine is usable"
    [ "$(bellhop exec one -- cat file)" = kept ] # the agent is reached without the engine
    for command in pause snapshot; do
        run --separate-stderr bellhop "$command" one --json
        [ "$(jq -r '.error | .code, .field' <<<"$output")" = "unavailable
engine" ] || fail "$command: $output"
    done
    run -5 --separate-stderr bellhop status one --json # it reads the limits in force back
    json_is '.state == "running" and .enforced == null and .error.code == "unavailable"' <<<"$output" ||
        fail "status: $output"
    wait_for 10 has_monitor_fault
    few_requests 4
    [ "$(monitor_faults)" -eq 1 ]
    [ "$(bellhop ls --json | jq -r '.boxes[].state')" = running ]
    from=$(($(n_requests) + 1))
    daemon_does restart_dockerd --live-restore
    is_usable
    [ "$(bellhop exec one -- cat file)" = kept ]
    is_state running
    wait_for 20 is_watching "$from"
    api POST "/containers/$CONTAINER/kill"
    wait_for 5 is_state stopped
    [ "$(bellhop exec one -- cat file)" = kept ]

    # Without the option the next daemon ends the containers of the last one.
    daemon_does stop_dockerd_hard
    daemon_does restart_dockerd
    wait_for 30 is_state stopped
    [ -n "$(info .cause)" ] || fail "no cause: $(bellhop events one)"
    [ "$(bellhop exec one -- cat file)" = kept ]
    # A clean stop.
    daemon_does restart_dockerd
    wait_for 30 is_state stopped
    [ "$(bellhop exec one -- cat file)" = kept ]
}

@test "an engine whose events break off or are refused does not make the monitor spin" {
    behind_proxy docker
    broken 500 '^GET /events' 1000
    make_box
    few_requests 3
    is_hit
    broken shape '^GET /events' 1000
    few_requests 3
    wait_for 10 is_hit
    broken hang '^GET /events' 1000
    wait_for 10 is_hit
    bellhop exec one -- true
    mend
    api POST "/containers/$CONTAINER/kill"
    wait_for 20 is_state stopped
}

n_inspections() { grep -cE '^GET /containers/[^/]+/json' "$SOCKET.log" || true; }
# When the monitor saw the end of the box, or 0.
end_ms()
{
    bellhop events one --json | jq '[.events[] | select(.actor == "monitor" and .after == "stopped")][0].time_ms // 0'
}
has_end() { [ "$(end_ms)" -gt 0 ]; }

# A monitor without the engine's events asks each second; with them it asks once in ten seconds.
case_events()
{
    local before killed_ms

    make_box
    wait_for 10 is_watching 1
    before=$(n_inspections)
    within 4 false 2>/dev/null || true
    [ $(($(n_inspections) - before)) -le 1 ] || fail "it asks although the engine would tell: $(cat "$SOCKET.log")"
    killed_ms=$((${EPOCHREALTIME/[.,]/} / 1000))
    api POST "/containers/$CONTAINER/kill"
    wait_for 20 has_end
    [ $(($(end_ms) - killed_ms)) -lt 4000 ] || fail "seen after $(($(end_ms) - killed_ms)) ms: $(bellhop events one)"
    bellhop rm one
}

@test "the end of a box is seen when its engine tells of it, long before the next time that it is asked" {
    each_engine case_events
}

# ---- behind our back ----

case_behind()
{
    make_box
    bellhop exec one -- sh -c 'echo kept >file'
    api POST "/containers/$CONTAINER/pause"
    wait_for 5 is_state paused
    [[ "$(info .cause)" == *"by somebody else"* ]]
    api POST "/containers/$CONTAINER/unpause"
    wait_for 5 is_state running
    api POST "/containers/$CONTAINER/pause"
    wait_for 5 is_state paused
    [ "$(bellhop exec one -- cat file)" = kept ]
    [ "$(engine_state)" = running ]
    api POST "/containers/$CONTAINER/stop?t=5"
    wait_for 5 is_state stopped
    [[ "$(info .cause)" == *"told to stop, as by 'docker stop'"* ]] || fail "$(info .cause): $(bellhop events one)"
    [ "$(bellhop exec one -- cat file)" = kept ]
    api POST "/containers/$CONTAINER/kill"
    wait_for 5 is_state stopped
    [ -n "$(info .cause)" ] # a command that looks at the same moment may store its own
    [ "$(bellhop exec one -- cat file)" = kept ]
    api DELETE "/containers/$CONTAINER?force=1"
    wait_for 5 is_state stopped
    [ "$(info .cause)" = "its disk is gone" ]
    run -125 --separate-stderr bellhop exec one --json -- cat file
    json_is '.error.code == "not_found" and (.error.detail | fromjson | .gone.cause == "its disk is gone")' <<<"$output"
    left_nothing "$ENGINE_NAME"
    # With --on-gone recreate, also of a box that was stopped.
    make_box --on-gone recreate
    bellhop stop one
    api DELETE "/containers/$CONTAINER?force=1"
    bellhop exec one -- sh -c 'echo anew >file'
    [ "$(info .id)" != "$ID" ]
    ID=$(info .id)
    BOX_IDS+=("$ID")
    CONTAINER=bellhop-$ID
    [ "$(engine_state)" = running ]
    bellhop rm one
}

@test "a container that is stopped, paused or removed behind our back is what its box says" {
    behind_proxy docker
    case_behind
}

@test "a container of Podman that is stopped, paused or removed behind our back is what its box says" {
    behind_proxy podman
    case_behind
}

case_oom()
{
    make_box
    says '^GET /containers/.*/json' '"OOMKilled":false' '"OOMKilled":true'
    api POST "/containers/$CONTAINER/kill"
    wait_for 5 is_state stopped
    [ "$(info .cause)" = "the box's first process was killed by signal 9: out of memory" ] || fail "$(info .cause)"
    mend
    bellhop rm one
}

@test "a box that its engine calls killed for want of memory says so" {
    each_engine case_oom
}

@test "a start that Podman calls a conflict because its runtime ended early is tried again, a few times" {
    behind_proxy podman
    broken 409 '^POST /containers/.*/start' 2
    make_box
    is_hit
    bellhop exec one -- true
    bellhop stop one
    broken 409 '^POST /containers/.*/start' 1000
    run ! --separate-stderr bellhop start one --json
    json_is '.error.message | contains("final child")' <<<"$output" || fail "$output"
    [ "$(grep -c . "$SOCKET.hits")" -eq 3 ] || fail "$(cat "$SOCKET.hits")"
    mend
    bellhop start one
    bellhop rm one
}

# ---- its identity ----

docker_id() { api GET "/containers/$1/json" | jq -r .Id; }

# foreign NAME: a container of somebody else with this name; FOREIGN is its id.
foreign()
{
    FOREIGN=$(jq -n '{Image: "bellhop/tests:1", Entrypoint: ["sleep", "600"]}' |
        api POST "/containers/create?name=$1" -H 'Content-Type: application/json' -d @- | jq -r .Id)
    api POST "/containers/$FOREIGN/start"
}

case_renamed()
{
    local id

    make_box
    id=$(docker_id "$CONTAINER")
    bellhop exec one -- sh -c 'echo kept >file'
    api POST "/containers/$CONTAINER/rename?name=mine-$ID"
    foreign "$CONTAINER"
    bellhop stop one
    [ "$(api GET "/containers/$id/json" | jq -r .State.Status)" = exited ]
    [ "$(bellhop exec one -- cat file)" = kept ]
    [ "$(api GET "/containers/$id/json" | jq -r .State.Status)" = running ]
    bellhop pause one
    [ "$(api GET "/containers/$id/json" | jq -r .State.Status)" = paused ]
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop rm one
    run ! api GET "/containers/$id/json"
    [ "$(api GET "/containers/$FOREIGN/json" | jq -r .State.Status)" = running ]
    [ "$(docker_id "$CONTAINER")" = "$FOREIGN" ]
    # Another one in its place is not the box: that is gone.
    make_box
    bellhop stop one
    api DELETE "/containers/$CONTAINER?force=1"
    api DELETE "/containers/$FOREIGN?force=1"
    foreign "$CONTAINER"
    run -125 --separate-stderr bellhop exec one --json -- cat file
    json_is '.error.code == "not_found"' <<<"$output"
    [ "$(docker_id "$CONTAINER")" = "$FOREIGN" ]
    api DELETE "/containers/$FOREIGN?force=1"
    # A restore leaves the box as it is, if its new container could not have the name.
    make_box
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop stop one
    bellhop snapshot one --name s
    api POST "/containers/$CONTAINER/rename?name=mine-$ID"
    foreign "$CONTAINER"
    run ! --separate-stderr bellhop restore one s --json
    json_is '.error | .code == "already_exists" and (.message | contains("not of this box"))' <<<"$output"
    [ "$(bellhop exec one -- cat file)" = kept ]
    api DELETE "/containers/$FOREIGN?force=1"
    bellhop stop one
    bellhop restore one s
    [ "$(bellhop exec one -- cat file)" = kept ]
    # The record has the new container.
    api POST "/containers/$CONTAINER/rename?name=mine-$ID"
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop rm one
    bellhop snapshots rm s
    api GET '/containers/json?all=1' | json_is 'all(.Names[0] | startswith("/mine-") | not)'
}

@test "a box whose container somebody renamed is still that container, and another one with its name is not touched" {
    local engine

    for engine in docker podman; do
        behind_proxy "$engine"
        case_renamed
        end_now "$PROXY"
        rm -f "$SOCKET"
    done
}

@test "a box whose engine has another address is found by the engine's identity" {
    local id socket=$BOX_TMP/moved

    behind_proxy docker
    make_box
    id=$(docker_id "$CONTAINER")
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop stop one
    end_now "$PROXY"
    # Another engine is in force, or none.
    for DOCKER_HOST in "unix://$ENGINES/podman/sock" "unix://$BOX_TMP/none"; do
        run ! --separate-stderr bellhop start one --json
        json_is --arg at "unix://$SOCKET" '.error | .code == "unavailable" and .field != "docker_host" and
            (.message | contains("the engine of the box '\''one'\'', '\''" + $at))' <<<"$output" || fail "$output"
    done
    ln -s "$ENGINE" "$socket"
    export DOCKER_HOST=unix://$socket
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop status one --json | json_is '.enforced.engine.kind == "docker"'
    bellhop pause one
    bellhop stop one
    [ "$(api GET "/containers/$id/json" | jq -r .State.Status)" = exited ]
    bellhop rm one
    left_nothing "moved"
}

@test "the status of a box whose engine does not answer is what the store has, with the reason" {
    behind_proxy docker
    make_box
    end_now "$PROXY"
    run -5 --separate-stderr bellhop status one --json
    json_is '.name == "one" and .enforced == null and (.error.message | contains("connect"))' <<<"$output"
    run -5 bellhop status one
    [[ "$output" == *"provider                 docker"* ]] || fail "$output"
    [[ "$output" == *"does not answer"* ]] || fail "$output"
    export DOCKER_HOST=unix://$ENGINE
    bellhop rm one
}

@test "rm --force forgets a box whose engine is gone, says what may be left, and gc removes that when the engine is back" {
    local id

    behind_proxy docker
    make_box
    id=$(docker_id "$CONTAINER")
    end_now "$PROXY"
    export DOCKER_HOST=unix://$BOX_TMP/none
    run ! bellhop rm one
    run -0 --separate-stderr bellhop rm --force one
    [[ "$output" == "one: removed" ]] || fail "$output"
    [[ "$stderr" == *"bellhop-$ID"*"bellhop gc"* ]] || fail "$stderr"
    [ -z "$(bellhop ls -q)" ]
    export DOCKER_HOST=unix://$ENGINE
    # Somebody renamed it, and made a container of a commit of it, which inherits the labels.
    api POST "/containers/$id/rename?name=mine-$ID"
    image=$(api POST "/commit?container=$id&repo=theirs" | jq -r .Id)
    jq -n --arg image "$image" '{Image: $image}' | api POST "/containers/create?name=theirs-$ID" -H 'Content-Type: application/json' -d @- >/dev/null
    bellhop gc
    run ! api GET "/containers/$id/json"
    api DELETE "/containers/theirs-$ID"
    api DELETE "/images/$image"
    left_nothing "forgotten"
}

@test "a container that cannot be reached is unavailable soon, in words that name the box, and one fault" {
    behind_proxy docker
    make_box
    bellhop exec one -- true
    jq -n --arg c "$CONTAINER" '{Container: $c}' |
        api POST /networks/bridge/disconnect -H 'Content-Type: application/json' -d @-
    broken 500 '^POST /containers/.*/exec' 1000
    SECONDS=0
    run ! --separate-stderr bellhop exec one --json -- true
    [ "$SECONDS" -lt 60 ] || fail "it took $SECONDS s"
    json_is '.error | .code == "unavailable" and (.message | contains("the guest agent of '\''one'\'' cannot be reached"))' \
        <<<"$output" || fail "$output"
    bellhop events one --json | json_is '[.events[] | select(.kind == "fault")] |
        length == 1 and (.[0].cause | contains("cannot be reached"))' || fail "$(bellhop events one)"
    mend
    bellhop exec one -- true
    bellhop rm one
}

@test "gc does not call the disk of a box back when its directory alone is" {
    behind_proxy docker
    make_box
    bellhop stop one
    api DELETE "/containers/$CONTAINER?force=1"
    run ! bellhop start one
    mkdir "$BELLHOP_STATE_DIR/boxes/$ID"
    run -0 bellhop gc --dry-run
    [[ "$output" == *"what is left of a box that is gone would be removed: $ID"* ]] || fail "$output"
    [[ "$output" != *"is back"* ]] || fail "$output"
    run -0 bellhop gc
    [[ "$output" == *"removed the directory of a box that is gone: $ID"* ]] || fail "$output"
    [[ "$output" != *"is back"* ]] || fail "$output"
}

# ---- images and disks ----

@test "an image that was removed does not keep a box from its start, and a new box loads it again" {
    local image snapshot

    behind_proxy podman
    make_box
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop snapshot one --name s
    snapshot=$(api GET "/images/bellhop-snapshot:$(bellhop snapshots ls --json | jq -r '.snapshots[0].id')/json" | jq -r .Id)
    bellhop stop one
    api DELETE "/images/$snapshot?force=1" || fail "the snapshot's image is kept"
    run --separate-stderr bellhop up --from s --name two --json
    [ "$(jq -r .error.code <<<"$output")" = not_found ] || fail "$output"
    run --separate-stderr bellhop restore one s --json
    [ "$(jq -r .error.code <<<"$output")" = not_found ] || fail "$output"
    [ "$(bellhop exec one -- cat file)" = kept ]
    [ "$(bellhop ls -q)" = one ]
    image=$(image_id)
    bellhop rm one
    bellhop snapshots rm s
    api DELETE "/images/${image#sha256:}?force=1"
    make_box
    [ "$(image_id)" = "$image" ]
    bellhop exec one -- true
}

# The Docker of the next test.
stop_small_engine()
{
    local ENGINES=$BATS_TEST_TMPDIR/engines

    [ -d "$ENGINES" ] || return 0
    . "$TOP/tests/lib/engines.sh"
    DOCKER_HOST=unix://$ENGINES/docker/sock stop_engines
}

@test "a full disk of the engine is exhausted and leaves nothing, and one that fills up later leaves the agent alive" {
    export ENGINES=$BATS_TEST_TMPDIR/engines
    mkdir -p "$ENGINES/docker/root"
    mount -t tmpfs -o size=100m tmpfs "$ENGINES/docker/root"
    . "$TOP/tests/lib/engines.sh"
    start_dockerd
    ENGINE=$ENGINES/docker/sock
    ENGINE_NAME=docker
    run --separate-stderr up
    [ "$(jq -r .error.code <<<"$output")" = resource_exhausted ] || fail "$output"
    [[ "$output" == *"no space left on device"* ]]
    left_nothing full
    [ "$(api GET '/containers/json?all=1')" = '[]' ]
    mount -o remount,size=700m "$ENGINES/docker/root"
    make_box
    run bellhop exec one -- sh -c 'dd if=/dev/zero of=fill bs=1M count=2000'
    [ "$status" -ne 0 ]
    [[ "$output" == *"No space left on device"* ]]
    bellhop exec one -- rm fill
    [ "$(bellhop exec one -- echo alive)" = alive ]
    bellhop rm one
    left_nothing "in the end"
}

n_loads() { grep -c '^POST /images/load' "$SOCKET.log" || true; }

case_loaded_once()
{
    local image

    make_box
    image=$(image_id)
    bellhop rm one
    api DELETE "/images/${image#sha256:}?force=1" >/dev/null
    rm "$SOCKET.log"
    make_box
    [ "$(n_loads)" -eq 1 ]
    bellhop up --name two --provider docker --agent none --empty >/dev/null 2>&1
    bellhop rm one
    bellhop rm two
    make_box
    [ "$(n_loads)" -eq 1 ]
    bellhop rm one
}

@test "an image that the engine lacks is loaded once, however many boxes are made of it" {
    each_engine case_loaded_once
}

@test "status repeats what the engine says of itself, also if that is not so" {
    behind_proxy docker
    make_box
    says '^GET /info' '"CgroupVersion":"1"' '"CgroupVersion":"2"'
    [ "$(info .enforced.engine.cgroup_version)" = 2 ]
    says '^GET /info' 'name=seccomp,profile=default' 'name=rootless'
    json_is '.rootless and .user_namespace and (.security_options | index("name=rootless"))' <<<"$(info .enforced.engine)"
    says '^GET /info' '"DefaultRuntime":"runc"' '"DefaultRuntime":"other"'
    [ "$(info .enforced.engine.default_runtime)" = other ]
    mend
    [ "$(info .enforced.engine.default_runtime)" = runc ]
    bellhop rm one
}

# The last one.
@test "no container, image, volume or network is more than before these tests" {
    nothing_new_in_engines
}
