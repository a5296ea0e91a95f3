#!/bin/sh
# build.sh slim: the boxes' root file system, as build/image/slim-HASH/rootfs with a manifest.json
# beside it, and the link build/image/slim to it. Does nothing when that hash is there. An older one
# is left alone: running boxes stand on it. Needs root, or sudo, for mmdebstrap.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/image/lib.sh"

name=${1:-slim}
if [ "$name" != slim ]; then
    echo "image: there is no image '$name'; there is 'slim'" >&2
    exit 2
fi

point_link_at()
{
    ln -sfn "$(basename "$1")" "$image_build/$name.new.$$"
    mv -Tf "$image_build/$name.new.$$" "$image_build/$name"
}

debian_sources()
{
    "$top/scripts/debian-sources.sh" | while read -r uri suite keyring; do
        echo "deb [signed-by=$keyring] $uri $suite main"
    done
}

# The arguments of mmdebstrap that keep the excluded paths out.
exclude_options()
{
    image_list excludes.txt | sed "s/.*/--dpkgopt=path-exclude=&/"
}

make_rootfs()
{
    image_unpack_node "$tmp/local"
    debian_sources >"$tmp/sources.list"
    packages=$(image_list packages.txt | paste -sd ,)

    # shellcheck disable=SC2016,SC2046 # the hooks' $1 is mmdebstrap's; one word an exclude
    as_root env TMPDIR="${TMPDIR:-/tmp}" mmdebstrap --mode=root --variant=minbase \
        --format=directory \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
        --aptopt='Acquire::Retries "3"' --dpkgopt=force-unsafe-io \
        $(exclude_options) --dpkgopt=path-include=/usr/share/locale/locale.alias \
        --include="$packages" \
        --customize-hook="copy-in '$tmp/local/bin' '$tmp/local/lib' /usr/local" \
        --customize-hook="copy-in '$image_dir/customize.sh' /mnt" \
        --customize-hook='chroot "$1" sh /mnt/customize.sh' \
        --customize-hook='rm -f "$1/mnt/customize.sh"' \
        "$image_suite" "$tmp/rootfs" "$tmp/sources.list" >"$tmp/log" 2>&1 || {
        tail -n 30 "$tmp/log" >&2
        echo "image: mmdebstrap failed; the end of its log is above" >&2
        return 1
    }

    # mmdebstrap empties /run and takes these files away: a box mounts over them.
    as_root mkdir -p "$tmp/rootfs/run/bellhop"
    as_root touch "$tmp/rootfs/etc/resolv.conf" "$tmp/rootfs/etc/hostname"
}

write_manifest()
{
    {
        printf '{\n  "name": "%s",\n  "hash": "%s",\n  "suite": "%s",\n  "arch": "%s",\n' \
            "$name" "$hash" "$image_suite" "$(image_arch)"
        printf '  "size_bytes": %s,\n' "$(as_root du -s --block-size=1 "$tmp/rootfs" | cut -f 1)"
        printf '  "user": {"name": "user", "uid": 1000, "gid": 1000, "home": "/home/user"},\n'
        printf '  "npm_packages": {"%s": "%s", "%s": "%s"},\n' \
            "$(image_locked node 3)" "$(image_locked node 4)" \
            "$(image_locked npm 3)" "$(image_locked npm 4)"
        printf '  "packages": {\n'
        dpkg-query --admindir="$tmp/rootfs/var/lib/dpkg" -W -f '    "${Package}": "${Version}"\n' |
            sort -u | sed '$!s/$/,/'
        printf '  }\n}\n'
    } >"$tmp/manifest.json"
}

hash=$(image_hash)
final=$image_build/$name-$hash
mkdir -p "$image_build"
exec 9>"$image_build/lock"
flock 9

if [ -e "$final/manifest.json" ]; then
    [ "$(readlink "$image_build/$name")" = "$name-$hash" ] || point_link_at "$final"
    exit 0
fi

start=$(date +%s)
tmp=$image_build/.$name-$hash.tmp.$$
trap 'as_root rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$tmp"

echo "making the image '$name' (about a minute)"
make_rootfs
write_manifest
rm -rf "$tmp/local" "$tmp/sources.list" "$tmp/log"
as_root rm -rf "$final"
mv -T "$tmp" "$final"
point_link_at "$final"
size=$(sed -n 's/.*"size_bytes": \([0-9]*\),/\1/p' "$final/manifest.json")
echo "  IMAGE $final, $((size / 1000000)) MB in $(($(date +%s) - start)) s"
