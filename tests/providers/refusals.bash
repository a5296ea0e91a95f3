# refusals.bash: an option or a command that a provider, or an engine, refuses: by name, and before anything is made.
# cases.bash loads it. A verdict is in a variable and is judged outside of any condition: `fail` in one only returns.

# present: boxes, their directories and processes, and everything of any store in the engine in force.
present()
{
    bellhop ls -q 2>&1 | sed 's/^/box /'
    find "$BELLHOP_STATE_DIR/boxes" -mindepth 1 -maxdepth 1 2>/dev/null | sed 's/^/directory /'
    processes_naming "$BELLHOP_STATE_DIR"
    case $engine in
    '') ;;
    kubernetes*) kube_list ;;
    *) engine_list "${DOCKER_HOST#unix://}" ;;
    esac
}

# watched COMMAND...: as bats' run; NEW is everything that is there at once after it and was not before.
watched()
{
    present >"$BOX_TMP/present" || fail "$PROVIDER: $(cat "$BOX_TMP/present")"
    run "$@"
    present >"$BOX_TMP/present.after" || fail "$PROVIDER: $(cat "$BOX_TMP/present.after")"
    NEW=$(comm -13 <(sort "$BOX_TMP/present") <(sort "$BOX_TMP/present.after"))
}

# proxied COMMAND...: an engine of Docker's kind is reached through a proxy; each request is a line of $BOX_TMP/proxy.log.
proxied()
{
    local socket=$BOX_TMP/proxy proxy result=0

    rm -f "$socket" "$socket".*
    case $engine in
    '' | kubernetes*)
        "$@"
        return
        ;;
    esac
    python3 "$REPO/tests/lib/engine_proxy.py" "$socket" "${DOCKER_HOST#unix://}" "$socket.fault" >"$socket.ready" 2>&1 3>&- 4>&- &
    proxy=$!
    wait_for 10 grep -q ready "$socket.ready" || result=1
    [ "$result" -ne 0 ] || DOCKER_HOST=unix://$socket "$@" || result=$?
    kill -9 "$proxy"
    wait "$proxy" 2>/dev/null
    return "$result"
}

# has_made_nothing WHAT: after watched. A request that is no GET or HEAD would have changed something.
has_made_nothing()
{
    [ -z "$NEW" ] || fail "$PROVIDER: $1: refused, but made: $NEW"
    if grep -vE '^(GET|HEAD) ' "$BOX_TMP/proxy.log" 2>/dev/null; then
        fail "$PROVIDER: $1: refused, but asked the engine for it"
    fi
    rm -f "$BOX_TMP/proxy.log"
}

# is_named FIELD [CODE]: the error in $output is about it.
is_named()
{
    [[ "$output" == *"\"code\":\"${2:-unimplemented}\""* && "$output" == *"\"field\":\"$1\""* ]] || fail "$PROVIDER: $output"
}

# is_refused OPTION [VALUE]: by name, and nothing is made.
is_refused()
{
    watched proxied bellhop up --name one --agent none --empty "${UP[@]}" --json "--$1" "${@:2}"
    [ "$status" -eq 9 ] || fail "$PROVIDER: --$*: status $status, $output"
    is_named "$1"
    has_made_nothing "--$*"
}

# is_refused_by_driver OPTION KEY=VALUE: the same without `bellhop`.
is_refused_by_driver()
{
    watched proxied drive prepare "$A" "$2"
    [ "$status" -eq 1 ] && [[ "$output" == "unimplemented: $1: "* ]] || fail "$PROVIDER: $2: $output"
    has_made_nothing "$2"
}

# up_or_refused OPTION [VALUE]: MADE is yes or no. An ordinary user's engine cannot limit without cgroup v2, and says so by
# name; any other failure is one.
up_or_refused()
{
    MADE=yes
    if [[ "$engine" != rootless_* ]]; then
        up "--$1" "${@:2}"
        return
    fi
    watched bellhop up --name one --agent none --empty "${UP[@]}" --json "--$1" "${@:2}"
    if [ "$status" -eq 0 ]; then
        ID=$(bellhop status one --json | jq -r .id)
        BOX_IDS+=("$ID")
        return
    fi
    [ "$status" -eq 4 ] || fail "$PROVIDER: --$*: status $status, $output"
    is_named "$1" failed_precondition
    has_made_nothing "--$*"
    MADE=no
}

# pause_or_refused: the box is running. PAUSED is yes, or no where the provider claims no pause, or an ordinary user's
# engine cannot freeze without cgroup v2. A refusal says so and changes nothing.
pause_or_refused()
{
    local is_claimed=no

    PAUSED=yes
    ! claims pause || is_claimed=yes
    if [ "$is_claimed" = yes ]; then run bellhop pause one --json; else run bellhop pause --level freeze one --json; fi
    if [ "$status" -eq 0 ]; then
        [ "$is_claimed" = yes ] || fail "$PROVIDER: it claims no pause, and paused"
        is_state paused
        return
    fi
    [ "$is_claimed" = no ] || [[ "$engine" == rootless_* ]] || fail "$PROVIDER: status $status, $output"
    [ "$status" -eq 9 ] || fail "$PROVIDER: status $status, $output"
    is_named level
    is_state running
    PAUSED=no
}

# snapshot_or_refused NAME: of the box. TAKEN is yes, or no where the provider makes none, or the box runs and its engine
# cannot freeze.
snapshot_or_refused()
{
    TAKEN=yes
    run bellhop snapshot one --name "$1" --json
    if [ "$status" -eq 0 ]; then
        claims snapshots || fail "$PROVIDER: it claims no snapshots, and made one"
        return
    fi
    if claims snapshots; then
        [[ "$engine" == rootless_* ]] && is_state running || fail "$PROVIDER: status $status, $output"
    fi
    [ "$status" -eq 9 ] || fail "$PROVIDER: status $status, $output"
    is_named snapshot
    TAKEN=no
}
