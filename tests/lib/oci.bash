# oci.bash: boxes of the oci provider alone, without a monitor or the CLI. Used by bats files:
#
#   load ../lib/oci
#   setup_file() { oci_setup_file; }
#   setup() { oci_setup; }
#   teardown() { oci_teardown; }
#
# box_make ID [KEY=VALUE...] makes and starts a box (the keys of tests/providers/drive.c), in_box ID
# SCRIPT runs a script in it as root, as_user ID SCRIPT as the user. Each test has a state directory
# of its own; oci_teardown fails the test if anything of it is left.

load ../lib/processes
source "${BASH_SOURCE[0]%/*}/wait.bash"
load ../providers/drivers

oci_setup_file()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    build_drive
}

oci_setup()
{
    OCI_TMP=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-oci-XXXXXX")
    STATE=$OCI_TMP/state
    mkdir -m 0700 "$STATE"
    BOXES=()
}

# drive VERB ID [KEY=VALUE...]
drive()
{
    local verb=$1 id=$2

    shift 2
    "$DRIVE" "$STATE" "$AGENT" "$verb" "id=$id" image_dir="$IMAGE_DIR" "$@" 3>&- 4>&-
}

box_dir() { echo "$STATE/boxes/$1"; }

# cgroup_of ID: the name of its control groups, with the state directory's hash (FNV-1a): other tests
# have boxes of the same id.
cgroup_of()
{
    local hash=2166136261 i

    for ((i = 0; i < ${#STATE}; i++)); do
        hash=$((((hash ^ $(printf '%d' "'${STATE:i:1}")) * 16777619) & 0xffffffff))
    done
    printf 'bellhop-%08x-%s\n' "$hash" "$1"
}

box_pid() { jq -r .init.pid "$(box_dir "$1")/run.json"; }

# box_start ID [KEY=VALUE...]: starts a prepared box and waits until its agent answers.
box_start()
{
    drive start "$@" >/dev/null && wait_until 10 box_answers "$1"
}

box_make()
{
    BOXES+=("$1")
    drive prepare "$@" && box_start "$@"
}

# A socket's path has 108 bytes at most: from its directory, by its name.
box_curl() # ID PATH [CURL OPTION...]
{
    local id=$1 path=$2

    shift 2
    (cd "$(box_dir "$id")/run" && curl -sS --max-time 120 --unix-socket agent.sock \
        -H "Authorization: Bearer secret-token" "$@" "http://box$path")
}

box_answers() { box_curl "$1" /v1/health -f -o /dev/null; }

# run_in_box ID USER SCRIPT: its output, standard error after it, and its exit code.
run_in_box()
{
    local reply

    reply=$(jq -n --arg s "$3" --arg u "$2" '{shell:$s, user:$u, timeout_ms:110000}' |
        box_curl "$1" /bellhop.v1.Exec/Run -H 'Content-Type: application/json' --data-binary @-)
    jq -j '.stdout.text // .message // "", .stderr.text // ""' <<<"$reply"
    return "$(jq -r 'if .exit.code != null then .exit.code else 255 end' <<<"$reply")"
}

# refused COMMAND...: succeeds if in_box or as_user ran, and the script failed. Sets output.
refused()
{
    local status=0

    output=$("$@" 2>&1) || status=$?
    [ "$status" -ne 0 ] && [ "$status" -ne 255 ] && return 0
    echo "not refused ($status): $*: $output" >&2
    return 1
}

in_box() { run_in_box "$1" root "$2"; }
as_user() { run_in_box "$1" user "$2"; }

# Everything on this machine that could be left of the boxes of this test: processes, cgroups,
# mounts, network and user namespaces (by what holds them), directories, sockets.
traces()
{
    local id pid group

    processes_naming "$STATE"
    for id in "${BOXES[@]}"; do
        group=$(cgroup_of "$id")
        for pid in $(grep -ls "/$group" /proc/[0-9]*/cgroup | cut -d / -f 3); do
            grep -qs '^State:.*Z' "/proc/$pid/status" || echo "process $pid in the cgroup of $id"
        done
        find /sys/fs/cgroup -maxdepth 2 -type d -name "$group" | sed 's/^/cgroup /'
        [ ! -e "$(box_dir "$id")" ] || echo "directory $(box_dir "$id")"
    done
    grep -F "$STATE" /proc/self/mountinfo | sed 's/^/mount /'
    grep -F "$STATE" /proc/net/unix | sed 's/^/socket /'
    find "$STATE/userns" -type f 2>/dev/null | sed 's/^/range /'
    return 0
}

no_traces()
{
    [ -z "$(traces)" ] && return 0
    traces >&2
    return 1
}

oci_teardown()
{
    local id failed=0

    for id in "${BOXES[@]}"; do
        drive destroy "$id" || failed=1
    done
    wait_until 5 no_traces || failed=1
    rm -rf --one-file-system "$OCI_TMP"
    return "$failed"
}

fail()
{
    echo "$*" >&2
    return 1
}
