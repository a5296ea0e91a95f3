#pragma once
/*
 * oci_rootfs: makes the box's own layer of the disk before its first run: the upper directory with
 * the user, the home and the project's directory, owned by the box's ids.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/provider/oci/oci.h"
#include "lib/provider/provider.h"

/* Makes oci/disk/{upper,work} and fills in disk->uid and gid; disk->base is given. Leftovers of
 * an interrupted call are removed first. */
int oci_rootfs_prepare(const struct provider_box *b, const char *lower, struct oci_disk *disk,
                       struct err *e);

/* The same without content of its own: the disk's directory `name` ("oci/disk") is made anew. The
 * root's owner, mode, time and attributes are those of the directory `like` of a layer, NULL: the
 * box's root's. */
int oci_rootfs_empty(const struct provider_box *b, const char *name, const char *like,
                     const struct oci_disk *disk, struct err *e);

/* Refuses a destination that the box could not have; names the field "dest". */
int oci_rootfs_check_dest(const char *dest, struct err *e);

/* ---- the lower layer ---- */

/*
 * An image's squashfs as the lower layer of boxes. All boxes on one image share one
 * loop device, and with it one superblock and its cached pages. The device vanishes with its last
 * mount (autoclear), so that nothing needs undoing after a crash.
 */

/* Makes a detached, read-only mount of the file, never with devices, with the ids of
 * `userns_fd` unless that is -1. Usable in a forked child. The error says what this machine
 * lacks. */
int oci_squash_mount(const char *file, int userns_fd, int *ret_fd, struct err *e);

/*
 * Chooses the lower layer of the image in `dir`: its squashfs if this machine can mount one, else
 * its directory rootfs, unpacked if it is missing. *ret is the path.
 */
int oci_squash_choose(const char *dir, int cancel_fd, char **ret, struct err *e);

/* ---- the disk limit ---- */

/*
 * A disk limit that the kernel enforces, on a file system with project quotas (ext4 and
 * xfs, mounted with prjquota). The project's number is the first user id of the box, which no
 * other box has. The monitor counts as well (monitor/diskwatch.h): some file systems have no
 * quotas, and a box can take unchanged files out of the project (chattr -p 0 /root): overlayfs
 * sets the attributes of a copied-up file with the mounter's rights.
 */

/* Does the directory belong to the project, and is the project's limit in force? Reads the
 * kernel's state. */
bool oci_quota_holds(const char *dir, uint32_t project);
/* Removes the project's limit; `dir` is any directory of the file system. */
void oci_quota_clear(const char *dir, uint32_t project);
