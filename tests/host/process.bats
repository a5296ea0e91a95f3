# The process provider: a box without isolation, the quickest way to a real agent.
# early

bats_require_minimum_version 1.5.0

load ../lib/box

setup()
{
    box_setup
}
teardown()
{
    box_teardown
}

up() # NAME [OPTION...]
{
    bellhop up --name "$1" --provider process --agent none --empty "${@:2}" 2>"$BOX_TMP/err"
}

# box_pid NAME: its first process.
box_pid()
{
    jq -r .pid "$BELLHOP_STATE_DIR/boxes/$(bellhop status "$1" --json | jq -r .id)/run.json"
}

@test "a process box runs commands and is gone after rm" {
    up one >/dev/null
    [ "$(bellhop exec one -- echo hello)" = hello ]
    pid=$(box_pid one)
    kill -0 "$pid"
    bellhop rm one
    [ -z "$(bellhop ls -q)" ]
    wait_for 5 is_gone "$pid"
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/locks")" ]
}

@test "a process box says that it isolates nothing" {
    up one >/dev/null
    grep -q 'isolates nothing' "$BOX_TMP/err"
    bellhop status one --json >"$BOX_TMP/status"
    jq -e '[.. | objects | select(has("missing")) | .missing[]] | index("isolation") != null' \
        "$BOX_TMP/status"
}

@test "options that need isolation are refused by name before anything is made" {
    for option in "network none" "network user" "memory 512M" "disk 1G" "cpus 1" "pids 100" "image host" \
        "runtime runc" "privilege strict"; do
        run bellhop up --name one --provider process --agent none --empty --json --${option% *} "${option#* }"
        [ "$status" -eq 9 ] || fail "$option: status $status, $output"
        [[ "$output" == *'"code":"unimplemented"'* && "$output" == *"\"field\":\"${option% *}\""* ]] || fail "$option: $output"
    done
    [ -z "$(bellhop ls -q)" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ]
}

@test "the agent of a process box has nothing of the caller's environment but PATH and HOME" {
    export CALLERS_TOKEN=hunter2-of-the-host
    up one >/dev/null
    unset CALLERS_TOKEN
    bellhop exec one -- cat "/proc/$(box_pid one)/environ" | tr '\0' '\n' >"$BOX_TMP/environ"
    [ "$(cut -d = -f 1 "$BOX_TMP/environ" | sort | tr '\n' ' ')" = "BELLHOP_BOX_ID HOME PATH " ] || fail "$(cut -d = -f 1 "$BOX_TMP/environ")"
    [ "$(bellhop exec one -c 'echo "$PATH"')" = "$PATH" ]
}

@test "rm ends what a command left running in a session of its own" {
    up one >/dev/null
    bellhop exec one -- sh -c 'setsid sleep 4321 >/dev/null 2>&1 & echo $! >pid'
    pid=$(bellhop exec one -- cat pid)
    kill -0 "$pid"
    bellhop rm one
    wait_for 5 is_gone "$pid"
}

@test "rm ends what is left after the agent was killed with -9" {
    up one >/dev/null
    bellhop exec one -- sh -c 'setsid sleep 4321 >/dev/null 2>&1 & echo $! >pid'
    pid=$(bellhop exec one -- cat pid)
    end_now "$(box_pid one)"
    bellhop rm one
    wait_for 5 is_gone "$pid"
}

@test "stop keeps the disk and any command starts the box again" {
    up one >/dev/null
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop stop one
    [ "$(bellhop status one --json | jq -r .state)" = stopped ]
    [ "$(bellhop exec one -- cat file)" = kept ]
    [ "$(bellhop status one --json | jq -r .state)" = running ]
}

