#!/bin/sh
# A box of an engine beside the engine's own commands, and beside oci, alternating in one run: create to the first
# command, a command, pause and resume, a snapshot, 256 MB in and out by each way to the guest agent; then the memory of
# a box's processes and the bytes of its disk. In a cluster, a bare Pod and kubectl are the peers. Each figure is that
# of whole commands. The image is the same for all. Needs root and an image; without podman, or a cluster that is built
# (`make test-engines`; BELLHOP_KUBERNETES_SLOT), their rows are left out. Usage: tests/bench/engines.sh [ROUNDS [MB]]
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
rounds=${1:-7}
mb=${2:-256}
bellhop=$top/build/release/bellhop
dir=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-bench-XXXXXX")
ENGINES=$dir/engines
# shellcheck source=tests/lib/engines.sh
. "$top/tests/lib/engines.sh"
# shellcheck source=tests/lib/bench.sh
. "$top/tests/lib/bench.sh"
# shellcheck source=tests/lib/bench-kubernetes.sh
. "$top/tests/lib/bench-kubernetes.sh"
finish()
{
    for box in $("$bellhop" ls -q 2>/dev/null); do
        "$bellhop" rm "$box" >/dev/null 2>&1 || true
    done
    for snapshot in $("$bellhop" snapshots ls --json 2>/dev/null | jq -r '.snapshots[].name'); do
        "$bellhop" snapshots rm "$snapshot" >/dev/null 2>&1 || true
    done
    [ -z "${docker:-}" ] || export DOCKER_HOST="$docker"
    kube_stop
    stop_engines
    rm -rf --one-file-system "$dir"
}
trap finish EXIT
trap 'exit 1' INT TERM
BELLHOP_STATE_DIR=$dir/state
BELLHOP_CACHE_DIR=${BELLHOP_BENCH_CACHE:-$top/build/cache}
BELLHOP_IMAGE=${BELLHOP_IMAGE:-tests}
export BELLHOP_STATE_DIR BELLHOP_CACHE_DIR BELLHOP_IMAGE
docker=
podman=
rootless=
kubernetes=

# ---- one round ----

# ready BOX UP-OPTION...: a box, and its first command.
ready()
{
    ready_box=$1
    shift
    "$bellhop" up --name "$ready_box" --agent none --empty "$@" && "$bellhop" exec "$ready_box" -- true
}

docker_ready()
{
    docker run -d --name peer --stop-signal KILL --entrypoint /usr/bin/sleep "$docker_image" 6000 &&
        docker exec peer true
}
podman_ready()
{
    podman run -d --name peer --stop-signal KILL --entrypoint /usr/bin/sleep "$podman_image" 6000 &&
        podman exec peer true
}

# life ROW UP-OPTION...: a box from nothing to its snapshot.
life()
{
    life_row=$1
    shift
    timed "$life_row-ready" ready bench "$@"
    for _ in 1 2 3; do timed "$life_row-exec" "$bellhop" exec bench -- true; done
    timed "$life_row-pause" "$bellhop" pause bench
    timed "$life_row-resume" "$bellhop" resume bench
    "$bellhop" exec bench -- sh -c 'head -c 10000000 /dev/urandom >/tmp/ten'
    timed "$life_row-snapshot" "$bellhop" snapshot bench --name bench
    "$bellhop" rm bench >/dev/null
    "$bellhop" snapshots rm bench >/dev/null
}

# peer_life ENGINE. dockerd 20.10 at times does not see the root of a container that runs: that round is left out.
peer_life()
{
    timed "$1-peer-ready" "$1_ready" &&
        timed "$1-peer-exec" "$1" exec peer true &&
        timed "$1-peer-exec" "$1" exec peer true &&
        timed "$1-peer-exec" "$1" exec peer true &&
        timed "$1-peer-pause" "$1" pause peer &&
        timed "$1-peer-resume" "$1" unpause peer &&
        "$1" exec peer sh -c 'head -c 10000000 /dev/urandom >/tmp/ten' &&
        timed "$1-peer-snapshot" "$1" commit peer peer:one || echo "this round of $1 failed" >&2
    "$1" rm -f peer >/dev/null
    "$1" rmi peer:one >/dev/null 2>&1 || true
}

# move ROW BOX: the file in and out again.
move()
{
    timed "$1-up" "$bellhop" put "$2" "$dir/big" :/tmp
    rm -rf "$dir/back"
    mkdir "$dir/back"
    timed "$1-down" "$bellhop" get "$2" :/tmp/big "$dir/back"
    cmp "$dir/big" "$dir/back/big"
    "$bellhop" exec "$2" -- rm /tmp/big
}

peer_move()
{
    docker run -d --name moves --stop-signal KILL --entrypoint /usr/bin/sleep "$docker_image" 6000 >/dev/null
    timed docker-up docker cp "$dir/big" moves:/tmp/big &&
        timed docker-down docker cp moves:/tmp/big "$dir/out" &&
        cmp "$dir/big" "$dir/out" || echo "this round of docker cp failed" >&2
    docker rm -f moves >/dev/null
    rm -f "$dir/out"
}

id_of() { "$bellhop" status "$1" --json | jq -r .id; }

# goes_by WAY BOX: the bench would say otherwise something of another way.
goes_by() { [ "$(jq -r .way "$BELLHOP_STATE_DIR/boxes/$(id_of "$2")/docker.json")" = "$1" ]; }

