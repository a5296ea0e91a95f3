#!/bin/sh
# The same exec and file cases against Bellhop's agent, sandbox-agent and codex' exec-server: prints
# who passes what. Exits 1 unless Bellhop passes all. Arguments: names of cases (default: all).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
# shellcheck source=tests/lib/peers.sh
. "$top/tests/lib/peers.sh"
peer_sandbox_agent
peer_codex

# Debian's python3, since it is the one that has Debian's websocket module.
# shellcheck disable=SC2154 # set by peers.sh
exec /usr/bin/python3 "$here/conformance.py" --bellhopd "${BELLHOPD:-$top/build/release/bellhopd}" \
    --sandbox-agent "$sandbox_agent" --codex "$codex" "$@"
