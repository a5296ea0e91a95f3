#!/usr/bin/env bats
# The agent as the one container of a pod: a Secret as its token file, Pod Security "restricted", a token on stdin.

bats_require_minimum_version 1.5.0
load ../lib/agent

POD_UID=65534
POD_GID=42420

setup()
{
    [ "$(id -u)" = 0 ] || skip "needs root"
    AGENT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-agent-XXXXXX")
    AGENT_DIRS+=("$AGENT_DIR")
    chmod 755 "$AGENT_DIR"
    AGENT_TOKEN=0123456789abcdef
    POD_DIR=$AGENT_DIR/pod
    mkdir "$POD_DIR"
    cp "$BELLHOPD" "$POD_DIR/bellhopd"
    printf '#!/bin/sh\nexec setpriv --reuid %s --regid %s --groups %s %s "$@"\n' \
        $POD_UID $POD_UID $POD_GID "$POD_DIR/bellhopd" >"$POD_DIR/start"
    chmod 755 "$POD_DIR/start" "$POD_DIR/bellhopd"
}

teardown()
{
    ! mountpoint -q "$AGENT_DIR/secret" || umount "$AGENT_DIR/secret"
    stop_agents
}

# new_token OWNER:GROUP MODE: the file secret/token, in a directory that root alone writes.
new_token()
{
    mkdir -p "$AGENT_DIR/secret"
    printf '%s\n' "$AGENT_TOKEN" >"$AGENT_DIR/secret/token"
    chown "$1" "$AGENT_DIR/secret/token"
    chmod "$2" "$AGENT_DIR/secret/token"
}

start_with() { BELLHOPD=$POD_DIR/start run_agent --listen 127.0.0.1:0 --token-file "$@"; }

# refuses TEXT: the agent ends, and says this.
refuses()
{
    run -1 timeout 10 "$POD_DIR/start" --listen 127.0.0.1:0 --token-file "${2:-$AGENT_DIR/secret/token}"
    [[ $output == *"$1"* ]] || fail "$output"
}

@test "token file of root's that a group of the agent's reads is accepted" {
    local mode

    for mode in 0440 0640; do
        new_token 0:$POD_GID $mode
        start_with "$AGENT_DIR/secret/token"
        [ "$(rpc_status System/Info)" = 200 ]
        grep -q 'commands run as the group of the token file' "$AGENT_LOG"
    done
}

@test "token file that others could use, or the agent's user could replace, is refused with the rule" {
    new_token 0:$POD_GID 0444
    refuses "others can use the token file"
    new_token 0:$POD_GID 0442
    refuses "others can use the token file"
    new_token 0:$POD_GID 0460
    refuses "a group can write the token file"
    new_token $POD_UID:$POD_GID 0440
    refuses "root does not own it"
    new_token 1:$POD_GID 0440
    refuses "root does not own it"
    new_token 0:$POD_GID 0440
    chown $POD_UID "$AGENT_DIR/secret"
    refuses "the agent's user can write the directory"
    chown 0:$POD_GID "$AGENT_DIR/secret"
    chmod 0775 "$AGENT_DIR/secret" && refuses "the agent's user can write the directory"
    chmod 1777 "$AGENT_DIR/secret" && refuses "the agent's user can write the directory"
    chmod 0755 "$AGENT_DIR/secret"
    run -1 timeout 10 "$BELLHOPD" --listen 127.0.0.1:0 --token-file "$AGENT_DIR/secret/token"
    [[ $output == *"the agent is root"* ]] || fail "$output"
}

@test "token file behind a link is judged where it is, and the link's directory counts too" {
    new_token 0:$POD_GID 0440
    mkdir "$AGENT_DIR/open"
    ln -s ../secret/token "$AGENT_DIR/open/token"
    start_with "$AGENT_DIR/open/token"
    chmod 1777 "$AGENT_DIR/open"
    refuses "the agent's user can write the directory" "$AGENT_DIR/open/token"
    # The name is in a directory of root's, the file is not.
    rm "$AGENT_DIR/open/token"
    mv "$AGENT_DIR/secret/token" "$AGENT_DIR/open/token"
    ln -s ../open/token "$AGENT_DIR/secret/token"
    refuses "the agent's user can write the directory"
}

