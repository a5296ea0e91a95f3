#!/bin/sh
# bare-root.sh [MAKE_ARGUMENTS...]: a Debian minbase with `make` and `ca-certificates`, nothing else,
# with this repository cloned into it (and what is not committed yet copied over), in namespaces of
# its own. Runs `make MAKE_ARGUMENTS` in it, or by default the promises of the README: `make test`, then
# `make run AGENT=none` twice and `bellhop rm`. The root gets the settings of a user's machine: the apt sources, name
# servers, npm and pip settings and CA certificates of this one. Needs root.
#
# BARE_ROOT=DIR keeps the root there and uses it again.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)

if [ "$(id -u)" -ne 0 ]; then
    exec sudo --preserve-env=BARE_ROOT "$0" "$@"
fi

make_minbase()
{
    "$top/scripts/debian-sources.sh" | while read -r uri suite keyring; do
        echo "deb [signed-by=$keyring] $uri $suite main"
    done >"$work/sources.list"
    mmdebstrap --quiet --mode=root --variant=minbase --include=make,ca-certificates \
        --format=directory bookworm "$root" "$work/sources.list"
}

# The settings of the machine's owner, from before the clone.
copy_settings()
{
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    for file in /etc/npmrc /usr/etc/npmrc /usr/local/etc/npmrc "${HOME:-/root}/.npmrc" /etc/pip.conf \
        "${HOME:-/root}/.config/pip/pip.conf"; do
        [ ! -e "$file" ] || install -D -m 600 "$file" "$root/$file"
    done
}

# minbase has no git: the clone is made from outside, as by `git clone`. Its files get new times (--touch); otherwise
# the output of an earlier run in a reused root would seem newer.
clone_repository()
{
    mkdir -p "$root/home/newcomer"
    if [ ! -e "$root/home/newcomer/bellhop/.git" ]; then
        git clone --quiet --no-hardlinks "$top" "$root/home/newcomer/bellhop"
    fi
    (cd "$top" && git ls-files --cached --others --exclude-standard -z |
        tar --create --null --files-from=- --ignore-failed-read 2>/dev/null) |
        tar --extract --touch -C "$root/home/newcomer/bellhop" --no-same-owner
}

# The second half of this script runs in the namespaces: pivot_root, since a chroot may not make
# user namespaces.
enter()
{
    mount --make-rprivate /
    mount --rbind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mkdir -p "$root/mnt/old"
    cd "$root"
    pivot_root . mnt/old
    umount -l /mnt/old
    cd /home/newcomer/bellhop
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        TERM=dumb ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        tests/long/bare-root.sh --newcomer "$@"
}

timed()
{
    echo "==== in a bare root: $*"
    start=$(date +%s)
    status=0
    "$@" || status=$?
    echo "==== in a bare root: $*: $(($(date +%s) - start)) s, exit $status"
    return "$status"
}

# The promises of the README: the two commands, the second one again, and an end without a trace.
newcomer()
{
    if [ $# -gt 0 ]; then
        timed make "$@"
        return
    fi
    timed make test
    timed make run AGENT=none
    timed make run AGENT=none
    timed build/release/bellhop exec bellhop -- git status --short
    timed build/release/bellhop rm bellhop
}

case ${1:-} in
--inside)
    root=$2
    shift 2
    enter "$@"
    ;;
--newcomer)
    shift
    newcomer "$@"
    exit
    ;;
esac

work=$(mktemp -d /var/tmp/bellhop-bare.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
root=${BARE_ROOT:-$work/root}

[ -e "$root/etc/debian_version" ] || make_minbase
copy_settings
clone_repository
unshare --mount --pid --fork --kill-child "$0" --inside "$root" "$@"
