#!/bin/sh
# embed-page.sh OUT: writes the status page as rows of a C table,
# PAGE_FILE(NUMBER, "name", "type", "etag", "path"), with
# the files of the npm packages in its lock. Those are kept in build/cache; the checksum of the lock decides, so a fetch
# is made only once.
set -eu

cd "$(dirname "$0")/.."
page=host-client/daemon/page
cache=build/cache/page
out=$1

fail()
{
    echo "embed-page: $1" >&2
    exit 1
}

is_good() # FILE SHA512
{
    [ -e "$1" ] && [ "$(openssl dgst -sha512 -binary "$1" | base64 -w 0)" = "$2" ]
}

# The npm registry is asked only for a package that is not in the cache.
fetch() # PACKAGE VERSION SHA512 FILE
{
    ! is_good "$4" "$3" || return 0
    registry=$(scripts/npm-registry.sh) || fail "no npm registry is set on this machine"
    curl --fail --silent --show-error --location --retry 3 --connect-timeout 20 --output "$4.part.$$" \
        "$registry/$1/-/${1##*/}-$2.tgz" || fail "$1 could not be fetched from the npm registry"
    is_good "$4.part.$$" "$3" || fail "$1 does not have the locked checksum"
    mv -f "$4.part.$$" "$4"
}

# The maps of the sources are not embedded: browsers would ask for them.
unpack_packages()
{
    mkdir -p "$cache" build/gen/page
    grep -v '^#' "$page/npm.lock" | while IFS='|' read -r package version sum files; do
        package=$(echo "$package" | tr -d ' ')
        version=$(echo "$version" | tr -d ' ')
        tarball=$cache/${package##*/}-$version.tgz
        fetch "$package" "$version" "$(echo "$sum" | tr -d ' ')" "$tarball"
        for file in $files LICENSE; do
            name=${file##*/}
            [ "$file" != LICENSE ] || name=${package##*/}-license.txt
            tar -xzOf "$tarball" "package/$file" | sed '/^\/\/# sourceMappingURL=/d' >"build/gen/page/$name"
        done
    done
}

type_of() # FILE
{
    case $1 in
    *.html) echo 'text/html; charset=utf-8' ;;
    *.css) echo 'text/css; charset=utf-8' ;;
    *.js | *.mjs) echo 'text/javascript; charset=utf-8' ;;
    *.svg) echo 'image/svg+xml' ;;
    *.txt) echo 'text/plain; charset=utf-8' ;;
    *) fail "no media type for $1" ;;
    esac
}

unpack_packages
n=0
for file in "$page"/*.html "$page"/*.css "$page"/*.js "$page"/*.svg build/gen/page/*; do
    type=$(type_of "$file")
    etag=$(sha256sum "$file" | cut -c 1-32)
    printf 'PAGE_FILE(%d, "%s", "%s", "\\"%s\\"", "%s")\n' "$n" "${file##*/}" "$type" "$etag" "$file"
    n=$((n + 1))
done >"$out.part"
mv -f "$out.part" "$out"