@test "token file of a capability's holder is refused when the file's group is not the agent's" {
    new_token 0:7 0440
    printf '#!/bin/sh\nexec setpriv --reuid %s --regid %s --clear-groups --inh-caps +dac_override --ambient-caps +dac_override %s "$@"\n' \
        $POD_UID $POD_UID "$POD_DIR/bellhopd" >"$POD_DIR/start"
    refuses "the group 7 can read the token file"
    chown 0:$POD_UID "$AGENT_DIR/secret/token"
    refuses "the agent's user can write the token file"
}

# As kubelet lays a Secret out: a tmpfs of mode 1777, links, a directory with the time of the change, and read-only.
@test "Secret of Kubernetes is accepted as it is mounted, and refused once its mount can be written" {
    local at=$AGENT_DIR/secret

    mkdir "$at"
    mount -t tmpfs -o mode=1777 none "$at"
    mkdir -m 0755 "$at/..2026_11_24_06_00_00.1"
    ln -s ..2026_11_24_06_00_00.1 "$at/..data"
    ln -s ..data/token "$at/token"
    (umask 077 && printf %s "$AGENT_TOKEN" >"$at/..data/token")
    chmod 0440 "$at/..data/token"
    chgrp $POD_GID "$at/..data" "$at/..data/token"
    refuses "the agent's user can write the directory"
    mount -o remount,ro "$at"
    start_with "$at/token"
    [ "$(rpc_status System/Info)" = 200 ]
    run -1 timeout 10 "$POD_DIR/start" --listen 127.0.0.1:0 --token-file "$at/token" --token-once
    [[ $output == *"--token-once: remove"* ]]
}

@test "token that came on stdin is read to its end, and commands have a stdin of their own" {
    printf '%s\n' "$AGENT_TOKEN" >"$AGENT_DIR/in"
    printf '#!/bin/sh\nexec %s "$@" <%s\n' "$POD_DIR/start" "$AGENT_DIR/in" >"$POD_DIR/stdin"
    chmod 755 "$POD_DIR/stdin"
    BELLHOPD=$POD_DIR/stdin run_agent --listen 127.0.0.1:0 --token-fd 0
    [ "$(readlink "/proc/$AGENT_PID/fd/0")" = /dev/null ]
    run rpc Exec/Run '{"shell":"cat; echo $$ >/dev/null; ls /proc/self/fd | wc -l","stdin":{"text":"mine\n"}}'
    [ "$(jq -r .stdout.text <<<"$output")" = $'mine\n4' ] || fail "$output"
}

# ---- behind a proxy ----

# start_proxy [quiet]: in front of the agent, as the API server is; sets PROXY_URL.
start_proxy()
{
    rm -f "$AGENT_DIR/proxy"
    python3 "$BATS_TEST_DIRNAME/../lib/collapse_proxy.py" "$AGENT_PORT" "$@" >"$AGENT_DIR/proxy" 2>"$AGENT_DIR/proxy.log" 3>&- &
    AGENT_PIDS+=($!)
    wait_until 10 test -s "$AGENT_DIR/proxy"
    PROXY_URL=http://127.0.0.1:$(cat "$AGENT_DIR/proxy")
}

# by_proxy PATH [CURL OPTION...]: prints the body and the status.
by_proxy() { curl -sS --path-as-is -H "X-Access-Token: $AGENT_TOKEN" -w ' %{http_code}' "${@:2}" "$PROXY_URL$1"; }

