#include "proc/oom.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"

#include "common/banned.h"

#define FILE_BYTES 1024

/* A box with a cgroup namespace sees its own cgroup at the top: v2, then v1. */
static const char *const files[] = {
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
};

static long long read_count(const char *path)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[FILE_BYTES], *at;
    long long count;
    ssize_t n;

    n = fd < 0 ? -1 : read(fd, text + 1, sizeof(text) - 2);
    if (n <= 0)
        return -1;
    text[0] = '\n';
    text[n + 1] = '\0';
    at = strstr(text, "\noom_kill ");
    if (!at || sscanf(at, "\noom_kill %lld", &count) != 1)
        return -1;
    return count;
}

long long oom_kills(const struct cgroup *g)
{
    long long count = g ? cgroup_oom_kills(g) : -1;

    for (size_t i = 0; i < N_ELEMENTS(files) && count < 0; i++)
        count = read_count(files[i]);
    return count;
}

enum proc_oom oom_verdict(const struct cgroup *g, int signal, bool is_killed_by_us,
                          long long before)
{
    long long now;

    /* Somebody in a group of the command's own was, if not the first process. */
    if (g && cgroup_oom_kills(g) > 0)
        return OOM_YES;
    if (signal != SIGKILL || is_killed_by_us)
        return OOM_NO;
    now = oom_kills(g);
    if (before < 0 || now < 0)
        return OOM_UNKNOWN;
    return now > before ? OOM_YES : OOM_NO;
}
