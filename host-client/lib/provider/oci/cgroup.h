#pragma once
/*
 * oci_cgroup: the box's control groups, freezer_name() in every hierarchy (v1, hybrid or v2). The
 * runtime makes them; this module reads, kills and removes them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/provider/oci/oci.h"

/* Is only the unified hierarchy mounted? */
bool oci_cgroup_is_v2(void);

/*
 * May the box divide its own group, so that commands can have limits of their own? True with v2
 * and a user namespace: otherwise root of the box could lift the limits of the whole group.
 */
bool oci_cgroup_is_given(const struct oci_disk *disk);
/* Delegates the group (see cgroups(7)). The files with the box's own limits stay the host's. */
int oci_cgroup_give(const char *name, uint32_t uid, uint32_t gid, struct err *e);
int oci_cgroup_give_at(const char *dir, uint32_t uid, uint32_t gid, struct err *e); /* for tests */

struct oci_limits {
    uint64_t pids; /* 0: no limit, here and below */
    uint64_t memory_bytes;
    uint32_t cpu_millis;
};
/*
 * The default limits of a box: four fifths of the machine's memory, all processors but one (of
 * fewer than five, four fifths). pids is left 0, as is each limit that this kernel lacks.
 */
void oci_cgroup_defaults(struct oci_limits *ret);
uint64_t oci_default_memory(uint64_t machine_bytes); /* for the tests */
uint32_t oci_default_cpu_millis(unsigned n_processors);

/* Can memory and swap be limited together? v1 has that only as a boot option. */
bool oci_cgroup_limits_swap(void);

/* Reads the limits that the kernel enforces on the group. A missing hierarchy counts as no
 * limit. */
void oci_cgroup_read(const char *name, struct oci_limits *ret);

/* The memory that the group holds, with the cache of its files; 0 if the kernel does not say. */
uint64_t oci_cgroup_memory_used(const char *name);

/* Kills every process in the group and removes it from every hierarchy. A missing group is no
 * error; a name that is no box's is ERR_DATA_LOSS, and nothing is killed. */
int oci_cgroup_remove(const char *name, int64_t timeout_ms, struct err *e);

/* Calls fn with the id of each group that carries this state directory's mark. */
int oci_cgroup_each(const char *state_dir, int (*fn)(void *arg, const char *id, struct err *e),
                    void *arg, struct err *e);
