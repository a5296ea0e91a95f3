#!/bin/sh
# The daemon under a steady load of calls, streams of events, gateway, terminals and lives of boxes: prints its
# descriptors, threads and memory once a minute, and fails if they grow. The load pauses while they are read.
# Usage: tests/long/soak-daemon.sh [MINUTES]
set -eu

minutes=${1:-20}
top=$(cd "$(dirname "$0")/../.." && pwd)
bin=${BELLHOP_BUILD:-$top/build/release}
dir=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-soak-XXXXXX")
export BELLHOP_STATE_DIR="$dir/state" BELLHOP_CACHE_DIR="$dir/cache" HOME="$dir/home"
daemon=''
cleanup()
{
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    wait 2>/dev/null || true
    for name in $("$bin/bellhop" ls -q 2>/dev/null); do
        "$bin/bellhop" rm "$name" >/dev/null 2>&1 || true
    done
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir "$dir/home"
mkfifo "$dir/ready"
"$bin/bellhop-daemon" --state-dir "$dir/state" --cache-dir "$dir/cache" --socket "$dir/sock" \
    --ready-fd 3 3>"$dir/ready" &
daemon=$!
read -r _ <"$dir/ready"
python3 "$top/tests/lib/soak_daemon.py" "$dir/sock" "$daemon" "$minutes"
