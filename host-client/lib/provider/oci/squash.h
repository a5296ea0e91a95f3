#pragma once
/*
 * oci_squash: an image's squashfs as the lower layer of boxes. All boxes on one image share one
 * loop device and with it one superblock and its cached pages; the device goes by itself when the
 * last mount does (autoclear), so that there is nothing to undo after a crash.
 */
#include "common/err.h"

/* A detached, read-only mount of the file, never with devices, with the ids of `userns_fd` unless
 * that is -1. Usable in a forked child. An error says what this machine lacks. */
int oci_squash_mount(const char *file, int userns_fd, int *ret_fd, struct err *e);

/*
 * What the image in `dir` gives as lower layer: its squashfs, where this machine mounts one, else
 * its directory rootfs, which is unpacked when it is missing. *ret is the path of either.
 */
int oci_squash_choose(const char *dir, int cancel_fd, char **ret, struct err *e);
