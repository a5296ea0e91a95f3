#pragma once
/*
 * oci: shared by the modules of the oci provider. A box's directory holds
 *   run/            the box sees it as /run/bellhop
 *   console.log     the output of pid 1
 *   oci/disk.json   how the disk was made: user namespace range, the box's user (written last)
 *   oci/disk/       upper and work of the overlay, owned by the box's (mapped) root
 *   oci/bundle/     config.json
 *   oci/etc/        hosts and resolv.conf, bind-mounted
 *   oci/state/      the runtime's own state
 *   run.json        the current run, written before it is made and removed after it has ended
 *
 * No mount is made in the host's mount namespace: lower, overlay and binds are mounted in a
 * private namespace of the process that becomes the runtime, and live on only in the box's own.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "lib/provider/provider.h"

#define OCI_RANGE 65536u /* uids and gids of a box */

#define OCI_BOX_RUN "/run/bellhop" /* the box sees <dir>/run there */

/* Deadlines of helper programs. */
#define OCI_COMMAND_TIMEOUT_MS 20000

#define OCI_USER_BYTES 32

/* How the disk of a box was made; kept in oci/disk.json. */
struct oci_disk {
    uint32_t base; /* the host's uid and gid of the box's root; 0: no user namespace */
    uint32_t uid;  /* the uid in the box of the user that runs commands */
    uint32_t gid;
    char user[OCI_USER_BYTES];
};

/* The agent's path in the box: the host image has a read-only /usr. */
const char *oci_agent_place(const struct spec *spec);

/* <box dir>/name; NULL when out of memory. */
char *oci_path(const struct provider_box *b, const char *name);

/* The lower layer: the image's squashfs, its directory, or the tree made from the host. free() it. */
int oci_lower_path(const struct provider_box *b, char **ret, struct err *e);
/* The kind of such a path: "squashfs", "directory" or "host". */
const char *oci_lower_kind(const struct spec *spec, const char *lower);

bool oci_is_host_image(const struct spec *spec);
bool oci_is_strict(const struct spec *spec);
/* May this piece of isolation be missing? */
bool oci_may_miss(const struct spec *spec, const char *piece);
/* Returns the error for a piece that is missing and may not be; else 0. */
int oci_missing(const struct spec *spec, const char *piece, const char *why, struct err *e);
