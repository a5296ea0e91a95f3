#include "proc/oom.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/banned.h"

#define FILE_BYTES 1024

int oom_open(void)
{
    return cgroup_open_own_memory("memory.events", "memory.oom_control");
}

long long oom_kills(const struct cgroup *g, int fd)
{
    char text[FILE_BYTES], *at;
    long long count;
    ssize_t n;

    if (g)
        return cgroup_oom_kills(g);
    n = fd < 0 ? -1 : pread(fd, text + 1, sizeof(text) - 2, 0);
    if (n <= 0)
        return -1;
    text[0] = '\n';
    text[n + 1] = '\0';
    at = strstr(text, "\noom_kill ");
    if (!at || sscanf(at, "\noom_kill %lld", &count) != 1)
        return -1;
    return count;
}

enum proc_oom oom_verdict(const struct cgroup *g, int fd, int signal, bool is_killed_by_us,
                          long long before)
{
    long long now;

    /* Somebody in a group of the command's own was, if not the first process. */
    if (g && cgroup_oom_kills(g) > 0)
        return OOM_YES;
    if (signal != SIGKILL || is_killed_by_us)
        return OOM_NO;
    now = oom_kills(g, fd);
    if (before < 0 || now < 0)
        return OOM_UNKNOWN;
    return now > before ? OOM_YES : OOM_NO;
}
