#pragma once
/*
 * host_image: `--image host`: a root made of the host's own programs, by an allow list. /usr and
 * /opt (and /bin, /sbin, /lib* where they are directories of their own) are bound read-only;
 * /etc is a copy of named files that everybody may read and that hold no key, with accounts of
 * its own; all else is new and empty.
 *
 * The bound directories keep the host's owners, who do not exist in the box's user namespace: not
 * even root of the box reads a file there that is not everybody's. (So no program there is setuid
 * in the box, sudo included.)
 */
#include <jansson.h>

#include "common/err.h"
#include "lib/provider/oci/mounts.h"

/* Makes the tree at `dir` (removed first): directories, links, /etc. */
int host_image_make(const char *dir, struct err *e);

/* Refuses a state directory within what boxes would see. */
int host_image_check(const char *state_dir, struct err *e);

/* The host's directories, into the stage; and the mounts of the config that refer to them. */
int host_image_stage(struct oci_stage *s, struct err *e);
int host_image_mounts(json_t *mounts, const struct oci_stage *s);

/* May this file of /etc be copied, by its name relative to /etc? For the tests. */
bool host_image_etc_allows(const char *name);
