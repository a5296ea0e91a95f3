# vm.bash: virtual machines for tests, emulated. Used by bats files with tests/lib/agent.bash:
#
#   vm_image DIR            the slim image's forms for a machine in DIR: kernel, initramfs, rootfs.squashfs, disk.ext4
#   vm_start DIR RUN ...    image/qemu.sh start; vm_use RUN: talk to that one (AGENT_URL, AGENT_TOKEN)
#   vm_end RUN...           ends them, however they are; for teardown

TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)

# vm_need: skips if there is no QEMU, or no root to make a disk.
vm_need()
{
    command -v "qemu-system-$(uname -m)" >/dev/null || skip "qemu-system-$(uname -m) is not there"
    [ "$(id -u)" -eq 0 ] || skip "a disk of the image needs root"
}

vm_image()
{
    local image
    image=$(readlink -f "$TOP/build/image/slim")

    mkdir -p "$1"
    if [ -e "$image/rootfs.squashfs" ]; then
        ln -sf "$image/rootfs.squashfs" "$1/rootfs.squashfs"
    else
        mksquashfs "$image/rootfs" "$1/rootfs.squashfs" -comp zstd -Xcompression-level 1 -noappend \
            -quiet -no-progress >/dev/null
    fi
    VM_DISK_MB=${VM_DISK_MB:-256} "$TOP/image/vm.sh" "$([ -d "$image/rootfs" ] && echo "$image/rootfs" || echo "$image/rootfs.squashfs")" \
        "$1" "${BELLHOPD:-$BELLHOP_BUILD/bellhopd}"
}

vm_start()
{
    "$TOP/image/qemu.sh" start "$@" --accel tcg --wait 600 >/dev/null
}

vm_use()
{
    AGENT_URL=$(cat "$1/url")
    AGENT_TOKEN=$(cat "$1/token")
    export AGENT_URL AGENT_TOKEN
}

vm_is_off()
{
    ! kill -0 "$(cat "$1/pid")" 2>/dev/null
}

vm_end()
{
    local run

    for run in "$@"; do
        "$TOP/image/qemu.sh" stop "$run" 0 2>/dev/null || true # it does not wait, and kills
    done
}

# shell SCRIPT [USER]: prints what a script in the machine says, on both streams; fails as it does.
shell()
{
    local reply

    reply=$(rpc Exec/Run "$(jq -n --arg s "$1" --arg u "${2:-user}" '{shell: $s, user: $u}')")
    jq -j '.stdout.text, .stderr.text, .message // ""' <<<"$reply"
    [ "$(jq .exit.code <<<"$reply")" = 0 ]
}
