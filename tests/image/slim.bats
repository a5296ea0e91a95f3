#!/usr/bin/env bats
# The slim image by itself: its tools run in a chroot of a copy-on-write view, forbidden files are absent, and a
# second build is quick and changes nothing.
# needs: image

setup_file()
{
    export TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    export IMAGE=$TOP/build/image/slim
    export VIEW=$BATS_FILE_TMPDIR/view
    [ "$(id -u)" -eq 0 ] || return 0
    # Boxes use the image: nothing may be written to it, not even a cache.
    mkdir -p "$VIEW" "$BATS_FILE_TMPDIR/over"
    mount -t tmpfs tmpfs "$BATS_FILE_TMPDIR/over"
    mkdir -p "$BATS_FILE_TMPDIR/over/upper" "$BATS_FILE_TMPDIR/over/work"
    mount -t overlay overlay -o "lowerdir=$(readlink -f "$IMAGE")/rootfs,upperdir=$BATS_FILE_TMPDIR/over/upper,workdir=$BATS_FILE_TMPDIR/over/work" "$VIEW"
}

teardown_file()
{
    [ "$(id -u)" -eq 0 ] || return 0
    umount "$VIEW"
    umount "$BATS_FILE_TMPDIR/over"
}

setup()
{
    [ "$(id -u)" -eq 0 ] || skip "a chroot needs root"
}

as_user()
{
    chroot "$VIEW" su user -c "cd && $*"
}

@test "every tool the template promises runs for the box's user" {
    for tool in 'bash --version' 'git --version' 'curl --version' 'fd --version' 'fdfind --version' \
        'rg --version' 'jq --version' 'zip -v' 'unzip -v' 'zstd --version' 'xz --version' \
        'less --version' 'patch --version' 'ss --version' 'ip -V' 'pgrep --version' 'tput -V' \
        'command -v ps'; do
        run as_user "$tool"
        echo "$tool: ${lines[0]}"
        [ "$status" -eq 0 ]
    done
}

@test "git does what it does without the parts that were left out" {
    as_user 'mkdir g && cd g && git init -q && git config user.email a@b && git config user.name n &&
        echo a >a && git add a && git commit -qm a && echo b >>a && git stash -q && git stash pop -q &&
        printf "y\n" | git add -p >/dev/null && git commit -qm b && git submodule --quiet status &&
        git -c protocol.file.allow=always clone -q . ../g2 && git log --oneline | wc -l' | grep -qx 2
}

@test "the box's user is uid 1000, has sudo without a password, and owns the workspace" {
    [ "$(as_user id -u)" = 1000 ]
    as_user 'sudo -n id -un' | grep -qx root
    [ "$(stat -c %u "$IMAGE/rootfs/workspace")" = 1000 ]
    as_user 'echo x >/workspace/x && rm /workspace/x'
}

@test "git in the box runs no hooks of an uploaded repository" {
    as_user 'git init -q r && cd r && git config user.email a@b && git config user.name n &&
        printf "#!/bin/sh\ntouch /tmp/hooked\n" >.git/hooks/pre-commit && chmod +x .git/hooks/pre-commit &&
        git commit -q --allow-empty -m x'
    [ ! -e "$VIEW/tmp/hooked" ]
}

@test "the places that the host mounts over are there" {
    [ -d "$IMAGE/rootfs/run/bellhop" ]
    [ -f "$IMAGE/rootfs/usr/local/bin/bellhopd" ]
    [ -f "$IMAGE/rootfs/etc/resolv.conf" ]
    [ -f "$IMAGE/rootfs/etc/hostname" ]
    [ -f "$IMAGE/rootfs/etc/hosts" ]
}

@test "nothing of the machine that made the image is in it" {
    [ ! -s "$IMAGE/rootfs/etc/machine-id" ]
    [ ! -s "$IMAGE/rootfs/etc/resolv.conf" ]
    [ ! -s "$IMAGE/rootfs/etc/hostname" ]
    run grep -c . "$IMAGE/rootfs/etc/hosts"
    [ "$output" = 2 ]
    run find "$IMAGE/rootfs/root" "$IMAGE/rootfs/tmp" "$IMAGE/rootfs/var/tmp" "$IMAGE/rootfs/var/log" \
        "$IMAGE/rootfs/var/lib/apt/lists" -mindepth 1 -type f -not -name '.bashrc' -not -name '.profile'
    [ -z "$output" ]
    run find "$IMAGE/rootfs" -xdev '(' -name '.npmrc' -o -name '*.pem' -path '*private*' -o -name 'ssh_host_*' \
        -o -name 'authorized_keys' -o -name '.netrc' ')'
    [ -z "$output" ]
    # Only locked passwords.
    run awk -F: '$2 !~ /^[*!]/ { print $1 }' "$IMAGE/rootfs/etc/shadow"
    [ -z "$output" ]
}

@test "the manifest names every package with its version and the image's size" {
    run jq -e '.size_bytes > 100000000 and .size_bytes < 450000000' "$IMAGE/manifest.json"
    [ "$output" = true ]
    while IFS= read -r package; do
        jq -e --arg p "$package" '.packages[$p]' "$IMAGE/manifest.json" >/dev/null
    done <"$IMAGE/definition/packages"
    [ "$(jq -r '.outputs["rootfs.squashfs"].sha256' "$IMAGE/manifest.json")" = \
        "$(sha256sum "$IMAGE/rootfs.squashfs" | cut -c 1-64)" ]
    [ "$(stat -c %s "$IMAGE/rootfs.squashfs")" -lt 45000000 ]
}

@test "making the image again does nothing, quickly" {
    before=$(readlink "$IMAGE")
    run timeout 120 "$TOP/image/build.sh" "$IMAGE/definition" squashfs
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    [ "$(readlink "$IMAGE")" = "$before" ]
}
