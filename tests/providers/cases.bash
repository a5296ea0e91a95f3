# cases.bash: what a provider promises in provider.h, by itself and through `bellhop`: a case a function, for each_driver of
# drivers.bash. A new provider gets a row there and no case of its own here. Used by conformance.bats, and by
# tests/engines/conformance.bats for the engines that are slow to start. cases_session.bash has more of them.

load ../lib/box
load ../lib/kubernetes
load ../providers/refusals
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

    bellhop ls -q >"$BOX_TMP/ls" # it fails without a list
    [ ! -s "$BOX_TMP/ls" ] || fail "$PROVIDER: left behind: $(bellhop ls)"
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
    [ -n "$(drive claims "$A")" ] || fail "$PROVIDER: it claims nothing: the suite would try nothing"
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

# OPTION, VALUE, the same for drive.c, what status must show in force of it, and if it can be broken quickly: an N within
# the limit and one beyond, the words of the refusal if it is no SIGKILL, and a command that takes N
LIMITS=(
    'memory|134217728|memory=134217728|.memory_bytes == 134217728|32|300||python3 -c "print(len(bytearray($N << 20)))"'
    'pids|64|pids=64|.pids == 64|8|100|Resource temporarily unavailable|python3 -c "
import subprocess
for p in [subprocess.Popen([\"sleep\", \"600\"]) for i in range($N)]: p.kill()"'
    'cpus|0.5|cpu=500|.cpu_millis == 500||||'
    'disk|1G|disk=1073741824|.disk_bytes == 1073741824||||'
)

# is_enforced OPTION WITHIN BEYOND WORDS COMMAND: the command works within the limit, and the limit is what ends it beyond.
is_enforced()
{
    run bellhop exec -n -e "N=$2" one -c "$5"
    [ "$status" -eq 0 ] || fail "$PROVIDER: $1: $2 is within the limit: status $status, $output"
    run bellhop exec -n -e "N=$3" one -c "$5"
    if [ -z "$4" ]; then
        [ "$status" -eq 137 ] || fail "$PROVIDER: $1: $3 is not killed: status $status, $output"
    else
        [ "$status" -ne 0 ] && [[ "$output" == *"$4"* ]] || fail "$PROVIDER: $1: $3 is not refused: status $status, $output"
    fi
}

case_limits()
{
    local row option value key shown within beyond words command

    for row in "${LIMITS[@]}"; do
        IFS='|' read -r -d '' option value key shown within beyond words command <<<"$row" || true
        claims "limit=$option" || {
            is_refused "$option" "$value"
            is_refused_by_driver "$option" "$key"
            continue
        }
        up_or_refused "$option" "$value"
        [ "$MADE" = yes ] || continue
        bellhop status one --json | jq .enforced.limits >"$BOX_TMP/limits"
        json_is "$shown" <"$BOX_TMP/limits" || fail "$PROVIDER: $option is not in force: $(cat "$BOX_TMP/limits")"
        [ -z "$within" ] || is_enforced "$option" "$within" "$beyond" "$words" "$command"
        bellhop rm one
    done
    case_networks
}

# Prints a line and ends; and where a connection leads.
HOST_SERVER='
import os, socket, sys
s = socket.create_server(("0.0.0.0", 0))
with open(sys.argv[1] + ".new", "w") as f:
    f.write(str(s.getsockname()[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    c, _ = s.accept()
    c.sendall(b"the host\n")
    c.close()
'
CONNECT='
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])) as s:
        print("reached", s.makefile().readline().strip())
except OSError as e:
    print("not reached:", e)
'
CONNECT_ITSELF='
import socket
s = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(s.getsockname(), 60)
s.accept()[0].sendall(b"itself\n")
print("reached", c.makefile().readline().strip())
'

# reaches (yes|no) ADDRESS: from the box, the server of this machine on $HOST_PORT.
reaches()
{
    local seconds=60 wanted='reached the host'

    [ "$1" = yes ] || { seconds=5 wanted='not reached: '; }
    run bellhop exec -n one -- python3 -c "$CONNECT" "$2" "$HOST_PORT" "$seconds"
    [ "$status" -eq 0 ] && [[ "$output" == "$wanted"* ]] || fail "$PROVIDER: network $NETWORK: $2: status $status, $output"
}

# host_address: one of this machine that other machines know, if it has any. Bridges come and go with other tests.
host_address()
{
    ip -4 -o addr show up scope global | awk '$2 !~ /^(br|cni|docker|podman|veth|bh)/ { sub("/.*", "", $4); print $4; exit }'
}

# network_leads: where a connection of the box gets in the network $NETWORK. None leaves this machine.
network_leads()
{
    local outside

    outside=$(host_address)
    outside=${outside:-127.0.0.1}
    run bellhop exec -n one -- python3 -c "$CONNECT_ITSELF"
    [ "$output" = 'reached itself' ] || fail "$PROVIDER: network $NETWORK: its own loopback: status $status, $output"
    case $NETWORK:$engine in
    host:rootless_docker) reaches no 127.0.0.1 ;; # the host is the engine's, which has a network of its own
    host:*) reaches yes 127.0.0.1 ;;
    none:kubernetes*) # the cluster's plug-in decides whether it is enforced
        kube get networkpolicy "bellhop-$ID" -o json |
            json_is '.spec | (.ingress // []) == [] and (.egress // []) == [] and (.policyTypes | length) == 2' ||
            fail "$PROVIDER: network none: no policy cuts it"
        ;;
    none:*)
        reaches no 127.0.0.1
        reaches no "$outside"
        ;;
    user:kubernetes*)
        reaches no 127.0.0.1
        reaches yes "$KUBERNETES_ADDRESS"
        ;;
    user:)
        reaches yes 127.0.0.1 # as the proxy of this machine, which the environment names
        reaches no "$outside"
        ;;
    user:*)
        reaches no 127.0.0.1
        [ "$outside" = 127.0.0.1 ] || reaches yes "$outside"
        ;;
    *) fail "$PROVIDER: nothing is known of the network $NETWORK" ;;
    esac
}

