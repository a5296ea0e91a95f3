#!/usr/bin/env bats
# Exec in a virtual machine, where cgroup v2 has all its controllers: each way to leave something behind
# against each way to end a command, asked of the machine's own agent (pid 1); and tests/integration's exec
# files inside, with an agent of their own. Emulated: run by tests/long/vm-exec.sh.

load ../lib/agent
load ../lib/vm

setup_file()
{
    vm_need
    export CURL_MAX_S=$((${VM_LIMIT_S:-2400} + 60)) IMAGE=$BATS_FILE_TMPDIR/image VM=$BATS_FILE_TMPDIR/vm
    VM_DISK_MB=512 vm_image "$IMAGE"
    vm_start "$IMAGE" "$VM" --root disk --memory 1024 --cpus 2
    vm_use "$VM"
    shell 'mkdir /opt/t && chmod 755 /opt/t' root
    (cd "$TOP" && tar --exclude=tests/fuzz -cf - tests -C "$(readlink -f "$BELLHOP_BUILD")" bellhopd \
        -C / usr/bin/bats usr/lib/bats-core usr/libexec/bats-core) |
        agent_curl '/v1/archive?path=/opt/t&user=root' -f -o /dev/null -T -
    shell 'ln -s /opt/t/usr/lib/bats-core /usr/lib/; ln -s /opt/t/usr/libexec/bats-core /usr/libexec/' root
}
teardown_file() { vm_end "$VM"; }
setup()
{
    vm_need
    vm_use "$VM"
}

# inner FILE FILTER: those tests of tests/integration/FILE, in the machine, as root.
inner()
{
    jq -n --arg f "/opt/t/tests/integration/$1" --arg only "$2" --argjson limit "${VM_LIMIT_S:-2400}" \
        '{shell: "PATH=/opt/t/usr/bin:$PATH exec bash /opt/t/usr/bin/bats --tap -f \"$only\" \"$file\"", user: "root", cwd: "/tmp",
          env: {file: $f, only: $only, BELLHOPD: "/opt/t/bellhopd", BELLHOP_IN_BOX: "1", LC_ALL: "C.UTF-8", CURL_MAX_S: "120"},
          timeout_ms: ($limit * 1000)}' >"$BATS_TEST_TMPDIR/request"
    rpc Exec/Run "$(cat "$BATS_TEST_TMPDIR/request")" >"$BATS_TEST_TMPDIR/reply"
    jq -r '.stdout.text, .stderr.text' "$BATS_TEST_TMPDIR/reply" >"$BATS_TEST_TMPDIR/tap"
    sed -n 's/^\(ok\|not ok\) [0-9]* /# \1 in the machine: /p' "$BATS_TEST_TMPDIR/tap" >&3
    if ! jq -e '.exit.code == 0' "$BATS_TEST_TMPDIR/reply" >/dev/null || ! grep -q '^ok ' "$BATS_TEST_TMPDIR/tap"; then
        cat "$BATS_TEST_TMPDIR/tap" "$BATS_TEST_TMPDIR/reply"
        return 1
    fi
}

leavers()
{
    cat <<'ROWS'
child|sleep T &
group|set -m; sleep T &
session|setsid sleep T &
double fork|(setsid sh -c 'sleep T & exit' &)
no environment|env -i setsid sleep T &
double fork, no environment|(env -i setsid sh -c 'sleep T & exit' &)
other user|sudo -n -u nobody setsid sleep T &
stopped|setsid sleep T & until pgrep -x -f 'sleep T' >/dev/null; do :; done; kill -STOP $!
ROWS
}

@test "vm-exec each way to end a command ends all that it left behind, and says so" {
    local name line how script reply n=0

    while IFS='|' read -r name line; do
        for how in timeout signal kill_on_exit exit; do
            n=$((n + 1))
            script=${line//sleep T/sleep 88$n}
            case $how in
            timeout) reply=$(rpc Exec/Run "$(jq -n --arg s "$script"$'\n''sleep 600' '{shell: $s, timeout_ms: 1500, kill_grace_ms: 100}')") ;;
            kill_on_exit) reply=$(rpc Exec/Run "$(jq -n --arg s "$script" '{shell: $s, kill_on_exit: true, kill_grace_ms: 100}')") ;;
            exit) reply=$(rpc Exec/Run "$(jq -n --arg s "$script" '{shell: $s, id: "x'$n'"}')") ;;
            signal)
                rpc Exec/Start "$(jq -n --arg s "$script"$'\n''echo on; sleep 600' '{shell: $s, id: "x'$n'"}')" -N 2>/dev/null | grep -q -m 1 '"on' || true
                rpc Exec/Signal '{"id":"x'$n'","signal":"KILL","tree":true}' -o /dev/null
                reply=$(rpc Exec/Wait '{"id":"x'$n'","timeout_ms":60000}')
                ;;
            esac
            if [ "$how" = exit ]; then
                jq -e '.exit.reason == "exited" and .exit.tree == "left"' <<<"$reply" >/dev/null || fail "$name, $how: $reply"
                # Maybe it has only been begun when the shell ends: sudo takes its time.
                wait_until 30 shell "pgrep -x -f 'sleep 88$n'" || fail "$name, $how: did not live on"
                rpc Exec/Signal '{"id":"x'$n'","signal":"KILL","tree":true}' -o /dev/null
            else
                jq -e '.exit.tree == "gone"' <<<"$reply" >/dev/null || fail "$name, $how: $reply"
            fi
            wait_until 30 shell "! pgrep -x -f 'sleep 88$n'" || fail "$name, $how: left"
        done
    done < <(leavers)
    [ "$n" -eq 32 ]
}

# Not its "own limits" (a loop that is too long when emulated): tests/image/vm.bats has them.
@test "vm-exec the groups of commands in an agent of its own" { inner exec-cgroup.bats "OOM|kernel log"; }
@test "vm-exec descriptors, groups, directories" { inner exec-matrix.bats "all groups|three descriptors|working directory|two sleeps"; }
@test "vm-exec what is left behind" { inner exec-matrix.bats "left behind"; }
@test "vm-exec each end is told the same" { inner exec-matrix.bats "told the same"; }
