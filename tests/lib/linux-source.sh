#!/bin/sh
# linux-source.sh [DIR]: prints the path of the tarball of Debian's Linux source, which it fetches into
# build/cache/linux once, through a private list of the machine's own mirror; apt checks its
# signature. With DIR, unpacks it there (without its top directory) unless that was done before.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
cache=$top/build/cache/linux
mkdir -p "$cache"

tarball()
{
    find "$cache" -maxdepth 1 -name 'linux_*.orig.tar.xz' | sort -V | tail -n 1
}

fetch()
{
    work=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-linux-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/got"
    # A pool may lack the tarball of the newest version: then take another version, or another suite.
    "$top/scripts/private-apt.sh" "$work/apt" deb-src own bookworm bullseye || true
    (
        export APT_CONFIG="$work/apt/apt.conf"
        cd "$work/got"
        apt-cache showsrc --only-source linux | sed -n 's/^Version: //p' | sort -urV |
            while read -r version; do
                apt-get -qq source --download-only --tar-only "linux=$version" && break
            done
        ls linux_*.orig.tar.xz
    ) >"$work/log" 2>&1 || {
        cat "$work/apt/log" "$work/log" >&2
        echo "linux-source: apt has no source package 'linux'" >&2
        exit 1
    }
    mv "$work"/got/linux_*.orig.tar.xz "$cache/"
}

(
    flock 9
    [ -n "$(tarball)" ] || fetch
) 9>"$cache/.lock"

if [ $# -eq 1 ]; then
    if [ ! -e "$1/.unpacked" ]; then
        mkdir -p "$1"
        tar -xf "$(tarball)" -C "$1" --strip-components=1 --no-same-owner
        : >"$1/.unpacked"
    fi
else
    tarball
fi
