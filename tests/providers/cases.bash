# cases.bash: what a provider promises in provider.h, by itself and through `bellhop`: a case a function, for each_driver of
# drivers.bash. A new provider gets a row there and no case of its own here. Used by conformance.bats, and by
# tests/engines/conformance.bats for the engines that are slow to start.

load ../lib/box
load ../lib/kubernetes

# In a file: setup_file() { cases_setup_file; }, teardown_file() { stop_all_engines; } and those of box.bash.
cases_setup_file()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    build_drive
    start_engines
}

A=00000000000000aa
B=00000000000000bb

# drive VERB ID [KEY=VALUE...]: a call of the provider for a box of this test's state directory.
drive()
{
    local options

    read -r -a options <<<"$DRIVE_OPTIONS"
    "$DRIVE" "$BELLHOP_STATE_DIR" "$AGENT" "$1" "provider=$PROVIDER" "id=$2" "image_dir=$IMAGE_DIR" "${options[@]}" \
        "${@:3}" 3>&- 4>&-
}

drive_box() # ID
{
    mkdir -p -m 0700 "$BELLHOP_STATE_DIR"
    BOX_IDS+=("$1")
    drive prepare "$1"
    drive start "$1"
}

# first_pid ID: the box's first process on this machine; fails if it does not run.
first_pid()
{
    if [ "$PROVIDER" = kubernetes ]; then kube_pid "$1"; else drive pid "$1"; fi
}

# claims WORD: whether the provider says that it can (the words of drive.c).
claims() { drive claims "$A" | grep -qxF "$1"; }

up() # [OPTION...]
{
    bellhop up --name one --agent none --empty "${UP[@]}" "$@" >"$BOX_TMP/up" 2>"$BOX_TMP/up.err" || fail "$(cat "$BOX_TMP/up.err")"
    ID=$(bellhop status one --json | jq -r .id)
    BOX_IDS+=("$ID")
}

state() { bellhop status one --json | jq -r .state; }
is_state() { [ "$(state)" = "$1" ]; }

# clear_boxes: nothing of a box may be left before the next provider's turn.
clear_boxes()
{
    local name

    for name in $(bellhop ls -q); do
        bellhop rm "$name" >/dev/null
    done
    bellhop gc >/dev/null
    no_traces || wait_for 10 no_traces || fail "$PROVIDER: left behind: $(traces)"
    [ -z "$(engine_traces)" ] || fail "$PROVIDER: left behind: $(engine_traces)"
}

# engine_traces: containers, images, volumes and networks in the engine with the mark of this test's state directory.
engine_traces()
{
    local kind filter

    [ "$PROVIDER" != kubernetes ] || [ ! -e "$BELLHOP_STATE_DIR/mark" ] ||
        kube_objects "dev.bellhop.store=$(cat "$BELLHOP_STATE_DIR/mark")"
    [ -n "${DOCKER_HOST:-}" ] && [ -e "$BELLHOP_STATE_DIR/mark" ] || return 0
    filter=$(jq -rn --arg mark "dev.bellhop.store=$(cat "$BELLHOP_STATE_DIR/mark")" '{"label": [$mark]} | tojson | @uri')
    for kind in 'containers/json?all=1&' 'images/json?' 'networks?'; do
        curl -sf --unix-socket "${DOCKER_HOST#unix://}" "http://engine/v1.41/${kind}filters=$filter" | jq -r '.[].Id'
    done
    curl -sf --unix-socket "${DOCKER_HOST#unix://}" "http://engine/v1.41/volumes?filters=$filter" | jq -r '.Volumes[]?.Name'
}

is_answering() { drive health "$1" 2>/dev/null; } # ID

case_twice()
{
    local pid

    mkdir -p -m 0700 "$BELLHOP_STATE_DIR/boxes/$A"
    BOX_IDS+=("$A")
    # Nothing of it is there yet.
    [ "$(drive find "$A")" = stopped ]
    drive stop "$A"
    drive prepare "$A"
    drive prepare "$A"
    [ "$(drive find "$A")" = stopped ]
    drive start "$A"
    pid=$(first_pid "$A")
    wait_for 10 is_answering "$A"
    [ "$(drive find "$A")" = running ]
    [ "$(drive find "$A")" = running ]
    drive start "$A"
    [ "$(first_pid "$A")" = "$pid" ]
    is_answering "$A"
    drive stop "$A"
    is_gone "$pid" || wait_for 5 is_gone "$pid"
    [ "$(drive find "$A")" = stopped ]
    drive stop "$A"
    ! first_pid "$A" || fail "it has a pid after it was stopped"
    drive start "$A"
    wait_for 10 is_answering "$A"
    drive destroy "$A"
    drive destroy "$A"
    [ "$(drive find "$A")" = stopped ]
    rm -rf --one-file-system "$BELLHOP_STATE_DIR/boxes/$A"
    drive destroy "$A"
}

