# early
# The oci provider by itself: probe, life of a box, limits. Nothing of a box is left, whatever was killed and when.
# needs: image

load ../lib/oci

setup_file() { oci_setup_file; }
setup() { oci_setup; }
teardown() { oci_teardown; }

A=00000000000000aa
B=00000000000000bb

@test "oci_probe_runs_something_and_names_the_runtime" {
    run drive probe "$A"
    [ "$status" -eq 0 ]
    [[ "$output" == "usable "* ]]
}

@test "oci_probe_says_why_a_runtime_does_not_work" {
    run drive probe "$A" runtime=nonesuch
    [[ "$output" == "unusable "*"unknown runtime 'nonesuch': runc, crun or runsc"* ]]
    command -v runsc >/dev/null || {
        run drive probe "$A" runtime=runsc
        [[ "$output" == "unusable "*"the runtime 'runsc' does not work here: it is not installed"* ]]
    }
}

# A runtime that works here.
working_runtime()
{
    drive probe "$A" | sed -n 's/^usable \([a-z]*\) .*/\1/p'
}

# probe_row RUNTIME WHY AGE_MS: stores a probe's result of that age, for the runtime as it is now.
probe_row()
{
    jq --arg name "$1" --arg why "$2" --argjson age "$3" \
        '.[$name] |= (.why = $why | .at = (now * 1000 | floor) - $age)' "$STATE/cache/oci-probe.json" >"$OCI_TMP/row"
    cp "$OCI_TMP/row" "$STATE/cache/oci-probe.json"
}

@test "oci_probe_is_believed_for_thirty_seconds_and_then_made_again" {
    name=$(working_runtime)
    jq -e --arg name "$name" '.[$name].why == ""' "$STATE/cache/oci-probe.json"
    for age in 0 20000; do
        probe_row "$name" "made up" "$age"
        [[ "$(drive probe "$A" runtime="$name")" == "unusable "*"made up" ]]
    done
    # A result from the future is not used, either.
    for age in 31000 -60000; do
        probe_row "$name" "made up" "$age"
        [[ "$(drive probe "$A" runtime="$name")" == "usable $name "* ]]
    done
}

@test "oci_box_is_not_refused_for_a_failure_of_an_earlier_probe" {
    name=$(working_runtime)
    for runtime in "$name" ''; do
        for row in runc crun runsc; do
            [ "$(jq --arg row "$row" 'has($row)' "$STATE/cache/oci-probe.json")" = false ] || probe_row "$row" "made up" 0
        done
        [[ "$(drive probe "$A" runtime="$runtime")" == "unusable "*"made up"* ]]
        drive prepare "$A" runtime="$runtime"
        [[ "$(drive probe "$A" runtime="$runtime")" == "usable $name "* ]]
        drive destroy "$A"
    done
}

# goes_and_comes NAME: hides the runtime, and brings it back, in a mount namespace: the machine's own stays.
goes_and_comes()
{
    local path

    path=$(command -v "$1")
    drive probe "$A" runtime="$1"
    mount --bind "$OCI_TMP/nothing" "$path"
    drive probe "$A" runtime="$1"
    umount "$path"
    drive probe "$A" runtime="$1"
    mount --bind "$OCI_TMP/broken" "$path"
    drive probe "$A" runtime="$1"
}

@test "oci_runtime_that_goes_comes_or_is_replaced_is_seen_by_the_next_probe" {
    name=$(working_runtime)
    : >"$OCI_TMP/nothing"
    chmod 0644 "$OCI_TMP/nothing"
    printf '#!/bin/sh\necho this one is broken >&2\nexit 1\n' >"$OCI_TMP/broken"
    chmod 0755 "$OCI_TMP/broken"
    export -f goes_and_comes drive
    export OCI_TMP STATE DRIVE AGENT IMAGE_DIR A
    run unshare --mount --propagation private bash -c 'goes_and_comes "$1"' bash "$name"
    [ "$status" -eq 0 ]
    [[ "${lines[0]}" == "usable $name "* ]]
    [[ "${lines[1]}" == "unusable "*"it is not installed" ]]
    [[ "${lines[2]}" == "usable $name "* ]]
    [[ "${lines[3]}" == "unusable "*"this one is broken" ]]
}

# killed_once NAME: a probe whose runtime is killed, and the next one, with the runtime as it was.
killed_once()
{
    local path

    path=$(command -v "$1")
    touch -r "$path" "$OCI_TMP/killed"
    rm -f "$STATE/cache/oci-probe.json"
    mount --bind "$OCI_TMP/killed" "$path"
    drive probe "$A" runtime="$1"
    umount "$path"
    drive probe "$A" runtime="$1"
}

