#pragma once
/*
 * rootdisk: the root file system of a machine. Before there are threads; as root.
 */
#include <stdbool.h>

#include "common/err.h"

#define ROOTDISK_WAIT_MS 10000 /* for the device to appear */

/*
 * Mounts the disk at /newroot of an initramfs. ext4 that can be written to is mounted as it is, and
 * made as large as its device; everything else (squashfs, erofs, a read-only ext4) lies below a
 * tmpfs that takes the changes (*ret_is_in_memory).
 */
int rootdisk_mount(const char *device, bool *ret_is_in_memory, struct err *e);

/* Makes /newroot the root, with /proc, /sys and /dev taken along. */
int rootdisk_enter(struct err *e);
