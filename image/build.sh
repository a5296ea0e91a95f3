#!/bin/sh
# build.sh DEF [FORM...]: builds the image of a definition as NAME-HASH below $BELLHOP_IMAGES (default: build/image),
# and the links NAME and NAME:VERSION to it. README.md describes definitions and forms; the default form is squashfs.
# Existing forms are kept, except forms with the agent in them if $BELLHOP_AGENT is another one. Needs root, or sudo.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=${here%/*}

if [ "$(id -u)" -ne 0 ]; then
    kept=BELLHOP_IMAGES,BELLHOP_IMAGE_CACHE,BELLHOP_AGENT,TMPDIR
    exec sudo --preserve-env="$kept,npm_config_registry,http_proxy,https_proxy,no_proxy" "$0" "$@"
fi
# A private mount namespace: the mounts end with the process.
if [ "${IMAGE_NAMESPACE:-}" != "$$" ]; then
    IMAGE_NAMESPACE=$$ exec unshare --mount --propagation private "$0" "$@"
fi

# shellcheck source=image/lib.sh
. "$here/lib.sh"
# The canonical path: mounts below it are found by name.
mkdir -p "$image_build" "$image_cache/layers"
image_build=$(cd "$image_build" && pwd -P)
image_cache=$(cd "$image_cache" && pwd -P)
# shellcheck source=image/layers.sh
. "$here/layers.sh"
# shellcheck source=image/forms.sh
. "$here/forms.sh"

definition=$(cd "${1:?usage: build.sh DEF [FORM...]}" && pwd)
shift
[ $# -gt 0 ] || set -- squashfs
forms=$*
# shellcheck disable=SC2034 # forms.sh
agent=${BELLHOP_AGENT:-$top/build/release/bellhopd}
name=$(image_value "$definition" name)
version=$(image_value "$definition" version)

# The hash of all inputs of the image.
hash=$(cd "$definition" && find . -type f ! -name agents | LC_ALL=C sort | while read -r f; do
    echo "$f" && cat "$f"
done && find . -name agents -exec sed 's| /[^ ]*/| |' '{}' + &&
    cat "$here/excludes.txt" "$here/npm.lock" "$here/customize.sh" "$here/layers.sh")
hash=$(printf '%s' "$hash" | image_key image)
final=$image_build/$name-$hash

missing_forms()
{
    for form in $forms; do
        form_is_there "$form" || echo "$form"
    done
}

is_made()
{
    [ -z "${IMAGE_FRESH:-}" ] && [ -e "$final/manifest.json" ] && [ -z "$(missing_forms)" ]
}

# If there is nothing to do, do not wait for another build.
if is_made && [ "$(readlink "$image_build/$name")" = "$name-$hash" ] &&
    [ "$(readlink "$image_build/$name:$version")" = "$name-$hash" ]; then
    exit 0
fi

# ---- one build at a time; no partial result under a final name ----------------------------------

exec 9>"$image_build/.$name.lock"
if ! flock --nonblock 9; then
    say "waiting for another build of $name"
    flock 9
fi
# No layer is removed during a build.
exec 6>"$layers/.use.lock"
flock --shared 6

tmp=$image_build/.$name-$hash.tmp.$$
# Not next to the images: their disk may be full.
log=$(mktemp "${TMPDIR:-/tmp}/bellhop-image-XXXXXX")
merged=$tmp/merged
cleanup()
{
    status=$?
    trap - EXIT
    cd /
    # Unmount first: rm must not descend into a mount.
    while read -r _ _ _ _ at _; do
        case $at in "$tmp"/* | "$layers"/.*) echo "$at" ;; esac
    done </proc/self/mountinfo | sort -r | xargs -r umount -l 2>/dev/null || true
    rm -rf --one-file-system "$log" "$tmp" "$layers"/.*."$$" 2>/dev/null
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# Remove the leftovers of killed builds.
sweep()
{
    for left in "$image_build"/.*.tmp.* "$layers"/.*.[0-9]* "$image_build"/.*.def.*.*; do
        pid=${left##*.}
        # The name of a definition that the CLI writes has a random suffix.
        case ${left##*/} in *.def.*) left_by=${left##*.def.} && pid=${left_by%%.*} ;; esac
        if [ -d "$left" ] && [ ! -d "/proc/$pid" ]; then
            rm -rf --one-file-system "$left"
        fi
    done
}

# Remove layers that no build has used for a month.
prune_layers()
{
    flock --exclusive --nonblock 6 || return 0
    find "$layers" -mindepth 1 -maxdepth 1 -type d ! -name '.*' ! -name empty -mtime +30 \
        -exec rm -rf --one-file-system '{}' +
    find "$image_cache/apt/archives" -name '*.deb' -mtime +60 -delete 2>/dev/null || true
}

point_link()
{
    [ "$(readlink "$image_build/$1" 2>/dev/null)" != "$name-$hash" ] || return 0
    ln -sfn "$name-$hash" "$image_build/.$1.new.$$"
    mv -Tf "$image_build/.$1.new.$$" "$image_build/$1"
}

# "; squashfs 41 MB, oci 60 MB": the forms made in this run.
made_sizes()
{
    between='; '
    for form in $missing; do
        file=$final/$(form_file "$form")
        case $form in dockerfile) continue ;; esac
        [ -f "$file" ] || continue
        printf '%s%s %s MB' "$between" "$form" $((($(stat -c '%b * %B' "$file") + 500000) / 1000000))
        between=', '
    done
}

sweep
missing=$(missing_forms)
if is_made; then
    point_link "$name:$version"
    point_link "$name"
    exit 0
fi

start=$(date +%s)
mkdir -p "$tmp/out" "$merged"
all_layers "$definition"
mount_chain "$merged"
for form in $missing; do
    "make_$form"
done
rm -rf "$tmp/out/definition"
cp -R "$definition" "$tmp/out/definition"
chmod -R go+rX "$tmp/out/definition"
check_budget
write_manifest

# Install: a new image by one rename, an additional form next to the others.
if [ -e "$final/manifest.json" ]; then
    # The manifest, and the record of each form's agent, come last.
    mv -T "$tmp/out/manifest.json" "$tmp/manifest.json"
    for made in "$tmp/out"/* "$tmp/out"/.agent.* "$tmp/manifest.json"; do
        [ -e "$made" ] || continue
        target=$final/${made##*/}
        [ ! -d "$target" ] || mv -T "$target" "$tmp/old.${made##*/}"
        mv -T "$made" "$target"
    done
else
    rm -rf --one-file-system "$final"
    mv -T "$tmp/out" "$final"
fi
point_link "$name:$version"
point_link "$name"
prune_layers
say "made $name:$version in $(($(date +%s) - start)) s$(made_sizes): $final"
