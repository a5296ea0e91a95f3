# background
# Providers that take their time: a deadline counts, not a number of attempts, nor a limit of our own before it. And the
# cases of the suite (conformance.bats) that take long.
# needs: image

load drivers
load cases
bats_require_minimum_version 1.5.0

DRIVERS+=("${DRIVER_DOCKER[@]}")

setup_file() { cases_setup_file; }
teardown_file() { cases_teardown_file; }

setup()
{
    box_setup
    mkdir -m 0700 "$BELLHOP_STATE_DIR"
}
teardown()
{
    mend
    box_teardown
}

# slowly SECONDS COMMAND...: it succeeds, and takes at least so long.
slowly()
{
    local begin=$SECONDS least=$1

    shift
    "$@" >"$BOX_TMP/out" 2>&1 || fail "$* failed: $(cat "$BOX_TMP/out")"
    [ $((SECONDS - begin)) -ge "$least" ] || fail "$* took $((SECONDS - begin)) s: the provider was not slow"
}

slow_up() # NAME PROVIDER
{
    bellhop up --name "$1" --provider "$2" --agent none --empty
}

@test "a box whose disk takes two minutes to make, or whose start does, comes up" {
    local BELLHOP=$FAULTY_DIR/bellhop

    # prepare() and start() each in a store of their own, at the same time
    (
        export BELLHOP_STATE_DIR=$BOX_TMP/other
        mkdir -m 0700 "$BELLHOP_STATE_DIR"
        broken 'start slow:120'
        slowly 120 slow_up two process
        rm "$BELLHOP_STATE_DIR/fault"
        [ "$(bellhop exec two -- echo alive)" = alive ]
        bellhop rm two
    ) 3>&- &
    broken 'prepare slow:120'
    slowly 120 slow_up one oci
    rm "$BELLHOP_STATE_DIR/fault"
    [ "$(bellhop exec one -- echo alive)" = alive ]
    wait $!
}

@test "a box that takes a minute to resume or to start is there within its deadline of 90 seconds, with every provider" {
    each_driver_at_once case_wake
}

@test "an upload of 1 GB to a box needs less than 32 MB of memory with every provider" {
    each_driver case_upload
}

@test "a runtime that takes more than a minute to create a container is waited for" {
    local runtime

    runtime=$(command -v runc || command -v crun)
    cp "$runtime" "$BOX_TMP/real"
    # Only the container of a box is created slowly, not that of a probe.
    cat >"$BOX_TMP/slow" <<RUNTIME
#!/bin/sh
case " \$* " in
*" create "*" bellhop-"*) sleep 65 ;;
esac
exec $BOX_TMP/real "\$@"
RUNTIME
    chmod 0755 "$BOX_TMP/slow"
    # Programs of this machine are found at fixed places: the slow one is there for this command alone.
    slowly 65 unshare --mount --propagation private sh -c 'mount --bind "$1" "$2" && shift 2 && exec "$@"' sh \
        "$BOX_TMP/slow" "$runtime" "$BELLHOP" up --name one --agent none --empty --runtime "$(basename "$runtime")"
    [ "$(bellhop exec one -- echo alive)" = alive ]
}
