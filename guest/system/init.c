#include "system/init.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"

#include "common/banned.h"

#define PF_KTHREAD 0x00200000 /* the kernel's own name for it */

bool init_is_pid_1(void)
{
    return getpid() == 1;
}

void init_signal_all(int sig)
{
    if (init_is_pid_1())
        (void)kill(-1, sig);
}

/* A zombie is gone: its reaping is on its way. A machine's kernel threads are no one's. */
static bool is_alive(const char *pid)
{
    char path[64], stat[512];
    _cleanup_close_ int fd = -1;
    const char *end;
    unsigned flags;
    char state;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? 0 : read(fd, stat, sizeof(stat) - 1);
    if (n <= 0)
        return false;
    stat[n] = '\0';
    end = strrchr(stat, ')');
    /* state, parent, group, session, terminal, its group, flags */
    return end && sscanf(end + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) == 2 &&
           state != 'Z' && state != 'X' && !(flags & PF_KTHREAD);
}

bool init_has_others(void)
{
    _cleanup_closedir_ DIR *d = opendir("/proc");
    struct dirent *entry;

    while (d && (entry = readdir(d)))
        if (isdigit((unsigned char)entry->d_name[0]) && strcmp(entry->d_name, "1") != 0 &&
            is_alive(entry->d_name))
            return true;
    return false;
}