# ---- memory and disk ----

rss_kib() { awk '/^Rss:/ { n += $2 } END { print n }' "/proc/$1/smaps_rollup"; }
private_kib() { awk '/^Private_/ { n += $2 } END { print n }' "/proc/$1/smaps_rollup"; }

# The monitor's command line ends with its box's id.
monitor_of()
{
    for pid in $(pgrep -x bellhop-monitor); do
        ! tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q "$1" || echo "$pid"
    done | head -n 1
}

sizes()
{
    id=$(id_of "$1")
    monitor=$(monitor_of "$id")
    agent=$(docker inspect -f '{{.State.Pid}}' "bellhop-$id")
    echo "$2: monitor $(rss_kib "$monitor") KiB resident ($(private_kib "$monitor") its own)," \
        "guest agent $(rss_kib "$agent") KiB ($(private_kib "$agent") its own)"
}

# ---- all ----

engine_of() { export DOCKER_HOST="$1"; }

"$bellhop" image build "$top/tests/lib/image" --form oci >/dev/null
if ! command -v dockerd >/dev/null || ! start_dockerd; then
    echo "dockerd does not start here: there is nothing to compare with" >&2
    exit 0
fi
docker=$DOCKER_HOST
if command -v podman >/dev/null && set_up_podman && start_podman_service; then
    podman=unix://$PODMAN_SOCKET
    ! start_rootless_podman || rootless=unix://$ROOTLESS_PODMAN_SOCKET
fi
head -c $((mb * 1000000)) /dev/urandom >"$dir/big"
# The first box of each engine loads the image, and that of a cache proves that the runtime works.
ready first --provider oci >"$dir/said" 2>&1
ready address --provider docker >"$dir/said" 2>&1
ready exec --provider docker --network none >"$dir/said" 2>&1
goes_by address address
goes_by exec exec
docker_image=$(docker inspect -f '{{.Image}}' "bellhop-$(id_of address)")
if [ -n "$podman" ]; then
    engine_of "$podman"
    ready podman --provider docker >"$dir/said" 2>&1
    podman_image=$(podman inspect -f '{{.Image}}' "bellhop-$(id_of podman)")
    "$bellhop" rm podman >/dev/null
fi
if [ -n "$rootless" ]; then
    engine_of "$rootless"
    ready published --provider docker >"$dir/said" 2>&1
    goes_by published published
fi
engine_of "$docker"
"$bellhop" rm first >/dev/null
if kube_start; then
    kubernetes=1
    kube_reach exec
    ready first --provider kubernetes >"$dir/said" 2>&1
    "$bellhop" rm first >/dev/null
fi
for _ in $(seq "$rounds"); do
    life oci --provider oci
    life docker --provider docker
    peer_life docker
    [ -z "$kubernetes" ] || kube_round
    [ -n "$podman" ] || continue
    engine_of "$podman"
    life podman --provider docker
    peer_life podman
    engine_of "$docker"
done
for _ in 1 2 3; do
    peer_move
    move address address
    move exec exec
    [ -z "$rootless" ] || move published published
    [ -z "$kubernetes" ] || kube_moves
done

ratio docker-peer-ready "docker run -d, docker exec"
ratio docker-ready "up --provider docker, exec (dockerd)" docker-peer-ready
ratio podman-peer-ready "podman run -d, podman exec"
ratio podman-ready "up --provider docker, exec (Podman)" podman-peer-ready
ratio oci-ready "up --provider oci, exec" docker-peer-ready
ratio docker-peer-exec "docker exec ... true"
ratio docker-exec "bellhop exec (dockerd)" docker-peer-exec
ratio podman-peer-exec "podman exec ... true"
ratio podman-exec "bellhop exec (Podman)" podman-peer-exec
ratio oci-exec "bellhop exec (oci)" docker-peer-exec
for verb in pause resume; do
    [ $verb = pause ] && theirs=pause || theirs=unpause
    ratio docker-peer-$verb "docker $theirs"
    ratio docker-$verb "bellhop $verb (dockerd)" docker-peer-$verb
    ratio podman-peer-$verb "podman $theirs"
    ratio podman-$verb "bellhop $verb (Podman)" podman-peer-$verb
    ratio oci-$verb "bellhop $verb (oci)" docker-peer-$verb
done
ratio docker-peer-snapshot "docker commit, 10 MB written"
ratio docker-snapshot "bellhop snapshot (dockerd)" docker-peer-snapshot
ratio podman-peer-snapshot "podman commit, 10 MB written"
ratio podman-snapshot "bellhop snapshot (Podman)" podman-peer-snapshot
ratio oci-snapshot "bellhop snapshot (oci)" docker-peer-snapshot
for verb in up down; do
    [ $verb = up ] && text="into" || text="out of"
    ratio docker-$verb "docker cp $text, $mb MB"
    ratio address-$verb "bellhop, $text, by address" docker-$verb
    ratio published-$verb "bellhop, $text, by published port" docker-$verb
    ratio exec-$verb "bellhop, $text, by exec" docker-$verb
done
kube_rows
sizes address "box of dockerd, by address"
sizes exec "box of dockerd, by exec"
echo "bytes on the disk of a box (SizeRw): $(docker inspect --size -f '{{.SizeRw}}' "bellhop-$(id_of address)")"
[ -z "$kubernetes" ] || kube_sizes
