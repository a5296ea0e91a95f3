#!/usr/bin/env bats
# engines-only
# early
# turn: kubernetes
# time-limit: 2400
# needs: image
# An API server that fails, hangs and loses answers, and nodes that lose an image or fill a disk, with real pods: the
# error is typed, an event has the cause, and nothing is left. tests/lib/engine_proxy.py stands before kubectl's proxy.

load ../lib/box
load ../lib/kubernetes
load ../lib/faulty_engine
bats_require_minimum_version 1.5.0

TOP=$BATS_TEST_DIRNAME/../..

# The nodes see the mounts that are there when they start.
SMALL_DISK=$BATS_FILE_TMPDIR/small-disk
setup_file()
{
    find_cluster || return 0
    "$BELLHOP_BUILD/bellhop" image build "$TOP/tests/lib/image" --form oci >/dev/null
    mkdir -p "$SMALL_DISK"
    mount -t tmpfs -o size=32m,mode=0777 tmpfs "$SMALL_DISK"
    start_boxes_cluster
    start_kubectl_proxy
}

teardown_file()
{
    [ -z "$NO_CLUSTER" ] || return 0
    stop_boxes_cluster
    umount -l "$SMALL_DISK"
}

setup()
{
    need_cluster
    box_setup
    mkdir -m 0700 "$BELLHOP_STATE_DIR"
    SOCKET=$BOX_TMP/proxy
    python3 "$TOP/tests/lib/engine_proxy.py" "$SOCKET" "$KUBE_PROXY" "$BOX_TMP/fault" >"$BOX_TMP/ready" 3>&- 4>&- &
    PROXY=$!
    wait_for 10 grep -q ready "$BOX_TMP/ready"
    export KUBECONFIG="proxy:$SOCKET?reach=address"
}

teardown()
{
    local status=0

    [ -z "$NO_CLUSTER" ] || return 0
    mend
    box_teardown || status=1
    end_now "$PROXY"
    wait_until 20 nothing_left || status=1
    return "$status"
}

up() { bellhop up --name one --provider kubernetes --agent none --empty --json "$@"; }

make_box() # [OPTION...]
{
    up "$@" >"$BOX_TMP/up" 2>"$BOX_TMP/up.err" || fail "$(cat "$BOX_TMP/up" "$BOX_TMP/up.err")"
    ID=$(info .id)
    BOX_IDS+=("$ID")
}

# outcome WHAT FAULT: of `run`: success, or a typed error in plain text; deadline_exceeded is for the faults that hang.
outcome()
{
    [ "$status" -lt 128 ] || fail "$1: status $status: $output" || return
    json_is 'type == "object"' <<<"$output" || fail "$1: status $status: no document: $output" || return
    [ "$status" -ne 0 ] || return 0
    json_is --arg fault "$2" '.error | (.code | IN("unavailable", "deadline_exceeded", "data_loss")) and
        ((.code == "deadline_exceeded") <= ($fault == "hang")) and
        (.message | length > 0 and (test("[\u0000-\u001f\u007f]| $") | not))' <<<"$output" || fail "$1: $status $output"
}

# The request of an up that goes wrong. Dry runs decide before there is a box.
PATHS='/api/v1/namespaces/boxes'
STEPS=(
    "^POST $PATHS/pods\\?dryRun"
    "^POST $PATHS/secrets\$"
    "^POST $PATHS/persistentvolumeclaims\$"
    "^POST $PATHS/pods\$"
    "^GET $PATHS/pods"
)

