#!/usr/bin/env bats
# Two hundred clients that vanish from idle streams are freed within two seconds: on TCP and on a unix
# socket and in gVisor.

load ../lib/agent
load ../lib/runsc

setup() { start_agent --workdir /; }
teardown() { stop_agents; }

@test "two hundred clients that vanish from idle streams are freed within 2 s on TCP" {
    python3 "$BATS_TEST_DIRNAME/../lib/vanish.py" "$AGENT_PORT" "$AGENT_TOKEN" 200
}

@test "two hundred clients that vanish from idle streams are freed within 2 s on a unix socket" {
    python3 "$BATS_TEST_DIRNAME/../lib/vanish.py" "$AGENT_SOCKET" "$AGENT_TOKEN" 200
}

# In gVisor, whose kernel does not tell of everything: the agent on a socket of the host, in a box of
# the image.
in_runsc()
{
    local root=$1

    shift
    "$runsc" --root "$root/state" --platform=systrap --ignore-cgroups --network=none --host-uds=create "$@"
}

@test "two hundred clients that vanish from idle streams are freed within 2 s in runsc" {
    [ "$(id -u)" = 0 ] || skip "runsc needs root"
    local dir runsc box image pid status=0
    dir=$(runsc_dir) || skip "runsc can't be had from the backports here"
    runsc=$dir/runsc
    image=$(readlink -f "$BATS_TEST_DIRNAME/../../build/image/tests/rootfs") || skip "there is no image"
    box=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-runsc-XXXXXX")
    mkdir "$box/in" "$box/state"
    cp "$BELLHOPD" "$box/in/bellhopd"
    (umask 077 && echo secret-token-of-the-box >"$box/in/token")
    jq -n --arg root "$image" --arg in "$box/in" '{ociVersion: "1.0.0", root: {path: $root, readonly: true},
        process: {cwd: "/", env: ["PATH=/usr/bin:/bin"], user: {uid: 0, gid: 0},
            args: ["/mnt/bellhopd", "--unix", "/mnt/s", "--token-file", "/mnt/token"]},
        mounts: [{destination: "/proc", type: "proc", source: "proc"}, {destination: "/tmp", type: "tmpfs", source: "tmpfs"},
            {destination: "/mnt", type: "bind", source: $in, options: ["rbind", "rw"]}],
        linux: {namespaces: [{type: "pid"}, {type: "mount"}, {type: "ipc"}, {type: "uts"}, {type: "network"}]}}' >"$box/config.json"
    in_runsc "$box" run --bundle "$box" "vanish-$$" >"$box/log" 2>&1 </dev/null 3>&- 4>&- &
    pid=$!
    if wait_until 20 curl -sf --unix-socket "$box/in/s" http://box/v1/health; then
        python3 "$BATS_TEST_DIRNAME/../lib/vanish.py" "$box/in/s" secret-token-of-the-box 200 || status=1
    else
        cat "$box/log" >&2
        status=1
    fi
    in_runsc "$box" kill "vanish-$$" KILL || kill "$pid"
    wait "$pid" || true
    in_runsc "$box" delete -force "vanish-$$" 2>/dev/null || true
    rm -rf --one-file-system "$box"
    [ "$status" = 0 ]
}
