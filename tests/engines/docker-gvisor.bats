#!/usr/bin/env bats
# engines-only
# early
# needs: image
# Docker with gVisor (runsc) as a further runtime: its boxes have another kernel, and otherwise what all boxes have.

load ../lib/box
load ../lib/runsc
load ../providers/drivers
bats_require_minimum_version 1.5.0

DRIVERS=("${DRIVER_DOCKER[@]}")

setup_file()
{
    local dir

    [ "$(id -u)" -eq 0 ] || skip "needs root"
    dir=$(runsc_dir) || skip "runsc can't be had from the backports here"
    # Its own file system in memory loses the disk at a stop without --overlay2=none.
    cat >"$BATS_FILE_TMPDIR/runsc" <<E
#!/bin/sh
exec "$dir/runsc" --platform=systrap --ignore-cgroups --network=host --overlay2=none "\$@"
E
    chmod +x "$BATS_FILE_TMPDIR/runsc"
    export DOCKERD_OPTIONS="--add-runtime runsc=$BATS_FILE_TMPDIR/runsc"
    start_engines
}
teardown_file() { stop_all_engines; }
setup()
{
    box_setup
    use_engine docker
}
teardown()
{
    remove_with_snapshots
    box_teardown
}

@test "a box of Docker with gVisor has its kernel, keeps its disk, and is paused, forked and restored" {
    bellhop up --name one --provider docker --agent none --empty --runtime auto >/dev/null 2>&1
    remember_box one
    [ "$(bellhop status one --json | jq -r '.enforced.isolation | .runtime + " " + .kernel')" = "runsc gvisor" ]
    bellhop status one --json | jq -e '.enforced.engine.runtimes | index("runsc")'
    [[ "$(bellhop exec one -- dmesg)" == *gVisor* ]]
    bellhop exec one -- sh -c 'echo kept >file'
    head -c 3000000 /dev/urandom >"$BOX_TMP/big"
    bellhop put one "$BOX_TMP/big" :/tmp
    bellhop exec one -- cat /tmp/big | cmp - "$BOX_TMP/big"
    bellhop pause one
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop stop one
    bellhop start one
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop snapshot one --name s
    bellhop exec one -- sh -c 'echo changed >file'
    bellhop restore one s
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop rm one
}