@test "oci_probe_that_was_killed_tells_nothing_about_the_next" {
    name=$(working_runtime)
    export -f killed_once drive
    export OCI_TMP STATE DRIVE AGENT IMAGE_DIR A
    # The runtime itself, and its box, whose signal it reports as a shell does.
    for end in 'kill -9 $$' 'exit 137'; do
        printf '#!/bin/sh\n%s\n' "$end" >"$OCI_TMP/killed"
        chmod 0755 "$OCI_TMP/killed"
        run unshare --mount --propagation private bash -c 'killed_once "$1"' bash "$name"
        [ "$status" -eq 0 ]
        [[ "${lines[0]}" == "unusable "*"a test box ended with status 137" ]]
        [[ "${lines[1]}" == "usable $name "* ]]
    done
}

@test "oci_runtime_asked_for_and_missing_is_an_error_that_names_it" {
    command -v runsc >/dev/null && skip "runsc is installed"
    run drive prepare "$A" runtime=runsc
    [ "$status" -eq 1 ]
    [[ "$output" == "failed_precondition: runtime: the runtime 'runsc' does not work here: it is not installed" ]]
    [ ! -e "$(box_dir "$A")" ]
}

@test "oci_image_that_is_not_there_is_named" {
    run "$DRIVE" "$STATE" "$AGENT" prepare image=gone image_dir="$OCI_TMP/gone"
    [ "$status" -eq 1 ]
    [[ "$output" == "not_found: image: image '$OCI_TMP/gone'"* ]]
    mkdir "$OCI_TMP/gone"
    run "$DRIVE" "$STATE" "$AGENT" prepare image=gone image_dir="$OCI_TMP/gone"
    [[ "$output" == "not_found: image: image '$OCI_TMP/gone' has neither rootfs.squashfs nor a directory 'rootfs'" ]]
}

@test "oci_destination_within_the_system_is_refused" {
    for dest in /etc /usr/src/x /proc/x / relative /run/bellhop; do
        run drive prepare "$A" dest="$dest"
        [ "$status" -eq 1 ]
        [[ "$output" == "invalid_argument: dest: "* ]]
    done
}

@test "oci_needs_root_and_says_what_else_there_is" {
    install -m 0755 "$DRIVE" "$OCI_TMP/drive"
    chmod 0711 "$OCI_TMP"
    run setpriv --reuid 65534 --regid 65534 --clear-groups "$OCI_TMP/drive" "$OCI_TMP/none" \
        "$AGENT" prepare
    [ "$status" -eq 1 ]
    [[ "$output" == "permission_denied: the oci provider needs root (try sudo), or --provider docker or process" ]]
}

@test "oci_box_answers_over_its_socket_without_a_network" {
    box_make "$A" network=none
    [ "$(in_box "$A" 'hostname; id -u; pwd')" = "$(printf 'testbox\n0\n/workspace')" ]
    [ "$(as_user "$A" 'id -u; touch /workspace/x && stat -c %U /workspace/x')" = \
        "$(printf '1000\nuser')" ]
    [ ! -e "$(box_dir "$A")/run/token" ]
}

@test "oci_box_keeps_its_disk_over_stop_and_start" {
    box_make "$A"
    in_box "$A" 'echo kept >/root/file'
    drive stop "$A"
    no_box_runs "$A"
    box_start "$A"
    [ "$(in_box "$A" 'cat /root/file')" = kept ]
}

no_box_runs()
{
    [ "$(drive find "$1")" = stopped ] && [ ! -e "$(box_dir "$1")/run.json" ]
}

@test "oci_stop_start_and_destroy_may_be_repeated" {
    box_make "$A"
    first=$(box_pid "$A")
    [ "$(drive find "$A")" = running ]
    drive start "$A"
    [ "$(box_pid "$A")" = "$first" ]
    drive stop "$A"
    drive stop "$A"
    drive prepare "$A"
    box_start "$A"
    drive destroy "$A"
    drive destroy "$A"
    wait_until 5 no_traces
}

@test "oci_stop_of_a_box_with_a_damaged_record_ends_that_box_and_no_other_process" {
    local canary record pid
    sleep 1000 3>&- 4>&- &
    canary=$!
    for record in '{}' '{"cgroup":""}' '{"cgroup":"/","container":"x"}' 'no JSON'; do
        box_make "$A"
        pid=$(box_pid "$A")
        printf '%s' "$record" >"$(box_dir "$A")/run.json"
        drive stop "$A"
        no_box_runs "$A"
        wait_until 5 test ! -d "/proc/$pid" # its parent reaps it
        kill -0 "$canary"
        drive destroy "$A"
    done
    kill "$canary"
    wait_until 5 no_traces
}