@test "fifty starts at once of a stopped box start it once, and a start of a running one changes nothing" {
    # A provider's start of the box is one start of its agent.
    printf '#!/bin/sh\necho started >>"%s"\nexec "%s" "$@"\n' "$BOX_TMP/starts" "$(realpath "$BELLHOP_BUILD/bellhopd")" \
        >"$BOX_TMP/counted"
    chmod 755 "$BOX_TMP/counted"
    export BELLHOP_AGENT=$BOX_TMP/counted
    up one >/dev/null
    bellhop stop one
    : >"$BOX_TMP/starts"
    for i in $(seq 50); do
        "$BELLHOP" start one >"$BOX_TMP/start.$i" 2>&1 3>&- &
        pids[i]=$!
    done
    for i in $(seq 50); do
        wait "${pids[i]}" || fail "start $i: $(cat "$BOX_TMP/start.$i")"
    done
    [ "$(wc -l <"$BOX_TMP/starts")" -eq 1 ]
    pid=$(box_pid one)
    bellhop start one
    [ "$(wc -l <"$BOX_TMP/starts")" -eq 1 ]
    [ "$(box_pid one)" = "$pid" ]
    [ "$(bellhop status one --json | jq -r .state)" = running ]
}

@test "with --no-resume a stopped box is an error" {
    up one >/dev/null
    bellhop stop one
    run bellhop exec --no-resume one -- true
    [ "$status" -ne 0 ]
    [[ "$output" == *"stopped"* ]]
    [ "$(bellhop status one --json | jq -r .state)" = stopped ]
}

@test "a second up is quick, changes nothing, and names what differs" {
    up one >/dev/null
    pid=$(box_pid one)
    up one >/dev/null
    [ "$(box_pid one)" = "$pid" ]
    run bellhop up --name one --provider oci --agent none --empty
    [ "$status" -ne 0 ]
    [[ "$output" == *"provider"* ]]
    [ "$(box_pid one)" = "$pid" ]
}

@test "twenty ups at once for one name make one box" {
    for i in $(seq 20); do
        "$BELLHOP" up --name one --provider process --agent none --empty --json \
            >"$BOX_TMP/up.$i" 2>"$BOX_TMP/up.$i.err" &
        pids[i]=$!
    done
    for i in $(seq 20); do
        wait "${pids[i]}" || fail "up $i: $(cat "$BOX_TMP/up.$i.err")"
    done
    [ "$(cat "$BOX_TMP"/up.* | jq -r 'select(.id) | .id' 2>/dev/null | sort -u | wc -l)" -eq 1 ]
    [ "$(bellhop ls -q | wc -l)" -eq 1 ]
    [ "$(ls "$BELLHOP_STATE_DIR/boxes" | wc -l)" -eq 1 ]
}

@test "a failing up undoes everything and reports the first error" {
    printf '#!/bin/sh\necho the agent is broken >&2\nexit 7\n' >"$BOX_TMP/bellhopd"
    chmod 755 "$BOX_TMP/bellhopd"
    ln -s "$(realpath "$BELLHOP_BUILD/bellhop")" "$(realpath "$BELLHOP_BUILD/bellhop-monitor")" "$BOX_TMP"
    cp "$(realpath "$BELLHOP_BUILD/bellhop")" "$BOX_TMP/bellhop2"
    run "$BOX_TMP/bellhop2" up --name one --provider process --agent none --empty
    [ "$status" -ne 0 ]
    [[ "$output" == *"the agent is broken"* ]] || fail "$output"
    [ -z "$(bellhop ls -q)" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ]
}

@test "a project that cannot be read is refused before anything is made" {
    run bellhop up --name one --provider process --agent none "$BOX_TMP/no-such-dir"
    [ "$status" -ne 0 ]
    [[ "$output" == *"no-such-dir"* ]]
    [ -z "$(bellhop ls -q)" ]
}

