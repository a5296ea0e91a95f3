#!/usr/bin/env bats
# early
# needs: image
# Boxes of the provider docker, beyond the cases that every provider has (tests/providers): real dockerd and Podman.

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
setup()
{
    box_setup
    use_engine docker
}
teardown()
{
    use_engine docker
    remove_with_snapshots
    box_teardown
}

up() # NAME [OPTION...]
{
    local name=$1

    shift
    bellhop up --name "$name" --provider docker --agent none --empty "$@" >"$BOX_TMP/up" 2>&1 || fail "$(cat "$BOX_TMP/up")"
}

# api METHOD PATH [CURL_OPTION...]: of the engine in use.
api() { curl -sSf -X "$1" --unix-socket "${DOCKER_HOST#unix://}" -H 'Content-Type: application/json' "http://engine/v1.41$2" "${@:3}"; }

container_of() { echo "bellhop-$(bellhop status "$1" --json | jq -r .id)"; }

# each_engine COMMAND...: with dockerd, then with Podman.
each_engine()
{
    local engine

    for engine in docker podman; do
        echo "engine: $engine"
        use_engine "$engine"
        "$@"
    done
}

case_strictest()
{
    up one --privilege strict --read-only --network none --memory 256m --cpus 0.5 --pids 64
    bellhop exec -n one -- cat /proc/self/status >"$BOX_TMP/status"
    grep -Eq '^CapEff:[[:space:]]*0000000000000000$' "$BOX_TMP/status"
    grep -Eq '^CapBnd:[[:space:]]*0000000000000000$' "$BOX_TMP/status"
    grep -Eq '^NoNewPrivs:[[:space:]]*1$' "$BOX_TMP/status"
    grep -Eq '^Seccomp:[[:space:]]*2$' "$BOX_TMP/status"
    [ "$(bellhop exec -n one -- sh -c 'cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes')" = 268435456 ]
    [ "$(bellhop exec -n one -- sh -c 'cat /sys/fs/cgroup/pids.max 2>/dev/null || cat /sys/fs/cgroup/pids/pids.max')" = 64 ]
    run ! bellhop exec -n one -- touch /usr/file
    [[ "$output" == *"Read-only file system"* ]]
    run ! bellhop exec -n one -- sh -c 'cp /bin/true /tmp/true && /tmp/true'
    [[ "$output" == *"ermission denied"* ]]
    bellhop exec -n one -- sh -c 'cp /bin/true ./true && ./true && echo x >~/x'
    run ! bellhop exec -n one -- python3 -c 'import socket; socket.create_connection(("10.0.0.1", 80), 3)'
    [[ "$output" == *"nreachable"* ]]
    bellhop status one --json >"$BOX_TMP/json"
    json_is '.enforced.limits == {"pids": 64, "memory_bytes": 268435456, "cpu_millis": 500, "disk_bytes": "unlimited"}' \
        <"$BOX_TMP/json"
    json_is '.enforced.isolation | .read_only_root and .no_new_privileges and .seccomp' <"$BOX_TMP/json"
    run -4 bellhop snapshot one
    bellhop rm one
}

@test "the strictest box of an engine has no capabilities, no new privileges, a root that cannot be written, and no network" {
    each_engine case_strictest
}

@test "a runtime that an engine lacks is an error that names it, and auto takes what the engine has" {
    run -4 bellhop up --name one --provider docker --agent none --empty --runtime runsc --json
    [[ "$output" == *'"field":"runtime"'* && "$output" == *"no runtime 'runsc'"* ]] || fail "$output"
    [ -z "$(bellhop ls -q)" ]
    up one --runtime auto
    [ "$(bellhop status one --json | jq -r .options.runtime)" = runc ]
    bellhop rm one
    # Podman lists runtimes that are not installed, and takes none from a request.
    use_engine podman
    run -4 bellhop up --name one --provider docker --agent none --empty --runtime runsc --json
    [[ "$output" == *'"field":"runtime"'* && "$output" == *"of its own configuration, 'runc'"* ]] || fail "$output"
    [ -z "$(bellhop ls -q)" ]
    up one --runtime auto
    [ "$(bellhop status one --json | jq -r .enforced.isolation.runtime)" = runc ]
    bellhop rm one
    use_engine docker
    run -2 bellhop up --name one --provider docker --agent none --empty --runtime 'a b' --json
    [[ "$output" == *'"field":"runtime"'* ]]
}

