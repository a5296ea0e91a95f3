#include "proc/oom.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/str.h"

#define FILE_BYTES 1024
#define RECORD_BYTES 8192
#define MAX_RECORDS 10000               /* read in one go */
#define FIRST_PID_NAMESPACE 0xEFFFFFFCu /* the kernel's PROC_PID_INIT_INO */

bool oom_has_kernels_pids(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == FIRST_PID_NAMESPACE;
}

void oom_init(struct oom *o)
{
    *o = (struct oom){.log_fd = -1};
    o->counter_fd = cgroup_open_own_memory("memory.events", "memory.oom_control");
    o->checked = oom_count(o);
    if (o->checked >= 0 || !oom_has_kernels_pids())
        return;
    o->log_fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (o->log_fd >= 0)
        (void)lseek(o->log_fd, 0, SEEK_END);
}

void oom_done(struct oom *o)
{
    fd_close(o->counter_fd);
    fd_close(o->log_fd);
    o->counter_fd = o->log_fd = -1;
}

long long oom_count(const struct oom *o)
{
    static const char name[] = "\noom_kill ";
    char text[FILE_BYTES], *at;
    int64_t count;
    ssize_t n;

    n = o->counter_fd < 0 ? -1 : pread(o->counter_fd, text + 1, sizeof(text) - 2, 0);
    if (n <= 0)
        return -1;
    text[0] = '\n';
    text[n + 1] = '\0';
    at = strstr(text, name);
    if (!at)
        return -1;
    at += strlen(name);
    at[strcspn(at, "\n")] = '\0';
    return str_parse_i64(at, 0, INT64_MAX, &count, NULL) == 0 ? count : -1;
}

bool oom_parse_log(const char *record, pid_t *ret_pid, int64_t *ret_mono_us)
{
    static const char what[] = ": Killed process ";
    const char *text = strchr(record, ';');
    const char *end = text ? strchr(text, '\n') : NULL;
    const char *at = text ? strstr(text, what) : NULL;

    /* The text ends with the line; the record's properties follow. */
    if (!at || (end && at > end) || memmem(text, (size_t)(at - text), "ut of memory", 12) == NULL)
        return false;
    return sscanf(record, "%*u,%*u,%" SCNd64 ",", ret_mono_us) == 1 &&
           sscanf(at + sizeof(what) - 1, "%d", ret_pid) == 1;
}

static void read_log(struct oom *o)
{
    char record[RECORD_BYTES];

    for (int i = 0; i < MAX_RECORDS; i++) {
        ssize_t n = read(o->log_fd, record, sizeof(record) - 1);
        size_t at = o->n_logged % OOM_N_LOGGED;

        if (n < 0 && (errno == EINTR || errno == EPIPE)) /* EPIPE: some were overwritten */
            continue;
        if (n <= 0)
            return;
        record[n] = '\0';
        if (oom_parse_log(record, &o->logged[at].pid, &o->logged[at].mono_us))
            o->n_logged++;
    }
}

static bool is_in_log(struct oom *o, const struct oom_death *d)
{
    if (o->log_fd < 0)
        return false;
    read_log(o);
    for (size_t i = 0; i < OOM_N_LOGGED && i < o->n_logged; i++)
        if (o->logged[i].pid == d->pid && o->logged[i].mono_us / 1000 >= d->started_mono_ms)
            return true;
    return false;
}

static enum proc_oom by_shared_counter(struct oom *o, long long before)
{
    long long now = oom_count(o);

    if (before < 0 || now < 0)
        return OOM_UNKNOWN;
    if (now == before)
        return OOM_NO;
    if (now == o->checked) /* an earlier death explains the count */
        return OOM_UNKNOWN;
    o->checked++;
    return OOM_YES;
}

enum proc_oom oom_verdict(struct oom *o, const struct oom_death *d)
{
    long long own = d->group ? cgroup_oom_kills(d->group) : -1;

    /* The OOM killer hit the command's own cgroup, maybe not its first process. */
    if (own > 0)
        return OOM_YES;
    if (d->signal != SIGKILL || d->is_killed_by_us)
        return OOM_NO;
    if (own == 0) /* a cgroup counts its members whichever cgroup's limit they hit */
        return OOM_NO;
    if (is_in_log(o, d))
        return OOM_YES;
    if (d->group &&
        cgroup_counts_memory(d->group)) /* the shared counter does not count its members */
        return OOM_UNKNOWN;
    return by_shared_counter(o, d->before);
}

void oom_check(struct oom *o)
{
    if (o->counter_fd >= 0)
        o->checked = oom_count(o);
}
