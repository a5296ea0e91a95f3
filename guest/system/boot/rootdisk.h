#pragma once
/* rootdisk: mounts the root file system of a machine. Before there are threads; as root. */
#include <stdbool.h>

#include "common/err.h"

#define ROOTDISK_WAIT_MS 10000 /* for the device to appear */

/*
 * Mounts the disk at /newroot of an initramfs. A writable ext4 is mounted directly and grown to the size of its
 * device; any other (squashfs, erofs, a read-only ext4) becomes the lower layer of an overlay whose changes go
 * to a tmpfs (*ret_is_in_memory).
 */
int rootdisk_mount(const char *device, bool *ret_is_in_memory, struct err *e);

/* Makes /newroot the root, and moves /proc, /sys and /dev there. */
int rootdisk_enter(struct err *e);
