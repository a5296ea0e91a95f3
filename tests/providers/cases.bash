# cases.bash: what a provider promises in provider.h, by itself and through `bellhop`: a case a function, for each_driver of
# drivers.bash. A new provider gets a row there and no case of its own here. Used by conformance.bats, and by
# tests/engines/conformance.bats for the engines that are slow to start. cases_session.bash has more of them.

load ../lib/box
load ../lib/kubernetes
load ../providers/cases_session

# In a file: setup_file() { cases_setup_file; }, teardown_file() { cases_teardown_file; } and those of box.bash.
cases_setup_file()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    build_drive
    build_faulty
    start_engines
}

cases_teardown_file()
{
    [ -z "${FAULTY_DIR:-}" ] || rm -rf --one-file-system "$FAULTY_DIR"
    stop_all_engines
}

# Ids that no other test has: left_nothing looks for the control groups of a box by its id alone.
A=$(printf '%08xaaaaaaaa' $$)
B=$(printf '%08xbbbbbbbb' $$)

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

# claims WORD: whether the provider says that it can, with the options of the row (the words of drive.c).
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
    left_nothing
}

# left_nothing: no box, and nothing of one on this machine or in the engine.
left_nothing()
{
    local left

    [ -z "$(bellhop ls -q)" ] || fail "$PROVIDER: left behind: $(bellhop ls)"
    no_traces || wait_for 10 no_traces || fail "$PROVIDER: left behind: $(traces)"
    left=$(engine_objects) || fail "$PROVIDER: the engine does not say what is left"
    [ -z "$left" ] || fail "$PROVIDER: left behind: $left"
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

# OPTION, VALUE, the same for drive.c, what status must show in force of it, and a command that must fail under the limit, if one is quick.
LIMITS=(
    'memory|134217728|memory=134217728|.memory_bytes == 134217728|python3 -c "x = bytearray(300 << 20); print(len(x))"'
    'pids|64|pids=64|.pids == 64|python3 -c "import subprocess; [subprocess.Popen([\"sleep\", \"600\"]) for i in range(100)]"'
    'cpus|0.5|cpu=500|.cpu_millis == 500|'
    'disk|1G|disk=1073741824|.disk_bytes == 1073741824 or .disk_limited_by == "monitor"|'
)

# is_refused OPTION [VALUE]: by name, and nothing is made.
is_refused()
{
    run bellhop up --name one --agent none --empty "${UP[@]}" --json "--$1" "${@:2}"
    [ "$status" -eq 9 ] || fail "$PROVIDER: --$*: status $status, $output"
    is_named "$1"
    left_nothing
}

# is_named FIELD: the error in $output is about it.
is_named()
{
    [[ "$output" == *'"code":"unimplemented"'* && "$output" == *"\"field\":\"$1\""* ]] || fail "$PROVIDER: $output"
}

# is_refused_by_driver OPTION KEY=VALUE: the same without `bellhop`.
is_refused_by_driver()
{
    run drive prepare "$A" "$2"
    [ "$status" -eq 1 ] && [[ "$output" == "unimplemented: $1: "* ]] || fail "$PROVIDER: $2: $output"
    left_nothing
}

# is_refused_by_engine OPTION [VALUE]: an ordinary user's engine cannot limit without cgroup v2, and says so by name.
is_refused_by_engine()
{
    [[ "${engine:-}" == rootless_* ]] || return 1
    "$BELLHOP" up --name one --agent none --empty "${UP[@]}" --json "--$1" "${@:2}" >"$BOX_TMP/refusal" 2>/dev/null && {
        bellhop rm one
        return 1
    }
    # Another error is no refusal: the caller goes on, and meets it. (In a condition, `fail` ends no test.)
    jq -e --arg field "$1" '.error | .code == "failed_precondition" and .field == $field' "$BOX_TMP/refusal" &&
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

# snapshot NAME: of the box; an engine that cannot freeze refuses it by name while the box runs.
snapshot()
{
    run bellhop snapshot one --name "$1" --json
    [ "$status" -ne 0 ] || return 0
    [[ "$engine" == rootless_* ]] && is_state running || fail "$PROVIDER: $output"
    is_named snapshot
    [ "$(bellhop snapshots ls --json | jq '.snapshots | length')" -eq 0 ]
}

case_limits()
{
    local row option value key shown breach

    for row in "${LIMITS[@]}"; do
        IFS='|' read -r option value key shown breach <<<"$row"
        claims "limit=$option" || {
            is_refused "$option" "$value"
            is_refused_by_driver "$option" "$key"
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
            is_refused_by_driver network "network=$value"
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
    # A command that asked in that moment may have left a fault behind it.
    [ "$(bellhop events one --json | jq -r '[.events[] | select(.before != .after)][-1].cause')" = "$cause" ]
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
    ! is_answering "$B" || fail "$PROVIDER: it still answers"
    # A cluster without anything of a box that had a pod may be another one; the box of a sweep has no record of it.
    rm -f "$BELLHOP_STATE_DIR/boxes/$B/kubernetes.json"
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
    local pid stop

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
    stop=$!
    at_once start one
    wait "$stop" || true
    [ "$(drive find "$ID")" = "$(state)" ] || fail "$PROVIDER: $(drive find "$ID"): $(bellhop events one)"
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
            snapshot "$state"
        else
            engine_objects >"$BOX_TMP/before"
            run -9 bellhop snapshot one --name "$state" --json
            is_named snapshot
            run -9 bellhop fork one two --json
            is_named snapshot
            [ "$(bellhop ls -q)" = one ]
            engine_objects | diff "$BOX_TMP/before" -
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

# OPTION, VALUE, the claim that it needs, the same for drive.c, and a command that succeeds if it is in force
OPTIONS=(
    'read-only||read_only|read_only=1|grep -Eq "^[^ ]+ / [^ ]+ ro[, ]" /proc/self/mounts'
    'privilege|strict|privileges|privilege=strict|grep -Eq "^NoNewPrivs:[[:space:]]*1" /proc/self/status'
    'image|host|host_image|image=host|true'
    'image|tests|image|image=tests|true'
    'runtime|runc|runtimes|runtime=runc|true'
    'on-idle|pause|pause||true'
)

# Options of a new box besides limits and networks (case_limits) and --repo (tests/host/repo.bats).
case_options()
{
    local row option value claim key check

    up -e A=1 -e "B=two words" -l team=x --timeout 3m
    [ "$(bellhop exec one -- sh -c 'echo "$A $B"')" = "1 two words" ]
    [ "$(bellhop status one --json | jq -r '.labels.team, .options.timeout_ms')" = "x
180000" ]
    has_left_ms 60000 180000
    bellhop keep one --for 1h
    has_left_ms 3000000 3600000
    bellhop rm one
    for row in "${OPTIONS[@]}"; do
        IFS='|' read -r option value claim key check <<<"$row"
        claims "$claim" || {
            is_refused "$option" ${value:+"$value"}
            [ -z "$key" ] || is_refused_by_driver "$option" "$key"
            continue
        }
        [[ "$option" != read-only || "$engine" != rootless_* ]] || continue # not tried there
        ! is_refused_by_engine "$option" ${value:+"$value"} || continue
        up "--$option" ${value:+"$value"}
        [ -z "$value" ] || bellhop status one --json | jq -e --arg option "${option//-/_}" --arg value "$value" \
            '(.options + .)[$option] == $value' || fail "$PROVIDER: --$option: $(bellhop status one --json)"
        bellhop exec one -c "$check" || fail "$PROVIDER: --$option $value is not in force"
        bellhop rm one
    done
    claims allow_missing || is_refused allow-missing memory_limit
}

# has_left_ms LEAST MOST: until the end of its time.
has_left_ms()
{
    local left_ms

    left_ms=$(($(bellhop status one --json | jq .deadline_ms) - $(date +%s%3N)))
    [ "$left_ms" -gt "$1" ] && [ "$left_ms" -le "$2" ]
}

# A snapshot makes boxes of its own provider alone.
case_from()
{
    local options

    if claims snapshots; then options=("${UP[@]}"); else options=(--provider oci); fi
    bellhop up --name source "${options[@]}" --agent none --empty >/dev/null 2>&1
    bellhop exec source -- sh -c 'echo of the snapshot >file'
    bellhop stop source
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

# Stop, pause and rm are three things. A pause keeps the processes where it is claimed, and is refused by name elsewhere;
# a stop keeps the disk alone; rm leaves nothing, whatever the box is then.
case_ends()
{
    local pid state

    up
    pid=$(first_pid "$ID")
    bellhop exec one -- sh -c 'echo kept >file'
    if can_pause; then
        is_state paused
        [ "$(first_pid "$ID")" = "$pid" ]
        [ "$(bellhop exec one -- cat file)" = kept ]
    else
        engine_objects >"$BOX_TMP/before"
        run -9 bellhop pause --level freeze one --json
        is_named level
        engine_objects | diff "$BOX_TMP/before" -
    fi
    is_state running
    [ "$(first_pid "$ID")" = "$pid" ]
    bellhop pause --level disk one
    is_state stopped
    is_gone "$pid" || wait_for 5 is_gone "$pid"
    bellhop resume one
    is_state running
    [ "$(bellhop exec one -- cat file)" = kept ]
    for state in running stopped paused; do
        case $state in
        stopped)
            up
            bellhop stop one
            ;;
        paused)
            claims pause || continue
            up
            can_pause || continue
            ;;
        esac
        is_state "$state"
        bellhop rm one
        left_nothing
    done
}

# lose_disk: somebody else removes the disk of the box.
lose_disk()
{
    bellhop stop one
    drive destroy "$ID"
    rm -rf --one-file-system "$BELLHOP_STATE_DIR/boxes/$ID"
}

# A box whose disk is gone is gone, typed, and made anew where that was asked for.
case_gone()
{
    local old

    up
    lose_disk
    run -3 bellhop start one --json
    jq -e '.error | .code == "not_found" and (.detail | fromjson | .gone.cause == "its disk is gone")' <<<"$output" ||
        fail "$PROVIDER: $output"
    left_nothing
    up --on-gone recreate
    old=$ID
    lose_disk
    [ "$(bellhop exec one -- echo again)" = again ]
    ID=$(bellhop status one --json | jq -r .id)
    BOX_IDS+=("$ID")
    [ "$ID" != "$old" ]
    [ "$(drive find "$ID")" = running ]
}

# Two stores on one engine: the gc of one leaves the boxes of the other alone, also when that store is lost. What no
# store knows is reported.
case_stores()
{
    local other=$BOX_TMP/other id

    theirs() { BELLHOP_STATE_DIR=$other "$@"; }
    up
    theirs bellhop up --name theirs --agent none --empty "${UP[@]}" >/dev/null 2>&1
    id=$(theirs bellhop status theirs --json | jq -r .id)
    BOX_IDS+=("$id")
    mkdir "$BOX_TMP/away"
    mv "$other"/store.db* "$BOX_TMP/away"
    bellhop gc
    theirs bellhop gc >"$BOX_TMP/gc"
    grep -F "'$other/boxes/$id' is of a box that the store does not know" "$BOX_TMP/gc" || fail "$(cat "$BOX_TMP/gc")"
    [ "$(drive find "$ID")" = running ]
    [ "$(theirs drive find "$id")" = running ]
    rm -f "$other"/store.db*
    mv "$BOX_TMP/away"/store.db* "$other"
    [ "$(theirs bellhop exec theirs -- echo theirs)" = theirs ]
    theirs bellhop rm theirs
    theirs bellhop gc
    theirs engine_objects >"$BOX_TMP/left"
    [ ! -s "$BOX_TMP/left" ] || fail "left: $(cat "$BOX_TMP/left")"
    [ "$(bellhop exec one -- echo mine)" = mine ]
    bellhop rm one
    rm -rf --one-file-system "$BOX_TMP/away" "$other"
}

# The list of boxes, the provider's health, and a box that is named with its provider.
case_list()
{
    local name

    bellhop providers --json | jq -e --arg name "$PROVIDER" '.providers[] | select(.name == $name) | .usable'
    [[ "$(drive probe "$A")" == "usable "* ]]
    up
    bellhop up --name two --agent none --empty "${UP[@]}" >/dev/null 2>&1
    BOX_IDS+=("$(bellhop status two --json | jq -r .id)")
    bellhop stop two
    [ "$(bellhop ls --json | jq -r '.boxes | sort_by(.name)[] | "\(.name) \(.provider) \(.state)"')" = "one $PROVIDER running
two $PROVIDER stopped" ]
    [ "$(bellhop exec "$PROVIDER/one" -- echo here)" = here ]
    for name in $(bellhop providers --json | jq -r '.providers[].name') nobody; do
        [ "$name" != "$PROVIDER" ] || continue
        run -2 bellhop rm "$name/one" --json
        [[ "$output" == *'"field":"name"'* ]] || fail "$PROVIDER: $output"
    done
    [ "$(drive find "$ID")" = running ]
}