case_networks()
{
    local server options HOST_PORT NETWORK

    # A failed test ends it: its command line names the state directory.
    python3 -c "$HOST_SERVER" "$BELLHOP_STATE_DIR/host-port" >/dev/null 2>&1 3>&- 4>&- &
    server=$!
    wait_for 10 test -e "$BELLHOP_STATE_DIR/host-port"
    HOST_PORT=$(cat "$BELLHOP_STATE_DIR/host-port")
    for NETWORK in user none host; do
        claims "network=$NETWORK" || {
            is_refused network "$NETWORK"
            is_refused_by_driver network "network=$NETWORK"
            continue
        }
        options=()
        [ "$NETWORK:$engine" != user: ] || options=(-e "http_proxy=http://127.0.0.1:$HOST_PORT")
        up --network "$NETWORK" "${options[@]}"
        [ "$(bellhop status one --json | jq -r '[.. | objects | select(has("mode")) | .mode][0]')" = "$NETWORK" ]
        network_leads
        bellhop rm one
    done
    end_now "$server"
    rm "$BELLHOP_STATE_DIR/host-port"
}

KERNEL_KEYS=(user_namespace pid_namespace mount_namespace ipc_namespace uts_namespace network_namespace seccomp
    no_new_privileges capabilities)

# kernel_says PID KEY: what the kernel has of a key of inspect().
kernel_says()
{
    local kind=${2%_namespace}

    case $2 in
    *_namespace)
        [ "$kind" != mount ] || kind=mnt
        [ "$kind" != network ] || kind=net
        [ -e "/proc/$1/ns/$kind" ] || fail "$PROVIDER: the process $1 is gone" || return
        [ "$(readlink "/proc/$1/ns/$kind")" = "$(readlink "/proc/self/ns/$kind")" ] && echo false || echo true
        ;;
    seccomp) awk '/^Seccomp:/ { print $2 == 2 ? "true" : "false" }' "/proc/$1/status" ;;
    no_new_privileges) awk '/^NoNewPrivs:/ { print $2 == 1 ? "true" : "false" }' "/proc/$1/status" ;;
    capabilities) awk '/^CapBnd:/ { print $2 }' "/proc/$1/status" ;;
    esac
}

# is_told KEY: whether the provider says anything of the key. The process provider lists no namespaces but the first three.
is_told()
{
    case $PROVIDER:$1 in
    process:ipc_namespace | process:uts_namespace | process:network_namespace | process:capabilities) return 1 ;;
    esac
}

