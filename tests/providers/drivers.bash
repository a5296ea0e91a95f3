# drivers.bash: the table of the providers that the suite runs against, and their driver without a monitor.
#
# A row: the provider's name | options of `bellhop up` for it | options of the driver for it (the keys of drive.c) |
# the engine that it needs, if any (a case of start_engines, use_engine, first_pid and engine_objects)

DRIVERS=(
    'oci|--provider oci|network=none|'
    'process|--provider process||'
)
DRIVER_DOCKER=('docker|--provider docker|network=user|docker')
DRIVER_PODMAN=('docker|--provider docker|network=user|podman')
DRIVERS_ROOTLESS=(
    'docker|--provider docker|network=user|rootless_docker'
    'docker|--provider docker|network=user|rootless_podman'
)
# By the kubeconfig, and by kubectl's proxy and the pods' own addresses.
DRIVERS_KUBERNETES=(
    'kubernetes|--provider kubernetes|network=user|kubernetes'
    'kubernetes|--provider kubernetes|network=user|kubernetes_proxy'
)

DRIVERS_KUBERNETES_POOL=('kubernetes|--provider kubernetes --pool bellhop|pool=bellhop|kubernetes_pool')

load ../lib/engine_objects

BELLHOP_BUILD=${BELLHOP_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
REPO=$BATS_TEST_DIRNAME/../..
IMAGE_DIR=${IMAGE_DIR:-$(readlink -f "$REPO/build/image/tests")}
AGENT=${AGENT:-$(readlink -f "$BELLHOP_BUILD/bellhopd")}

# build_drive: for setup_file. Sets DRIVE.
build_drive()
{
    DRIVE=$BATS_FILE_TMPDIR/drive
    export DRIVE
    # shellcheck disable=SC2046
    gcc -D_GNU_SOURCE -std=gnu11 -O1 -I"$REPO/guest" -I"$REPO/host-client" \
        -I"$REPO/host-client/include" -o "$DRIVE" "$REPO/tests/providers/drive.c" \
        "$BELLHOP_BUILD/libbellhop.a" \
        $(pkg-config --libs libcurl jansson libarchive sqlite3 nettle) -pthread
}

# start_engines: for setup_file. The engines of all rows.
start_engines()
{
    local engine

    export ENGINES=$BATS_FILE_TMPDIR/engines
    . "$REPO/tests/lib/engines.sh"
    for engine in $(printf '%s\n' "${DRIVERS[@]}" | cut -d '|' -f 4); do
        "$BELLHOP_BUILD/bellhop" image build "$REPO/tests/lib/image" --form oci >/dev/null
        case $engine in
        docker)
            start_dockerd
            DOCKER_SOCKET=$ENGINES/docker/sock
            export DOCKER_SOCKET
            ;;
        podman)
            set_up_podman
            start_podman_service
            ;;
        rootless_docker) start_rootless_dockerd ;;
        rootless_podman) start_rootless_podman ;;
        kubernetes) start_boxes_cluster --nodes "${KUBERNETES_NODES:-2}" ;;
        kubernetes_pool)
            start_boxes_cluster --agent-sandbox --nodes "${KUBERNETES_NODES:-2}"
            start_pool
            ;;
        kubernetes_proxy) start_kubectl_proxy ;;
        esac
    done
    unset DOCKER_HOST
}

# stop_all_engines: for teardown_file.
stop_all_engines()
{
    [ -z "${KUBE_NAMESPACE:-}" ] || stop_boxes_cluster
    [ -d "${ENGINES:-}" ] || return 0
    . "$REPO/tests/lib/engines.sh"
    [ -z "${DOCKER_SOCKET:-}" ] || export DOCKER_HOST=unix://$DOCKER_SOCKET
    stop_engines
}

# use_engine ENGINE: the commands and the driver use it.
use_engine()
{
    local socket

    unset DOCKER_HOST
    case $1 in
    kubernetes | kubernetes_pool | kubernetes_proxy)
        use_cluster "$1"
        return
        ;;
    docker) socket=$DOCKER_SOCKET ;;
    podman) socket=$PODMAN_SOCKET ;;
    rootless_docker) socket=$ROOTLESS_DOCKER_SOCKET ;;
    rootless_podman) socket=$ROOTLESS_PODMAN_SOCKET ;;
    *) return 0 ;;
    esac
    export DOCKER_HOST=unix://$socket
}

# first_pid ID: the box's first process on this machine; fails if it does not run.
first_pid()
{
    case $engine in
    kubernetes*) kube_pid "$1" ;;
    *) drive pid "$1" ;;
    esac
}

# engine_objects: containers, images, volumes and networks of this state directory in the engine in force, or its
# Kubernetes objects. Without a mark it has made none. An engine that does not answer prints that, and fails.
engine_objects()
{
    local mark

    [ -n "$engine" ] && [ -e "$BELLHOP_STATE_DIR/mark" ] || return 0
    mark=dev.bellhop.store=$(cat "$BELLHOP_STATE_DIR/mark")
    case $engine in
    kubernetes*) kube_list "$mark" ;;
    *) engine_list "${DOCKER_HOST#unix://}" "$mark" ;;
    esac
}

kube_list() # [LABEL]
{
    kube get namespace "$KUBE_NAMESPACE" >/dev/null || {
        echo "no answer from the cluster"
        return 1
    }
    kube_objects "$@"
}

# use_driver ROW: sets PROVIDER, UP, DRIVE_OPTIONS and engine.
use_driver()
{
    local options

    IFS='|' read -r PROVIDER options DRIVE_OPTIONS engine <<<"$1"
    read -r -a UP <<<"$options"
    echo "provider: $PROVIDER $engine"
    use_engine "$engine"
}

# each_driver CASE: runs it for each row.
each_driver()
{
    local row engine

    for row in "${DRIVERS[@]}"; do
        use_driver "$row"
        "$1"
        clear_boxes
    done
}

# each_driver_at_once CASE: the same for a case that waits for long. Each row has a state directory of its own.
each_driver_at_once()
{
    local row engine pid pids=() failed=0

    for row in "${DRIVERS[@]}"; do
        (
            export BELLHOP_STATE_DIR=$BOX_TMP/state-${#pids[@]}
            mkdir -m 0700 "$BELLHOP_STATE_DIR"
            trap 'rm -f "$BELLHOP_STATE_DIR/fault"; bellhop ls -q | xargs -r "$BELLHOP" rm -f >/dev/null' EXIT
            use_driver "$row"
            "$1"
            clear_boxes
        ) >"$BOX_TMP/at-once-${#pids[@]}" 2>&1 3>&- 4>&- &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || failed=1
    done
    [ "$failed" -eq 0 ] || fail "$(cat "$BOX_TMP"/at-once-*)"
}