container() { api GET "/containers/$(container_of "$1")/json"; } # NAME

case_marks()
{
    up one --label owner=alice --label other=x
    container one | json_is '.Config.Labels | .["dev.bellhop.name"] == "one" and .["dev.bellhop.owner"] == "alice"'
    container one | json_is '.HostConfig.RestartPolicy.Name | IN("no", "")' || fail "$(container one | jq .HostConfig.RestartPolicy)"
    bellhop snapshot one --name s
    up two
    container two | json_is '.Config.Labels | has("dev.bellhop.owner") | not'
    bellhop up --from s --name three --label owner=bob >/dev/null 2>&1
    container three | json_is '.Config.Labels | .["dev.bellhop.name"] == "three" and .["dev.bellhop.owner"] == "bob"'
    bellhop rm one two three
    bellhop snapshots rm s
}

@test "a container has its box's name and owner for people, and its engine never starts it again by itself" {
    each_engine case_marks
}

case_arguments()
{
    local long

    up one
    long=$(head -c 100000 /dev/zero | tr '\0' x)
    bellhop exec -n one -- python3 -c 'import sys, hashlib; print(len(sys.argv), hashlib.sha256("\0".join(sys.argv[1:]).encode()).hexdigest())' \
        'a b' '' '"' "'" '$HOME' '`id`' $'line\nline' '*' '-x' 'ä' "$long" >"$BOX_TMP/got"
    python3 - "$long" >"$BOX_TMP/want" <<'P'
import hashlib, sys
a = ['a b', '', '"', "'", '$HOME', '`id`', 'line\nline', '*', '-x', 'ä', sys.argv[1]]
print(len(a) + 1, hashlib.sha256("\0".join(a).encode()).hexdigest())
P
    diff "$BOX_TMP/want" "$BOX_TMP/got"
    bellhop rm one
}

@test "arguments arrive byte for byte in a box of an engine" {
    each_engine case_arguments
}

