#!/usr/bin/env bats
# The System service within a default box, where much is not permitted: its answers, holds from inside, and a hostile
# command that looks for the token.
# needs: image

bats_require_minimum_version 1.5.0
load ../lib/agent
load ../lib/oci
load ../lib/runsc

setup_file()
{
    oci_setup_file
}

setup()
{
    oci_setup
}

teardown()
{
    oci_teardown
}

# box_rpc METHOD JSON: of the box b1.
box_rpc()
{
    box_curl b1 "/bellhop.v1.System/$1" -H 'Content-Type: application/json' --data-binary "$2"
}

# attack USER: prints the secrets that a hostile command of that user got.
attack()
{
    box_curl b1 /v1/files//tmp/hostile.py -X PUT --data-binary "@$BATS_TEST_DIRNAME/../lib/hostile.py" -o /dev/null
    run_in_box b1 "$1" "python3 /tmp/hostile.py 1 $(printf secret-token | sha256sum | cut -d ' ' -f 1):12 \
        /run/bellhop/token /proc/1/environ /run/secrets/token"
}

holds()
{
    box_rpc Activity '{}' | jq -c "$1"
}

check_holds() # USER
{
    run_in_box b1 "$1" 'bellhopd hold --reason "from inside" --id mine --for 5m' >/dev/null
    [ "$(holds '.holds | map([.id, .reason, .local])')" = '[["mine","from inside",true]]' ]
    run_in_box b1 "$1" 'bellhopd hold --release mine && bellhopd hold -- sh -c "exit 9"' && fail 'no status' || [ $? = 9 ]
    [ "$(holds '.holds')" = '[]' ]
}

@test "a default box holds from inside, keeps its token, and says what it may not do" {
    box_make b1
    check_holds user
    check_holds root
    run attack user
    [ "$output" = done ] || fail "$output"
    run attack root
    [ "$output" = done ] || fail "$output"
    entropy=$(head -c 32 /dev/urandom | base64 -w 0)
    run box_rpc Resync "{\"now_ms\":$(($(date +%s%3N) + 3600000)),\"entropy\":{\"b64\":\"$entropy\"}}"
    [ "$(jq -c '[.clock.result, .entropy, .reseed, .generation]' <<<"$output")" = '["not_permitted","mixed","not_permitted",2]' ]
    run box_rpc Ready '{"fresh":true}'
    [ "$(jq -c '[.ready, .users.uid, .users.user_namespace, (.kernel.limits | map(.) | any)]' <<<"$output")" = '[true,0,true,false]' ] ||
        fail "$output"
    # The server is the user's: the agent, root without CAP_SYS_PTRACE, sees whose it is all the same.
    box_curl b1 /bellhop.v1.Exec/Start -H 'Content-Type: application/json' -o /dev/null \
        -d '{"id":"web","argv":["python3","-m","http.server","-b","127.0.0.1","8123"]}' 3>&- &
    run box_rpc WaitPort '{"port":8123,"path":"/","timeout_ms":20000}'
    [ "$(jq .status <<<"$output")" = 200 ]
    run box_rpc Ports '{"port":8123}'
    [ "$(jq -c '.ports[0] | [.loopback, .process.command, .uid > 0]' <<<"$output")" = '[true,"web",true]' ] || fail "$output"
    [ "$(box_rpc Activity '{}' | jq -c '[.reasons | index("commands", "calls")] | map(. != null)')" = '[true,true]' ]
}

@test "a strict box holds from inside, and keeps its token" {
    box_make b1 privilege=strict
    check_holds user
    run attack user
    [ "$output" = done ] || fail "$output"
}

# Tries every way to put a socket in the place of the agent's, as USER; prints the ways that worked.
replace_socket() # USER
{
    run_in_box b1 "$1" 'cd /run
        chown "$(id -u)" bellhop 2>/dev/null # gVisor says yes and does nothing
        chmod 0777 bellhop 2>/dev/null
        mv -f bellhop/agent.sock bellhop/moved 2>/dev/null && echo "moved it"
        rm bellhop/agent.sock 2>/dev/null && echo "removed it"
        ln -sf /tmp/other bellhop/agent.sock 2>/dev/null && echo "linked over it"
        touch bellhop/new 2>/dev/null && echo "made a file"
        mkdir bellhop/dir 2>/dev/null && echo "made a directory"
        mv bellhop other 2>/dev/null && echo "moved the directory"
        mount -t tmpfs none bellhop 2>/dev/null && echo "mounted over it"
        umount bellhop 2>/dev/null && echo "unmounted it"
        python3 -c "
import socket
s = socket.socket(socket.AF_UNIX)
try:
    s.bind(\"/run/bellhop/own.sock\")
    print(\"listens beside it\")
except OSError:
    pass"
        echo done'
}

# On the host, the directory is the one that the agent made, and pid 1 listens.
check_socket()
{
    local run before

    run=$(box_dir b1)/run
    before=$(stat -c '%i' "$run/agent.sock" && stat -c '%u %a' "$run")
    run replace_socket user
    [ "$output" = done ] || fail "user: $output"
    run replace_socket root
    [ "$output" = done ] || [[ "$output" == "the agent is not root"* ]] || fail "root: $output"
    [ "$(stat -c '%i' "$run/agent.sock" && stat -c '%u %a' "$run")" = "$before" ]
    [ "$(find "$run" -mindepth 1 ! -name agent.sock ! -name hold.sock)" = '' ]
    [ "$(as_user b1 'echo still')" = still ]
}

@test "nobody in a box can put a socket in the place of the agent's" {
    for runtime in runc crun; do
        [[ "$(drive probe b1 runtime="$runtime")" == usable* ]] || continue
        box_make b1 runtime="$runtime"
        check_socket
        [ "$(jq .listener.pid "$(box_dir b1)/run.json")" = "$(box_pid b1)" ]
        drive stop b1
        box_start b1 runtime="$runtime" # leftovers of the first run do not block the second
        check_socket
        drive destroy b1
    done
}

@test "nobody in a strict box can put a socket in the place of the agent's" {
    box_make b1 privilege=strict
    check_socket
    [ "$(jq .listener.pid "$(box_dir b1)/run.json")" = "$(box_pid b1)" ]
}

@test "nobody in a gVisor box can put a socket in the place of the agent's" {
    dir=$(runsc_dir) || skip "runsc can't be had from the backports here"
    # The provider looks where the system's programs are: there, for this test's processes alone.
    real=$DRIVE
    printf '#!/bin/sh\nexec unshare -m sh -c "mount -t tmpfs none /usr/local/sbin && cp %s/runsc /usr/local/sbin && exec %s \\"\\$@\\"" sh "$@"\n' \
        "$dir" "$real" >"$OCI_TMP/drive"
    chmod +x "$OCI_TMP/drive"
    DRIVE=$OCI_TMP/drive
    box_make b1 runtime=runsc allow=pids_limit allow=seccomp
    check_socket
}
