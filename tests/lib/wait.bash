# wait.bash: waiting for a condition. agent.bash, box.bash and oci.bash load it, and json.bash with it.

source "${BASH_SOURCE[0]%/*}/json.bash"

# The shortest time that a wait lasts: it bounds a hang, and a busy machine does not reach it.
MIN_WAIT_S=60

# ask_for_ms MS COMMAND...: asks until the command succeeds. The pauses grow from 10 to 250 ms, because a question costs
# processor time that the tests beside this one need.
ask_for_ms()
{
    local wait_end_ms=$((${EPOCHREALTIME/[.,]/} / 1000 + $1)) wait_pause_ms=10 wait_fd

    shift
    exec {wait_fd}<> <(:) # nothing ever comes: a pause without a process
    until "$@" >/dev/null 2>&1; do
        [ $((${EPOCHREALTIME/[.,]/} / 1000)) -lt "$wait_end_ms" ] || {
            exec {wait_fd}>&-
            echo "not within the time: $*" >&2
            return 1
        }
        read -r -t "0.$(printf %03d "$wait_pause_ms")" -u "$wait_fd" || true
        wait_pause_ms=$((wait_pause_ms * 3 / 2 < 250 ? wait_pause_ms * 3 / 2 : 250))
    done
    exec {wait_fd}>&-
}

# wait_for SECONDS COMMAND..., wait_until SECONDS COMMAND...: for a minute at least.
wait_for()
{
    local seconds=$1

    shift
    ask_for_ms $(((seconds > MIN_WAIT_S ? seconds : MIN_WAIT_S) * 1000)) "$@"
}
wait_until() { wait_for "$@"; }

# within SECONDS COMMAND...: for exactly that time: for tests of the time itself.
within()
{
    local seconds=$1

    shift
    ask_for_ms $((seconds * 1000)) "$@"
}

# is_gone PID: a zombie counts as gone.
is_gone()
{
    local state

    state=$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) || return 0
    [ "$state" = Z ]
}

# wait_gone PID [SECONDS]
wait_gone() { wait_for "${2:-0}" is_gone "$1"; }