@test "secrets are files 0600 for the box and stand in no store, argv or log" {
    export BOX_SECRET=hunter2-not-to-be-seen
    up one --secret BOX_SECRET >/dev/null
    [ "$(bellhop exec one -- sh -c 'stat -c %a ~/.secrets/BOX_SECRET; cat ~/.secrets/BOX_SECRET')" = \
        "$(printf '600\nhunter2-not-to-be-seen')" ]
    unset BOX_SECRET
    bellhop stop one
    bellhop exec one -- test -s .. # it is started again
    id=$(bellhop status one --json | jq -r .id)
    ! grep -l hunter2 "$BELLHOP_STATE_DIR"/store.db* "$BELLHOP_STATE_DIR/boxes/$id"/*.log \
        "$BELLHOP_STATE_DIR/boxes/$id"/*.json 2>/dev/null || false
    ! grep -l hunter2 /proc/[0-9]*/cmdline 2>/dev/null || false
    [ "$(bellhop exec one -- sh -c 'cat ~/.secrets/BOX_SECRET')" = hunter2-not-to-be-seen ]
}

@test "a repository of a file URL is cloned in the box" {
    git init -q "$BOX_TMP/origin"
    git -C "$BOX_TMP/origin" -c user.name=t -c user.email=t@example.org commit -q --allow-empty -m first
    bellhop up --name one --provider process --agent none --repo "file://$BOX_TMP/origin" 2>/dev/null
    [ "$(bellhop exec one -- git log --format=%s)" = first ]
}

@test "up with a repository that is not there is an error that names it, and nothing is left" {
    run bellhop up --name one --provider process --agent none --repo "file://$BOX_TMP/nowhere" --json
    [ "$status" -ne 0 ]
    [[ "$output" == *"repo"* ]]
    [ -z "$(bellhop ls -q)" ]
}

@test "input and output are byte exact" {
    up one >/dev/null
    head -c 2000000 /dev/urandom >"$BOX_TMP/random"
    bellhop exec one -- cat <"$BOX_TMP/random" >"$BOX_TMP/back"
    cmp "$BOX_TMP/random" "$BOX_TMP/back"
}

@test "a command's exit status, signal and timeout are told apart" {
    up one >/dev/null
    run bellhop exec one -- sh -c 'exit 3'
    [ "$status" -eq 3 ]
    run bellhop exec one -- sh -c 'kill -TERM $$'
    [ "$status" -eq 143 ]
    run bellhop exec one -- /no/such/program
    [ "$status" -ne 0 ]
    [[ "$output" == *"/no/such/program"* ]]
}

@test "with --json and --detach exec ends with the statuses that it has without them" {
    up status >/dev/null
    run -3 bellhop exec --json status -- sh -c 'exit 3'
    [ "$(jq .exit.code <<<"$output")" -eq 3 ]
    run -137 bellhop exec --json status -- sh -c 'kill -9 $$'
    run -127 bellhop exec --json status -- no-such-program
    run -127 bellhop exec --detach status -- no-such-program
    run -125 bellhop exec --json nobox -- true
}

@test "logs --follow --json is one document, when the command has ended" {
    up waiting >/dev/null
    bellhop exec waiting -- mkfifo go
    id=$(bellhop exec -d waiting -- sh -c 'read -r line <go; echo "$line"')
    bellhop logs -f --json waiting --id "$id" >"$BOX_TMP/log" 3>&- &
    bellhop exec waiting -- sh -c 'echo done >go'
    wait $!
    [ "$(jq -r .state "$BOX_TMP/log")" = ended ]
    [ "$(jq -r .stdout.text "$BOX_TMP/log")" = done ]
}

@test "a second up names the variable that differs" {
    up one --env A=1 --env B=2 >/dev/null
    up one --env A=1 --env B=2 >/dev/null
    run bellhop up --name one --provider process --agent none --empty --env A=1 --env B=3
    [ "$status" -eq 4 ]
    [[ "$output" == *"env B: the box was made with another value; remove it first"* ]]
    run bellhop up --name one --provider process --agent none --empty --env A=1 --env C=3
    [[ "$output" == *"env C: the box was made without it; remove it first"* ]]
}

