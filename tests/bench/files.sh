#!/bin/sh
# One large file down and up over HTTP, against nginx (sendfile; dav for PUT), alternating, on tmpfs.
# Prints the median times and ours / the peer's. nginx runs here on a free port, as this user.
# Usage: tests/bench/files.sh [ROUNDS [MEGABYTES]]
set -eu

rounds=${1:-5}
megabytes=${2:-1024}
top=$(cd "$(dirname "$0")/../.." && pwd)
shm=${BENCH_DIR:-/dev/shm}
cache=$top/build/cache/nginx

nginx=$(command -v nginx || true)
if [ -z "$nginx" ]; then
    nginx=$cache/usr/sbin/nginx
    if [ ! -x "$nginx" ]; then # unpacked, not installed: installing would start a service
        mkdir -p "$cache"
        (cd "$cache" && apt-get -q download nginx >/dev/null 2>&1 && dpkg -x nginx_*.deb . && rm nginx_*.deb)
    fi
fi

dir=$(mktemp -d "$shm/bellhop-bench-XXXXXX")
agent='' peer=''
cleanup()
{
    [ -z "$agent" ] || kill "$agent" 2>/dev/null || true
    [ -z "$peer" ] || kill "$peer" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

umask 077
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/token"
mkfifo "$dir/ready"
"$top/build/release/bellhopd" --listen 127.0.0.1:0 --token-file "$dir/token" --ready-fd 3 \
    3>"$dir/ready" 2>"$dir/log" &
agent=$!
ours=http://$(jq -r '.tcp[0]' <"$dir/ready")

mkdir "$dir/www" "$dir/tmp" "$dir/ours"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$dir/nginx.conf" <<END
daemon off;
worker_processes 2;
pid $dir/nginx.pid;
error_log $dir/nginx.log;
events { worker_connections 64; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_max_body_size 0;
    client_body_temp_path $dir/tmp;
    proxy_temp_path $dir/tmp;
    fastcgi_temp_path $dir/tmp;
    uwsgi_temp_path $dir/tmp;
    scgi_temp_path $dir/tmp;
    server {
        listen 127.0.0.1:$port;
        root $dir/www;
        location / { dav_methods PUT; }
    }
}
END
[ "$(id -u)" != 0 ] || sed -i '1i user root;' "$dir/nginx.conf"
"$nginx" -p "$dir" -e "$dir/nginx.log" -c "$dir/nginx.conf" &
peer=$!
theirs=http://127.0.0.1:$port

head -c "${megabytes}M" /dev/urandom >"$dir/www/large"
for _ in $(seq 100); do
    curl -sSf -o /dev/null -r 0-0 "$theirs/large" 2>/dev/null && break
    sleep 0.05
done

# measure FILE COMMAND...: appends the microseconds it takes
measure()
{
    out=$1
    shift
    start=$(date +%s%N)
    "$@"
    echo $((($(date +%s%N) - start) / 1000)) >>"$out"
}

call() { curl -sSf -o /dev/null -H "Authorization: Bearer $(cat "$dir/token")" "$@"; }
down_ours() { call "$ours/v1/files/$dir/www/large"; }
down_peer() { call "$theirs/large"; }
up_ours() { call "$ours/v1/files/$dir/ours/up" -T "$dir/www/large"; }
up_peer() { call "$theirs/up" -T "$dir/www/large"; }

median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
compare()
{
    awk -v n="$1" -v a="$(median "$2")" -v b="$(median "$3")" 'BEGIN {
        printf "%-44s %10.1f ms %10.1f ms %7.2f\n", n, a / 1000, b / 1000, a / b }'
}

head -c 4096 /dev/urandom >"$dir/www/small"
for _ in $(seq "$rounds"); do
    measure "$dir/down.ours" down_ours
    measure "$dir/down.peer" down_peer
    measure "$dir/up.ours" up_ours
    measure "$dir/up.peer" up_peer
    cmp -s "$dir/www/large" "$dir/ours/up" || { echo "what went up is not what is there" >&2; exit 1; }
    rm "$dir/ours/up" "$dir/www/up"
done
# Many small files on one connection: the cost of a request.
url_list()
{
    for _ in $(seq 500); do
        printf 'url="%s"\noutput=/dev/null\n' "$1"
    done
}
url_list "$ours/v1/files/$dir/www/small" >"$dir/list.ours"
url_list "$theirs/small" >"$dir/list.peer"
for _ in $(seq "$rounds"); do
    measure "$dir/small.ours" curl -sSf -H "Authorization: Bearer $(cat "$dir/token")" -K "$dir/list.ours"
    measure "$dir/small.peer" curl -sSf -H "Authorization: Bearer $(cat "$dir/token")" -K "$dir/list.peer"
done

printf '%-44s %13s %13s %7s\n' "what" "ours" "nginx" "ratio"
compare "$megabytes MB down" "$dir/down.ours" "$dir/down.peer"
compare "$megabytes MB up" "$dir/up.ours" "$dir/up.peer"
compare "500 files of 4 KB down, one connection" "$dir/small.ours" "$dir/small.peer"
