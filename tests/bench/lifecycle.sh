#!/bin/sh
# The life of a box beside its peers, alternating in one run: create (`up --agent none` of an image, `runc run` and
# `docker run` of the same files), pause and resume from freeze, and start from disk. Each figure is that of a whole
# command, as a person types it. Needs root and an image; without dockerd its rows are left out. snapshot.sh has the
# snapshots. Usage: tests/bench/lifecycle.sh [ROUNDS]
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
rounds=${1:-11}
bellhop=$top/build/release/bellhop
dir=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-bench-XXXXXX")
container=bellhop-bench-$$
ENGINES=$dir/engines
# shellcheck source=tests/lib/engines.sh
. "$top/tests/lib/engines.sh"
# shellcheck source=tests/lib/bench.sh
. "$top/tests/lib/bench.sh"
finish()
{
    for box in $("$bellhop" ls -q 2>/dev/null); do
        "$bellhop" rm "$box" >/dev/null 2>&1 || true
    done
    runc --root "$dir/runc-state" delete --force "$container" 2>/dev/null || true
    stop_engines
    rm -rf --one-file-system "$dir"
}
trap finish EXIT
trap 'exit 1' INT TERM
BELLHOP_STATE_DIR=$dir/state
BELLHOP_CACHE_DIR=${BELLHOP_BENCH_CACHE:-$top/build/cache}
BELLHOP_IMAGE=${BELLHOP_IMAGE:-tests}
export BELLHOP_STATE_DIR BELLHOP_CACHE_DIR BELLHOP_IMAGE
rootfs=$(readlink -f "$top/build/image/$BELLHOP_IMAGE/rootfs")

round_of_bellhop()
{
    timed up "$bellhop" up --name bench --provider oci --agent none --empty
    timed pause "$bellhop" pause bench
    timed resume "$bellhop" resume bench
    "$bellhop" stop bench >/dev/null
    timed start "$bellhop" start bench
    "$bellhop" rm bench >/dev/null
}

round_of_runc()
{
    timed runc-run runc --root "$dir/runc-state" run --detach --bundle "$dir/bundle" "$container"
    timed runc-pause runc --root "$dir/runc-state" pause "$container"
    timed runc-resume runc --root "$dir/runc-state" resume "$container"
    runc --root "$dir/runc-state" delete --force "$container"
}

round_of_docker()
{
    timed docker-run docker run -d --name bench bellhop-bench /usr/bin/sleep 600 &&
        timed docker-pause docker pause bench &&
        timed docker-unpause docker unpause bench &&
        docker stop -t 0 bench >/dev/null &&
        timed docker-start docker start bench
}

mkdir -p "$dir/bundle"
(cd "$dir/bundle" && runc spec && jq --arg root "$rootfs" '.root = {path: $root, readonly: true} |
    .process.terminal = false | .process.args = ["sleep", "600"]' config.json >new && mv new config.json)
has_docker=
if ! command -v dockerd >/dev/null; then
    echo "dockerd is not installed (docker.io): no rows of docker" >&2
elif ! start_dockerd; then
    echo "dockerd does not start: no rows of docker" >&2
else
    tar -C "$rootfs" -c . | docker import - bellhop-bench >/dev/null
    if docker run --rm bellhop-bench /usr/bin/true; then
        has_docker=1
    else
        echo "dockerd does not run the image: no rows of docker" >&2
    fi
fi
# The first box of a cache proves that the runtime works.
"$bellhop" up --name first --provider oci --agent none --empty >/dev/null 2>&1
"$bellhop" rm first >/dev/null
for _ in $(seq "$rounds"); do
    round_of_bellhop
    round_of_runc
    [ -n "$has_docker" ] || continue
    round_of_docker || echo "this round of docker failed" >&2
    docker rm -f bench >/dev/null
done
ratio runc-run "runc run --detach"
ratio docker-run "docker run -d" runc-run
ratio up "bellhop up --agent none" runc-run
ratio runc-pause "runc pause"
ratio docker-pause "docker pause" runc-pause
ratio pause "bellhop pause" runc-pause
ratio runc-resume "runc resume"
ratio docker-unpause "docker unpause" runc-resume
ratio resume "bellhop resume (freeze)" runc-resume
ratio docker-start "docker start"
ratio start "bellhop start (disk)" docker-start
