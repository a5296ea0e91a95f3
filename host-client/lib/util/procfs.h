#pragma once
/*
 * procfs: processes by pid and start time, since the kernel reuses pids, and trees of processes.
 * Reads /proc only. All functions are thread-safe.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define PROCFS_MAX_PROCESSES 65536 /* on the machine; beyond it no group is searched */

/* Field 22 of /proc/PID/stat; 0: there is no such process, or it is a zombie. */
uint64_t procfs_start_time(pid_t pid);
bool procfs_is_alive(pid_t pid, uint64_t start);
/* Sends the signal to that very process; false: it is gone. */
bool procfs_kill(pid_t pid, uint64_t start, int sig);
/* Waits until it is gone; false: it still exists after wait_ms. */
bool procfs_wait_gone(pid_t pid, uint64_t start, int wait_ms);

/* A group: the descendants of root (0: none), every process with `mark` ("K=V") in its
 * environment, and their descendants. Never the caller. */
struct procfs_group {
    pid_t root;
    uint64_t root_start;
    const char *mark;
};

/* Counts the live members. */
int procfs_count(const struct procfs_group *g, size_t *ret, struct err *e);
/* Sends TERM; after grace_ms stops all members until no new one shows up, and sends KILL until
 * all are gone. ERR_DEADLINE: some remain. */
int procfs_end(const struct procfs_group *g, int grace_ms, struct err *e);
