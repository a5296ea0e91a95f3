# faulty_engine.bash: Docker and Podman behind tests/lib/engine_proxy.py, for bats files about their faults. After box.bash:
#
#   TOP=the top of the tree; load ../lib/faulty_engine
#   setup_file() { faulty_setup_file; }; teardown_file() { faulty_teardown_file; }
#   setup() { faulty_setup; }; teardown() { faulty_teardown; }

faulty_setup_file()
{
    [ "$(id -u)" -eq 0 ] || skip "a container engine needs root"
    export ENGINES=$BATS_FILE_TMPDIR/engines
    . "$TOP/tests/lib/engines.sh"
    start_dockerd
    set_up_podman
    start_podman_service
    unset DOCKER_HOST
    engine_contents docker >"$BATS_FILE_TMPDIR/before.docker"
    engine_contents podman >"$BATS_FILE_TMPDIR/before.podman"
    "$BELLHOP_BUILD/bellhop" image build "$TOP/tests/lib/image" --form oci >/dev/null
}

faulty_teardown_file()
{
    [ -d "${ENGINES:-}" ] || return 0
    . "$TOP/tests/lib/engines.sh"
    export DOCKER_HOST=unix://$ENGINES/docker/sock
    stop_engines
}

faulty_setup()
{
    box_setup
    mkdir -m 0700 "$BELLHOP_STATE_DIR"
    # A test that failed may have left it dead.
    curl -sf -o /dev/null --unix-socket "$ENGINES/docker/sock" http://engine/_ping || daemon_does restart_dockerd
    export BELLHOP_PROVIDER_TIMEOUT=2m # to load an image takes 20 s on a busy machine
}

faulty_teardown()
{
    local left status=0

    mend
    remove_with_snapshots
    bellhop gc >/dev/null 2>&1 || true
    left=$(engine_traces) || left="no answer"
    [ -z "${PROXY:-}" ] || end_now "$PROXY"
    box_teardown || status=1
    [ -z "$left" ] || fail "left in the engine: $left" || status=1
    return "$status"
}

# list_objects FILTER PATH: the lines of a jq filter of what the engine ENGINE lists. No answer is an error, not an empty
# list; a busy engine that refuses is asked again.
list_objects()
{
    local answer

    answer=$(api GET "$2" --retry 3) || return 1
    jq -rn "input | $1" <<<"$answer"
}

# engine_contents docker|podman: all containers, images, networks and volumes, but the image that boxes are made of. A
# daemon that starts makes its networks anew: they have names alone.
engine_contents()
{
    local ENGINE=$ENGINES/$1/sock

    list_objects '.[] | "container \(.Id) \(.Names)"' '/containers/json?all=1' || return 1
    list_objects '.[] | select(.RepoTags // [] | any(contains("bellhop/tests:")) | not) | "image \(.Id) \(.RepoTags)"' \
        '/images/json?all=1' || return 1
    list_objects '.[] | "network \(.Name)"' /networks || return 1
    list_objects '.Volumes[]? | "volume \(.Name)"' /volumes
}

# For the last test of a file.
nothing_new_in_engines()
{
    local engine

    for engine in docker podman; do
        engine_contents "$engine" >"$BATS_TEST_TMPDIR/after" || fail "$engine does not answer" || return
        diff <(sort "$BATS_FILE_TMPDIR/before.$engine") <(sort "$BATS_TEST_TMPDIR/after") || fail "left in $engine" || return
    done
}

daemon_does() # engines.sh's FUNCTION [OPTION]
{
    (
        . "$TOP/tests/lib/engines.sh"
        export DOCKER_HOST=unix://$ENGINES/docker/sock DOCKERD_OPTIONS=${2:-}
        "$1"
    )
}

# behind_proxy docker|podman: the commands of this test reach the engine through a proxy.
behind_proxy()
{
    ENGINE=$ENGINES/$1/sock
    ENGINE_NAME=$1
    SOCKET=$BOX_TMP/proxy
    python3 "$TOP/tests/lib/engine_proxy.py" "$SOCKET" "$ENGINE" "$BOX_TMP/fault" >"$BOX_TMP/ready" 3>&- 4>&- &
    PROXY=$!
    wait_for 10 grep -q ready "$BOX_TMP/ready"
    export DOCKER_HOST=unix://$SOCKET
}

