#!/bin/sh
# The daemon's gateway: 1 GB of a file and of a server in a box, through it and directly, beside nginx and Caddy as
# reverse proxies of the same server; and the latency that each adds. All on the unix socket or loopback, alternating.
# Prints medians and ratios.
# Usage: tests/bench/gateway.sh [ROUNDS [MEGABYTES]]
set -eu

rounds=${1:-5}
megabytes=${2:-1024}
top=$(cd "$(dirname "$0")/../.." && pwd)
shm=${BENCH_DIR:-/dev/shm}
cache=$top/build/cache/peers
bin=$top/build/release

# program NAME PATH PACKAGE: the installed one, or unpacked, not installed: installing would start a service.
program()
{
    command -v "$1" && return
    if [ ! -x "$cache/$2" ]; then
        mkdir -p "$cache"
        (cd "$cache" && apt-get -q download "$3" >/dev/null 2>&1 && dpkg -x "$3"_*.deb . && rm "$3"_*.deb)
    fi
    echo "$cache/$2"
}
nginx=$(program nginx usr/sbin/nginx nginx)
caddy=$(program caddy usr/bin/caddy caddy)

dir=$(mktemp -d "$shm/bellhop-bench-XXXXXX")
export BELLHOP_STATE_DIR="$dir/state" BELLHOP_CACHE_DIR="$dir/cache" HOME="$dir/home"
daemon='' peer='' server='' second=''
cleanup()
{
    "$bin/bellhop" rm one >/dev/null 2>&1 || true
    for pid in $daemon $peer $server $second; do
        kill "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

free_port()
{
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

mkdir "$dir/project" "$dir/www" "$dir/tmp" "$dir/home"
"$bin/bellhop" up --provider process --agent none --name one "$dir/project" >/dev/null 2>&1
work=$("$bin/bellhop" exec one -- pwd)
agent=$("$bin/bellhop" status one --json | jq -r .guest.socket)
token=$(cat "$(dirname "$(dirname "$agent")")/token")
mkfifo "$dir/ready"
"$bin/bellhop-daemon" --state-dir "$dir/state" --cache-dir "$dir/cache" --socket "$dir/sock" \
    --ready-fd 3 3>"$dir/ready" &
daemon=$!
read -r _ <"$dir/ready"

# The server in the box is nginx, too; the provider "process" has no network of its own.
inner=$(free_port)
for role in server peer; do
    cat >"$dir/$role.conf" <<END
daemon off;
worker_processes 2;
pid $dir/$role.pid;
error_log $dir/$role.log;
events { worker_connections 256; }
http {
    access_log off;
    sendfile on;
    client_max_body_size 0;
    client_body_temp_path $dir/tmp;
    proxy_temp_path $dir/tmp;
    fastcgi_temp_path $dir/tmp;
    uwsgi_temp_path $dir/tmp;
    scgi_temp_path $dir/tmp;
    server {
END
    [ "$(id -u)" != 0 ] || sed -i '1i user root;' "$dir/$role.conf"
done
printf 'listen 127.0.0.1:%s; root %s; location = /small { return 200 ok; } } }\n' "$inner" "$dir/www" \
    >>"$dir/server.conf"
# As a gateway: no buffering on disk, HTTP/1.1 to the server.
printf 'listen unix:%s; location / { proxy_pass http://127.0.0.1:%s; proxy_buffering off; proxy_http_version 1.1;
    proxy_request_buffering off; } } }\n' "$dir/nginx.sock" "$inner" >>"$dir/peer.conf"
"$nginx" -p "$dir" -e "$dir/server.log" -c "$dir/server.conf" &
server=$!
"$nginx" -p "$dir" -e "$dir/peer.log" -c "$dir/peer.conf" &
peer=$!
# As a gateway, too: what comes is passed on at once.
cat >"$dir/Caddyfile" <<END
{
    admin off
    auto_https off
}
http://x {
    bind unix/$dir/caddy.sock
    reverse_proxy 127.0.0.1:$inner {
        flush_interval -1
    }
}
END
"$caddy" run --config "$dir/Caddyfile" --adapter caddyfile >"$dir/caddy.log" 2>&1 &
second=$!
head -c "${megabytes}M" /dev/urandom >"$work/large"
ln "$work/large" "$dir/www/large" 2>/dev/null || cp "$work/large" "$dir/www/large"
for socket in nginx caddy; do
    for _ in $(seq 200); do
        curl -sSf -o /dev/null --unix-socket "$dir/$socket.sock" http://x/small 2>/dev/null && break
        sleep 0.05
    done
