#pragma once
/*
 * procfs: processes by pid and start time, since pids are used again, and trees of them. Reads
 * /proc only. All functions are thread-safe.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define PROCFS_MAX_PROCESSES 65536 /* on the machine; with more a group is not looked for */

/* Field 22 of /proc/PID/stat; 0 when there is no such process, or it is a zombie. */
uint64_t procfs_start_time(pid_t pid);
bool procfs_is_alive(pid_t pid, uint64_t start);
/* Sends the signal to that very process; false when it is gone. */
bool procfs_kill(pid_t pid, uint64_t start, int sig);
/* Waits until it is gone; false when it is still there after wait_ms. */
bool procfs_wait_gone(pid_t pid, uint64_t start, int wait_ms);

/* What belongs together: the descendants of root (0: none), and whatever has `mark` ("K=V") as a
 * string of its environment, and their descendants. Never the caller itself. */
struct procfs_group {
    pid_t root;
    uint64_t root_start;
    const char *mark;
};

/* How many live members there are. */
int procfs_count(const struct procfs_group *g, size_t *ret, struct err *e);
/* TERM, then after grace_ms stop all until no new one shows up, and KILL until all are gone.
 * ERR_DEADLINE when some are still there after that. */
int procfs_end(const struct procfs_group *g, int grace_ms, struct err *e);