# each_engine CASE: a function, with the commands behind a proxy of each engine.
each_engine()
{
    local engine

    for engine in docker podman; do
        [ -z "${PROXY:-}" ] || end_now "$PROXY"
        rm -f "$BOX_TMP"/proxy*
        behind_proxy "$engine"
        "$1"
    done
}

# broken FAULT REGEX [TIMES [NTH]]: by default the first request alone goes wrong. mend: none does.
broken()
{
    jq -n --arg fault "$1" --arg match "$2" --argjson times "${3:-1}" --argjson nth "${4:-1}" \
        '{fault: $fault, match: $match, times: $times, nth: $nth}' >"$BOX_TMP/fault.new"
    rm -f "$SOCKET.hits"
    mv "$BOX_TMP/fault.new" "$BOX_TMP/fault"
}

# says REGEX FROM TO: the engine's answers have another text.
says()
{
    jq -n --arg match "$1" --arg from "$2" --arg to "$3" '{fault: "set", match: $match, from: $from, to: $to}' \
        >"$BOX_TMP/fault.new"
    mv "$BOX_TMP/fault.new" "$BOX_TMP/fault"
}

mend() { rm -f "$BOX_TMP/fault"; }
is_hit() { [ -s "$SOCKET.hits" ]; }

api() # METHOD PATH [CURL_OPTION...]
{
    curl -sSf --max-time 60 --unix-socket "$ENGINE" -X "$1" "http://engine/v1.41$2" "${@:3}"
}

# Containers, images, volumes and networks with the mark of this test's state directory.
engine_traces()
{
    local kind filter

    [ -n "${ENGINE:-}" ] && [ -e "$BELLHOP_STATE_DIR/mark" ] || return 0
    filter=$(jq -rn --arg mark "dev.bellhop.store=$(cat "$BELLHOP_STATE_DIR/mark")" '{"label": [$mark]} | tojson | @uri')
    for kind in 'containers/json?all=1&' 'images/json?' 'networks?'; do
        list_objects ".[] | \"${kind%%[/?]*} \\(.Id)\"" "/${kind}filters=$filter" || return 1
    done
    list_objects '.Volumes[]? | "volume \(.Name)"' "/volumes?filters=$filter"
}

# left_nothing WHAT: also as a condition, where errexit does not count.
left_nothing()
{
    local left

    left=$(bellhop ls -q) || fail "$1: the boxes cannot be listed" || return
    [ -z "$left" ] || fail "$1: left: $(bellhop ls)" || return
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes" 2>/dev/null)" ] || fail "$1: a directory is left" || return
    left=$(engine_traces) || fail "$1: the engine does not answer" || return
    [ -z "$left" ] || fail "$1: left in the engine: $left"
}

is_nothing_left() { bellhop gc >/dev/null && left_nothing here 2>/dev/null; }

up() # [OPTION...]
{
    bellhop up --name one --provider docker --agent none --empty --json "$@"
}

make_box() # [OPTION...]
{
    up "$@" >"$BOX_TMP/up" 2>"$BOX_TMP/up.err" || fail "$(cat "$BOX_TMP/up" "$BOX_TMP/up.err")"
    ID=$(info .id)
    BOX_IDS+=("$ID")
    CONTAINER=bellhop-$ID
}

info() { bellhop status one --json | jq -r "$1"; }
is_state() { [ "$(info .state)" = "$1" ]; }
engine_state() { api GET "/containers/$CONTAINER/json" | jq -r .State.Status; }
image_id() { api GET "/containers/$CONTAINER/json" | jq -r .Image; }

monitor_faults() { bellhop events one --json | jq '[.events[] | select(.kind == "fault" and .actor == "monitor")] | length'; }
has_monitor_fault() { [ "$(monitor_faults)" -ge 1 ]; }
is_usable() { bellhop providers --json | json_is '.providers[] | select(.name == "docker") | .usable'; }
n_requests() { wc -l <"$SOCKET.log"; }
is_watching() { tail -n +"$1" "$SOCKET.log" | grep -q '^GET /events'; }

# few_requests SECONDS: the monitor asks the engine now and then, and does not spin.
few_requests()
{
    local before=$(n_requests)

    within "$1" false 2>/dev/null || true
    [ $(($(n_requests) - before)) -le $(($1 * 10)) ] || fail "$(($(n_requests) - before)) requests in $1 s"
}
