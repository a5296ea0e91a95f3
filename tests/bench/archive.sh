#!/bin/sh
# Archives against zstd and tar, alternating, on tmpfs: a tar.zst of the Linux source up (from the
# first byte sent to the reply) against `zstd -dc | tar x`, and the tree down as tar.zst against
# `tar c | zstd`. Prints the median times and ours / the peer's.
# Usage: tests/bench/archive.sh [ROUNDS]
set -eu

rounds=${1:-3}
top=$(cd "$(dirname "$0")/../.." && pwd)
shm=${BENCH_DIR:-/dev/shm}
packed=$top/build/cache/linux/linux.tar.zst

if [ ! -e "$packed" ]; then
    tarball=$("$top/tests/lib/linux-source.sh")
    xz -dc "$tarball" | zstd -q -3 -o "$packed.new"
    mv "$packed.new" "$packed"
fi

dir=$(mktemp -d "$shm/bellhop-bench-XXXXXX")
agent=
cleanup()
{
    [ -z "$agent" ] || kill "$agent" 2>/dev/null || true
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
url=http://$(jq -r '.tcp[0]' <"$dir/ready")

# measure FILE COMMAND...: appends the milliseconds it takes
measure()
{
    out=$1
    shift
    start=$(date +%s%N)
    "$@"
    echo $((($(date +%s%N) - start) / 1000)) >>"$out"
}

call() { curl -sSf -o "$dir/reply" -H "Authorization: Bearer $(cat "$dir/token")" "$@"; }
up_ours() { call "$url/v1/archive?path=$dir/ours" -T "$packed"; }
up_peer()
{
    mkdir "$dir/peer"
    zstd -dc "$packed" | tar -x -C "$dir/peer"
}
down_ours() { call "$url/v1/archive?path=$dir/tree&format=tar.zst"; }
down_peer() { tar -C "$dir/tree" -c . | zstd -q -3 >"$dir/reply"; }

median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
compare()
{
    awk -v n="$1" -v a="$(median "$2")" -v b="$(median "$3")" \
        'BEGIN { printf "%-44s %8.0f ms  %8.0f ms  ratio %.2f\n", n, a / 1000, b / 1000, a / b }'
}

cat "$packed" >/dev/null
printf '%-44s %11s  %11s\n' what ours peer
for _ in $(seq "$rounds"); do
    rm -rf "$dir/ours" "$dir/peer"
    measure "$dir/up.a" up_ours
    measure "$dir/up.b" up_peer
done
diff -rq --no-dereference "$dir/ours" "$dir/peer" >/dev/null || echo "the trees differ" >&2
compare 'Linux tar.zst up / zstd -dc | tar x' "$dir/up.a" "$dir/up.b"
rm -rf "$dir/peer"
mv "$dir/ours" "$dir/tree"
for _ in $(seq "$rounds"); do
    measure "$dir/down.a" down_ours
    measure "$dir/down.b" down_peer
done
compare 'Linux down as tar.zst / tar c | zstd -3' "$dir/down.a" "$dir/down.b"