@test "absolute path survives a proxy that decodes and cleans the address, on every verb" {
    local odd

    start_agent --workdir "$POD_DIR"
    start_proxy
    odd="$AGENT_DIR/a%2Fb%20%2B%26/../%C3%BC"
    for to in "/v1/files?path=$AGENT_DIR/f" "/v1/files?path=%2F%2F${AGENT_DIR#/}%2Ff" "/v1/files/${AGENT_DIR#/}/f?cwd=/" \
        "/v1/files/${AGENT_DIR//\//%2F}%2Ff?cwd=/"; do
        [[ $(by_proxy "$to" -X PUT -d one) == *" 201" ]]
        [ "$(by_proxy "$to")" = "one 200" ]
        [[ $(by_proxy "$to" -X PATCH -H 'Content-Range: bytes 0-0/*' -d O) == *" 200" ]]
        [ "$(cat "$AGENT_DIR/f")" = One ]
        [[ $(by_proxy "$to" -I) == *"Content-Length: 3"*" 200" ]]
        [ "$(by_proxy "$to" -X DELETE)" = " 204" ]
        [ ! -e "$AGENT_DIR/f" ]
        [[ $(by_proxy "$to" -X POST -H 'Upload-Complete: ?1' -d two) == *" 201" ]]
        [ "$(cat "$AGENT_DIR/f")" = two ]
        rm "$AGENT_DIR/f"
    done
    mkdir -p "$AGENT_DIR/a/b +&"
    [[ $(by_proxy "/v1/files?path=$odd" -X PUT -d odd) == *" 201" ]]
    [ "$(cat "$AGENT_DIR/a/ü")" = odd ]
    [ "$(by_proxy "/v1/files?path=here" -X PUT -d x -o /dev/null)" = " 201" ]
    [ "$(cat "$POD_DIR/here")" = x ]
    [[ $(by_proxy "/v1/files?path=") == *"a path is needed"*" 400" ]]
    [[ $(by_proxy "/v1/files") == *"a path is needed"*" 400" ]]
    [[ $(by_proxy "/v1/files/x?path=/y") == *"unknown parameter 'path'"*" 400" ]]
    [[ $(by_proxy "/v1/files?path=x&path=y") == *"given twice"*" 400" ]]
}

