#!/bin/sh
# dockerfile.sh [IMAGE...]: both ways to an image give the same result: the image that each builder (docker, podman,
# buildah) makes from the Dockerfile of each IMAGE (slim, base) has the packages of the image's manifest, of Debian, npm
# and pip, in the same versions. Prints a line for each. tests/long/images.sh and forms.bats run the checks in them.
# Needs root. BUILDERS names the builders.
set -eu

cd "$(dirname "$0")/../.."
top=$PWD
[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env=npm_config_registry,PIP_INDEX_URL,BUILDERS "$0" "$@"
[ $# -gt 0 ] || set -- slim base

work=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-dockerfile-XXXXXX")
ENGINES=$work/engines
. tests/lib/engines.sh
bellhop=$top/build/release/bellhop
bad=0
export BELLHOP_STATE_DIR="$work/state" DOCKER_BUILDKIT=1
finish()
{
    stop_engines
    rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
base=localhost/bellhop-base

# "KIND NAME VERSION", sorted, of the manifest and of the built image.
of_manifest()
{
    jq -r '(.packages | to_entries[] | "deb \(.key) \(.value)"),
           (.npm_packages | to_entries[] | select(.key != "node") | "npm \(.key) \(.value)"),
           (.pip_packages | to_entries[] | "pip \(.key) \(.value)"),
           (.npm_packages.node // empty | "node node v\(.)")' "$1/manifest.json" | LC_ALL=C sort -u
}

# shellcheck disable=SC2016 # the shell in the container expands
in_container='dpkg-query -W -f "deb \${Package} \${Version}\n"
    ! command -v node >/dev/null || {
        echo "node node $(node --version)"
        cd /usr/local/lib/node_modules
        for json in */package.json @*/*/package.json; do
            [ ! -e "$json" ] || jq -r "\"npm \" + .name + \" \" + .version" "$json"
        done
    }
    find /usr/local/lib -path "*-packages/*.dist-info/METADATA" | while read -r file; do
        awk "/^Name: / { n = \$2 } /^Version: / { print \"pip\", n, \$2; exit }" "$file"
    done'

build_by()
{
    builder=$1
    engine=$builder
    [ "$builder" != buildah ] || engine=podman
    extra=$(cat /usr/local/share/ca-certificates/*.crt 2>/dev/null | base64 -w 0)
    sed "s|^FROM .*|FROM $base|" "$2/Dockerfile" >"$work/Dockerfile"
    set -- --network host --file "$work/Dockerfile" --tag localhost/made --build-arg "EXTRA_CA=$extra" \
        --build-arg "NPM_REGISTRY=$("$top/scripts/npm-registry.sh")" --build-arg "PIP_INDEX=${PIP_INDEX_URL:-}" "$2"
    case $builder in
    buildah) buildah bud --ulimit nofile=4096:4096 "$@" ;;
    *) "$builder" build "$@" ;;
    esac
}

try_builder()
{
    start=$(date +%s)
    if ! build_by "$2" "$top/build/image/$1" >"$work/log" 2>&1; then
        tail -n 15 "$work/log"
        echo "$1 by $2: not built"
        return 1
    fi
    "$engine" run --rm --network none --entrypoint sh localhost/made -c "$in_container" | LC_ALL=C sort -u >"$work/got"
    of_manifest "$top/build/image/$1" >"$work/wanted"
    if diff "$work/wanted" "$work/got"; then
        echo "$1 by $2: the same $(wc -l <"$work/got") packages, $(($(date +%s) - start)) s"
    else
        echo "$1 by $2: not the same (< by mmdebstrap, > by $2)"
        return 1
    fi
}

start_dockerd
set_up_podman
for image; do
    "$bellhop" image build "$image" --form dockerfile
    for builder in ${BUILDERS:-docker podman buildah}; do
        engine=$builder
        [ "$builder" != buildah ] || engine=podman
        "$engine" image inspect "$base" >/dev/null 2>&1 || image/base.sh | "$engine" import - "$base" >/dev/null
        try_builder "$image" "$builder" || bad=1
        "$engine" rmi --force localhost/made >/dev/null 2>&1 || true
    done
done
exit "$bad"