# The kernel of a pod is another machine's: all is unknown there, and nothing anywhere else.
case_isolation()
{
    local pid key said wanted

    up
    pid=$(first_pid "$ID")
    drive inspect "$ID" >"$BOX_TMP/inspect"
    for key in "${KERNEL_KEYS[@]}"; do
        said=$(jq -r --arg key "$key" '.isolation[$key]' "$BOX_TMP/inspect")
        case $engine in
        kubernetes*) wanted=unknown ;;
        *) wanted=$(kernel_says "$pid" "$key") ;;
        esac
        is_told "$key" || wanted=null
        [ "$said" = "$wanted" ] || fail "$PROVIDER: $key is $wanted, not $said"
    done
    said=$(jq -r '.isolation.pid_namespace' "$BOX_TMP/inspect")
    [ "$said" = unknown ] || [ "$said" = "$(claims isolates && echo true || echo false)" ]
    # A provider that isolates misses nothing here, and any other says so. A file of the host is the proof.
    echo secret >"$BOX_TMP/canary"
    if claims isolates; then
        json_is '.missing == []' <"$BOX_TMP/inspect"
        run bellhop exec one -- cat "$BOX_TMP/canary"
        [ "$status" -eq 1 ] && [[ "$output" == *'No such file'* ]] || fail "$PROVIDER: status $status, $output"
    else
        json_is '.missing | index("isolation") != null' <"$BOX_TMP/inspect"
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
    cause=$(jq -r '.cause // empty' "$BOX_TMP/status")
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
    [[ "$(state)" =~ ^(running|stopped)$ ]]
    [ "$(drive find "$ID")" = "$(state)" ] || fail "$PROVIDER: $(drive find "$ID"): $(bellhop events one)"
    at_once rm one
    [ "$DONE" -ge 1 ]
    [ -z "$(bellhop ls -q)" ]
    [ "$(drive find "$ID")" = stopped ]
}

# The box's state and the provider's are those from before: a snapshot stops no box.
case_snapshot()
{
    local state taken=()

    up
    bellhop exec one -- sh -c 'echo kept >file'
    for state in running paused stopped; do
        case $state in
        paused)
            pause_or_refused
            [ "$PAUSED" = yes ] || continue
            ;;
        stopped) bellhop stop one ;;
        esac
        SEQ=$(bellhop events one --json | jq '.events[-1].seq')
        engine_objects >"$BOX_TMP/before"
        snapshot_or_refused "$state"
        if [ "$TAKEN" = yes ]; then
            taken+=("$state")
        else
            engine_objects | diff "$BOX_TMP/before" -
        fi
        if ! claims snapshots; then
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
    [ "$(bellhop snapshots ls --json | jq -r '[.snapshots[].name] | sort | join(" ")')" = \
        "$(printf '%s\n' "${taken[@]}" | sort | tr '\n' ' ' | sed 's/ *$//')" ]
    # A stopped box can always be taken.
    if claims snapshots; then [[ " ${taken[*]} " == *' stopped '* ]]; fi
    for state in "${taken[@]}"; do
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

# runtime_of ID: by the word of whoever runs it: the runtime itself, with the box's first process, or the engine.
runtime_of()
{
    case $engine in
    '')
        runc --root "$BELLHOP_STATE_DIR/boxes/$1/oci/state" list -f json |
            json_is --argjson pid "$(first_pid "$1")" '.[0].pid == $pid' && echo runc
        ;;
    kubernetes*) kube get pod "bellhop-$1" -o json | jq -r .spec.runtimeClassName ;;
    *podman) engine_get "${DOCKER_HOST#unix://}" "v4.0.0/libpod/containers/bellhop-$1/json" | jq -r .OCIRuntime ;;
    *) engine_get "${DOCKER_HOST#unix://}" "v1.41/containers/bellhop-$1/json" | jq -r .HostConfig.Runtime ;;
    esac
}

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
        up_or_refused "$option" ${value:+"$value"}
        [ "$MADE" = yes ] || continue
        [ -z "$value" ] || bellhop status one --json |
            json_is --arg option "${option//-/_}" --arg value "$value" '(.options + .)[$option] == $value' || fail "$PROVIDER: --$option: $(bellhop status one --json)"
        bellhop exec one -c "$check" || fail "$PROVIDER: --$option $value is not in force"
        [ "$option" != runtime ] || [ "$(runtime_of "$ID")" = "$value" ] || fail "$PROVIDER: its runtime is $(runtime_of "$ID")"
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
    engine_objects >"$BOX_TMP/before"
    pause_or_refused
    if [ "$PAUSED" = yes ]; then
        [ "$(first_pid "$ID")" = "$pid" ]
        [ "$(bellhop exec one -- cat file)" = kept ]
    else
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
            pause_or_refused
            [ "$PAUSED" = yes ] || continue
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
    json_is '.error | .code == "not_found" and (.detail | fromjson | .gone.cause == "its disk is gone")' <<<"$output" ||
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

    bellhop providers --json | json_is --arg name "$PROVIDER" 'any(.providers[]; .name == $name and .usable)'
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
