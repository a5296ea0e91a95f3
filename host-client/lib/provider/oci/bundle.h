#pragma once
/*
 * oci_bundle: the OCI runtime spec's config.json of a box. It says everything that the box is
 * allowed; nothing is left to a runtime's defaults.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "lib/provider/oci/mounts.h"
#include "lib/provider/oci/oci.h"
#include "lib/provider/oci/record.h"
#include "lib/provider/provider.h"

struct oci_bundle {
    const struct provider_box *box;
    const struct oci_disk *disk;
    const struct oci_run *run;
    const struct oci_stage *stage; /* mounted before the runtime reads the config */
    const struct provider_layer *layer;
};

/* Fills the stage with the sources of all mounts in the config. The strings belong to `paths`. */
struct oci_stage_paths {
    char *lower, *disk, *run, *hosts, *resolv;
    char **layers; /* as in struct oci_stage */
    struct provider_layer layer;
};
void oci_stage_paths_done(struct oci_stage_paths *p);
int oci_bundle_stage(const struct provider_box *b, const struct oci_stage_paths *paths,
                     struct oci_stage *s, struct err *e);

/* config.json as JSON; the caller owns it. */
int oci_bundle_config(const struct oci_bundle *c, json_t **ret, struct err *e);

/* Writes oci/bundle/config.json. */
int oci_bundle_write(const struct oci_bundle *c, struct err *e);

/* A bundle of one program for the probe: a read-only root with the program and, if it is not
 * static, the host's libraries. */
int oci_bundle_write_probe(const char *dir, const char *rootfs, const char *const *argv,
                           bool with_libraries, const char *cgroup, struct err *e);

/* The capabilities of `--privilege sudo` as a bit mask, to compare with the kernel's. */
uint64_t oci_bundle_capabilities(void);

/* ---- system calls ---- */

/*
 * The system calls that a box may make. It is an allow list: a call that a later
 * kernel adds is refused until somebody has reviewed it. Pure data to JSON (the runtime spec's
 * "linux.seccomp").
 */

/* NULL: out of memory. */
json_t *oci_seccomp_new(void);

/* Is the call allowed, whatever its arguments? For the tests and the docs. */
bool oci_seccomp_allows(const char *name);
