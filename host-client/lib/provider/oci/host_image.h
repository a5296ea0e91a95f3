#pragma once
/*
 * host_image: `--image host`, a root made of the host's own programs by an allow list. /usr and
 * /opt (and /bin, /sbin, /lib* if they are real directories) are bound read-only. /etc is a copy
 * of named files that everybody may read and that hold no key, with accounts of its own.
 * Everything else is new and empty.
 *
 * The bound directories keep the host's owners, who do not exist in the box's user namespace: not
 * even root of the box can read a file there that is not public. (So no program there is setuid in
 * the box, not even sudo.)
 */
#include <jansson.h>

#include "common/err.h"
#include "lib/provider/oci/mounts.h"

/* Makes the tree at `dir` (removed first): directories, links, /etc. */
int host_image_make(const char *dir, struct err *e);

/* Refuses a state directory within the directories that boxes would see. */
int host_image_check(const char *state_dir, struct err *e);

/* Adds the host's directories to the stage. The config's mounts that refer to them come from
 * host_image_mounts(). */
int host_image_stage(struct oci_stage *s, struct err *e);
int host_image_mounts(json_t *mounts, const struct oci_stage *s);

/* May this file of /etc be copied, by its name relative to /etc? For the tests. */
bool host_image_etc_allows(const char *name);
