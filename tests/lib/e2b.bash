# e2b.bash: the agent as E2B's guest, and E2B's own SDKs to drive it. Used by bats files:
#
#   load ../lib/e2b
#   setup() { start_e2b; }
#   teardown() { stop_e2b; }
#
# start_e2b [OPTION...] starts bellhopd on a free port, open, with commands as `user`, in a mount
# namespace with that user and a fresh home; start_e2b_secured with a token ($AGENT_TOKEN).
# run_e2b_js FILE ARG... and run_e2b_python FILE ARG... run a script with the SDK on its path and
# E2B_SANDBOX_URL set, in debug mode (no control plane) unless E2B_DEBUG is set to nothing.

load ../lib/agent
load ../lib/node
load ../lib/venv

E2B_JS_VERSION=2.51.0
E2B_PYTHON_VERSION=2.63.0
E2B_LIB=$BATS_TEST_DIRNAME/../lib

require_root()
{
    [ "$(id -u)" = 0 ] || skip "needs root: commands of another user"
}

# The agent in the box: its arguments are run_agent's.
in_e2b_box()
{
    local program

    program=$(realpath "${E2B_AGENT:-$BELLHOPD}")
    BELLHOPD=$E2B_LIB/e2b_box.sh run_agent "$program" "$@"
}

start_e2b()
{
    require_root
    in_e2b_box --listen 127.0.0.1:0 --auth=open --user user "$@"
}

start_e2b_secured()
{
    require_root
    AGENT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-agent-XXXXXX")
    AGENT_DIRS+=("$AGENT_DIR")
    AGENT_TOKEN=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
    (umask 077 && printf '%s\n' "$AGENT_TOKEN" >"$AGENT_DIR/token")
    in_e2b_box --listen 127.0.0.1:0 --token-file "$AGENT_DIR/token" --user user "$@"
}

# One installation for all files and runs.
e2b_js()
{
    NODE_DIR=$NODE_ROOT/build/cache/node-e2b-$E2B_JS_VERSION
    mkdir -p "$NODE_DIR"
    (flock 9 && npm_package e2b "$E2B_JS_VERSION") 9>"$NODE_DIR.lock"
}

run_e2b_js()
{
    local script=$1 copy

    shift
    e2b_js || return 1
    copy=$(mktemp "$NODE_DIR/XXXXXX.mjs") && cp "$script" "$copy" || return 1
    E2B_DEBUG=${E2B_DEBUG-true} E2B_SANDBOX_URL=${E2B_SANDBOX_URL-$AGENT_URL} \
        timeout "${E2B_MAX_S:-300}" "$(node_program)" "$copy" "$@" 3>&- 4>&-
    local r=$?
    rm -f "$copy"
    return "$r"
}

run_e2b_python()
{
    local python

    python=$(venv_python e2b "$E2B_PYTHON_VERSION") || return 1
    E2B_DEBUG=${E2B_DEBUG-true} E2B_SANDBOX_URL=${E2B_SANDBOX_URL-$AGENT_URL} \
        timeout "${E2B_MAX_S:-300}" "$python" "$@" 3>&- 4>&-
}

# A control plane in front of the agent, which hands out $AGENT_TOKEN.
start_control()
{
    python3 "$E2B_LIB/../fakes/e2b_control.py" --guest "$AGENT_URL" --token "$AGENT_TOKEN" \
        --ready "$AGENT_DIR/control" >"$AGENT_DIR/control.log" 2>&1 3>&- 4>&- &
    CONTROL_PID=$!
    wait_until 10 test -s "$AGENT_DIR/control"
    E2B_API_URL=http://127.0.0.1:$(cat "$AGENT_DIR/control")
    export E2B_API_URL
    unset E2B_DEBUG
}

# The agent, and the control plane if there is one.
stop_e2b()
{
    [ -z "${CONTROL_PID:-}" ] || { kill "$CONTROL_PID"; wait "$CONTROL_PID" || true; } 2>/dev/null
    CONTROL_PID=
    stop_agents
}
