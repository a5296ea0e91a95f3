#pragma once
/*
 * oom: decides whether the kernel's OOM killer ended a process. Sources, in this order: the counter
 * of the command's own cgroup; the kernel log, if the agent may read it and shares the kernel's
 * process numbers; the counter of the cgroup that the agent shares with its commands. The shared
 * counter says that some process was killed: it was this one if the counter rose since the last
 * check and no other SIGKILL of unknown origin explains it. Without evidence the answer is
 * "unknown".
 *
 * Belongs to the loop's thread.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/cgroup.h"
#include "proc/registry.h"

#define OOM_N_LOGGED 64 /* of the kernel log's last kills */

struct oom {
    int counter_fd;    /* of the shared cgroup; -1: it is not certain which one that is */
    long long checked; /* the count at the last oom_check() */
    int log_fd;        /* -1: the agent may not read the kernel log */
    struct {
        pid_t pid;
        int64_t mono_us;
    } logged[OOM_N_LOGGED]; /* a ring */
    size_t n_logged;
};

struct oom_death {
    pid_t pid;
    int signal; /* the signal that ended it; 0: none */
    bool is_killed_by_us;
    const struct cgroup *group; /* the command's own, or NULL */
    long long before;           /* oom_count() when it was started */
    int64_t started_mono_ms;
};

/* Does the agent see the pids that the kernel log has? Not in a pid namespace. */
bool oom_has_kernels_pids(void);

void oom_init(struct oom *o);
void oom_done(struct oom *o);

long long oom_count(const struct oom *o); /* of the shared cgroup; -1: unknown */
enum proc_oom oom_verdict(struct oom *o, const struct oom_death *d);
/* After all zombies were reaped, and at intervals: marks the present count as explained. */
void oom_check(struct oom *o);

/* "6,339,5140900,-;Out of memory: Killed process 17 (x) ...": false for other records. */
bool oom_parse_log(const char *record, pid_t *ret_pid, int64_t *ret_mono_us);