@test "labels are shown by status and ls" {
    up tagged --label team=x --label tier=2 >/dev/null
    bellhop status tagged | grep -q '^labels  *team=x$'
    [ "$(bellhop ls --json | jq -r '.boxes[0].labels.tier')" = 2 ]
}

@test "a box that has filled the disk can be stopped and removed" {
    mkdir "$BOX_TMP/small"
    mount -t tmpfs -o size=6m,mode=0700 none "$BOX_TMP/small" || skip "no right to mount here"
    export BELLHOP_STATE_DIR=$BOX_TMP/small/state
    up full >/dev/null
    run bellhop exec full -- sh -c 'cat /dev/zero >zeroes'
    [ "$status" -ne 0 ]
    bellhop stop full
    [ "$(bellhop status --json full | jq -r .state)" = stopped ]
    bellhop rm full
    left=$(ls "$BELLHOP_STATE_DIR/boxes")
    umount "$BOX_TMP/small"
    [ -z "$left" ]
}

# A box that cannot be started: what it stands on is gone.
break_start()
{
    mv "$BELLHOP_STATE_DIR/boxes/$(bellhop status one --json | jq -r .id)/token" "$BOX_TMP/token"
}

mend_start()
{
    mv "$BOX_TMP/token" "$BELLHOP_STATE_DIR/boxes/$(bellhop status one --json | jq -r .id)/token"
}

@test "a start that fails ends in state error with its cause, and the next one may do better" {
    up one >/dev/null
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop stop one
    break_start
    run bellhop start one --json
    [ "$status" -ne 0 ]
    message=$(jq -r .error.message <<<"$output")
    [[ "$message" == *token* ]]
    # Asking does not change it, nor does gc.
    bellhop gc
    for i in 1 2; do
        bellhop status one --json | jq -e --arg why "$message" \
            '.state == "error" and .cause == $why and .deadline_ms == 0 and .guest.url == ""'
    done
    [[ "$(bellhop ls)" == *one*error* ]]
    run bellhop exec one -- true
    [ "$status" -ne 0 ]
    run bellhop exec --no-resume one -- true
    [[ "$output" == *"could not be started"* ]]
    mend_start
    [ "$(bellhop exec one -- cat file)" = kept ]
    [ "$(bellhop status one --json | jq -r '.state + .cause')" = running ]
}

@test "a box whose start failed can be stopped, and goes by gc --stopped-for" {
    up one >/dev/null
    bellhop stop one
    break_start
    run bellhop start one
    [ "$status" -ne 0 ]
    bellhop stop one
    [ "$(bellhop status one --json | jq -r .state)" = stopped ]
    run bellhop start one
    [ "$status" -ne 0 ]
    [ "$(bellhop status one --json | jq -r .state)" = error ]
    bellhop gc --stopped-for 0
    [ -z "$(bellhop ls -q)" ]
}

@test "libcurl and libarchive are loaded when they are needed, and one that cannot be loaded is named" {
    mkdir "$BOX_TMP/lib"
    echo broken >"$BOX_TMP/lib/libcurl.so.4"
    export LD_LIBRARY_PATH=$BOX_TMP/lib
    bellhop ls
    run bellhop up --name one --provider process --agent none --empty
    [ "$status" -ne 0 ]
    [[ "$output" == *"'libcurl.so.4' cannot be loaded"* ]]
    [ -z "$(bellhop ls -q)" ]
    mv "$BOX_TMP/lib/libcurl.so.4" "$BOX_TMP/lib/libarchive.so.13"
    mkdir "$BOX_TMP/with-files"
    echo text >"$BOX_TMP/with-files/file"
    bellhop up --name one --provider process --agent none --empty
    run bellhop up --name two --provider process --agent none "$BOX_TMP/with-files"
    [ "$status" -ne 0 ]
    [[ "$output" == *"'libarchive.so.13' cannot be loaded"* ]]
    [ "$(bellhop ls -q)" = one ]
}
