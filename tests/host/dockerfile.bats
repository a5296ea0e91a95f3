#!/usr/bin/env bats
# time-limit: 240
# The template's Dockerfile, rendered and built once by a real builder. No image registry is needed:
# the base that FROM names is a Debian minbase made here by mmdebstrap and kept under build/.

setup_file()
{
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    export TOP=$PWD
    export STORE=$BATS_FILE_TMPDIR/store
    export BASE_TAR=$TOP/build/image/cache/minbase.tar
    image/render.sh
}

teardown_file()
{
    [ ! -d "$STORE" ] || builder rm --all >/dev/null 2>&1 || true
    [ ! -d "$STORE" ] || builder rmi --all --force >/dev/null 2>&1 || true
}

builder()
{
    buildah --root "$STORE/root" --runroot "$STORE/run" "$@"
}

make_base()
{
    [ -e "$BASE_TAR" ] && return 0
    scripts/debian-sources.sh | while read -r uri suite keyring; do
        echo "deb [signed-by=$keyring] $uri $suite main"
    done >"$BATS_TEST_TMPDIR/sources.list"
    mmdebstrap --quiet --mode=root --variant=minbase --format=tar --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        bookworm "$BASE_TAR.tmp" "$BATS_TEST_TMPDIR/sources.list"
    mv "$BASE_TAR.tmp" "$BASE_TAR"
}

# in_image COMMAND: runs it in a container of the built image.
in_image()
{
    builder run --isolation chroot "$(cat "$BATS_FILE_TMPDIR/container")" -- "$@"
}

@test "the rendered dockerfile names every package of the slim image and no placeholder" {
    cd "$TOP"
    run grep -c '@' build/image/docker/Dockerfile
    [ "$output" -le 1 ] # the header's sentence about the words between @ signs
    sed -e 's/#.*//' -e '/^$/d' image/packages.txt | while IFS= read -r package; do
        grep -q "[[:space:]]$package[[:space:]]" build/image/docker/Dockerfile
    done
}

@test "buildah builds the rendered dockerfile" {
    cd "$TOP"
    [ "$(id -u)" -eq 0 ] || skip "building an image needs root"
    make_base
    container=$(builder from scratch)
    builder add --quiet "$container" "$BASE_TAR" / >/dev/null
    builder commit --quiet --disable-compression "$container" localhost/base >/dev/null
    builder rm "$container" >/dev/null

    builder bud --isolation chroot --network host --ulimit nofile=4096:4096 --quiet --layers=false \
        --build-arg BASE=localhost/base -f build/image/docker/Dockerfile -t localhost/bellhop . \
        >"$BATS_TEST_TMPDIR/log" 2>&1 || {
        tail -n 40 "$BATS_TEST_TMPDIR/log"
        return 1
    }
    builder from localhost/bellhop >"$BATS_FILE_TMPDIR/container"
}

@test "the built image has the agent and the tools in it" {
    [ "$(id -u)" -eq 0 ] || skip "building an image needs root"
    for tool in 'git --version' 'fd --version' 'rg --version' 'node --version' 'npm --version' \
        'jq --version' 'python3 --version' 'bellhopd --version'; do
        # shellcheck disable=SC2086 # a command and its option
        in_image $tool
    done
    run in_image id -un
    [ "$output" = user ]
    run in_image sudo id -un
    [[ "$output" == *root* ]]
}

@test "the built image refuses to serve without a token" {
    [ "$(id -u)" -eq 0 ] || skip "building an image needs root"
    run builder inspect --format '{{.OCIv1.Config.Cmd}}' "$(cat "$BATS_FILE_TMPDIR/container")"
    [[ "$output" == *--token-file* ]]
    run in_image timeout 10 bellhopd --listen 127.0.0.1:0 --token-file /run/bellhop/token
    [ "$status" -ne 0 ]
    [ "$status" -ne 124 ]
}