# The token is the box's secret: nobody who may look at the engine finds it.
case_token()
{
    local token name

    up one
    name=$(container_of one)
    token=$(cat "$BELLHOP_STATE_DIR"/boxes/*/token)
    [ "${#token}" -ge 32 ]
    api GET "/containers/$name/json" >"$BOX_TMP/inspect"
    run ! grep -F "$token" "$BOX_TMP/inspect"
    api GET "/containers/$name/logs?stdout=1&stderr=1" --output "$BOX_TMP/logs"
    run ! grep -aF "$token" "$BOX_TMP/logs"
    api GET "/containers/$name/export" --output "$BOX_TMP/export.tar"
    [ -s "$BOX_TMP/export.tar" ]
    run ! grep -aF "$token" "$BOX_TMP/export.tar"
    # grep's status tells of a file that it cannot read, and not of what it found: a file that has the token shows that
    # it looks.
    run bellhop exec -n one -- sudo sh -c "mkdir /var/tmp/look && echo '$token' >/var/tmp/look/here &&
        grep -ralF '$token' /run /tmp /dev/shm /proc/1/environ /proc/1/cmdline /var/tmp 2>/dev/null"
    [ "$output" = /var/tmp/look/here ] || fail "$output"
    bellhop rm one
}

@test "the token of a box is in nothing that the engine shows, logs or keeps" {
    each_engine case_token
}

@test "a container with the box's name that is another's is not the box, and is left alone" {
    local id

    # The name is known before the container is made: the store has the box first.
    up one
    id=$(bellhop status one --json | jq -r .id)
    bellhop stop one
    api DELETE "/containers/bellhop-$id?force=1"
    jq -n '{Image: "bellhop/tests:1", Entrypoint: ["sleep", "600"], Labels: {"dev.bellhop.box": "other"}}' |
        api POST "/containers/create?name=bellhop-$id" -d @- >"$BOX_TMP/created"
    # Without the record of its container, the name is all that is known.
    mv "$BELLHOP_STATE_DIR/boxes/$id/docker.json" "$BOX_TMP/record"
    run ! bellhop start one --json
    [[ "$output" == *"not of this box"* ]] || fail "$output"
    mv "$BOX_TMP/record" "$BELLHOP_STATE_DIR/boxes/$id/docker.json"
    run ! bellhop start one --json
    json_is '.error | .code == "not_found" and (.message | contains("its disk is gone"))' <<<"$output" || fail "$output"
    [ "$(api GET "/containers/bellhop-$id/json" | jq -r .Id)" = "$(jq -r .Id "$BOX_TMP/created")" ]
    api DELETE "/containers/bellhop-$id?force=1"
}

@test "gc of one store leaves the boxes of another store on the same engine alone" {
    local other=$BOX_TMP/other

    up mine
    BELLHOP_STATE_DIR=$other bellhop up --name theirs --provider docker --agent none --empty >/dev/null 2>&1
    bellhop exec mine -- sh -c 'echo mine >file'
    BELLHOP_STATE_DIR=$other bellhop gc
    bellhop gc
    [ "$(bellhop exec mine -- cat file)" = mine ]
    [ "$(BELLHOP_STATE_DIR=$other bellhop exec theirs -- echo theirs)" = theirs ]
    # A box whose removal died half-way is removed by its own store's gc alone.
    BELLHOP_STATE_DIR=$other bellhop rm theirs
    [ "$(api GET '/containers/json?all=1' | jq '[.[] | select(.Labels["dev.bellhop.store"] != null)] | length')" -eq 1 ]
}

@test "an address that is none is told without the command's own help, which says nothing of it" {
    DOCKER_HOST=there run -2 bellhop up --provider docker --agent none --empty
    [ "$output" = "bellhop: DOCKER_HOST: the engine's address 'there' is neither unix:///PATH nor tcp://HOST:PORT" ] || fail "$output"
}

@test "a box stays with the engine that it was made on" {
    up one
    bellhop exec one -- sh -c 'echo here >file'
    bellhop stop one
    use_engine podman
    [ "$(bellhop exec one -- cat file)" = here ]
    bellhop status one --json | json_is '.enforced.engine.kind == "docker"'
    bellhop rm one
}

@test "a container that another engine at its address does not have is not gone" {
    local docker=${DOCKER_HOST#unix://} podman

    use_engine podman
    podman=${DOCKER_HOST#unix://}
    export DOCKER_HOST=unix://$BOX_TMP/sock
    ln -s "$docker" "$BOX_TMP/sock"
    up one
    bellhop exec one -- sh -c 'echo here >file'
    bellhop stop one
    ln -sfn "$podman" "$BOX_TMP/sock"
    run ! bellhop start one --json
    json_is '.error | .code == "unavailable" and (.message | contains("another engine answers at"))' <<<"$output"
    ln -sfn "$docker" "$BOX_TMP/sock"
    [ "$(bellhop exec one -- cat file)" = here ]
    bellhop rm one
}

address_of() { api GET "/containers/$(container_of "$1")/json" | jq -r .NetworkSettings.IPAddress; }

# The kernel would look for the address of the container, and the next start wait for that.
@test "a stop leaves no connection to the container's address" {
    local address

    up one
    address=$(address_of one)
    bellhop exec one -- true
    bellhop stop one
    run -0 ss -Htn state connected exclude time-wait dst "$address"
    [ -z "$output" ] || fail "$output"
}

@test "a container that is disconnected from its network is reached through the engine, and the next one with its address gets no token" {
    local address body id

    up one
    id=$(bellhop status one --json | jq -r .id)
    address=$(address_of one)
    body=$(jq -n --arg c "$(container_of one)" '{Container: $c}')
    api POST /networks/bridge/disconnect -d "$body"
    up two
    [ "$(address_of two)" = "$address" ]
    [ "$(bellhop exec one -- hostname)" = one ]
    [ "$(jq -r .way "$BELLHOP_STATE_DIR/boxes/$id/docker.json")" = exec ]
    bellhop rm two
    # Nobody has the address: the kernel looks for it for three seconds, once.
    bellhop stop one
    api POST /networks/bridge/connect -d "$body"
    bellhop start one
    [ "$(jq -r .way "$BELLHOP_STATE_DIR/boxes/$id/docker.json")" = address ]
    [ "$(address_of one)" = "$address" ]
    api POST /networks/bridge/disconnect -d "$body"
    SECONDS=0
    [ "$(bellhop exec one -- hostname)" = one ]
    [ "$SECONDS" -lt 10 ] || fail "it took $SECONDS s"
    SECONDS=0
    [ "$(bellhop exec one -- hostname)" = one ]
    [ "$SECONDS" -lt 3 ] || fail "it took $SECONDS s the second time"
    bellhop rm one
}

@test "a snapshot of another provider makes no box of an engine, and the other way round" {
    bellhop up --name source --provider oci --agent none --empty >/dev/null 2>&1
    bellhop snapshot source --name s
    run -4 bellhop up --name one --provider docker --from s --json
    [[ "$output" == *'"field":"provider"'* ]] || fail "$output"
    up two
    bellhop snapshot two --name t
    run -4 bellhop up --name three --provider oci --from t --json
    [[ "$output" == *'"field":"provider"'* ]] || fail "$output"
}

case_snapshot_image()
{
    local image

    up one
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop snapshot one --name s
    bellhop up --from s --name two >/dev/null 2>&1
    image=$(api GET "/containers/$(container_of two)/json" | jq -r .Image)
    bellhop snapshots verify s
    # A box has the image: it stays until that is gone, too.
    bellhop snapshots rm s
    [ "$(bellhop exec two -- cat file)" = kept ]
    bellhop rm two
    [ "$(api GET "/images/$image/json" -o /dev/null -w '%{http_code}')" = 404 ]
    bellhop rm one
    [ -z "$(ls "$BELLHOP_STATE_DIR/docker-gone")" ]
}

# The directory of the project is what its box has left.
case_dest()
{
    up one
    bellhop exec one -- sh -c 'chmod 1770 /workspace && touch -d @1000000000 /workspace'
    bellhop snapshot one --name s
    bellhop up --from s --name two >/dev/null 2>&1
    [ "$(bellhop exec two -- stat -c '%a %Y' /workspace)" = "1770 1000000000" ]
    bellhop exec one -- chmod 755 /workspace
    bellhop restore one s
    [ "$(bellhop exec one -- stat -c '%a %Y' /workspace)" = "1770 1000000000" ]
    bellhop exec two -- sudo sh -c 'mkdir /opt/elsewhere && echo linked >/opt/elsewhere/file && cd / &&
        mv /workspace /workspace.old && ln -s /opt/elsewhere /workspace'
    bellhop snapshot two --name t
    bellhop up --from t --name three >/dev/null 2>&1
    [ "$(bellhop exec three -- sh -c 'readlink /workspace; cat /workspace/file')" = "/opt/elsewhere
linked" ]
    bellhop rm one two three
    bellhop snapshots rm s t
}

@test "the directory of the project in a snapshot keeps its mode and time, or is the link that it was" {
    each_engine case_dest
}

case_image_is_gone()
{
    up one
    bellhop snapshot one --name s
    api DELETE "/images/bellhop-snapshot:$(api GET /images/json |
        jq -r '[.[].RepoTags[]? | select(contains("bellhop-snapshot:"))][0] | sub(".*:"; "")')?force=1" >/dev/null
    run -3 bellhop snapshots verify s
    [[ "$output" == *"the engine has no such image"* ]] || fail "$output"
    bellhop snapshots rm s
    bellhop rm one
}

@test "snapshots verify tells that somebody removed the engine's image" {
    each_engine case_image_is_gone
}

@test "the image of a snapshot goes with the snapshot, or with the last box that has it" {
    each_engine case_snapshot_image
}

snapshot_images() { api GET '/images/json?all=1' | jq '[.[] | select(.RepoTags // [] | any(contains("bellhop-snapshot")))] | length'; }

case_fork_image()
{
    up one
    bellhop exec one -- sh -c 'echo kept >file'
    bellhop fork one two >/dev/null 2>&1
    [ "$(bellhop exec two -- cat file)" = kept ]
    # In a dry run nothing is removed, also once nothing has the image.
    bellhop stop two
    api DELETE "/containers/$(container_of two)?force=1"
    bellhop gc --dry-run
    [ "$(snapshot_images)" -eq 1 ]
    bellhop gc
    [ "$(snapshot_images)" -eq 0 ]
    bellhop rm two || true
    bellhop fork one three >/dev/null 2>&1
    bellhop rm three
    [ "$(snapshot_images)" -eq 0 ]
    bellhop rm one
}

@test "the image of a fork goes with its box, or with gc, which removes nothing in a dry run" {
    each_engine case_fork_image
}

@test "a fork is made on the engine of its box, whatever DOCKER_HOST says" {
    up one
    use_engine podman
    bellhop fork one two >"$BOX_TMP/fork" 2>&1 || fail "$(cat "$BOX_TMP/fork")"
    [ "$(bellhop exec two -- cat /proc/sys/kernel/hostname)" != "" ]
    use_engine docker
    api GET "/containers/$(container_of two)/json" -o /dev/null
    bellhop rm one two
}

# It inherits the labels of the box that the snapshot is of.
case_inherited()
{
    local image id

    up one
    bellhop snapshot one --name s
    bellhop rm one
    image=bellhop-snapshot:$(bellhop snapshots ls --json | jq -r '.snapshots[0].id')
    id=$(jq -n --arg image "$image" '{Image: $image, Entrypoint: ["sleep", "600"]}' |
        api POST "/containers/create?name=someones" -d @- | jq -r .Id)
    [ "$(api GET "/containers/$id/json" | jq -r '.Config.Labels["dev.bellhop.name"]')" = one ]
    bellhop gc
    [ "$(api GET "/containers/someones/json" | jq -r .Id)" = "$id" ]
    api DELETE "/containers/$id?force=1"
    bellhop snapshots rm s
}

@test "gc leaves alone a container that somebody made of a snapshot's image" {
    each_engine case_inherited
}

is_ended() { bellhop status one --json | json_is '.state == "stopped" and (.cause | length > 0)'; }

case_restarted()
{
    local name

    up one
    name=$(container_of one)
    bellhop exec one -- sh -c 'echo kept >file'
    api POST "/containers/$name/restart?t=5"
    wait_until 30 is_ended
    [ "$(bellhop exec one -- cat file)" = kept ]
    bellhop stop one
    # One that is stopped and that somebody starts stays so.
    api POST "/containers/$name/start"
    [ "$(bellhop status one --json | jq -r .state)" = stopped ]
    [ "$(bellhop exec one -- cat file)" = kept ]
    [ "$(bellhop status one --json | jq -r .state)" = running ]
    bellhop rm one
}

@test "a container that somebody starts again is a box that has ended, and the next command begins its own run" {
    each_engine case_restarted
}

# Between the attach and the start: the engine closes the standard input for the next start, too.
attach_and_vanish()
{
    python3 - "${DOCKER_HOST#unix://}" "$1" <<'P'
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(f"POST /v1.41/containers/{sys.argv[2]}/attach?stream=1&stdin=1 HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\n"
          "Upgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode())
assert b" 101 " in s.recv(4096)
P
}

case_killed_start()
{
    local name round

    up one
    name=$(container_of one)
    for round in 1 2 3 4 5 6 7 8; do
        bellhop stop one
        # Podman may refuse for a moment what it has just stopped.
        wait_until 10 attach_and_vanish "$name"
        [ $((round % 2)) -eq 0 ] || wait_until 10 attach_and_vanish "$name"
        bellhop start one
        [ "$(bellhop exec one -- echo "$round")" = "$round" ]
    done
    bellhop rm one
}

@test "a start that follows one that was killed after its attach begins the run anew" {
    each_engine case_killed_start
}

case_info()
{
    up one
    bellhop status one --json | jq .enforced.engine >"$BOX_TMP/engine"
    api GET /info >"$BOX_TMP/info"
    json_is --slurpfile info "$BOX_TMP/info" '$info[0] as $i | .name == $i.Name and .version == $i.ServerVersion and
        .default_runtime == $i.DefaultRuntime and .security_options == $i.SecurityOptions and
        (.runtimes | sort) == (if .kind == "podman" then [$i.DefaultRuntime] else $i.Runtimes | keys | sort end) and
        .cgroup_version == ($i.CgroupVersion | tonumber) and
        .rootless == ($i.SecurityOptions | any(contains("rootless"))) and
        .user_namespace == ($i.SecurityOptions | any(contains("userns")))' <"$BOX_TMP/engine" ||
        fail "$(cat "$BOX_TMP/engine") $(jq -c '[.DefaultRuntime, .Runtimes, .SecurityOptions, .CgroupVersion]' "$BOX_TMP/info")"
    bellhop rm one
}

@test "status says of an engine what the engine says of itself" {
    each_engine case_info
}

@test "an option that an engine cannot honour is refused by name before anything is made" {
    local option

    for option in 'disk 1G' 'image host'; do
        # shellcheck disable=SC2086 # two words
        run -9 bellhop up --name one --provider docker --agent none --empty --json --$option
        [[ "$output" == *'"code":"unimplemented"'* && "$output" == *"\"field\":\"${option% *}\""* ]] || fail "$output"
    done
    run -9 bellhop up --name one --provider process --agent none --empty --read-only --json
    [[ "$output" == *'"field":"read-only"'* ]] || fail "$output"
    [ -z "$(bellhop ls -q)" ]
    [ "$(api GET '/containers/json?all=1' | jq length)" -eq 0 ]
}

@test "a box that is named with its provider is no box of another one, and nothing is asked of that" {
    up one
    [ "$(bellhop exec docker/one -- echo here)" = here ]
    run -2 bellhop status oci/one --json
    [[ "$output" == *'"field":"name"'* && "$output" == *"is of the provider 'docker', not 'oci'"* ]] || fail "$output"
    run -2 bellhop rm process/one
    run -2 bellhop status nobody/one
    [ "$(bellhop exec one -- echo here)" = here ]
}

@test "more connections to a box than its bridge takes wait, and are served when others have ended" {
    up one
    python3 - "$BELLHOP_STATE_DIR"/boxes/*/run/agent.sock "$(cat "$BELLHOP_STATE_DIR"/boxes/*/token)" <<'P'
import socket, sys
def ask(s):
    s.sendall(b"GET /v1/health HTTP/1.1\r\nHost: box\r\nX-Access-Token: " + sys.argv[2].encode() + b"\r\n\r\n")
def answered(s, seconds):
    s.settimeout(seconds)
    try:
        return b" 20" in s.recv(4096)
    except TimeoutError:
        return False
held = []
for i in range(1024):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    held.append(s)
late = socket.socket(socket.AF_UNIX)
late.connect(sys.argv[1])
ask(late)
assert not answered(late, 1), "it was served beside 1024 others"
for s in held[:600]:
    s.close()
assert answered(late, 30), "it was never served"
ask(held[900])
assert answered(held[900], 30)
P
    [ "$(bellhop exec one -- echo served)" = served ]
    bellhop rm one
}

is_stopped() { [ "$(bellhop status one --json | jq -r .state)" = stopped ]; }

# Real, with dockerd alone: the conmon of Podman 4.3 notes it in its working directory, where Podman does not look.
@test "a command that takes more than the box's memory is killed, and the engine's word for it is in the box's cause" {
    up one --memory 128m
    run -137 bellhop exec one -- python3 -c 'x = bytearray(300 << 20); print(len(x))'
    bellhop exec one -- true
    api POST "/containers/$(container_of one)/kill"
    wait_for 20 is_stopped
    [ "$(bellhop status one --json | jq -r .cause)" = "the box's first process was killed by signal 9: out of memory" ] ||
        fail "$(bellhop status one --json | jq -r .cause)"
    bellhop rm one
}

docker_is() { [ "$(bellhop providers --json | jq -r '.providers[] | select(.name == "docker") | .usable')" = "$1" ]; }

# The last one: it ends the engine that the others use.
@test "an engine that ends is unusable at once, says so, and is usable when it is back" {
    . "$REPO/tests/lib/engines.sh"
    docker_is true
    stop_dockerd_hard
    docker_is false
    bellhop providers | grep -E '^docker[[:space:]]+no' | grep -F 'the engine'
    run -5 bellhop up --name one --provider docker --agent none --empty --json
    [[ "$output" == *'"field":"docker_host"'* ]] || fail "$output"
    [ -z "$(bellhop ls -q)" ]
    restart_dockerd
    docker_is true
}
