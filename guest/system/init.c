#include "system/init.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"

#include "common/banned.h"

static bool is_machine; /* set once, before there are threads */

static const struct {
    const char *source, *target, *type, *data;
    unsigned long flags;
    bool is_optional;
} mounts[] = {
    {"proc", "/proc", "proc", NULL, MS_NOSUID | MS_NOEXEC | MS_NODEV, false},
    {"sysfs", "/sys", "sysfs", NULL, MS_NOSUID | MS_NOEXEC | MS_NODEV, true},
    {"devtmpfs", "/dev", "devtmpfs", "mode=0755", MS_NOSUID, true},
    {"devpts", "/dev/pts", "devpts", "mode=0620,ptmxmode=0666", MS_NOSUID | MS_NOEXEC, true},
    {"tmpfs", "/dev/shm", "tmpfs", "mode=1777", MS_NOSUID | MS_NODEV, true},
    {"tmpfs", "/run", "tmpfs", "mode=0755", MS_NOSUID | MS_NODEV, true},
    {"cgroup2", "/sys/fs/cgroup", "cgroup2", NULL, MS_NOSUID | MS_NOEXEC | MS_NODEV, true},
};

static int link_descriptors(struct err *e)
{
    static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"},
                                           {"/proc/self/fd/0", "/dev/stdin"},
                                           {"/proc/self/fd/1", "/dev/stdout"},
                                           {"/proc/self/fd/2", "/dev/stderr"}};

    for (size_t i = 0; i < N_ELEMENTS(links); i++)
        if (symlink(links[i][0], links[i][1]) < 0 && errno != EEXIST)
            return err_sys(e, errno, "link '%s'", links[i][1]);
    return 0;
}

int init_set_up(struct err *e)
{
    if (getpid() != 1 || access("/proc/self/stat", F_OK) == 0)
        return 0; /* a container's runtime has mounted all there is to be */
    is_machine = true;
    for (size_t i = 0; i < N_ELEMENTS(mounts); i++) {
        (void)mkdir(mounts[i].target, 0755);
        if (mount(mounts[i].source, mounts[i].target, mounts[i].type, mounts[i].flags,
                  mounts[i].data) < 0 &&
            errno != EBUSY && !mounts[i].is_optional)
            return err_sys(e, errno, "mount '%s'", mounts[i].target);
    }
    return link_descriptors(e);
}

bool init_is_pid_1(void)
{
    return getpid() == 1;
}

void init_signal_all(int sig)
{
    if (init_is_pid_1())
        (void)kill(-1, sig);
}

/* A zombie is gone: its reaping is on its way. A kernel thread (no command line) is no one's. */
static bool is_alive(const char *pid)
{
    char path[64], stat[512];
    _cleanup_close_ int fd = -1;
    const char *end;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? 0 : read(fd, stat, sizeof(stat) - 1);
    if (n <= 0)
        return false;
    stat[n] = '\0';
    end = strrchr(stat, ')');
    return end && end[1] && end[2] != 'Z' && end[2] != 'X';
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

void init_power_off(void)
{
    if (!is_machine)
        return;
    sync();
    (void)reboot(RB_POWER_OFF);
}
