# shellcheck shell=sh disable=SC2154,SC2164
version "$(ss --version | sed 's/.*iproute2//')"
start_server
is "who listens on the port" "$(ss -Hltn "sport = :$port" | awk '{ print $1, $4 }')" "LISTEN 127.0.0.1:$port"
kill "$server"
wait "$server" || true
is "who listens on it later" "$(ss -Hltn "sport = :$port")" ""
ip -o link show lo | grep -q 'LOOPBACK' || fail "ip does not show the loopback"
