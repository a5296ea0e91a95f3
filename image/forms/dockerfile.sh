#!/bin/sh
# dockerfile.sh - VERB IMAGE_DIR WORK_DIR: builds the image's Dockerfile, and boots the result with the same engine.
# BASE in the environment replaces the image that FROM names. BUILDER is docker (the default; DOCKER_BUILDKIT chooses
# one of its two builders), podman, or buildah, whose images Podman boots.
set -eu

verb=$2
image=$3
work=$4
forms=$(dirname "$0")
# shellcheck source=image/forms/lib.sh
. "$forms/lib.sh"
builder=${BUILDER:-docker}
engine=$builder
[ "$builder" != buildah ] || engine=podman
image_ref=localhost/bellhop-image-test:$(basename "$work" | tr '[:upper:]' '[:lower:]' | tr -dc 'a-z0-9-')
export image_ref

# Certificates that this machine trusts beyond its distribution's, for downloads by TLS.
extra_ca()
{
    cat /usr/local/share/ca-certificates/*.crt 2>/dev/null | base64 -w 0
}

# last_words: the last line that a step of a failed build printed: it has the reason, and the builder's line has not.
# BuildKit has the number of the step and the seconds before it.
last_words()
{
    words=$(sed -n 's/^#[0-9]* [0-9]*[.][0-9]* *//p' "$work/log" | tail -n 1)
    [ -n "$words" ] || words=$(grep -viE 'error|failed|non-zero' "$work/log" | tail -n 1)
    [ -z "$words" ] || printf ' (it ended with: %.200s)' "$words"
}

build()
{
    from=$(sed -n 's/^FROM //p' "$image/Dockerfile")
    sed "s|^FROM .*|FROM ${BASE:-$from}|" "$image/Dockerfile" >"$work/Dockerfile"
    set -- --network host --file "$work/Dockerfile" --tag "$image_ref" --build-arg "EXTRA_CA=$(extra_ca)" \
        --build-arg "NPM_REGISTRY=${npm_config_registry:-}" --build-arg "PIP_INDEX=${PIP_INDEX_URL:-}" "$image"
    # Builders accept these without an ARG, and use them for the network of their steps.
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        eval "value=\${$name:-}"
        # shellcheck disable=SC2154 # set by eval
        [ -z "$value" ] || set -- --build-arg "$name=$value" "$@"
    done
    case $builder in
    buildah) set -- buildah bud --ulimit nofile=4096:4096 "$@" ;;
    *) set -- "$builder" build "$@" ;;
    esac
    "$@" >"$work/log" 2>&1 || {
        tail -n 5 "$work/log"
        echo "$builder could not build it: $(grep -iE 'error|failed' "$work/log" | tail -n 1)$(last_words)"
        exit 1
    }
}

case $verb in
probe)
    need_program "$builder"
    ;;
start)
    need_file "$image/Dockerfile"
    build
    ;;
esac
sh "$forms/container.sh" "$engine" "$verb" "$image" "$work"
[ "$verb" != stop ] || "$engine" rmi --force "$image_ref" >/dev/null 2>&1 || true