case_twice_by_bellhop()
{
    local id pid

    up
    id=$ID
    pid=$(first_pid "$ID")
    up
    [ "$ID" = "$id" ]
    bellhop start one
    [ "$(first_pid "$ID")" = "$pid" ]
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop stop one
    bellhop stop one
    is_state stopped
    [ "$(drive find "$ID")" = stopped ]
    bellhop start one
    bellhop start one
    is_state running
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop rm one
    run -3 bellhop rm one
    bellhop rm --force one
}

case_files()
{
    up
    head -c 3000001 /dev/urandom >"$BOX_TMP/file"
    : >"$BOX_TMP/empty"
    for name in file empty; do
        bellhop put one "$BOX_TMP/$name" ":$name"
        rm -rf "$BOX_TMP/back"
        bellhop get one ":$name" "$BOX_TMP/back"
        cmp "$BOX_TMP/$name" "$BOX_TMP/back/$name"
        bellhop exec -n one -- cat "$name" | cmp - "$BOX_TMP/$name"
        bellhop exec one -- sh -c 'cat >copy; cat copy' <"$BOX_TMP/$name" | cmp - "$BOX_TMP/$name"
    done
}

# Answers what it was sent, turned round, once the client has ended its half.
SERVER='
import socket, sys
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    c, _ = s.accept()
    got = b""
    while piece := c.recv(65536):
        got += piece
    c.sendall(got[::-1])
    c.close()
'

# half_close URL: sends a megabyte, ends its half and wants all of the answer.
half_close()
{
    python3 - "$1" <<'P'
import os, socket, sys, urllib.parse
u = urllib.parse.urlsplit(sys.argv[1])
sent = os.urandom(1 << 20)
with socket.create_connection((u.hostname, u.port), 60) as s:
    s.sendall(sent)
    s.shutdown(socket.SHUT_WR)
    got = b""
    while piece := s.recv(65536):
        got += piece
assert got == sent[::-1], len(got)
P
}

case_ports()
{
    local port url

    up
    port=$(free_port)
    bellhop exec -d one -- python3 -c "$SERVER" "$port"
    bellhop wait-port one "$port"
    url=$(bellhop url one --port "$port")
    half_close "$url"
    half_close "$url"
    bellhop stop one
    ! half_close "$url" 2>/dev/null || fail "a stopped box answered"
}

case_exit()
{
    up
    run -0 bellhop exec one -- true
    run -3 bellhop exec one -- sh -c 'exit 3'
    run -255 bellhop exec one -- sh -c 'exit 255'
    run -143 bellhop exec one -- sh -c 'kill -TERM $$'
    run -137 bellhop exec one -- sh -c 'kill -KILL $$'
    run -127 bellhop exec one -- no-such-program
    run -124 bellhop exec --timeout 1s one -- sleep 600
}

# OPTION VALUE, what status must show in force of it, and a command that must fail under the limit, if one is quick.
LIMITS=(
    'memory|134217728|.memory_bytes == 134217728|python3 -c "x = bytearray(300 << 20); print(len(x))"'
    'pids|64|.pids == 64|for i in $(seq 100); do sleep 600 & done; wait -n'
    'cpus|0.5|.cpu_millis == 500|'
    'disk|1G|.disk_bytes == 1073741824 or .disk_limited_by == "monitor"|'
)

# is_refused OPTION VALUE: by name, and nothing is made.
is_refused()
{
    run bellhop up --name one --agent none --empty "${UP[@]}" --json "--$1" "$2"
    [ "$status" -eq 9 ] || fail "$PROVIDER: --$1 $2: status $status, $output"
    [[ "$output" == *'"code":"unimplemented"'* && "$output" == *"\"field\":\"$1\""* ]] || fail "$PROVIDER: $output"
    [ -z "$(bellhop ls -q)" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes" 2>/dev/null)" ]
}

# is_refused_by_engine OPTION VALUE: an ordinary user's engine cannot limit without cgroup v2, and says so by name.
is_refused_by_engine()
{
    [[ "${engine:-}" == rootless_* ]] || return 1
    "$BELLHOP" up --name one --agent none --empty "${UP[@]}" --json "--$1" "$2" >"$BOX_TMP/refusal" 2>/dev/null && {
        bellhop rm one
        return 1
    }
    jq -e --arg field "$1" '.error | .code == "failed_precondition" and .field == $field' "$BOX_TMP/refusal" ||
        fail "$PROVIDER: $(cat "$BOX_TMP/refusal")"
    [ -z "$(bellhop ls -q)" ]
}

