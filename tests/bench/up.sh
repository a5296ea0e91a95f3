#!/bin/sh
# A coding agent from nothing to healthy: bare `opencode serve` on this machine, and `up --agent opencode` with its
# packages in the cache, alternating in one run. Needs root, an image and, once, the network. lifecycle.sh has the boxes
# without an agent. Usage: tests/bench/up.sh [ROUNDS]
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
rounds=${1:-5}
bellhop=$top/build/release/bellhop
dir=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-bench-XXXXXX")
pid=
finish()
{
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    for box in $("$bellhop" ls -q 2>/dev/null); do
        "$bellhop" rm "$box" >/dev/null 2>&1 || true
    done
    rm -rf --one-file-system "$dir"
}
trap finish EXIT
trap 'exit 1' INT TERM
# shellcheck source=tests/lib/bench.sh
. "$top/tests/lib/bench.sh"
BELLHOP_STATE_DIR=$dir/state
BELLHOP_CACHE_DIR=${BELLHOP_BENCH_CACHE:-$top/build/cache}
BELLHOP_IMAGE=${BELLHOP_IMAGE:-tests}
npm_config_registry=${npm_config_registry:-$("$top/scripts/npm-registry.sh")}
export BELLHOP_STATE_DIR BELLHOP_CACHE_DIR BELLHOP_IMAGE npm_config_registry

# Requests of a cold start are often never answered: an attempt has half a second.
bare_opencode()
{
    mkdir -p "$dir/home"
    (cd "$dir/home" && HOME=$dir/home OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1 \
        OPENCODE_DISABLE_MODELS_FETCH=1 exec "$opencode" serve --port "$port" --hostname 127.0.0.1) >/dev/null 2>&1 &
    pid=$!
    until curl -sf -o /dev/null --max-time 0.5 "http://127.0.0.1:$port/global/health"; do
        kill -0 "$pid" || return 1
        sleep 0.05
    done
}

end_opencode()
{
    kill "$pid"
    wait "$pid" 2>/dev/null || true
    pid=
}

# The first one fetches the packages, the second one unpacks them.
for box in first second; do
    "$bellhop" up --name "$box" --provider oci --agent opencode --empty --json >/dev/null
done
opencode=$(find "$BELLHOP_CACHE_DIR"/agents/opencode-*/tree -path '*/bin/opencode' -print -quit)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
for round in $(seq "$rounds"); do
    timed bare bare_opencode
    end_opencode
    timed opencode "$bellhop" up --name "box-$round" --provider oci --agent opencode --empty --json
    "$bellhop" rm "box-$round" >/dev/null
done
ratio bare "bare opencode serve, healthy"
ratio opencode "bellhop up --agent opencode, cached" bare
