#!/usr/bin/env bats
# early
# time-limit: 2400
# (Most of that is for building base, the first time.)
# `bellhop image test`: slim booted as a box, in Docker, Podman and QEMU, base as a box and in Docker, and
# every tool in them tried; Docker's build of the Dockerfile has the same versions and passes the same checks. The
# other images and builders are in make test-long.
# needs: image

bats_require_minimum_version 1.5.0
load ../lib/box
. "$BATS_TEST_DIRNAME/../lib/engines.sh"

setup_file()
{
    export TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    export IMAGES=${BELLHOP_IMAGES:-$TOP/build/image}
    [ "$(id -u)" -eq 0 ] || return 0
    export ENGINES=$BATS_FILE_TMPDIR/engines
    start_dockerd
    set_up_podman
}

teardown_file()
{
    [ "$(id -u)" -eq 0 ] || return 0
    stop_engines
}

setup()
{
    [ "$(id -u)" -eq 0 ] || skip "a container engine needs root"
    box_setup
    # Under TCG on any machine: a /dev/kvm that opens need not work.
    export BELLHOP_QEMU_ACCEL=tcg TMPDIR=$BOX_TMP
}

teardown()
{
    [ -n "${BOX_TMP:-}" ] || return 0
    box_teardown
}

# Nothing of a test is left in an engine, nor its files.
nothing_left()
{
    [ -z "$(docker ps -aq)" ]
    [ -z "$(podman ps -aq)" ]
    [ -z "$(ls -d "$BOX_TMP"/bellhop-image-test-* 2>/dev/null)" ]
}

# A copy of an image by links, whose manifest is changed by a jq FILTER.
image_with()
{
    mkdir "$BOX_TMP/$1"
    for file in "$IMAGES"/slim/*; do
        [ "${file##*/}" = manifest.json ] || ln -s "$(readlink -f "$file")" "$BOX_TMP/$1/${file##*/}"
    done
    jq "$2" "$IMAGES/slim/manifest.json" >"$BOX_TMP/$1/manifest.json"
}

@test "slim works in every form: a box, Docker, Podman, and QEMU without KVM" {
    bellhop image test slim --json >"$BOX_TMP/out" || {
        jq . "$BOX_TMP/out"
        return 1
    }
    [ "$(jq -c '.forms | map_values(.boot)' "$BOX_TMP/out")" = '{"oci":"ok","docker":"ok","podman":"ok","qemu":"ok"}' ]
    # Each tool in it was tried in all four forms, and has one version.
    [ "$(jq '[.checks[] | select(.in_image) | .results | length] | unique == [4]' "$BOX_TMP/out")" = true ]
    [ "$(jq '[.checks[] | [.results[].version] | unique | length] | max == 1' "$BOX_TMP/out")" = true ]
    for tool in agent user sudo git fd rg jq zip unzip curl ss pgrep tput; do
        [ "$(jq --arg t "$tool" '.checks[] | select(.tool == $t) | .in_image' "$BOX_TMP/out")" = true ]
    done
    [ "$(jq -c '.checks[] | select(.tool == "ffmpeg") | [.in_image, .results]' "$BOX_TMP/out")" = '[false,{}]' ]
    nothing_left
}

@test "base works as a box and in Docker: media, pip and npm as the box's user" {
    bellhop image test base --form oci --form docker --json >"$BOX_TMP/out" || {
        jq . "$BOX_TMP/out"
        return 1
    }
    for tool in fd rg expect zip unzip jq sudo git gh ffmpeg imagemagick pillow pip npm node python; do
        [ "$(jq -c --arg t "$tool" '.checks[] | select(.tool == $t) | [.in_image, (.results | map(.state))]' \
            "$BOX_TMP/out")" = '[true,["ok","ok"]]' ]
    done
    nothing_left
}

@test "what Docker makes of slim's Dockerfile has the same packages and passes the same checks" {
    "$TOP/image/base.sh" | docker import - localhost/bellhop-base >/dev/null
    export BASE=localhost/bellhop-base DOCKER_BUILDKIT=1
    bellhop image test slim --form dockerfile --form docker --json >"$BOX_TMP/out" || {
        jq . "$BOX_TMP/out"
        return 1
    }
    [ "$(jq -c '.forms | map_values(.boot)' "$BOX_TMP/out")" = '{"dockerfile":"ok","docker":"ok"}' ]
    # It was removed, but its layers are kept: this is quick.
    sed "s|^FROM .*|FROM $BASE|" "$IMAGES/slim/Dockerfile" >"$BOX_TMP/Dockerfile"
    docker build -q --network host -f "$BOX_TMP/Dockerfile" -t made "$IMAGES/slim" >/dev/null
    docker run --rm --entrypoint dpkg-query made -W -f '${Package} ${Version}\n' | sort -u >"$BOX_TMP/docker"
    jq -r '.packages | to_entries[] | "\(.key) \(.value)"' "$IMAGES/slim/manifest.json" | sort -u >"$BOX_TMP/manifest"
    diff "$BOX_TMP/docker" "$BOX_TMP/manifest"
    # And it is started alike.
    docker load -q -i "$IMAGES/slim/oci.tar"
    how='{{.Config.User}} {{.Config.WorkingDir}} {{.Config.ExposedPorts}} {{.Config.Env}}'
    command='{{join .Config.Entrypoint " "}} {{join .Config.Cmd " "}}'
    loaded=$(jq -r '"bellhop/\(.name):\(.version)"' "$IMAGES/slim/manifest.json")
    [ "$(docker image inspect -f "$how" made)" = "$(docker image inspect -f "$how" "$loaded")" ]
    [ "$(docker image inspect -f "$command" made | xargs)" = "$(docker image inspect -f "$command" "$loaded" | xargs)" ]
    docker rmi -f made "$loaded" >/dev/null
}

