#!/bin/sh
# The last step of `make run`: puts PROJECT into a box and starts the coding agent AGENT on it. NAME is the name of the
# box; without it bellhop names the box after the project. Boxes need root: other users go through sudo.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
project=$(cd "${PROJECT:-$top}" && pwd)

# The agent's package is fetched with the machine's npm settings; without npm, only npm-registry.sh finds them.
if [ -z "${npm_config_registry:-}" ]; then
    npm_config_registry=$("$top/scripts/npm-registry.sh" 2>/dev/null) || npm_config_registry=
fi
export npm_config_registry

set -- "$top/build/release/bellhop" up ${NAME:+--name "$NAME"} --agent "${AGENT:-opencode}" "$project"
as_root=
[ "$(id -u)" -eq 0 ] ||
    as_root='sudo --preserve-env=npm_config_registry,HTTP_PROXY,HTTPS_PROXY,NO_PROXY,http_proxy,https_proxy,no_proxy'
# shellcheck disable=SC2086 # its words
$as_root "$@"

if ! command -v bellhop >/dev/null 2>&1; then
    echo
    echo "There is no 'bellhop' in your PATH: '${as_root:+sudo }make install' puts it there; till then it is"
    echo "  ${as_root:+sudo }$top/build/release/bellhop"
fi
