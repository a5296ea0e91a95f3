# shellcheck shell=sh
# What the image scripts share: lists, hash, and the checked download of the npm packages.
# The caller has set $top, the repository.
# shellcheck disable=SC2154

image_dir=$top/image
image_build=$top/build/image
image_cache=$image_build/cache
# shellcheck disable=SC2034 # used by the scripts that read this file
image_suite=bookworm

# image_list FILE: its lines without comments.
image_list()
{
    sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$image_dir/$1"
}

image_arch()
{
    dpkg --print-architecture
}

# The hash of all that decides what is in the image.
image_hash()
{
    {
        image_arch
        cd "$image_dir" && cat packages.txt excludes.txt npm.lock customize.sh build.sh lib.sh
    } | sha256sum | cut -c 1-16
}

# image_locked USE FIELD: a field (3 package, 4 version, 5 sha512) of what this architecture uses.
image_locked()
{
    image_list npm.lock | awk -F ' *[|] *' -v use="$1" -v field="$2" -v arch="$(image_arch)" \
        '$1 == use && ($2 == arch || $2 == "all") { print $field }'
}

image_tarball()
{
    echo "$(image_locked "$1" 3)-$(image_locked "$1" 4).tgz"
}

image_is_good()
{
    [ -e "$1" ] && [ "$(openssl dgst -sha512 -binary "$1" | base64 -w 0)" = "$2" ]
}

# image_fetch USE: the package's tarball, checked, in the cache.
image_fetch()
{
    package=$(image_locked "$1" 3)
    want=$(image_locked "$1" 5)
    if [ -z "$package" ]; then
        echo "image: npm.lock has no $1 for $(image_arch)" >&2
        return 1
    fi
    file=$image_cache/$(image_tarball "$1")
    ! image_is_good "$file" "$want" || return 0

    mkdir -p "$image_cache"
    registry=$("$top/scripts/npm-registry.sh") || return 1
    echo "fetching $(basename "$file")"
    if ! curl --fail --silent --show-error --location --retry 3 --connect-timeout 20 \
        --output "$file.part" "$registry/$package/-/$(basename "$file")"; then
        echo "image: $package could not be fetched from the npm registry $registry" >&2
        return 1
    fi
    if ! image_is_good "$file.part" "$want"; then
        rm -f "$file.part"
        echo "image: $(basename "$file") does not have the locked checksum" >&2
        return 1
    fi
    mv -f "$file.part" "$file"
}

# image_unpack_node DIR: node and npm, as they lie below /usr/local.
image_unpack_node()
{
    image_fetch node
    image_fetch npm
    mkdir -p "$1/bin" "$1/lib/node_modules/npm"
    tar -xzf "$image_cache/$(image_tarball node)" -C "$1" --strip-components=1 --no-same-owner \
        package/bin/node
    tar -xzf "$image_cache/$(image_tarball npm)" -C "$1/lib/node_modules/npm" \
        --strip-components=1 --no-same-owner --exclude=package/man --exclude=package/docs
    ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$1/bin/npm"
    ln -sf ../lib/node_modules/npm/bin/npx-cli.js "$1/bin/npx"
    chmod 755 "$1/bin/node" "$1"/lib/node_modules/npm/bin/*-cli.js
}

as_root()
{
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}