@test "oci_image_is_not_changed_by_a_box" {
    before=$(find "$IMAGE_DIR/rootfs/etc" "$IMAGE_DIR/rootfs/usr/local" -printf '%p %s %T@\n' | md5sum)
    box_make "$A"
    in_box "$A" 'echo x >>/etc/profile; rm /usr/bin/git; echo y >/usr/local/y'
    drive destroy "$A"
    [ "$(find "$IMAGE_DIR/rootfs/etc" "$IMAGE_DIR/rootfs/usr/local" -printf '%p %s %T@\n' | md5sum)" = "$before" ]
    [ -e "$IMAGE_DIR/rootfs/usr/bin/git" ]
}

@test "oci_limits_are_enforced_and_read_back" {
    box_make "$A" memory=134217728 cpu=250 pids=64
    [ "$(drive inspect "$A" memory=134217728 cpu=250 pids=64 | jq -c .limits)" = \
        '{"pids":64,"memory_bytes":134217728,"cpu_millis":250,"disk_bytes":"unlimited","disk_limited_by":"nobody"}' ]
    [ "$(drive inspect "$A" memory=134217728 cpu=250 pids=64 | jq -c .missing)" = '[]' ]
    run in_box "$A" 'python3 -c "x = bytearray(300 << 20); print(len(x))"; echo "status $?"'
    [[ "$output" == *"status 137"* ]]
    run in_box "$A" 'for i in $(seq 100); do sleep 600 & done'
    [[ "$output" == *"ork"* ]]
}

@test "oci_box_has_4096_processes_at_most_by_default" {
    box_make "$A"
    [ "$(drive inspect "$A" | jq .limits.pids)" = 4096 ]
}

@test "oci_inspect_reads_isolation_from_the_kernel" {
    box_make "$A"
    drive inspect "$A" >"$OCI_TMP/i"
    jq -e '.isolation | .user_namespace and .pid_namespace and .mount_namespace and .ipc_namespace
        and .uts_namespace and .network_namespace and .seccomp and (.no_new_privileges | not)' "$OCI_TMP/i"
    [ "$(jq -r .isolation.capabilities "$OCI_TMP/i")" = 00000000200404fb ]
    [ "$(jq -r .isolation.uids "$OCI_TMP/i")" = 65536 ]
    [ "$(jq -c .missing "$OCI_TMP/i")" = '[]' ]
    [ "$(jq -c .network.devices "$OCI_TMP/i")" = '["lo"]' ]
}

@test "oci_what_is_missing_is_an_error_unless_allowed_by_name" {
    # a file system that can't be given to another user: overlayfs on overlayfs refuses ids
    mkdir "$OCI_TMP/up" "$OCI_TMP/work" "$OCI_TMP/img" "$OCI_TMP/img/rootfs"
    mount -t overlay overlay -o "lowerdir=$IMAGE_DIR/rootfs,upperdir=$OCI_TMP/up,workdir=$OCI_TMP/work" \
        "$OCI_TMP/img/rootfs"
    run "$DRIVE" "$STATE" "$AGENT" prepare "id=$A" image_dir="$OCI_TMP/img"
    refused=$output
    BOXES+=("$A")
    IMAGE_DIR=$OCI_TMP/img drive destroy "$A"
    IMAGE_DIR=$OCI_TMP/img drive prepare "$A" allow=user_namespace
    IMAGE_DIR=$OCI_TMP/img box_start "$A" allow=user_namespace
    missing=$(drive inspect "$A" | jq -c .missing)
    drive destroy "$A"
    umount "$OCI_TMP/img/rootfs"
    [[ "$refused" == "failed_precondition: user_namespace: user_namespace is not enforced here ("*"); --allow-missing user_namespace does without" ]]
    [ "$missing" = '["user_namespace"]' ]
}

@test "oci_boxes_have_ranges_of_users_of_their_own" {
    box_make "$A"
    box_make "$B"
    a=$(drive inspect "$A" | jq .isolation.first_uid)
    b=$(drive inspect "$B" | jq .isolation.first_uid)
    [ "$a" -ne "$b" ]
    [ $((a - b)) -ge 65536 ] || [ $((b - a)) -ge 65536 ]
    [ "$(stat -c %u "$(box_dir "$A")/run")" = "$a" ]
    [ "$(stat -c %a "$(box_dir "$A")/run")" = 700 ]
}

@test "oci_destroy_leaves_nothing_compared_with_before" {
    snapshot >"$OCI_TMP/before"
    box_make "$A" network=user
    in_box "$A" 'sleep 1000 & python3 -c "import socket; s=socket.socket(socket.AF_UNIX); s.bind(\"/tmp/s\")"; echo'
    # the namespaces of the box, to look for whoever may still hold them
    for kind in user pid mnt ipc uts net cgroup; do
        readlink "/proc/$(box_pid "$A")/ns/$kind"
    done >"$OCI_TMP/numbers"
    in_namespaces >"$OCI_TMP/held"
    [ "$(wc -l <"$OCI_TMP/held")" -ge 7 ]
    [ "$(snapshot | diff - "$OCI_TMP/before" | grep -c '^<')" -ge 10 ]
    drive destroy "$A"
    BOXES=()
    wait_until 5 same_as_before
    wait_until 5 no_namespace_is_left
}

