#!/bin/sh
# Snapshots of a box with 80,000 changed files, beside `docker commit` of the same files: the first, a second one after
# 100 changes, a box from it, and a restore. The rounds alternate. Each figure is that of a whole command. The first
# snapshot reads and writes every file and leaves the box running; docker commit has to pause the container. Needs root
# and an image; without dockerd its rows are left out. On a disk whose latency varies, take the least. (On a tmpfs
# the second snapshot shares no files with the first.)
# Usage: tests/bench/snapshot.sh [ROUNDS [FILES]]
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
rounds=${1:-3}
files=${2:-80000}
bellhop=$top/build/release/bellhop
dir=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-bench-XXXXXX")
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

# The same files for both: in 400 directories, a few bytes each, every tenth of 4 KiB.
make_files="set -e; cd /tmp; n=$files; head -c 4096 /dev/urandom | base64 | head -c 4096 >big
    mkdir t; cd t; for d in \$(seq 400); do mkdir \$d; done
    seq \$n | while read -r i; do
        if [ \$((i % 10)) = 0 ]; then cat ../big; else echo \$i; fi >\$((i % 400 + 1))/\$i
    done"
change_files="cd /tmp/t; for i in \$(seq 100); do echo changed >\$((i % 400 + 1))/\$i; done"

round_of_bellhop()
{
    "$bellhop" up --name bench --provider oci --network none --agent none --empty >/dev/null 2>&1
    "$bellhop" exec bench -- bash -c "$make_files"
    timed first "$bellhop" snapshot bench --name first
    "$bellhop" exec bench -- bash -c "$change_files"
    timed second "$bellhop" snapshot bench --name second
    timed from "$bellhop" up --from second --name made
    [ "$("$bellhop" exec made -- bash -c 'find /tmp/t -type f | wc -l')" -eq "$files" ]
    timed restore "$bellhop" restore made first
    "$bellhop" stop made >/dev/null
    timed stopped "$bellhop" restore made second
    timed verify "$bellhop" snapshots verify second
    "$bellhop" rm bench made >/dev/null
    du -s --block-size=1K "$BELLHOP_STATE_DIR/snapshots" | cut -f 1 >"$dir/kib"
    "$bellhop" snapshots rm first second >/dev/null
}

round_of_docker()
{
    docker run -d --name bench --network none bellhop-bench /usr/bin/sleep 600 >/dev/null
    docker exec bench bash -c "$make_files"
    timed commit docker commit bench bench:first
    docker exec bench bash -c "$change_files"
    timed commit-again docker commit bench bench:second
    timed docker-from docker run -d --name made --network none bench:second /usr/bin/sleep 600
    docker rm -f bench made >/dev/null
    docker rmi bench:first bench:second >/dev/null
}

has_docker=
if ! command -v dockerd >/dev/null; then
    echo "dockerd is not installed (docker.io): no rows of docker" >&2
elif ! start_dockerd; then
    echo "dockerd does not start: no rows of docker" >&2
else
    tar -C "$rootfs" -c . | docker import - bellhop-bench >/dev/null
    has_docker=1
fi
for _ in $(seq "$rounds"); do
    round_of_bellhop
    [ -z "$has_docker" ] || round_of_docker
done
echo "$files files:"
ratio commit "docker commit"
ratio first "bellhop snapshot" commit
ratio commit-again "docker commit, 100 files changed"
ratio second "bellhop snapshot, 100 files changed" commit-again
ratio docker-from "docker run of it"
ratio from "bellhop up --from" docker-from
ratio restore "bellhop restore (stop, restore, start)"
ratio stopped "bellhop restore (of a stopped box)"
ratio verify "bellhop snapshots verify"
echo "both snapshots on the disk: $(cat "$dir/kib") KiB"
