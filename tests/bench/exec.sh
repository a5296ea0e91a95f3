#!/bin/sh
# Commands: ours against a bare posix_spawn and wait, a bare pipe, and sandbox-agent, alternating in
# one run; then the memory of a thousand silent streams, and the agent's memory after all that.
# Usage: tests/bench/exec.sh [ROUNDS]
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
rounds=${1:-400}
# shellcheck source=tests/lib/peers.sh
. "$top/tests/lib/peers.sh"
peer_sandbox_agent
dir=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-bench-XXXXXX")
text=$(mktemp /dev/shm/bellhop-bench-XXXXXX)
agent_pid=
peer_pid=
finish()
{
    for pid in $agent_pid $peer_pid; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$dir" "$text"
}
trap finish EXIT

cc -std=gnu11 -D_GNU_SOURCE -O2 "$top/tests/bench/exec_bench.c" -o "$dir/bench"
token=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
(umask 077 && echo "$token" >"$dir/token")
mkfifo "$dir/ready"
exec 9<>"$dir/ready"
# This shell holds the pipe open, so that its line is not lost.
"${BELLHOPD:-$top/build/release/bellhopd}" --listen 127.0.0.1:0 --token-file "$dir/token" --ready-fd 3 \
    --max-connections 2000 3>"$dir/ready" 9>&- 2>/dev/null &
agent_pid=$!
read -r line <&9
port=${line#*127.0.0.1:}
port=${port%%\"*}

peer_port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
# shellcheck disable=SC2154 # set by peers.sh
"$sandbox_agent" server --host 127.0.0.1 --port "$peer_port" --token "$token" --no-telemetry \
    >/dev/null 2>&1 9>&- &
peer_pid=$!
for _ in $(seq 100); do
    curl -sf -o /dev/null "http://127.0.0.1:$peer_port/v1/health" && break
    sleep 0.1
done

yes 'one line of output, as a program writes it, of about eighty bytes or somewhat more' |
    head -c 100000000 >"$text"
"$dir/bench" run "$port" "$token" "$peer_port" "$rounds"
"$dir/bench" output "$port" "$token" "$text" 5
"$dir/bench" idle "$port" "$token" "$agent_pid" 1000
# The commands end and their streams close; a thousand results remain.
pgrep -P "$agent_pid" | xargs -r kill -KILL
for _ in $(seq 100); do
    pgrep -P "$agent_pid" >/dev/null || break
    sleep 0.1
done
curl -sf -o /dev/null -H "Authorization: Bearer $token" "http://127.0.0.1:$port/v1/health"
sleep 1
awk '/^VmRSS:/ { rss = $2 } /^VmHWM:/ { hwm = $2 } END {
    printf "%-44s %8.1f MiB now, %.1f MiB at its highest\n", "agent, resident after all that",
        rss / 1024, hwm / 1024 }' \
    "/proc/$agent_pid/status"
