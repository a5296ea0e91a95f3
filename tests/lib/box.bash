# box.bash: boxes for tests. Used by bats files:
#
#   load ../lib/box
#   setup() { box_setup; }
#   teardown() { box_teardown; }
#
# Each test has a state directory of its own, so that the boxes of parallel tests never meet, and a cache that all
# tests share. box_teardown removes every box of the test, and fails the test if anything of them is left.

BELLHOP_BUILD=${BELLHOP_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
BELLHOP=${WIRE_BIN:+$WIRE_BIN/bellhop}
BELLHOP=${BELLHOP:-$BELLHOP_BUILD/bellhop}
load ../lib/processes
source "${BASH_SOURCE[0]%/*}/wait.bash"

box_setup()
{
    BOX_TMP=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-box-XXXXXX")
    export BELLHOP_STATE_DIR=$BOX_TMP/state
    export BELLHOP_CACHE_DIR=${BELLHOP_TEST_CACHE:-$BATS_TEST_DIRNAME/../../build/cache}
    # It has the programs that the tests write their guests in.
    export BELLHOP_IMAGE=${TEST_IMAGE:-tests}
    export HOME=$BOX_TMP/home
    unset BELLHOP_CONFIG XDG_CONFIG_HOME BELLHOP_DAEMON BELLHOP_TOKEN BELLHOP_TOKEN_FILE BELLHOP_DAEMON_CA
    mkdir -p "$HOME"
}

bellhop()
{
    "$BELLHOP" "$@"
}

box_teardown()
{
    local name left=0

    for name in $("$BELLHOP" ls -q 2>/dev/null); do
        "$BELLHOP" rm "$name" >/dev/null 2>&1 || left=1
    done
    "$BELLHOP" gc >/dev/null 2>&1 || true
    no_traces || wait_for 10 no_traces || true # ending takes time
    traces >"$BOX_TMP/left"
    if [ "$left" -ne 0 ] || [ -s "$BOX_TMP/left" ]; then
        echo "left behind:" >&2
        cat "$BOX_TMP/left" >&2
        kill_marked
        rm -rf --one-file-system "$BOX_TMP"
        return 1
    fi
    rm -rf --one-file-system "$BOX_TMP"
}

# For the teardown of a test with snapshots: removes its boxes, then the snapshots.
remove_with_snapshots()
{
    local name

    for name in $("$BELLHOP" ls -q 2>/dev/null); do
        "$BELLHOP" rm "$name" >/dev/null 2>&1 || true
    done
    for name in $("$BELLHOP" snapshots ls --json 2>/dev/null | jq -r '.snapshots[].name'); do
        "$BELLHOP" snapshots rm "$name" >/dev/null 2>&1 || true
    done
}

# Everything of this test's boxes that a person could find: processes whose command line or
# environment names the state directory, mounts and cgroups below it or named after its boxes,
# directories and sockets. Prints nothing when nothing is left.
traces()
{
    local id

    processes_naming "$BELLHOP_STATE_DIR"
    grep -F "$BELLHOP_STATE_DIR" /proc/self/mountinfo | sed 's/^/mount /' || true
    find "$BELLHOP_STATE_DIR/boxes" -mindepth 1 -maxdepth 1 ! -name .store 2>/dev/null | sed 's/^/directory /'
    for id in "${BOX_IDS[@]}"; do
        find /sys/fs/cgroup -type d -name "*$id*" 2>/dev/null | sed 's/^/cgroup /'
    done
}

# trust_listener PID: records PID as the listener of the box in DIR, for a test that stands between the host and the
# agent: the host refuses every other process.
trust_listener()
{
    local start

    start=$(sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 20)
    jq -c --argjson pid "$1" --argjson start "$start" '.listener = {pid: $pid, start: $start}' \
        "$DIR/run.json" >"$BOX_TMP/run.json"
    cat "$BOX_TMP/run.json" >"$DIR/run.json"
}

# Remembers a box's id, so that traces() can look for its cgroups after it is gone.
BOX_IDS=()
remember_box()
{
    BOX_IDS+=("$(bellhop status "$1" --json | jq -r .id)")
}

# Only for a test that failed: kills the processes that still name this test's state directory.
kill_marked()
{
    local pid

    for pid in $(traces | sed -n 's/^process \([0-9]*\):.*/\1/p'); do
        kill -9 "$pid" 2>/dev/null || true
    done
}

# An output of `ls` that is empty because it failed does not count.
has_no_boxes()
{
    local names

    names=$(bellhop ls -q) && [ -z "$names" ]
}

# end_now PID...: kills, and waits until the processes are gone.
end_now()
{
    local pid

    kill -9 "$@"
    for pid in "$@"; do
        wait_for 10 is_gone "$pid"
    done
}

# free_port: prints a port without a listener, outside of the kernel's range for outgoing connections.
free_port()
{
    python3 - <<'P'
import random, socket
low = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
while True:
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", random.randrange(10000, max(low, 10001))))
        except OSError:
            continue
        print(s.getsockname()[1])
        break
P
}

no_traces() { [ -z "$(traces)" ]; }

# json_is [JQ_OPTION...] FILTER: standard input is one JSON document, and the filter is true of it.
json_is()
{
    jq -s -e "${@:1:$#-1}" "length == 1 and (.[0] | ${!#})" >/dev/null
}

fail()
{
    echo "$*" >&2
    return 1
}

# stand_between SCRIPT [ARGUMENT...]: the script of this directory relays between the host and the agent of the box 'one'.
stand_between()
{
    local run

    run=$(dirname "$(bellhop status one --json | jq -r .guest.socket)")
    cd "$run"
    mv agent.sock real.sock
    python3 "$BATS_TEST_DIRNAME/../lib/$1" agent.sock real.sock "${@:2}" >"$BOX_TMP/breaker" 3>&- &
    BREAKER=$!
    wait_for 10 grep -q ready "$BOX_TMP/breaker"
    DIR=$(dirname "$run")
    trust_listener "$BREAKER"
}

# break_after DOWN UP: cuts each connection to the agent of the box 'one' after so many bytes from it (to it).
break_after()
{
    stand_between breaker.py "$@"
}

# agent_faults: the requests to the agent of the box 'one' go wrong as agent_fault FAULT METHOD [TIMES [NTH]] says
# (engine_proxy.py): by default the first one. agent_hits: how many have gone wrong.
agent_faults() { stand_between engine_proxy.py "$BOX_TMP/fault"; }
agent_hits() { cat agent.sock.hits 2>/dev/null | wc -l; }

agent_fault()
{
    jq -n --arg fault "$1" --arg match "/bellhop.v1.$2\$" --argjson times "${3:-1}" --argjson nth "${4:-1}" \
        '{fault: $fault, match: $match, times: $times, nth: $nth}' >"$BOX_TMP/fault.new"
    rm -f agent.sock.hits
    mv "$BOX_TMP/fault.new" "$BOX_TMP/fault"
}

# hold_after BYTES: the first connection to the agent of the box 'one' that sends so many bytes hangs; let_go cuts it.
hold_after()
{
    break_after 0 0 "$1"
}

is_held() { grep -q held "$BOX_TMP/breaker"; }
let_go() { kill -USR1 "$BREAKER"; }

cuts()
{
    cat agent.sock.cuts 2>/dev/null || echo 0
}
