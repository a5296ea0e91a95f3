# shellcheck shell=sh disable=SC2154,SC2164
version "$(opencode --version)"
opencode serve --port 47777 --hostname 127.0.0.1 >log 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null || true; rm -rf "$here"' EXIT
# A request that is sent too early may never be answered: each has a deadline, and is retried.
within 120 curl -fsS -m 20 -o health.json http://127.0.0.1:47777/global/health
is "opencode's health" "$(jq -c '[.healthy, .version]' health.json)" "[true,\"$(opencode --version)\"]"
curl -fsS -m 300 http://127.0.0.1:47777/doc | jq -e '.openapi | startswith("3")' >/dev/null ||
    fail "opencode's interface is not described"
