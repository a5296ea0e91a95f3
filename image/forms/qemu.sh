#!/bin/sh
# qemu.sh - VERB IMAGE_DIR WORK_DIR: boots the image's disk, kernel and initramfs in QEMU (image/qemu.sh).
# BELLHOP_QEMU_ACCEL=tcg emulates, even if the machine has KVM.
set -eu

verb=$2
image=$3
work=$4
forms=$(dirname "$0")
# shellcheck source=image/forms/lib.sh
. "$forms/lib.sh"
machine=$forms/../qemu.sh

case $verb in
probe)
    need_program "qemu-system-$(uname -m)"
    ;;
start)
    for file in disk.ext4 kernel initramfs; do
        need_file "$image/$file"
    done
    sh "$machine" start "$image" "$work" --root disk --memory 1536 --cpus 2 \
        --accel "${BELLHOP_QEMU_ACCEL:-auto}" >/dev/null
    ;;
log) tail -n 20 "$work/console" ;;
stop) sh "$machine" stop "$work" ;;
esac