done

measure() # FILE COMMAND...: appends the microseconds it takes
{
    file=$1
    shift
    begin=$(date +%s%N)
    "$@"
    echo $((($(date +%s%N) - begin) / 1000)) >>"$file"
}

get() { curl -sSf -o /dev/null "$@"; }
through() { get --unix-socket "$dir/sock" "http://x/v1/boxes/one/$1"; }
direct() { get --unix-socket "$agent" -H "Authorization: Bearer $token" "http://x$1"; }
send_through() { get -T "$work/large" --unix-socket "$dir/sock" http://x/v1/boxes/one/files/up; }
send_direct() { get -T "$work/large" --unix-socket "$agent" -H "Authorization: Bearer $token" http://x/v1/files/up; }
median() { sort -n "$1" | sed -n "$(($(wc -l <"$1") / 2 + 1))p"; }

for _ in $(seq "$rounds"); do
    measure "$dir/file.direct" direct /v1/files/large
    measure "$dir/file.through" through files/large
    measure "$dir/up.direct" send_direct
    measure "$dir/up.through" send_through
    measure "$dir/port.server" get "http://127.0.0.1:$inner/large"
    measure "$dir/port.direct" direct "/v1/proxy/$inner/large"
    measure "$dir/port.through" through "proxy/$inner/large"
    measure "$dir/port.nginx" get --unix-socket "$dir/nginx.sock" http://x/large
    measure "$dir/port.caddy" get --unix-socket "$dir/caddy.sock" http://x/large
done
ratio() # TEXT FILE BASE: the speed of FILE as a part of that of BASE
{
    awk -v a="$(median "$dir/$2")" -v b="$(median "$dir/$3")" -v mb="$megabytes" -v t="$1" \
        'BEGIN { printf "%-58s %6.0f MB/s  %.2f\n", t, mb * 1e6 / a, b / a }'
}
ratio "file down, the agent's socket" file.direct file.direct
ratio "file down, gateway / the agent's socket" file.through file.direct
ratio "file up, the agent's socket" up.direct up.direct
ratio "file up, gateway / the agent's socket" up.through up.direct
ratio "port, the server itself" port.server port.server
ratio "port, nginx / the server itself" port.nginx port.server
ratio "port, Caddy / the server itself" port.caddy port.server
ratio "port, the agent's proxy / the server itself" port.direct port.server
ratio "port, gateway / the agent's proxy" port.through port.direct
ratio "port, gateway / nginx" port.through port.nginx
ratio "port, gateway / Caddy" port.through port.caddy

# One connection, one request after the other.
python3 - "$dir" "$agent" "$token" "$inner" <<'P'
import http.client, socket, statistics, sys, time
dir, agent, token, port = sys.argv[1:]
class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("x")
        self.path = path
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)
ways = {
    "agent": (Unix(agent), "/v1/health"), "gateway": (Unix(dir + "/sock"), "/v1/boxes/one/files/small"),
    "agent file": (Unix(agent), "/v1/files/small"),
    "server": (http.client.HTTPConnection("127.0.0.1", int(port)), "/small"),
    "nginx": (Unix(dir + "/nginx.sock"), "/small"),
    "caddy": (Unix(dir + "/caddy.sock"), "/small"),
    "agent port": (Unix(agent), f"/v1/proxy/{port}/small"),
    "gateway port": (Unix(dir + "/sock"), f"/v1/boxes/one/proxy/{port}/small")}
times = {name: [] for name in ways}
head = {"Authorization": "Bearer " + token}
for name in ("gateway",):
    c, path = ways[name]
    c.request("PUT", path, b"ok")
    c.getresponse().read()
for i in range(1200):
    for name, (c, path) in ways.items():
        begin = time.perf_counter()
        c.request("GET", path, headers=head if name.startswith("agent") else {})
        c.getresponse().read()
        if i >= 200:
            times[name].append(time.perf_counter() - begin)
ms = {name: statistics.median(t) * 1000 for name, t in times.items()}
print(f"median of a small file: the agent {ms['agent file']:.3f} ms, gateway {ms['gateway']:.3f} ms: "
      f"it adds {ms['gateway'] - ms['agent file']:.3f} ms")
print(f"median of a small page: the server {ms['server']:.3f} ms, nginx {ms['nginx']:.3f} ms, "
      f"Caddy {ms['caddy']:.3f} ms, the agent's proxy "
      f"{ms['agent port']:.3f} ms, gateway {ms['gateway port']:.3f} ms: "
      f"it adds {ms['gateway port'] - ms['agent port']:.3f} ms")
P