# up_under_fault FAULT TIMES STEP
up_under_fault()
{
    local what="$*" position timeout=120s

    position=$(bellhop events --json | jq '.events[-1].position // 0')
    [ "$1" != hang ] || timeout=20s
    broken "$1" "$3" "$2"
    BELLHOP_PROVIDER_TIMEOUT=$timeout run --separate-stderr up
    is_hit || fail "$what: no such request was sent: $output"
    mend
    echo "$what: $status $(jq -c '.error | .code, .message' <<<"$output" | tr '\n' ' ')"
    outcome "$what" "$1"
    if [ "$status" -eq 0 ]; then
        [ "$(bellhop exec one -- echo there)" = there ]
        [ "$(kube_objects | wc -l)" -eq 3 ] || fail "$what: the objects are $(kube_objects)"
        bellhop rm one
    else
        [ "$2" -gt 1 ] || [ "$1" = hang ] || fail "$what: one fault alone: $output"
        [[ "$output" != *'left to gc'* ]] || bellhop gc >/dev/null
        [[ "$3" == *dryRun* ]] || bellhop events --json --since "$position" | json_is '.events |
            any(.kind == "fault" and .cause != "") and any(.after == "destroying" and .cause != "") and
            .[-1].after == "destroyed"' || fail "$what: the events are $(bellhop events)"
    fi
    wait_until 20 nothing_left || fail "$what: left: $(kube_objects)"
    [ -z "$(bellhop ls -q)" ]
}

@test "a request of an up that goes wrong once is repeated, and its answer that was lost is no second object" {
    local step fault

    for step in "${STEPS[@]}"; do
        for fault in 500 cut lost nonsense; do
            up_under_fault "$fault" 1 "$step"
        done
    done
}

@test "a request of an up that goes wrong each time ends in a typed error, an event has the cause, and nothing is left" {
    local step fault

    for step in "${STEPS[@]}"; do
        for fault in 500 shape header; do
            up_under_fault "$fault" 1000 "$step"
        done
    done
}

@test "a request of an up that hangs ends at the deadline, and nothing is left" {
    local step

    for step in "${STEPS[@]}"; do
        up_under_fault hang 1 "$step"
    done
}

# The disk of a box whose --disk is 5G.
make_small_disk()
{
    jq -n --arg dir "$SMALL_DISK" '{apiVersion: "v1", kind: "PersistentVolume", metadata: {name: "small"}, spec: {
        capacity: {storage: "5Gi"}, accessModes: ["ReadWriteOnce"], persistentVolumeReclaimPolicy: "Retain",
        local: {path: $dir}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [
        {key: "kubernetes.io/hostname", operator: "Exists"}]}]}}}}' | kube create -f -
}

@test "a disk that fills up fails the command alone: the agent answers, and the box starts again with its files" {
    make_small_disk
    make_box --disk 5G
    bellhop exec one -- sh -c 'echo kept >file'
    run bellhop exec one -- sh -c 'dd if=/dev/zero of=fill bs=1M count=200'
    [ "$status" -eq 1 ]
    [[ "$output" == *'No space left on device'* ]] || fail "$output"
    head -c 5000000 /dev/urandom >"$BOX_TMP/big"
    run --separate-stderr bellhop put one "$BOX_TMP/big" :big --json
    [ "$(jq -r .error.code <<<"$output")" = resource_exhausted ] || fail "$output"
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop stop one
    [ "$(bellhop exec one -- sh -c 'cat file; rm fill')" = kept ]
    bellhop put one "$BOX_TMP/big" :big
    bellhop rm one
}

@test "an image that is gone between a stop and a start fails the start with Kubernetes' reason, and the disk waits for it" {
    make_box
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop stop one
    cluster remove-image docker.io/bellhop/tests:1
    run --separate-stderr bellhop start one --json
    [ "$(jq -r .error.code <<<"$output")" = failed_precondition ] || fail "$output"
    [[ "$output" == *ErrImagePull* || "$output" == *ImagePullBackOff* ]] || fail "$output"
    is_state error
    [[ "$(info .cause)" == *'cannot pull the image'* ]] || fail "$(info .cause)"
    bellhop events one --json | json_is 'any(.events[]; .cause | contains("Pull"))' || fail "$(bellhop events one)"
    ! kube get pod "bellhop-$ID" || fail "its pod is left"
    cluster import "$(readlink -f "$TOP/build/image/tests")/oci.tar"
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop rm one
}