# can_pause: the box is running. An ordinary user's engine cannot freeze without cgroup v2, and says so.
can_pause()
{
    claims pause || return 1
    run bellhop pause one --json
    [ "$status" -ne 0 ] || return 0
    [[ "${engine:-}" == rootless_* && "$output" == *'"code":"unimplemented"'* ]] || fail "$PROVIDER: $output"
    return 1
}

case_limits()
{
    local row option value shown breach

    for row in "${LIMITS[@]}"; do
        IFS='|' read -r option value shown breach <<<"$row"
        claims "limit=$option" || {
            is_refused "$option" "$value"
            continue
        }
        ! is_refused_by_engine "$option" "$value" || continue
        up "--$option" "$value"
        bellhop status one --json | jq .enforced.limits >"$BOX_TMP/limits"
        jq -e "$shown" "$BOX_TMP/limits" || fail "$PROVIDER: $option is not in force: $(cat "$BOX_TMP/limits")"
        if [ -n "$breach" ]; then
            run bellhop exec one -c "$breach"
            [ "$status" -ne 0 ] || fail "$PROVIDER: $option is not enforced: $output"
        fi
        bellhop rm one
    done
    for value in user none host; do
        claims "network=$value" || {
            is_refused network "$value"
            continue
        }
        up --network "$value"
        [ "$(bellhop status one --json | jq -r '[.. | objects | select(has("mode")) | .mode][0]')" = "$value" ]
        bellhop rm one
    done
}

# kernel_says PID KEY: what the kernel has of a key of inspect(): true or false.
kernel_says()
{
    local kind=${2%_namespace}

    case $2 in
    *_namespace)
        [ "$kind" != mount ] || kind=mnt
        [ "$kind" != network ] || kind=net
        [ "$(readlink "/proc/$1/ns/$kind")" != "$(readlink "/proc/self/ns/$kind")" ]
        ;;
    seccomp) grep -Eq '^Seccomp:[[:space:]]*2' "/proc/$1/status" ;;
    no_new_privileges) grep -Eq '^NoNewPrivs:[[:space:]]*1' "/proc/$1/status" ;;
    esac && echo true || echo false
}

case_isolation()
{
    local pid key said

    up
    pid=$(first_pid "$ID")
    drive inspect "$ID" >"$BOX_TMP/inspect"
    for key in $(jq -r '.isolation | keys[] | select(endswith("_namespace") or . == "seccomp" or . == "no_new_privileges")' \
        "$BOX_TMP/inspect"); do
        said=$(jq -r --arg key "$key" '.isolation[$key]' "$BOX_TMP/inspect")
        [ "$said" = unknown ] || [ "$said" = "$(kernel_says "$pid" "$key")" ] || fail "$PROVIDER: $key is not $said"
    done
    said=$(jq -r '.isolation.pid_namespace' "$BOX_TMP/inspect")
    [ "$said" = unknown ] || [ "$said" = "$(claims isolates && echo true || echo false)" ]
    # A provider that isolates misses nothing here, and any other says so. A file of the host is the proof.
    echo secret >"$BOX_TMP/canary"
    if claims isolates; then
        jq -e '.missing == []' "$BOX_TMP/inspect"
        run bellhop exec one -- cat "$BOX_TMP/canary"
        [ "$status" -ne 0 ]
    else
        jq -e '.missing | index("isolation") != null' "$BOX_TMP/inspect"
        grep -q 'isolates nothing' "$BOX_TMP/up.err"
        [ "$(bellhop exec one -- cat "$BOX_TMP/canary")" = secret ]
    fi
}

case_death()
{
    local cause

    up
    bellhop exec one -- sh -c 'echo kept >file'
    kill -9 "$(first_pid "$ID")"
    wait_for 10 is_state stopped
    [ "$(drive find "$ID")" = stopped ]
    bellhop status one --json >"$BOX_TMP/status"
    cause=$(jq -r .cause "$BOX_TMP/status")
    [ -n "$cause" ]
    ! claims exit || [ "$cause" = "the box's first process was killed by signal 9" ] || fail "$PROVIDER: $cause"
    bellhop events one | tail -n 1 | grep -F "$cause"
    [ "$(bellhop exec one -- cat file)" = kept ]
    is_state running
}

