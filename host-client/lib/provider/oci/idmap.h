#pragma once
/*
 * oci_idmap: the user namespace of a box. Every box has a range of uids and gids of its own,
 * claimed by the file <state_dir>/userns/<slot> with the box's id. The ranges lie above those of
 * systemd-nspawn and of useradd's subordinate ids, and below 2^31.
 */
#include <stdint.h>

#include "common/err.h"
#include "lib/provider/provider.h"
#include "lib/provider/oci/oci.h"

#define OCI_FIRST_UID 0x70000000u
#define OCI_SLOTS 4000u

/* Claims a range for the box; a second call returns the same one. */
int oci_range_claim(const struct provider_box *b, uint32_t *ret_base, struct err *e);
void oci_range_release(const struct provider_box *b, uint32_t base);

/* Opens a user namespace that maps 0..65535 to base.., for mount_setattr. The error says why
 * the kernel refused. */
int oci_userns_open(uint32_t base, int *ret_fd, struct err *e);

/* Can a clone of the mount under `dir` have the range? Asks the kernel and leaves nothing
 * behind. */
int oci_idmap_try(const char *dir, uint32_t base, struct err *e);

/* Makes a detached clone of the mount under `path` without the mounts below it, or, of an
 * image's squashfs, a new mount: read-only if asked, never with devices, with the ids of
 * `userns_fd` unless that is -1. Usable in a forked child. */
int oci_mount_clone(const char *path, bool readonly, int userns_fd, int *ret_fd, struct err *e);
