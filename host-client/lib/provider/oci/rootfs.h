#pragma once
/*
 * oci_rootfs: makes the box's own layer of the disk before its first run: the upper directory with
 * the user, the home and the project's directory, owned by the box's ids.
 */
#include "common/err.h"
#include "lib/provider/provider.h"
#include "lib/provider/oci/oci.h"

/* Makes oci/disk/{upper,work} and fills in disk->uid and gid; disk->base is given. Leftovers of
 * an interrupted call are removed first. */
int oci_rootfs_prepare(const struct provider_box *b, const char *lower, struct oci_disk *disk,
                       struct err *e);

/* Refuses a destination that the box could not have; names the field "dest". */
int oci_rootfs_check_dest(const char *dest, struct err *e);
