#pragma once
/*
 * cgroup: a control group for one command, where the box lets the agent make one: below the agent's
 * own, or beside it when it sits in a leaf of what was delegated (v2), or in each v1 hierarchy that
 * a limit needs. Nothing is made for a command without limits, unless the hierarchy is the agent's own
 * (cgroup_use_base): then each command has its group, and is ended and counted by it.
 *
 * A group that still has processes can't be removed: cgroup_new() tries again, also those of agents
 * that are gone. Not thread-safe for one group; different groups are independent.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define CGROUP_MAX_DIRS N_CGROUP_LIMITS
#define CGROUP_PATH_BYTES 1024

struct cgroup;

/* One member a row of limits.def; 0: no limit. */
struct cgroup_limits {
#define LIMIT(field, ...) uint64_t field;
#include "common/wire/limits.def"
};

enum {
#define LIMIT(field, ...) CGROUP_LIMIT_##field,
#include "common/wire/limits.def"
    N_CGROUP_LIMITS
};

/*
 * A file of the agent's own memory group, for reading: v2's name or v1's. -1 when it can't be said
 * for certain which group is the agent's.
 */
int cgroup_open_own_memory(const char *v2_file, const char *v1_file);

/* The directory of the group that the agent is in, where it certainly is that one. v2 only. */
int cgroup_find_own(char ret[CGROUP_PATH_BYTES], struct err *e);

/*
 * Every command's group is made in this directory, which stays the caller's, from now on; what agents that
 * are gone left there is removed. Before there are threads. cgroup_leave_base(): after them.
 */
int cgroup_use_base(const char *dir, struct err *e);
void cgroup_leave_base(void);

/* Does a command with these limits get a group? */
bool cgroup_is_wanted(const struct cgroup_limits *l);

/* ERR_UNIMPLEMENTED names the first limit that this box can't keep: "limits.pids". */
int cgroup_new(const struct cgroup_limits *l, struct cgroup **ret, struct err *e);
/*
 * For each limit of limits.def, in its order: can this box keep it? Makes a group for each to find out.
 * cgroup_limit_name() is the row's short name.
 */
void cgroup_probe_limits(bool ret[N_CGROUP_LIMITS]);
const char *cgroup_limit_name(size_t i);

/*
 * The directories, as far as they are empty, the others when they are and another group is made; the
 * group is of no more use then.
 */
void cgroup_remove(const struct cgroup *g);
struct cgroup *cgroup_free(struct cgroup *g); /* removes it; accepts NULL; returns NULL */

/* Descriptors to write "0" to, to enter; the caller's. */
int cgroup_open(const struct cgroup *g, int fds[CGROUP_MAX_DIRS], size_t *ret_n, struct err *e);

long long cgroup_oom_kills(const struct cgroup *g); /* -1: can't be known */
/* Is the memory of its members counted in it, and not in the agent's own group? */
bool cgroup_counts_memory(const struct cgroup *g);

struct cgroup_usage {
    int64_t peak_bytes;         /* of memory, all its processes together; -1: can't be known */
    int64_t user_us, system_us; /* -1: likewise */
};
void cgroup_get_usage(const struct cgroup *g, struct cgroup_usage *ret);

/*
 * Kills all that is in it and waits until all are gone, or none went for wait_ms, 20 times that at
 * most; *ret_left: how many are still there.
 */
int cgroup_kill(const struct cgroup *g, int wait_ms, size_t *ret_left, struct err *e);
int cgroup_count(const struct cgroup *g, size_t *ret, struct err *e);
