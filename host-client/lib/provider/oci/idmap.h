#pragma once
/*
 * oci_idmap: the user namespace of a box. Every box of a state directory has a range of uids and
 * gids of its own, claimed by a file <state_dir>/userns/<slot> that holds the box's id. The ranges
 * lie above those of systemd-nspawn and of useradd's subordinate ids, below 2^31.
 */
#include <stdint.h>

#include "common/err.h"
#include "lib/provider/provider.h"
#include "lib/provider/oci/oci.h"

#define OCI_FIRST_UID 0x70000000u
#define OCI_SLOTS 4000u

/* The box's range; the same one when it has one already. */
int oci_range_claim(const struct provider_box *b, uint32_t *ret_base, struct err *e);
void oci_range_release(const struct provider_box *b, uint32_t base);

/* A descriptor of a user namespace that maps 0..65535 to base.., for mount_setattr. An error says
 * what the kernel refused. */
int oci_userns_open(uint32_t base, int *ret_fd, struct err *e);

/* Can a clone of the mount under `dir` have the range? The kernel is asked, nothing stays. */
int oci_idmap_try(const char *dir, uint32_t base, struct err *e);

/* A detached clone of the mount under `path`, not of mounts within it, or, of an image's squashfs, a
 * mount of it: read-only when asked, never with devices, with the ids of `userns_fd` unless that is -1. Usable in a forked child. */
int oci_mount_clone(const char *path, bool readonly, int userns_fd, int *ret_fd, struct err *e);
