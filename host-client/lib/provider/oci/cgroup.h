#pragma once
/*
 * oci_cgroup: the box's control groups, "/bellhop-<mark>-<id>" in every hierarchy (v1, hybrid or
 * v2); the mark tells state directories apart. The runtime makes them; here they are read back,
 * killed and removed.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/provider/oci/oci.h"

#define OCI_CGROUP_NAME_BYTES 64

void oci_cgroup_name(const char *state_dir, const char *id, char out[OCI_CGROUP_NAME_BYTES]);

/* Is there only the unified hierarchy? */
bool oci_cgroup_is_v2(void);

/*
 * Is the box's group the box's own to divide, so that commands can have limits of their own? With v2
 * and users of its own: root of the box would lift the limits of the whole group otherwise.
 */
bool oci_cgroup_is_given(const struct oci_disk *disk);
/* Gives it: what the kernel calls delegation. The files with the box's own limits stay the host's. */
int oci_cgroup_give(const char *name, uint32_t uid, uint32_t gid, struct err *e);
int oci_cgroup_give_at(const char *dir, uint32_t uid, uint32_t gid, struct err *e); /* for tests */

struct oci_limits {
    uint64_t pids; /* 0: none, here and below */
    uint64_t memory_bytes;
    uint32_t cpu_millis;
};
/*
 * What a box gets that was made without limits: four fifths of the memory that is there, all
 * processors but one (of fewer than five, four fifths). pids is left 0, and so is what this
 * kernel cannot limit.
 */
void oci_cgroup_defaults(struct oci_limits *ret);
uint64_t oci_default_memory(uint64_t machine_bytes); /* for the tests */
uint32_t oci_default_cpu_millis(unsigned n_processors);

/* Can a limit on memory and swap together be set? v1 has it only when it was booted with it. */
bool oci_cgroup_limits_swap(void);

/* What the kernel enforces on the group. A hierarchy that is not there counts as no limit. */
void oci_cgroup_read(const char *name, struct oci_limits *ret);

/* Ends every process in the group, then removes it from every hierarchy. Nothing there is fine. */
int oci_cgroup_remove(const char *name, int64_t timeout_ms, struct err *e);

/* Calls fn with the id of each group that carries the mark of this state directory. */
int oci_cgroup_each(const char *state_dir, int (*fn)(void *arg, const char *id, struct err *e),
                    void *arg, struct err *e);
