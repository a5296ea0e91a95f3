#!/bin/sh
# install-packages.sh SET...: installs the missing packages of scripts/packages/SET.txt with apt-get. Fast if none is
# missing.
set -eu

here=$(cd "$(dirname "$0")" && pwd)

wanted()
{
    for set in "$@"; do
        sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$here/packages/$set.txt"
    done | sort -u
}

# Prints the packages of standard input that are not installed.
missing()
{
    list=$(cat)
    # shellcheck disable=SC2086 # one word a package
    dpkg-query -W -f '${Package} ${db:Status-Abbrev}\n' $list 2>/dev/null |
        awk '$2 == "ii" { print $1 }' | sort -u >"$tmp/installed"
    printf '%s\n' "$list" | comm -23 - "$tmp/installed"
}

as_root()
{
    if [ "$(id -u)" -eq 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

apt_install()
{
    # shellcheck disable=SC2086 # one word a package
    as_root apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 install -y \
        --no-install-recommends $need >"$tmp/log" 2>&1 </dev/null
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C

need=$(wanted "$@" | missing | tr '\n' ' ')
[ -n "$need" ] || exit 0

if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
    echo "these packages are missing, and only root (or a user with sudo) can install them: $need" >&2
    exit 1
fi

echo "installing: $need"
# The lists may be absent or outdated: update them only if the first try fails.
if ! apt_install; then
    as_root apt-get -qq update >"$tmp/log" 2>&1 </dev/null || {
        cat "$tmp/log" >&2
        echo "apt-get update failed; see above" >&2
        exit 1
    }
    apt_install || {
        cat "$tmp/log" >&2
        echo "apt-get could not install: $need" >&2
        exit 1
    }
fi
