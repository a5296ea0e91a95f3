#!/bin/sh
# The life of a box beside its peers, alternating in one run: create (`up --agent none` of an image, `runc run` and
# `docker run` of the same files), pause and resume from freeze, start from disk, and snapshot, second snapshot,
# `up --from` and restore of 80,000 files (`docker commit`, `docker run`). Each figure is that of a whole command, as a
# person types it. Needs root and an image; without dockerd its rows are left out.
# Usage: [FILES=80000] tests/bench/lifecycle.sh [ROUNDS [ROUNDS OF SNAPSHOTS]]
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
rounds=${1:-11}
snapshot_rounds=${2:-1}
files=${FILES:-80000}
bellhop=$top/build/release/bellhop
dir=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-bench-XXXXXX")
container=bellhop-bench-$$
ENGINES=$dir/engines
# shellcheck source=tests/lib/engines.sh
. "$top/tests/lib/engines.sh"
finish()
{
    for box in $("$bellhop" ls -q 2>/dev/null); do
        "$bellhop" rm "$box" >/dev/null 2>&1 || true
    done
    "$bellhop" snapshots rm first second >/dev/null 2>&1 || true
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

# timed ROW COMMAND...
timed()
{
    row=$1
    shift
    began=$(date +%s%N)
    "$@" >"$dir/said" 2>&1 </dev/null || { cat "$dir/said" >&2; return 1; }
    echo $((($(date +%s%N) - began) / 1000)) >>"$dir/row.$row"
}

# ratio ROW TEXT [PEER]: the median of a row, and its ratio to the median of PEER.
ratio()
{
    [ -s "$dir/row.$1" ] || return 0
    sort -n "$dir/row.$1" | awk -v text="$2" -v peer="$(median "${3:-$1}")" '{ t[NR] = $1 } END {
        p50 = t[int((NR + 1) / 2)]
        ratio = peer == "" || peer == p50 ? "" : sprintf("   %.2f times", p50 / peer)
        printf "%-44s p50 %8.1f ms   least %8.1f ms   (%d runs)%s\n", text, p50 / 1000, t[1] / 1000, NR, ratio }'
}

median() { sort -n "$dir/row.$1" 2>/dev/null | awk '{ t[NR] = $1 } END { print t[int((NR + 1) / 2)] }'; }

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
    timed docker-run docker run -d --name bench bellhop-bench /usr/bin/sleep 600
    timed docker-pause docker pause bench
    timed docker-unpause docker unpause bench
    docker kill bench >/dev/null
    timed docker-start docker start bench
    docker rm -f bench >/dev/null
}

# Files of 1,000 bytes in directories of 1,000.
fill='
import os, sys
for i in range(int(sys.argv[1])):
    if i % 1000 == 0:
        os.makedirs(f"files/{i // 1000}")
    with open(f"files/{i // 1000}/{i % 1000}", "w") as f:
        f.write("x" * 1000)
'

snapshots_of_bellhop()
{
    "$bellhop" up --name bench --provider oci --agent none --empty >/dev/null 2>&1
    "$bellhop" exec bench -- python3 -c "$fill" "$files"
    timed snapshot "$bellhop" snapshot bench --name first
    "$bellhop" exec bench -- sh -c 'echo changed >files/0/1'
    timed snapshot-again "$bellhop" snapshot bench --name second
    timed up-from "$bellhop" up --from second --name from
    timed restore "$bellhop" restore bench first
    "$bellhop" rm bench from >/dev/null
    "$bellhop" snapshots rm first second >/dev/null
}

snapshots_of_docker()
{
    docker run -d --name bench bellhop-bench /usr/bin/sleep 600 >/dev/null
    docker exec -w /root bench /usr/bin/python3 -c "$fill" "$files"
    timed commit docker commit bench first
    docker exec -w /root bench /bin/sh -c 'echo changed >files/0/1'
    timed commit-again docker commit bench second
    timed run-from docker run -d --name from second /usr/bin/sleep 600
    docker rm -f bench from >/dev/null
    docker rmi -f first second >/dev/null
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
    has_docker=1
fi
# The first box of a cache proves that the runtime works.
"$bellhop" up --name first --provider oci --agent none --empty >/dev/null 2>&1
"$bellhop" rm first >/dev/null
for _ in $(seq "$rounds"); do
    round_of_bellhop
    round_of_runc
    [ -z "$has_docker" ] || round_of_docker
done
for _ in $(seq "$snapshot_rounds"); do
    snapshots_of_bellhop
    [ -z "$has_docker" ] || snapshots_of_docker
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
ratio commit "docker commit, $files files"
ratio snapshot "bellhop snapshot, $files files" commit
ratio commit-again "docker commit, one file changed since"
ratio snapshot-again "bellhop snapshot, one file changed since" commit-again
ratio run-from "docker run -d of the commit"
ratio up-from "bellhop up --from the snapshot" run-from
ratio restore "bellhop restore" run-from