case_sweep()
{
    local other

    drive_box "$A"
    drive_box "$B"
    wait_for 10 is_answering "$A"
    wait_for 10 is_answering "$B"
    # Another state directory's sweep, which knows nothing, is not about these.
    other=$BOX_TMP/other
    mkdir -p -m 0700 "$other/boxes"
    BELLHOP_STATE_DIR=$other drive sweep "$A" name=nobody
    is_answering "$A"
    is_answering "$B"
    drive sweep "$A" "name=$A"
    [ "$(drive find "$A")" = running ]
    [ "$(drive find "$B")" = stopped ]
    is_answering "$A"
    drive sweep "$A" "name=$A"
    drive destroy "$A"
    drive destroy "$B"
    rm -rf --one-file-system "$BELLHOP_STATE_DIR/boxes/$A" "$BELLHOP_STATE_DIR/boxes/$B"
}

# at_once COMMAND...: four of it at the same time; the number of those that succeeded is in DONE.
at_once()
{
    local i pids=()

    DONE=0
    for i in 1 2 3 4; do
        "$BELLHOP" "$@" >"$BOX_TMP/at-once.$i" 2>&1 3>&- &
        pids+=($!)
    done
    for i in "${pids[@]}"; do
        ! wait "$i" || DONE=$((DONE + 1))
    done
}

case_at_once()
{
    local pid

    up
    at_once stop one
    [ "$DONE" -eq 4 ]
    is_state stopped
    at_once start one
    [ "$DONE" -eq 4 ]
    is_state running
    pid=$(first_pid "$ID")
    at_once exec one -- true
    [ "$DONE" -eq 4 ]
    [ "$(first_pid "$ID")" = "$pid" ]
    # Whoever comes first: the state is the provider's.
    "$BELLHOP" stop one >/dev/null 2>&1 3>&- &
    at_once start one
    wait $! || true
    [ "$(drive find "$ID")" = "$(state)" ]
    at_once rm one
    [ "$DONE" -ge 1 ]
    [ -z "$(bellhop ls -q)" ]
    [ "$(drive find "$ID")" = stopped ]
}

# The box's state and the provider's are those from before: a snapshot stops no box.
case_snapshot()
{
    local state

    up
    bellhop exec one -- sh -c 'echo kept >file'
    for state in running paused stopped; do
        case $state in
        paused) can_pause || continue ;;
        stopped) bellhop stop one ;;
        esac
        SEQ=$(bellhop events one --json | jq '.events[-1].seq')
        if claims snapshots; then
            bellhop snapshot one --name "$state"
        else
            run -9 bellhop snapshot one --name "$state" --json
            [[ "$output" == *'"code":"unimplemented"'* && "$output" == *'"field":"snapshot"'* ]] || fail "$PROVIDER: $output"
        fi
        is_state "$state"
        [ "$state" = paused ] || [ "$(drive find "$ID")" = "$state" ]
        [ "$(bellhop events one --since "$SEQ" --json | jq '[.events[] | select(.before != .after)] | length')" -eq 0 ]
    done
    bellhop rm one
    claims snapshots || return 0
    for state in running paused stopped; do
        bellhop snapshots ls --json | jq -e --arg name "$state" '.snapshots | any(.name == $name)' >/dev/null || continue
        bellhop up --from "$state" --name one >/dev/null
        [ "$(bellhop exec one -- cat file)" = kept ]
        [ "$(drive find "$(bellhop status one --json | jq -r .id)")" = running ]
        bellhop rm one
        bellhop snapshots rm "$state"
    done
}

# Options of a new box besides limits and networks (case_limits) and --repo (tests/host/repo.bats).
case_options()
{
    local left_ms options

    up -e A=1 -e "B=two words" -l team=x --timeout 3m
    [ "$(bellhop exec one -- sh -c 'echo "$A $B"')" = "1 two words" ]
    [ "$(bellhop status one --json | jq -r '.labels.team, .options.timeout_ms')" = "x
180000" ]
    left_ms=$(($(bellhop status one --json | jq .deadline_ms) - $(date +%s%3N)))
    [ "$left_ms" -gt 60000 ]
    [ "$left_ms" -le 180000 ]
    bellhop rm one
    if claims runtimes; then
        up --runtime runc
        [ "$(bellhop status one --json | jq -r .options.runtime)" = runc ]
        bellhop rm one
    else
        is_refused runtime runc
    fi
    if claims snapshots; then options=("${UP[@]}"); else options=(--provider oci); fi
    bellhop up --name source "${options[@]}" --agent none --empty >/dev/null 2>&1
    bellhop exec source -- sh -c 'echo of the snapshot >file'
    bellhop snapshot source --name s
    bellhop rm source
    if claims snapshots; then
        bellhop up --name one "${UP[@]}" --from s >/dev/null
        [ "$(bellhop exec one -- cat file)" = "of the snapshot" ]
        bellhop rm one
    else
        run -4 bellhop up --name one "${UP[@]}" --from s --json
        [[ "$output" == *'"field":"provider"'* ]]
        [ -z "$(bellhop ls -q)" ]
    fi
    bellhop snapshots rm s
}
