#pragma once
/*
 * oom: whether the kernel killed a process for want of memory. In this order: the counter of the
 * command's own group; the counter of the group that the agent shares with its commands; the kernel
 * log, where the agent may read it and its process numbers are the kernel's own. A shared counter
 * that went up says that somebody was killed: it is this process when the count went up since the
 * last look and no other SIGKILL of unknown origin is there to explain it. What can't be told from
 * these is "unknown".
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
    int counter_fd;   /* the shared group's; -1: it can't be said which one that is */
    long long looked; /* the count at the last look */
    int log_fd;       /* -1: not ours to read */
    struct {
        pid_t pid;
        int64_t mono_us;
    } logged[OOM_N_LOGGED]; /* a ring */
    size_t n_logged;
};

struct oom_death {
    pid_t pid;
    int signal; /* what ended it, 0 for none */
    bool is_killed_by_us;
    const struct cgroup *group; /* of the command's own, or NULL */
    long long before;           /* oom_count() when it was started */
    int64_t started_mono_ms;
};

/* In another pid namespace the log's numbers are not those that we know our children by. */
bool oom_has_kernels_pids(void);

void oom_init(struct oom *o);
void oom_done(struct oom *o);

long long oom_count(const struct oom *o); /* of the shared group; -1: can't be known */
enum proc_oom oom_verdict(struct oom *o, const struct oom_death *d);
/* After all who had ended were looked at, and now and then: what has gone up is explained. */
void oom_look(struct oom *o);

/* "6,339,5140900,-;Out of memory: Killed process 17 (x) ...": false when it is no such record. */
bool oom_parse_log(const char *record, pid_t *ret_pid, int64_t *ret_mono_us);
