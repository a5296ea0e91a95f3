#!/bin/sh
# vm.sh ROOTFS OUT [AGENT]: writes the files of a virtual machine to the directory OUT:
#   kernel      Debian's for clouds; on amd64 uncompressed, with the PVH entry that `qemu -kernel` takes
#   initramfs   the agent (default build/release/bellhopd) as /init, and modules.txt's modules
#   vm.json     the version of the kernel, and a command line
#   disk.ext4   ROOTFS as a writable disk; it grows to the size of its file at boot
# ROOTFS is a directory or a squashfs file, or "-" for no disk. Each file is written atomically. VM_DISK_MB is
# the space to leave free on the disk (default 1024; the file is sparse).
# Needs root, or sudo, to read the root file system. The kernel is kept in build/image/cache for a week.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/image/lib.sh"

if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    echo "usage: image/vm.sh ROOTFS OUT [AGENT]" >&2
    exit 2
fi
rootfs=$1
out=$2
agent=${3:-$top/build/release/bellhopd}
arch=$(image_arch)
kernel_keep_days=7
kept=$image_cache/kernel-$arch
tmp=

fail()
{
    echo "image/vm.sh: $*" >&2
    exit 1
}

# ---- the kernel ---------------------------------------------------------------------------------

# The package that the unversioned name currently depends on.
kernel_package()
{
    apt-cache depends "linux-image-cloud-$arch" | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1
}

# In a process of its own: it exports apt's settings.
download_kernel()
(
    "$top/scripts/private-apt.sh" "$tmp/apt" deb || exit 1
    export APT_CONFIG="$tmp/apt/apt.conf"
    package=$(kernel_package)
    cd "$tmp" && [ -n "$package" ] && apt-get -qq download "$package" >>"$tmp/apt/log" 2>&1
)

fetch_kernel()
{
    if ! download_kernel; then
        cat "$tmp/apt/log" >&2 || true
        fail "Debian's kernel could not be fetched; apt's words are above"
    fi
    mkdir "$tmp/deb"
    dpkg-deb -x "$tmp"/linux-image-*.deb "$tmp/deb"
    # shellcheck disable=SC2016 # the words are dpkg's
    dpkg-deb -W --showformat '${Package} ${Version}\n' "$tmp"/linux-image-*.deb >"$tmp/deb/package"
}

# u BYTES OFFSET FILE: a little-endian number.
u()
{
    od -An -t "u$1" -j "$2" -N "$1" "$3" | tr -d ' '
}

# extract_kernel VMLINUZ OUT: extracts the kernel from a bzImage, at the offset in its header (Linux boot protocol
# 2.08); its last four bytes are the size. Any other file is copied.
extract_kernel()
{
    if [ "$(od -An -c -j 514 -N 4 "$1" | tr -d ' ')" != HdrS ]; then
        cp "$1" "$2"
        return
    fi
    start=$((($(u 1 497 "$1") + 1) * 512 + $(u 4 584 "$1")))
    length=$(($(u 4 588 "$1") - 4))
    tail -c +$((start + 1)) "$1" | head -c "$length" >"$2.packed"
    case $(od -An -t x1 -N 4 "$2.packed" | tr -d ' ') in
    02214c18) lz4 -dcq "$2.packed" >"$2" ;;
    28b52ffd) zstd -dcq "$2.packed" >"$2" ;;
    fd377a58) xz -dc "$2.packed" >"$2" ;;
    1f8b*) gzip -dc "$2.packed" >"$2" ;;
    *) fail "the kernel is packed in a way this script does not know" ;;
    esac
    rm -f "$2.packed"
    [ "$(od -An -c -N 4 "$2" | tr -d ' ')" = '177ELF' ] || fail "what was in the bzImage is no ELF file"
}

# copy_modules TREE RELEASE: copies the modules of modules.txt and their dependencies to $tmp/kept/modules, and writes
# their order to the file `order` there.
copy_modules()
{
    mkdir -p "$tmp/kept/modules"
    depmod -b "$1" "$2"
    image_list modules.txt | while read -r name; do
        modprobe -d "$1" -S "$2" --show-depends "$name" 2>/dev/null |
            sed -n 's/^insmod \([^ ]*\).*/\1/p'
    done | awk '!seen[$0]++' | while read -r file; do
        name=$(basename "$file" | sed 's/\.ko.*/.ko/')
        case $file in
        *.xz) xz -dc "$file" >"$tmp/kept/modules/$name" ;;
        *.zst) zstd -dcq "$file" >"$tmp/kept/modules/$name" ;;
        *) cp "$file" "$tmp/kept/modules/$name" ;;
        esac
        echo "$name"
    done >"$tmp/kept/modules.order"
    mv "$tmp/kept/modules.order" "$tmp/kept/modules/order"
    [ -s "$tmp/kept/modules/order" ] || fail "the kernel package has none of the modules in modules.txt"
}

