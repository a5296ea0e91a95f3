#pragma once
/*
 * oom: whether the kernel killed for want of memory, told by the counter of the box's own cgroup.
 * Where that can't be read the answer to a SIGKILL from nobody known is "unknown".
 */
#include <stdbool.h>

#include "proc/cgroup.h"
#include "proc/registry.h"

/* The file with the box's count, for as long as the agent runs; -1: there is none. */
int oom_open(void);

/* How often so far, in the command's own group or else in the box; -1: can't be known. */
long long oom_kills(const struct cgroup *g, int fd);

/* signal: what ended the process, 0 for none. before: oom_kills() when it was started. */
enum proc_oom oom_verdict(const struct cgroup *g, int fd, int signal, bool is_killed_by_us,
                          long long before);
