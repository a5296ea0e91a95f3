#pragma once
/*
 * freezer: the control group of a box, and its freezer (cgroup v1 or v2). A box's group is
 * "/bellhop-<mark>-<id>" in every hierarchy; the mark distinguishes state directories. For the
 * providers whose boxes are processes of this machine's kernel. No function touches a group with
 * another kind of name.
 */
#include <stdbool.h>
#include <sys/types.h>

#include "common/err.h"

#define FREEZER_NAME_BYTES 64
#ifndef FREEZER_ROOT /* a test has its own */
#define FREEZER_ROOT "/sys/fs/cgroup"
#endif

/* The group's name below the root of a hierarchy, with the leading '/'. */
void freezer_name(const char *state_dir, const char *id, char out[FREEZER_NAME_BYTES]);
/* Is it the name of one box's group? "" and "/" would be the group of every process. */
bool freezer_is_box_group(const char *name);

/* Sets id, of 16 digits, to that of the box whose group has the name. False: it is no box's. */
bool freezer_group_id(const char *name, char id[17]);
/* The names of all boxes' groups on this machine, of every state directory; strv_free() them. */
int freezer_list(char ***ret, struct err *e);

/* Makes the group in the hierarchy that has the freezer; *ret_procs_fd takes the pids of its
 * processes. Only root, or the owner of the hierarchy, can: ERR_DENIED. */
int freezer_make(const char *name, int *ret_procs_fd, struct err *e);
/* Removes the group after its processes have ended. A missing group is no error. */
void freezer_remove(const char *name);

/* ERR_UNIMPLEMENTED, with the reason, unless pid is in the group and the group has a freezer. */
int freezer_check(const char *name, pid_t pid, struct err *e);
/* Waits until every process of the group stands still. If that fails, they run again. */
int freezer_freeze(const char *name, int64_t timeout_ms, struct err *e);
/* Does every process of the group stand still? */
bool freezer_is_frozen(const char *name);
/* A missing group is no error. */
int freezer_thaw(const char *name, int64_t timeout_ms, struct err *e);

/* The same for a moment within one call: if this process is killed, a child of it thaws the
 * group. */
struct freezer_guard {
    char name[FREEZER_NAME_BYTES];
    pid_t child;
    int fd; /* its other end is the child's */
};
int freezer_guard_begin(struct freezer_guard *g, const char *name, int64_t timeout_ms,
                        struct err *e);
/* A thaw that fails is repeated for ten seconds; on failure the box stays frozen. */
int freezer_guard_end(struct freezer_guard *g, int64_t timeout_ms, struct err *e);
