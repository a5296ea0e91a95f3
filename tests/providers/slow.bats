# background
# Providers that take their time: a deadline counts, not a number of attempts, nor a limit of our own before it. And a
# provider of which only the guest agent's URL is left.
# needs: image

load ../lib/box
load drivers
load faulty
bats_require_minimum_version 1.5.0

setup_file()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    build_faulty
}
teardown_file() { rm -rf --one-file-system "$FAULTY_DIR"; }

setup()
{
    box_setup
    BELLHOP=$FAULTY_DIR/bellhop
    mkdir -m 0700 "$BELLHOP_STATE_DIR"
}
teardown()
{
    rm -f "$BELLHOP_STATE_DIR/fault"
    box_teardown
}

broken() { printf '%s\n' "$@" >"$BELLHOP_STATE_DIR/fault"; }

# slowly SECONDS COMMAND...: it succeeds, and takes at least so long.
slowly()
{
    local begin=$SECONDS least=$1

    shift
    "$@" >"$BOX_TMP/out" 2>&1 || fail "$* failed: $(cat "$BOX_TMP/out")"
    [ $((SECONDS - begin)) -ge "$least" ] || fail "$* took $((SECONDS - begin)) s: the provider was not slow"
}

up() # NAME PROVIDER
{
    bellhop up --name "$1" --provider "$2" --agent none --empty
}

@test "a box whose disk takes two minutes to make, or whose start does, comes up" {
    # prepare() and start() each in a store of their own, at the same time
    (
        export BELLHOP_STATE_DIR=$BOX_TMP/other
        mkdir -m 0700 "$BELLHOP_STATE_DIR"
        broken 'start slow:120'
        slowly 120 up two process
        rm "$BELLHOP_STATE_DIR/fault"
        [ "$(bellhop exec two -- echo alive)" = alive ]
        bellhop rm two
    ) 3>&- &
    broken 'prepare slow:120'
    slowly 120 up one oci
    rm "$BELLHOP_STATE_DIR/fault"
    [ "$(bellhop exec one -- echo alive)" = alive ]
    wait $!
}

@test "a box that takes a minute to resume is there within its deadline of 90 seconds" {
    up one process
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop pause one
    broken 'resume slow:60'
    slowly 60 bellhop exec one -- cat file
    grep -qx kept "$BOX_TMP/out"
    [ "$(bellhop events one --json | jq -r '[.events[] | select(.after == "resuming")] | length')" -eq 1 ]
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

@test "after up a session works through the URL alone, with every other function of the provider broken" {
    local function url token

    up one oci
    token=$(cat "$BELLHOP_STATE_DIR"/boxes/*/token)
    url=$(bellhop status one --json | jq -r .guest.url)
    for function in probe check prepare start stop destroy check_pause pause resume inspect sweep; do
        echo "$function error"
    done >"$BELLHOP_STATE_DIR/fault"
    : >"$BELLHOP_STATE_DIR/asked"
    curl -sf -H "Authorization: Bearer $token" -T - "$url/v1/files//tmp/note" <<<"hello" >/dev/null
    [ "$(curl -sf -H "Authorization: Bearer $token" "$url/v1/files//tmp/note")" = hello ]
    curl -sfN -H "Authorization: Bearer $token" -H 'Content-Type: application/json' \
        -d '{"argv":["sh","-c","cat /tmp/note; echo $((6 * 7))"]}' "$url/bellhop.v1.Exec/Start" >"$BOX_TMP/started"
    grep -q '"text":"hello\\n42\\n"\|"text":"42\\n"' "$BOX_TMP/started"
    grep -q '"reason":"exited","code":0' "$BOX_TMP/started"
    # The monitor asks who listens, before it forwards; nobody asks for anything else.
    [ "$(sort -u "$BELLHOP_STATE_DIR/asked" | grep -vx 'bellhop-monitor find')" = "" ] || fail "$(sort "$BELLHOP_STATE_DIR/asked" | uniq -c)"
}
