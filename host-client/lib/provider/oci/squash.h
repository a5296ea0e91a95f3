#pragma once
/*
 * oci_squash: an image's squashfs as the lower layer of boxes. All boxes on one image share one
 * loop device, and with it one superblock and its cached pages. The device vanishes with its last
 * mount (autoclear), so that nothing needs undoing after a crash.
 */
#include "common/err.h"

/* Makes a detached, read-only mount of the file, never with devices, with the ids of
 * `userns_fd` unless that is -1. Usable in a forked child. The error says what this machine
 * lacks. */
int oci_squash_mount(const char *file, int userns_fd, int *ret_fd, struct err *e);

/*
 * Chooses the lower layer of the image in `dir`: its squashfs if this machine can mount one, else
 * its directory rootfs, unpacked if it is missing. *ret is the path.
 */
int oci_squash_choose(const char *dir, int cancel_fd, char **ret, struct err *e);
