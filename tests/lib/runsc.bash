# runsc.bash: gVisor's runsc for tests, from Debian's backports, whether the machine has that suite or
# not; kept in build/cache. Nothing of the machine's apt is changed.
#
#   load ../lib/runsc
#   dir=$(runsc_dir) || skip "runsc can't be had"       a directory with runsc in it, for PATH
#   start_in_runsc                    an agent in a gVisor box of the image, on the host's socket
#                                     $RUNSC_BOX/in/s, with the token $RUNSC_TOKEN; after agent.bash
#   stop_in_runsc                     for teardown: ends the box, if there is one

runsc_dir()
{
    local top dir
    top=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    dir=$top/build/cache/runsc

    if command -v runsc >/dev/null; then
        dirname "$(command -v runsc)"
        return
    fi
    if [ ! -x "$dir/usr/bin/runsc" ]; then
        (
            mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
            flock 9
            [ -x "$dir/usr/bin/runsc" ] && exit 0
            cd "$dir"
            "$top/scripts/debian-sources.sh" bookworm-backports |
                while read -r uri suite keyring; do
                    echo "deb [signed-by=$keyring] $uri $suite main"
                done >apt/src.list
            printf '%s\n' "Dir::Etc::sourcelist \"$dir/apt/src.list\";" 'Dir::Etc::sourceparts "-";' \
                "Dir::State::lists \"$dir/apt/lists\";" "Dir::Cache \"$dir/apt/cache\";" \
                'APT::Sandbox::User "root";' 'Acquire::Retries "3";' >apt/apt.conf
            export APT_CONFIG=$dir/apt/apt.conf
            apt-get -qq update && apt-get -qq download runsc && dpkg-deb -x runsc_*.deb . && rm -f runsc_*.deb
        ) 9>"$top/build/cache/runsc.lock" >&2 || return 1
    fi
    echo "$dir/usr/bin"
}

in_runsc()
{
    "$(runsc_dir)/runsc" --root "$RUNSC_BOX/state" --platform=systrap --ignore-cgroups --network=none \
        --host-uds=create "$@"
}

start_in_runsc()
{
    local image

    [ "$(id -u)" = 0 ] || skip "runsc needs root"
    runsc_dir >/dev/null || skip "runsc can't be had from the backports here"
    image=$(readlink -f "$BATS_TEST_DIRNAME/../../build/image/tests/rootfs") || skip "there is no image"
    RUNSC_BOX=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-runsc-XXXXXX")
    RUNSC_TOKEN=secret-token-of-the-box
    mkdir "$RUNSC_BOX/in" "$RUNSC_BOX/state"
    cp "$BELLHOPD" "$RUNSC_BOX/in/bellhopd"
    (umask 077 && echo "$RUNSC_TOKEN" >"$RUNSC_BOX/in/token")
    jq -n --arg root "$image" --arg in "$RUNSC_BOX/in" '{ociVersion: "1.0.0", root: {path: $root, readonly: true},
        process: {cwd: "/", env: ["PATH=/usr/bin:/bin"], user: {uid: 0, gid: 0},
            args: ["/mnt/bellhopd", "--unix", "/mnt/s", "--token-file", "/mnt/token"]},
        mounts: [{destination: "/proc", type: "proc", source: "proc"}, {destination: "/tmp", type: "tmpfs", source: "tmpfs"},
            {destination: "/mnt", type: "bind", source: $in, options: ["rbind", "rw"]}],
        linux: {namespaces: [{type: "pid"}, {type: "mount"}, {type: "ipc"}, {type: "uts"}, {type: "network"}]}}' >"$RUNSC_BOX/config.json"
    in_runsc run --bundle "$RUNSC_BOX" "$(basename "$RUNSC_BOX")" >"$RUNSC_BOX/log" 2>&1 </dev/null 3>&- 4>&- &
    RUNSC_PID=$!
    wait_until 20 curl -sf --unix-socket "$RUNSC_BOX/in/s" http://box/v1/health || {
        cat "$RUNSC_BOX/log" >&2
        return 1
    }
}

stop_in_runsc()
{
    [ -n "${RUNSC_BOX:-}" ] || return 0
    in_runsc delete -force "$(basename "$RUNSC_BOX")" || true
    wait "$RUNSC_PID" || true
    rm -rf --one-file-system "$RUNSC_BOX"
    RUNSC_BOX=
}
