#include "system/init.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/process.h"
#include "common/str.h"

#define PF_KTHREAD 0x00200000 /* of the kernel; in no header of its API */

bool init_is_pid_1(void)
{
    return getpid() == 1;
}

void init_signal_all(int sig)
{
    if (init_is_pid_1())
        (void)kill(-1, sig);
}

/* Zombies do not count: they are about to be reaped. Neither do the kernel threads of a machine. */
static bool is_alive(const char *name)
{
    struct process_stat s;
    uint64_t pid;

    return str_parse_u64(name, 2, INT32_MAX, &pid, NULL) == 0 && process_read((pid_t)pid, &s) &&
           !process_has_ended(&s) && !(s.flags & PF_KTHREAD);
}

bool init_has_others(void)
{
    _cleanup_closedir_ DIR *d = opendir("/proc");
    struct dirent *entry;

    while (d && (entry = readdir(d)))
        if (is_alive(entry->d_name))
            return true;
    return false;
}
