#!/usr/bin/env bats
# engines-only
# early
# time-limit: 1500
# needs: image
# A bellhop, or its monitor, that is killed before or after any request to its engine: the next command finishes or undoes
# it, and nothing of a box is left. The proxy kills the process that sends the request.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/faulty_engine

TOP=$BATS_TEST_DIRNAME/../..

setup_file() { faulty_setup_file; }
teardown_file() { faulty_teardown_file; }
setup() { faulty_setup; }
teardown() { faulty_teardown; }

REQUEST='^(?!GET /(_ping|events))' # each
CHANGE='^(POST|PUT|DELETE) '       # each that changes something

# n_sent COMMAND...: the requests that it sends.
n_sent()
{
    rm -f "$SOCKET.log"
    "$@" >/dev/null 2>&1 || return 1
    grep -cP "$MATCH" "$SOCKET.log"
}

# killed FAULT NTH COMMAND...: the monitor asks now and then, so that the last two numbers may not come.
killed()
{
    local fault=$1 nth=$2

    shift 2
    broken "$fault" "$MATCH" 1 "$nth"
    run "$@"
    mend
    echo "$ENGINE_NAME: $*: $fault $nth: $(cat "$SOCKET.hits" 2>/dev/null): $status"
    ! is_hit || N_HITS=$((N_HITS + 1))
}

remove() { bellhop rm one >/dev/null 2>&1 || ! bellhop ls -q | grep -qx one; }

# each_kill FAULT: the box is removed at once, and, killed once more, used before it is removed.
each_kill()
{
    local n nth next

    n=$(n_sent up)
    bellhop rm one
    for ((nth = 1; nth <= n; nth++)); do
        for next in remove use; do
            killed "$1" "$nth" up
            if [ "$next" = use ]; then
                up >/dev/null 2>&1 || fail "$1 $nth: a second up fails: $(up 2>&1)"
                [ "$(bellhop exec one -- echo alive)" = alive ]
            fi
            wait_until 30 remove
            is_nothing_left || wait_until 30 is_nothing_left || left_nothing "$1 $nth"
        done
    done
}

# case_up MATCH: before each request that fits, and after each that changes something.
case_up()
{
    make_box # loads the image
    bellhop rm one
    N_HITS=0
    MATCH=$1
    each_kill kill_before
    MATCH=$CHANGE
    each_kill kill_after
    [ "$N_HITS" -ge 8 ] || fail "only $N_HITS requests were hit"
}

@test "an up that is killed before or after any request to dockerd leaves nothing after rm and gc" {
    behind_proxy docker
    case_up "$REQUEST"
}

@test "an up that is killed before or after any request to Podman leaves nothing after rm and gc" {
    behind_proxy podman
    case_up "$CHANGE"
}

# case_command COMMAND...: of a box that runs, which is there afterwards, with its file. Killed before its first change,
# and after each.
case_command()
{
    local n nth

    n=$(n_sent bellhop "$@")
    bellhop snapshots rm s >/dev/null 2>&1 || true
    bellhop rm two >/dev/null 2>&1 || true
    for ((nth = 0; nth <= n; nth++)); do
        bellhop start one >/dev/null
        if [ "$nth" -eq 0 ]; then killed kill_before 1 bellhop "$@"; else killed kill_after "$nth" bellhop "$@"; fi
        [ "$nth" -gt $((n - 2)) ] || is_hit || fail "$*: $nth of $n requests: none was hit"
        # It is settled by the box's engine, whatever engine is in force by now.
        DOCKER_HOST=unix://$ENGINES/podman/sock bellhop gc >/dev/null
        [ "$(DOCKER_HOST=unix://$ENGINES/podman/sock bellhop exec one -- cat file)" = kept ] || fail "$*: $nth"
        bellhop gc >/dev/null
        bellhop rm two >/dev/null 2>&1 || true
        bellhop snapshots rm s >/dev/null 2>&1 || true
    done
}

@test "a stop, snapshot, restore or fork that is killed anywhere leaves the box its disk, and nothing else" {
    MATCH=$CHANGE
    behind_proxy docker
    make_box
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop snapshot one --name s0
    case_command stop one
    case_command snapshot one --name s
    case_command restore one s0
    case_command fork one two
    bellhop rm one
    bellhop snapshots rm s0
    is_nothing_left || wait_until 30 is_nothing_left || left_nothing "in the end"
}

# The last one.
@test "no container, image, volume or network is more than before these tests" {
    nothing_new_in_engines
}
