#pragma once
/*
 * cgroup: a control group for one command, if the box lets the agent create one: below the agent's
 * own group; or beside it, if the agent is in a leaf of a delegated tree (v2); or in each v1
 * hierarchy that a limit needs. A command without limits gets no group, unless the hierarchy
 * belongs to the agent (cgroup_use_base): then each command has a group, which kills and counts its
 * processes.
 *
 * A group that still has processes can't be removed: each cgroup_new() tries again, also for groups
 * of agents that are gone. Not thread-safe for one group; different groups are independent.
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
 * Opens a file of the agent's own memory group for reading, by its name in v2 or in v1. -1: it is
 * not certain which group is the agent's.
 */
int cgroup_open_own_memory(const char *v2_file, const char *v1_file);

/* The directory of the group that the agent is certainly in. v2 only. */
int cgroup_find_own(char ret[CGROUP_PATH_BYTES], struct err *e);

/*
 * From now on every command gets a group in this directory, which stays the caller's. Removes
 * groups that dead agents left there. Call it before there are other threads, and
 * cgroup_leave_base() after them.
 */
int cgroup_use_base(const char *dir, struct err *e);
void cgroup_leave_base(void);

/* Will a command with these limits get a group? */
bool cgroup_is_wanted(const struct cgroup_limits *l);

/* ERR_UNIMPLEMENTED names the first limit that this box can't enforce: "limits.pids". */
int cgroup_new(const struct cgroup_limits *l, struct cgroup **ret, struct err *e);
/*
 * Tells for each row of limits.def, in its order, whether this box can enforce the limit, by
 * creating a group with it. cgroup_limit_name() is the row's short name.
 */
void cgroup_probe_limits(bool ret[N_CGROUP_LIMITS]);
const char *cgroup_limit_name(size_t i);

/*
 * Removes the group's directories. Those that still have processes are removed by a later
 * cgroup_new(). The group can't be used after it.
 */
void cgroup_remove(const struct cgroup *g);
struct cgroup *cgroup_free(struct cgroup *g); /* removes it; accepts NULL; returns NULL */

/* Opens descriptors for the caller: writing "0" to each moves the writer into the group. */
int cgroup_open(const struct cgroup *g, int fds[CGROUP_MAX_DIRS], size_t *ret_n, struct err *e);

long long cgroup_oom_kills(const struct cgroup *g); /* -1: unknown */
/* Does the group count the memory of its members, instead of the agent's group? */
bool cgroup_counts_memory(const struct cgroup *g);

struct cgroup_usage {
    int64_t peak_bytes;         /* of memory, all its processes together; -1: unknown */
    int64_t user_us, system_us; /* -1: likewise */
};
void cgroup_get_usage(const struct cgroup *g, struct cgroup_usage *ret);

/*
 * Kills all members and waits until they are gone, or none has gone for wait_ms, but at most 20
 * times wait_ms. *ret_left: the members that are still there.
 */
int cgroup_kill(const struct cgroup *g, int wait_ms, size_t *ret_left, struct err *e);
int cgroup_count(const struct cgroup *g, size_t *ret, struct err *e);

/* ---- the files of a group, by its directory ---- */

int cgroup_write(const char *dir, const char *file, const char *text, struct err *e);
char *cgroup_read(const char *dir, const char *file); /* the caller frees; NULL: it can't be read */
bool cgroup_can_access(const char *dir, const char *file, int mode); /* mode: of access(2) */
/*
 * The number at the start of the file, or after `name ` at the start of a line; -1: there is none.
 */
int64_t cgroup_read_number(const char *dir, const char *file, const char *name);

/* ---- the agent's own group, divided (cgroup_split.c) ---- */

/*
 * Divides the cgroup that the agent is in (v2), if it belongs to the agent: one part for the agent,
 * one part for all commands. Whatever commands do (eat all memory, fork without end), the agent
 * keeps a share of processor, memory and process numbers to kill them. Each command then has a group
 * of its own below the second part.
 *
 * A group belongs to the agent if no other process is in it or below it, the agent may divide it,
 * and it was given to the agent: the whole hierarchy to the first process of a machine, a
 * container's own part, or the group of a service that its manager has delegated. Other groups are
 * left unchanged.
 *
 * Call it before there are threads or commands. If it fails, nothing has changed: ERR_UNIMPLEMENTED
 * (the group does not belong to the agent) or the kernel's reason.
 */
int cgroup_split_set_up(struct err *e);

/*
 * Call it at the end, when no command is watched any more: moves the agent back and removes empty
 * groups, so that another agent can be started in the same group.
 */
void cgroup_split_undo(void);
