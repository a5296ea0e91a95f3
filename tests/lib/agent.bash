# agent.bash: start the agent under test and talk to it. Used by bats files:
#
#   load ../lib/agent
#   setup() { start_agent; }
#   teardown() { stop_agents; }
#
# start_agent [OPTION...] starts bellhopd on a free TCP port and a unix socket, with a fresh token,
# waits for its ready line, and sets
#   AGENT_URL AGENT_PORT AGENT_SOCKET AGENT_TOKEN AGENT_PID AGENT_DIR (temporary, removed) AGENT_LOG
# BELLHOPD is the program (default: the one that ships).

BELLHOP_BUILD=${BELLHOP_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
BELLHOPD=${BELLHOPD:-$BELLHOP_BUILD/bellhopd}
AGENT_PIDS=()
AGENT_DIRS=()
source "${BASH_SOURCE[0]%/*}/wait.bash"

start_agent()
{
    AGENT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-agent-XXXXXX")
    AGENT_DIRS+=("$AGENT_DIR")
    AGENT_TOKEN=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
    (umask 077 && printf '%s\n' "$AGENT_TOKEN" >"$AGENT_DIR/token")
    run_agent --listen 127.0.0.1:0 --unix "$AGENT_DIR/agent.sock" \
        --token-file "$AGENT_DIR/token" "$@"
}

# Like start_agent, with exactly the options given (and AGENT_DIR made if there is none).
run_agent()
{
    local line= piece=

    if [ -z "${AGENT_DIR:-}" ] || [ ! -d "$AGENT_DIR" ]; then
        AGENT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-agent-XXXXXX")
        AGENT_DIRS+=("$AGENT_DIR")
    fi
    AGENT_LOG=$AGENT_DIR/log
    AGENT_SOCKET=$AGENT_DIR/agent.sock
    rm -f "$AGENT_DIR/ready"
    mkfifo "$AGENT_DIR/ready"
    # Descriptor 3 is bats' own: the agent gets the fifo in its place, so it can't hold bats up.
    # Our own end is open first: a line written to a fifo that nobody else holds is lost.
    exec 9<>"$AGENT_DIR/ready"
    "$BELLHOPD" "$@" --ready-fd 3 3>"$AGENT_DIR/ready" >"$AGENT_LOG" 2>&1 </dev/null 4>&- 9>&- &
    AGENT_PID=$!
    AGENT_PIDS+=("$AGENT_PID")
    for _ in $(seq $((MIN_WAIT_S * 5))); do
        # When its time is over, read may have taken a part of the line.
        IFS= read -r -t 0.2 piece <&9 && line+=$piece && break
        line+=$piece
        kill -0 "$AGENT_PID" 2>/dev/null || break
    done
    exec 9>&-
    if [ -z "$line" ]; then
        echo "the agent did not become ready:" >&2
        cat "$AGENT_LOG" >&2
        return 1
    fi
    AGENT_READY=$line
    AGENT_URL=http://$(jq -r '.tcp[0] // "none"' <<<"$line")
    AGENT_PORT=${AGENT_URL##*:}
    export AGENT_URL AGENT_PORT AGENT_SOCKET AGENT_TOKEN AGENT_PID AGENT_DIR AGENT_LOG AGENT_READY
}

# Ends every agent of this test (only those), and removes their directories.
stop_agents()
{
    local pid

    for pid in "${AGENT_PIDS[@]}"; do
        kill "$pid" 2>/dev/null || continue
    done
    for pid in "${AGENT_PIDS[@]}"; do
        wait_gone "$pid" 15 || kill -9 "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    AGENT_PIDS=()
    for pid in "${AGENT_DIRS[@]}"; do
        rm -rf "$pid"
    done
    AGENT_DIRS=()
}

# none_of WORDS: no process has this command line, which is a regular expression.
none_of() { ! pgrep -fx "$1"; }

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

# agent_curl PATH [CURL OPTION...]: with the token, over TCP.
agent_curl()
{
    local path=$1

    shift
    curl -sS --max-time "${CURL_MAX_S:-120}" -H "Authorization: Bearer $AGENT_TOKEN" "$@" "$AGENT_URL$path"
}

# agent_status PATH [CURL OPTION...]: prints the status only.
agent_status()
{
    agent_curl "$@" -o /dev/null -w '%{http_code}'
}

# rpc Exec/Run ['{"argv":["true"]}'] [CURL OPTION...]: prints the reply's body.
rpc()
{
    local method=$1 params='{}'

    shift
    case ${1:-} in
    [\{\[]*) params=$1 && shift ;;
    esac
    agent_curl "/bellhop.v1.$method" -H 'Content-Type: application/json' --data-binary "$params" "$@"
}

# rpc_status: the same, prints the HTTP status only.
rpc_status()
{
    rpc "$@" -o /dev/null -w '%{http_code}'
}

# ask_and_leave METHOD PARAMS OUT COMMAND...: a client that disconnects once the command succeeds. OUT gets the reply
# up to then. ASK_SOCKET: through that unix socket.
ask_and_leave()
{
    local method=$1 params=$2 out=$3 client

    shift 3
    curl -sSN ${ASK_SOCKET:+--unix-socket "$ASK_SOCKET"} -H "Authorization: Bearer $AGENT_TOKEN" \
        -H 'Content-Type: application/json' --data-binary "$params" "$AGENT_URL/bellhop.v1.$method" >"$out" &
    client=$!
    wait_until 10 "$@"
    kill "$client" 2>/dev/null || true # its request may be over
    wait "$client" || true
}

# n_fds: the number of the agent's open descriptors, from the agent itself where /proc can't be read (in a box).
n_fds()
{
    if [ -r "/proc/$AGENT_PID/fd/0" ]; then
        find "/proc/$AGENT_PID/fd" -mindepth 1 2>/dev/null | wc -l
    else
        agent_curl /v1/metrics | sed -n 's/^process_open_fds //p'
    fi
}

# need_mb N: skips a test that writes more than a small disk has.
need_mb()
{
    [ "$(df -m --output=avail "$AGENT_DIR" | tail -n 1)" -ge "$1" ] || skip "needs $1 MB of disk"
}

# fail MESSAGE...: ends the test.
fail()
{
    echo "$*" >&2
    return 1
}