# Everything that this test may have put on the machine, whatever other boxes there are.
snapshot()
{
    find /sys/fs/cgroup -maxdepth 2 -name "$(cgroup_of "$A")" | sort
    grep -F "$STATE" /proc/self/mountinfo || true
    find "$STATE" -path "$STATE/cache" -prune -o -path "$STATE/userns" -o -path "$STATE/boxes" \
        -o -print 2>/dev/null | sort
    processes_naming "$STATE" | grep -vE 'bats|grep' || true
    return 0
}
same_as_before() { snapshot | diff - "$OCI_TMP/before"; }
# Each process in one of them, with its program. A number alone proves nothing: the kernel reuses it.
in_namespaces() { find /proc/[0-9]*/ns -type l -printf '%p %l\n' 2>/dev/null | grep -Ff "$OCI_TMP/numbers" | sort; }
no_namespace_is_left() { ! in_namespaces | grep -qxFf "$OCI_TMP/held"; }

@test "oci_killing_any_process_of_a_box_leaves_nothing_after_destroy" {
    for which in init keeper helper; do
        box_make "$A" network=user
        kill -9 "$(jq -r ".$which.pid" "$(box_dir "$A")/run.json")"
        drive destroy "$A"
        wait_until 5 no_traces
    done
}

@test "oci_the_network_helper_ends_with_the_box_whoever_else_died" {
    box_make "$A" network=user
    helper=$(jq -r .helper.pid "$(box_dir "$A")/run.json")
    kill -9 "$(box_pid "$A")"
    wait_until 5 process_is_gone "$helper"
}

process_is_gone()
{
    local state

    state=$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) || return 0
    [ "$state" = Z ]
}

@test "oci_start_killed_at_any_moment_leaves_what_destroy_removes" {
    BOXES=("$A")
    for ms in 1 5 10 15 20 25 30 40 50 60 70 80 100 120 150; do
        drive prepare "$A" network=user
        timeout --signal KILL "0.$(printf '%03d' "$ms")" "$DRIVE" "$STATE" "$AGENT" start "id=$A" \
            image_dir="$IMAGE_DIR" network=user >/dev/null 2>&1 3>&- || true
        drive destroy "$A"
        wait_until 5 no_traces || fail "after $ms ms"
    done
}

@test "oci_start_after_a_start_that_was_killed_works" {
    BOXES=("$A")
    for ms in 10 20 30 40 50 55 60 65 70 75 80 90 100; do
        drive prepare "$A" network=user
        timeout --signal KILL "0.$(printf '%03d' "$ms")" "$DRIVE" "$STATE" "$AGENT" start "id=$A" \
            image_dir="$IMAGE_DIR" network=user >/dev/null 2>&1 3>&- || true
        box_start "$A" network=user || fail "after $ms ms"
        [ "$(in_box "$A" 'echo yes')" = yes ]
        drive destroy "$A"
    done
}

@test "oci_sweep_removes_boxes_that_nobody_knows_and_no_others" {
    box_make "$A"
    box_make "$B"
    drive sweep "$A" name="$A"
    box_answers "$A"
    [ ! -e "$(box_dir "$B")" ]
}

@test "oci_destroy_removes_a_tree_deeper_than_any_path" {
    box_make "$A"
    in_box "$A" 'python3 -c "
import os
os.chdir(\"/root\")
for i in range(3000):
    os.mkdir(\"directory\"); os.chdir(\"directory\")
open(\"file\", \"w\").close()
os.chmod(\".\", 0)
"'
    drive destroy "$A"
    [ ! -e "$(box_dir "$A")" ]
}

@test "oci_image_without_the_user_gets_one" {
    mkdir -p "$OCI_TMP/img"
    # Links where they can be made; `sed -i` puts new files in their place.
    cp -al "$IMAGE_DIR/rootfs" "$OCI_TMP/img/rootfs" 2>/dev/null || {
        rm -rf "$OCI_TMP/img/rootfs"
        cp -a "$IMAGE_DIR/rootfs" "$OCI_TMP/img/rootfs"
    }
    sed -i '/^user:/d' "$OCI_TMP/img/rootfs/etc/passwd" "$OCI_TMP/img/rootfs/etc/group"
    IMAGE_DIR=$OCI_TMP/img box_make "$A"
    [ "$(as_user "$A" 'id -un; stat -c %U /home/user')" = "$(printf 'user\nuser')" ]
}