@test "the image's container serves nothing without a token" {
    loaded=$(docker load -q -i "$IMAGES/slim/oci.tar" | sed 's/.*: //')
    # 125 to 127: Docker could not start it, which a busy machine is enough for, and the image has said nothing.
    for _ in 1 2 3; do
        run timeout 180 docker run --rm "$loaded"
        echo "status $status: $output"
        [[ $status == 12[5-7] ]] || break
    done
    [ "$status" -ne 0 ]
    [ "$status" -ne 124 ]
    [[ "$output" == *token* ]]
    docker rmi -f "$loaded" >/dev/null
}

@test "a tool that the manifest has and the image has not is a failure with its reason" {
    image_with broken '.packages.gh = "9"'
    run --separate-stderr bellhop image test "$BOX_TMP/broken" --form oci --check gh --check jq
    [ "$status" -eq 1 ]
    grep -Eq $'^gh\t.*failed' <<<"$output"
    grep -Eq $'^jq\t1\\.[0-9.]+\tok' <<<"$output"
    grep -Eq '^oci: gh: .*gh: (not found|command not found)' <<<"$output"
    nothing_left
}

@test "a tool that is not in the image is not tried, and said so" {
    run --separate-stderr bellhop image test slim --form oci --check ffmpeg --check jq
    [ "$status" -eq 0 ]
    grep -q $'^ffmpeg\tnot in slim' <<<"$output"
}

@test "an engine that is not there is a line, and an error when it was asked for" {
    mkdir "$BOX_TMP/bin"
    for program in sh sed tail head basename dirname mkdir rm od tr install cat uname runc crun slirp4netns ip \
        nft mount umount mke2fs; do
        ln -s "$(command -v "$program")" "$BOX_TMP/bin/" 2>/dev/null || true
    done
    run --separate-stderr env PATH="$BOX_TMP/bin" "$BELLHOP" image test slim --check jq
    [ "$status" -eq 0 ]
    [[ "$output" == *"podman: not tested: the program 'podman' is not installed"* ]]
    [[ "$output" == *"docker: not tested: the program 'docker' is not installed"* ]]
    run env PATH="$BOX_TMP/bin" "$BELLHOP" image test slim --form podman --check jq
    [ "$status" -eq 4 ]
    [ "$output" = "bellhop: podman: the program 'podman' is not installed" ]
    DOCKER_HOST=unix:///nowhere run bellhop image test slim --form docker --check jq
    [ "$status" -eq 4 ]
    [[ "$output" == "bellhop: docker: docker does not answer: "*"unix:///nowhere"* ]]
}

@test "names that are not there are refused by name" {
    run bellhop image test nowhere
    [ "$status" -eq 3 ]
    [[ "$output" == *"there is no image and no template 'nowhere' ('bellhop image ls')"* ]]
    run bellhop image test slim --form floppy
    [ "$status" -eq 2 ]
    [[ "$output" == *"there is no form 'floppy': oci, docker, podman, qemu, dockerfile"* ]]
    run bellhop image test slim --form oci --form oci
    [ "$status" -eq 2 ]
    [[ "$output" == *"the form 'oci' is named twice"* ]]
    run bellhop image test slim --check teapot
    [ "$status" -eq 2 ] && [[ "$output" == *"there is no check 'teapot': agent, start, ready, user, "* ]]
}

@test "an image that does not answer is told of with the end of its log" {
    image_with silent .
    printf 'FROM scratch\nCOPY sh /\nENTRYPOINT ["/sh"]\n' >"$BOX_TMP/Dockerfile.silent"
    mkdir "$BOX_TMP/ctx"
    cp "$BELLHOP_BUILD/bellhopd" "$BOX_TMP/ctx/sh"
    docker build -q -f "$BOX_TMP/Dockerfile.silent" -t silent "$BOX_TMP/ctx" >/dev/null
    rm "$BOX_TMP/silent/oci.tar"
    docker save -o "$BOX_TMP/silent/oci.tar" silent
    docker rmi -f silent >/dev/null
    run --separate-stderr bellhop image test "$BOX_TMP/silent" --form docker --check jq
    [ "$status" -eq 1 ]
    grep -q '^docker: not booted: the container ended: ' <<<"$output" || fail "$output"
    nothing_left
    [ -z "$(docker images -q silent)" ]
}

@test "^C takes away what was started" {
    "$BELLHOP" image test slim --form docker >"$BOX_TMP/out" 2>&1 &
    pid=$!
    for _ in $(seq 1800); do
        [ -z "$(docker ps -q)" ] || break
        read -r -t 0.1 <> <(:) || true
    done
    [ -n "$(docker ps -q)" ]
    kill -INT "$pid"
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 130 ]
    nothing_left
}
