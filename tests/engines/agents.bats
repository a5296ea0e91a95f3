#!/usr/bin/env bats
# engines-only
# early
# needs: image network
# The life of a box with the real coding agents (tests/bootstrap/loop.bats), as a container.

load ../lib/box
load ../providers/drivers
bats_require_minimum_version 1.5.0

DRIVERS=("${DRIVER_DOCKER[@]}" "${DRIVER_PODMAN[@]}")

setup_file()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    start_engines
}
teardown_file() { stop_all_engines; }

# run_loop ENGINE: the file as it is, with boxes of the engine. Its bats is another one than ours.
run_loop()
{
    local name unset=()

    use_engine "$1"
    while read -r name; do
        unset+=(-u "$name")
    done < <(env | sed -n 's/^\(BATS_[A-Z_]*\)=.*/\1/p')
    env "${unset[@]}" TEST_PROVIDER=docker BELLHOP_BUILD="$(readlink -f "$BELLHOP_BUILD")" \
        bats "$REPO/tests/bootstrap/loop.bats" >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- || {
        cat "$BATS_TEST_TMPDIR/out"
        return 1
    }
    [ "$(grep '^ok' "$BATS_TEST_TMPDIR/out" | grep -vc '# skip')" -eq 2 ]
    engine_list "${DOCKER_HOST#unix://}" >"$BATS_TEST_TMPDIR/left"
    [ ! -s "$BATS_TEST_TMPDIR/left" ] || fail "left in the engine: $(cat "$BATS_TEST_TMPDIR/left")"
}

@test "opencode and pi keep their sessions through pause, stop and a snapshot's new box in Docker" { run_loop docker; }

@test "opencode and pi keep their sessions through pause, stop and a snapshot's new box in Podman" { run_loop podman; }