@test "path that a proxy may have made relative is an error, and nothing is read or written" {
    local header

    start_agent --workdir "$POD_DIR"
    start_proxy
    mkdir -p "$POD_DIR$AGENT_DIR"
    echo decoy >"$POD_DIR$AGENT_DIR/f"
    for verb in GET PUT PATCH POST DELETE; do
        run by_proxy "/v1/files/$AGENT_DIR/f" -X "$verb" -H 'Upload-Complete: ?1' ${verb/#[PD]*/-d x}
        [[ $output == *'"field":"path"'*" 400" && $output == *"came through a proxy (X-Forwarded-For)"* ]] || fail "$verb: $output"
    done
    [ "$(cat "$POD_DIR$AGENT_DIR/f")" = decoy ]
    [ ! -e "$AGENT_DIR/f" ]
    [[ $(by_proxy "/v1/files//") == *" 400" ]]
    [ "$(by_proxy "/v1/files/$AGENT_DIR/f?cwd=$POD_DIR")" = $'decoy\n 200' ]
    for header in 'Via: 1.1 x' 'Forwarded: for=10.0.0.1' 'X-Forwarded-For: 10.0.0.1' 'X-Forwarded-Uri: /x'; do
        [ "$(agent_status "/v1/files/here" -X PUT -d x -H "$header")" = 400 ]
        [ "$(agent_status "/v1/files/$AGENT_DIR/f" -X PUT -d x -H "$header" -o /dev/null)" = 201 ] || [ -e "$AGENT_DIR/f" ]
    done
    [ ! -e "$POD_DIR/here" ]
    # Without a sign of the proxy nobody can tell: the reason for ?path=.
    start_proxy quiet
    [ "$(by_proxy "/v1/files/$AGENT_DIR/f")" = $'decoy\n 200' ]
}

@test "either header of the token is enough on every route, and two that differ are refused" {
    start_agent --workdir "$POD_DIR"
    python3 "$BATS_TEST_DIRNAME/../lib/web_server.py" >"$AGENT_DIR/port" 2>/dev/null 3>&- &
    AGENT_PIDS+=($!)
    wait_until 10 test -s "$AGENT_DIR/port"
    run python3 "$BATS_TEST_DIRNAME/../lib/token_matrix.py" "$(cat "$AGENT_DIR/port")"
    [ "$status" -eq 0 ] || fail "$output"
}

# ---- a container with Pod Security "restricted" ----

# restricted BELLHOPD_OPTION...: what run_agent runs: the agent as pid 1 of a container without privileges, with a root that
# nobody can write. It gets the token on stdin.
restricted_program()
{
    local bundle=$AGENT_DIR/bundle

    command -v runc >/dev/null || skip "needs runc"
    mkdir -p "$bundle"/rootfs/{proc,dev,usr,bin,lib,lib64,etc,work} "$AGENT_DIR/work"
    cp "$BELLHOPD" "$bundle/rootfs/bellhopd"
    chmod 755 "$bundle/rootfs/bellhopd"
    echo 'HOME=/work' >"$bundle/rootfs/env" # the user is in no passwd file
    chown $POD_UID "$AGENT_DIR/work"
    printf '%s\n' "$AGENT_TOKEN" >"$AGENT_DIR/in"
    (cd "$bundle" && runc spec && mv config.json spec.json)
    cat >"$AGENT_DIR/program" <<P
#!/bin/bash
jq --arg work "$AGENT_DIR/work" --arg from "$AGENT_DIR" \
    '.process.args = \$ARGS.positional | .process.terminal = false | .root.readonly = true | .process.noNewPrivileges = true
    | .process.user = {uid: $POD_UID, gid: $POD_UID, additionalGids: [$POD_GID]} | .process.env = ["PATH=/usr/bin:/bin", "HOME=/work"]
    | .process.capabilities = {bounding: [], effective: [], inheritable: [], permitted: [], ambient: []}
    | .linux.namespaces |= map(select(.type != "network")) | del(.linux.resources)
    | .mounts |= map(select(.destination == "/proc" or .destination == "/dev"))
      + [{destination: "/work", type: "bind", source: \$work, options: ["rbind", "rw", "nosuid", "nodev"]}]
      + (["/usr", "/bin", "/lib", "/lib64"] | map({destination: ., type: "bind", source: ., options: ["rbind", "ro"]}))' \
    "$bundle/spec.json" --args -- /bellhopd "\$@" >"$bundle/config.json"
exec runc --root "$AGENT_DIR/runc" run --no-new-keyring --preserve-fds 1 -b "$bundle" "bellhop-pod-$$" <"$AGENT_DIR/in"
P
    chmod 755 "$AGENT_DIR/program"
}

@test "agent starts with only a volume to write to, no capability, and its token on stdin" {
    local how

    restricted_program
    for how in "" --init; do
        BELLHOPD=$AGENT_DIR/program run_agent --listen 127.0.0.1:0 --workdir /work --env-file /env --spill-dir /work --token-fd 0 $how
        run rpc Exec/Run '{"shell":"id -u; pwd; grep CapBnd /proc/self/status; touch /x 2>&1; echo \"$HOME\" >out; cat out"}'
        [ "$(jq -r .stdout.text <<<"$output")" = "65534
/work
CapBnd:	0000000000000000
touch: cannot touch '/x': Read-only file system
/work" ] || fail "$output"
        [ "$(readlink "/proc/$(pgrep -P "$AGENT_PID" bellhopd)/fd/0")" = /dev/null ]
        [ "$(agent_status '/v1/files?path=/work/f' -X PUT -d x)" = 201 ]
        [ "$(agent_curl /v1/files/f)" = x ]
        rpc Exec/Run '{"shell":"head -c 9000000 /dev/zero","output":{"head_bytes":1000,"tail_bytes":0,"spill_bytes":10000000}}' |
            jq -e '.stdout | .spilled_bytes > 8000000 and (has("spill_error") | not)'
        [ "$(agent_status '/v1/archive?path=/work')" = 200 ]
        agent_curl /v1/ready | jq -e '.missing != null'
        # Orphans come to pid 1.
        rpc Exec/Run '{"shell":"(sh -c \"true & exec true\" &)"}' >/dev/null
        wait_until 10 no_zombie
        stop_one
        rm -f "$AGENT_DIR/work/f"
    done
}

# Asked of the agent: its container has processes of its own.
no_zombie() { rpc Exec/Run '{"shell":"grep -l \") Z\" /proc/[0-9]*/stat"}' | jq -e '.stdout.bytes == 0' >/dev/null; }

# stop_one: ends the last agent by TERM, and expects that it ends well.
stop_one()
{
    kill "$AGENT_PID"
    wait_gone "$AGENT_PID" 15
    wait "$AGENT_PID"
}
