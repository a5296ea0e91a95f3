#!/usr/bin/env bats
# Boxes on a host with cgroup v2: the host is a virtual machine, whose own commands run bellhop as root.
# Emulated: run by tests/long/vm-exec.sh. The box's image is the machine's own programs, its runtime this machine's runc.

load ../lib/agent
load ../lib/vm

setup_file()
{
    vm_need
    command -v runc >/dev/null || skip "there is no runc to send into the machine"
    export CURL_MAX_S=600 IMAGE=$BATS_FILE_TMPDIR/image VM=$BATS_FILE_TMPDIR/vm
    VM_DISK_MB=700 vm_image "$IMAGE"
    truncate -s 512M "$BATS_FILE_TMPDIR/quota.ext4"
    mkfs.ext4 -q -O project,quota -E quotatype=prjquota "$BATS_FILE_TMPDIR/quota.ext4"
    vm_start "$IMAGE" "$VM" --root disk --memory 1536 --cpus 2 \
        --qemu "-drive file=$BATS_FILE_TMPDIR/quota.ext4,if=none,id=quota,format=raw -device virtio-blk-pci,drive=quota"
    vm_use "$VM"
    send_programs "$BATS_FILE_TMPDIR/sent"
}
teardown_file() { vm_end "$VM"; }
setup()
{
    vm_need
    command -v runc >/dev/null || skip "there is no runc to send into the machine"
    vm_use "$VM"
}

# The programs of the host's side, and the libraries that the machine does not have.
send_programs() # DIR
{
    local name file

    mkdir -p "$1/opt/bellhop/lib"
    for name in bellhop bellhop-monitor bellhopd; do
        cp -L "$BELLHOP_BUILD/$name" "$1/opt/bellhop/$name"
    done
    cp -L "$(command -v runc)" "$1/opt/bellhop/runc"
    for file in "$1"/opt/bellhop/*; do
        [ ! -f "$file" ] || ldd "$file" 2>/dev/null | awk '$3 ~ "^/" { print $3 }'
    done >"$1/libraries"
    # These are loaded by their names.
    for name in libcurl.so.4 libarchive.so.13; do
        ldconfig -p | awk -v name="$name" '$1 == name { print $NF; exit }' >>"$1/libraries"
        ldd "$(tail -n 1 "$1/libraries")" | awk '$3 ~ "^/" { print $3 }' >>"$1/libraries"
    done
    cat "$1/libraries" | sort -u | grep -v '/lib[cm]\.so' | while IFS= read -r file; do cp -L "$file" "$1/opt/bellhop/lib"; done
    tar -C "$1" -cf - opt | agent_curl '/v1/archive?path=/&user=root' -f -o /dev/null -T -
    shell 'ln -s /opt/bellhop/runc /usr/local/sbin/runc'
}

# bellhop ARG...: in the machine, by root. Its status is bellhop's; what it says is printed.
bellhop()
{
    local reply

    reply=$(rpc Exec/Run "$(jq -n '{argv: (["/opt/bellhop/bellhop"] + $ARGS.positional), user: "root", timeout_ms: 300000,
        env: {LD_LIBRARY_PATH: "/opt/bellhop/lib", BELLHOP_STATE_DIR: $state, BELLHOP_RECIPES: "/opt/bellhop",
            HOME: "/root"}}' --arg state "${STATE:-/var/lib/boxes}" --args -- "$@")")
    jq -j '.stdout.text, .stderr.text, .message // ""' <<<"$reply"
    return "$(jq '.exit.code // 99' <<<"$reply")"
}

up() # NAME [OPTION...]
{
    bellhop up --name "$1" --agent none --empty --image host --network none "${@:2}"
}

check_limits() # NAME
{
    run bellhop exec -n --limit memory=64M "$1" -c 'perl -e "\$x = q(a) x 200000000"; exit 0'
    [ "$status" -eq 0 ] || [ "$status" -eq 137 ] || fail "$output"
    [[ "$output" == *"exceeded its memory limit"* || "$output" == *Killed* ]] || fail "$output"
    run bellhop exec -n --limit pids=5 "$1" -c 'for i in 1 2 3 4 5 6 7 8; do sleep 600 & done; kill $(jobs -p)'
    [[ "$output" == *"fork"* ]] || fail "$output"
    [ "$(bellhop exec -n --limit cpu=0.5,memory=64M,pids=50 "$1" -c \
        'cd /sys/fs/cgroup"$(sed s/^0::// /proc/self/cgroup)" && cat memory.max pids.max cpu.max')" = \
        $'67108864\n50\n50000 100000' ] || fail "the limits are not the command's group's"
}

@test "vm-box exec --limit holds in a default box, and in a strict one" {
    up sudo
    check_limits sudo
    bellhop rm sudo
    up strict --privilege strict
    check_limits strict
    bellhop rm strict
}

@test "vm-box a box cannot lift its own limits, and what it makes below its group goes with it" {
    up one --memory 256M
    run bellhop exec -n -u root one -c 'cd /sys/fs/cgroup; for f in memory.max pids.max cpu.max cgroup.max.depth; do ! echo max >$f || echo "$f was lifted"; done'
    [[ "$output" != *lifted* ]] || fail "$output"
    [ "$(bellhop status one --json | jq .enforced.limits.memory_bytes)" = 268435456 ]
    run bellhop exec -n -u root one -c 'cd /sys/fs/cgroup; for i in $(seq 30); do n=$(printf %0250d "$i"); mkdir "$n" && cd "$n" || exit 9; done'
    [ "$status" -eq 9 ] || fail "$output"
    bellhop rm one
    [ "$(shell 'ls /sys/fs/cgroup | grep -c "^bellhop-[0-9a-f]*-" || true')" = 0 ]
}

has_state() # NAME STATE
{
    [ "$(bellhop status "$1" --json | jq -r .state)" = "$2" ]
}

@test "vm-box --disk is a quota of the kernel where the file system has project quotas" {
    shell 'sudo mkdir -p /var/lib/quota && sudo mount -o prjquota /dev/vdb /var/lib/quota'
    STATE=/var/lib/quota/state
    up one --disk 64M
    [ "$(bellhop status one --json | jq -c '.enforced.limits | [.disk_bytes, .disk_limited_by]')" = '[67108864,"quota"]' ]
    run bellhop exec -n one -c 'head -c 100000000 /dev/zero >~/big'
    [ "$status" -ne 0 ]
    [[ "$output" == *"quota exceeded"* || "$output" == *"No space left"* ]] || fail "$output"
    # the box is not stopped: it can be cleared up, and another has its own
    [ "$(bellhop exec -n one -c 'rm ~/big && head -c 30000000 /dev/zero >~/fits && echo fits')" = fits ]
    up two --disk 64M
    [ "$(bellhop exec -n two -c 'head -c 50000000 /dev/zero >~/fits && echo fits')" = fits ]
    # a way around it, by which overlayfs takes a directory out of the project: the monitor counts what is there
    run bellhop exec -n -u root one -c 'chattr -p 0 /root; head -c 60000000 /dev/zero >/root/more && exec sleep 4321'
    [ "$status" -ne 0 ]
    wait_until 60 has_state one stopped
    bellhop rm one
    bellhop rm two
}
