# shellcheck shell=sh
# Functions of the image scripts: values of a definition, hashes, the verified download of npm packages, progress
# and errors. The caller has set $top (the folder with image/ and scripts/).
# shellcheck disable=SC2154,SC2034

image_dir=$top/image
# The folders of images and of the cache: from the CLI, else as in a build tree.
image_build=${BELLHOP_IMAGES:-$top/build/image}
image_cache=${BELLHOP_IMAGE_CACHE:-$top/build/cache/image}

# The ids of the box's user in every image.
image_uid=1000

# say TEXT: prints a step; the CLI shows it as progress.
say()
{
    printf '%s\n' "$*"
}

# fail FIELD TEXT: prints the error in one line, from which the CLI takes the field, and exits.
fail()
{
    printf 'image: %s: %s\n' "$1" "$2" >&2
    exit 1
}

# image_list FILE: its lines without comments; a name without a slash is a file of this folder.
image_list()
{
    case $1 in
    */*) set -- "$1" ;;
    *) set -- "$image_dir/$1" ;;
    esac
    sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$1"
}

# image_count FILE WORD: "1 package", "3 packages".
image_count()
{
    n=$(image_list "$1" | wc -l)
    echo "$n $2$([ "$n" -eq 1 ] || echo s)"
}

# image_start_file DEF DIR: the start_cmd as a script in DIR, for an agent that is the first process (`--start-file`):
# in a virtual machine and in a container. In a box the host starts it.
image_start_file()
{
    [ -s "$1/start_cmd" ] || return 0
    {
        echo '#!/bin/sh'
        echo "cd '$(image_value "$1" workdir)' || exit"
        cat "$1/start_cmd"
    } >"$2/start"
    chmod 755 "$2/start"
}

image_arch()
{
    dpkg --print-architecture
}

# image_value DEF NAME: a value of a definition, or the empty string.
image_value()
{
    [ ! -e "$1/$2" ] || head -n 1 "$1/$2"
}

# image_key TEXT...: a hash of the arguments and of standard input, for a name.
image_key()
{
    {
        image_arch
        printf '%s\n' "$@"
        cat
    } | sha256sum | cut -c 1-16
}

# image_minbase SUITE: the key of the first layer.
image_minbase()
{
    image_key minbase-2 "$1" <"$image_dir/excludes.txt"
}

# image_locked USE FIELD: a field (3 package, 4 version, 5 sha512) of npm.lock for this architecture.
image_locked()
{
    image_list "$image_dir/npm.lock" |
        awk -F ' *[|] *' -v use="$1" -v field="$2" -v arch="$(image_arch)" \
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

# image_fetch USE: fetches the package's tarball into the cache, and verifies it.
image_fetch()
{
    package=$(image_locked "$1" 3)
    want=$(image_locked "$1" 5)
    [ -n "$package" ] || fail node "npm.lock has no $1 for $(image_arch)"
    file=$image_cache/$(image_tarball "$1")
    ! image_is_good "$file" "$want" || return 0

    mkdir -p "$image_cache"
    registry=$("$top/scripts/npm-registry.sh") || fail node "no npm registry is set on this machine"
    say "fetching $(basename "$file")"
    curl --fail --silent --show-error --location --retry 3 --connect-timeout 20 \
        --output "$file.part.$$" "$registry/$package/-/$(basename "$file")" ||
        fail node "$package could not be fetched from the npm registry $registry"
    if ! image_is_good "$file.part.$$" "$want"; then
        rm -f "$file.part.$$"
        fail node "$(basename "$file") does not have the locked checksum"
    fi
    mv -f "$file.part.$$" "$file"
}

# image_unpack_node DIR: unpacks node and npm, as below /usr/local.
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