get_kernel()
{
    cat "$image_dir/modules.txt" "$image_dir/vm.sh" | sha256sum >"$tmp/made-of"
    if cmp -s "$kept/made-of" "$tmp/made-of" &&
        [ -n "$(find "$kept/made-of" -mtime "-$kernel_keep_days")" ]; then
        return
    fi
    echo "fetching Debian's kernel for virtual machines"
    fetch_kernel
    release=$(ls "$tmp/deb/lib/modules")
    mkdir "$tmp/kept"
    extract_kernel "$tmp/deb/boot/vmlinuz-$release" "$tmp/kept/kernel"
    copy_modules "$tmp/deb" "$release"
    read -r package version <"$tmp/deb/package"
    printf '{"kernel": {"package": "%s", "version": "%s", "release": "%s", "arch": "%s"},\n "cmdline": "%s"}\n' \
        "$package" "$version" "$release" "$arch" "$(cmdline)" >"$tmp/kept/vm.json"
    mv "$tmp/made-of" "$tmp/kept/made-of"
    mkdir -p "$image_cache"
    rm -rf "$kept"
    mv -T "$tmp/kept" "$kept"
}

cmdline()
{
    case $arch in
    amd64) echo "console=ttyS0 no_timer_check quiet panic=-1 pci=off mitigations=off nokaslr" ;;
    *) echo "console=ttyAMA0 quiet panic=-1 mitigations=off nokaslr" ;;
    esac
}

# ---- the files ----------------------------------------------------------------------------------

make_initramfs()
{
    mkdir -p "$tmp/init/dev" "$tmp/init/proc" "$tmp/init/sys" "$tmp/init/modules"
    cp "$agent" "$tmp/init/init"
    chmod 755 "$tmp/init/init"
    cp "$kept/modules/"* "$tmp/init/modules/"
    find "$tmp/init" -exec touch -h -d @0 '{}' +
    (cd "$tmp/init" && find . | LC_ALL=C sort | cpio --quiet --create --format=newc --owner=0:0 --reproducible) |
        zstd -q -9 -T0 >"$tmp/initramfs"
}

# The size of the files, a tenth more for the file system, and the space to leave free.
disk_mb()
{
    used=$(as_root du -s --block-size=1M "$1" | cut -f 1)
    echo $((used + used / 10 + 16 + ${VM_DISK_MB:-1024}))
}

make_disk()
{
    tree=$rootfs
    if [ ! -d "$rootfs" ]; then
        tree=$tmp/tree
        as_root unsquashfs -q -n -no-progress -d "$tree" "$rootfs" >"$tmp/log" 2>&1 || {
            cat "$tmp/log" >&2
            fail "'$rootfs' is no directory and no squashfs that could be unpacked"
        }
    fi
    truncate -s "$(disk_mb "$tree")M" "$tmp/disk.ext4"
    as_root mke2fs -q -t ext4 -L bellhop -m 0 -E root_owner=0:0 -d "$tree" "$tmp/disk.ext4" 2>"$tmp/log" || {
        cat "$tmp/log" >&2
        fail "the disk could not be made"
    }
}

[ -x "$agent" ] || fail "there is no agent '$agent': run make first"
[ "$rootfs" = - ] || [ -e "$rootfs" ] || fail "there is no '$rootfs'"
mkdir -p "$out" "$image_cache"
tmp=$(mktemp -d "$out/.vm.XXXXXX")
trap 'as_root rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

exec 8>"$image_cache/kernel.lock"
flock 8
get_kernel
cp "$kept/kernel" "$kept/vm.json" "$tmp/"
make_initramfs
exec 8>&-
[ "$rootfs" = - ] || make_disk
for file in kernel initramfs disk.ext4 vm.json; do
    [ ! -e "$tmp/$file" ] || mv -f "$tmp/$file" "$out/$file"
done
