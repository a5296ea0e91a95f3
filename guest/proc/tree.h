#pragma once
/*
 * tree: a command and everything it started, found without a cgroup. A process belongs to a command
 * when it carries the command's mark, or is in the session the command's first process leads, or is
 * a child of one that belongs. The mark is a value of RLIMIT_RTTIME that is far beyond any use of
 * that limit: children inherit it, neither setsid, a double fork nor an empty environment sheds it,
 * and /proc/PID/limits shows it for processes of any user.
 *
 * The functions read all of /proc: call them on a pool thread. Thread-safe.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/err.h"

#define TREE_MAX_MEMBERS 65536

struct tree {
    pid_t leader; /* also its session and process group; it may be gone */
    rlim_t mark;
};

/* instance: any number that tells this agent from others in the box; serial: of the command. */
rlim_t tree_mark(uint32_t instance, uint32_t serial);

/* The mark that this process carries; 0: none that can be read. */
rlim_t tree_read_mark(pid_t pid);

/* How many live members there are (zombies do not count). */
int tree_count(const struct tree *t, size_t *ret, struct err *e);

/*
 * Sends sig to each member, and SIGCONT, so that a stopped one sees it. For a signal that ends (TERM,
 * INT, QUIT, HUP) they are stopped before, so that none forks a process that does not get it. *ret: how
 * many got it.
 */
int tree_signal(const struct tree *t, int sig, size_t *ret, struct err *e);

/*
 * Stops members until a whole look at /proc shows no new one, then kills all, then waits up to
 * wait_ms for them to go. *ret_left: how many are alive after that.
 */
int tree_kill(const struct tree *t, int wait_ms, size_t *ret_left, struct err *e);
