#include "common/process.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/str.h"

#define STAT_BYTES 1024
#define LISTED_MAX_BYTES ((size_t)4 << 20) /* of cgroup.procs: half a million processes */
#define BATCH 64                           /* descriptors that are open at a time */

/*
 * "PID (any (name)) STATE PPID PGRP SESSION TTY TPGID FLAGS ... UTIME(14th) STIME CUTIME CSTIME PRIORITY NICE THREADS
 * ITREALVALUE STARTTIME
 * VSIZE RSS":
 * the name may hold anything, but its ')' is the last one of the line.
 */
bool process_read(pid_t pid, struct process_stat *ret)
{
    _cleanup_close_ int fd = -1;
    struct process_stat s = {.pid = pid};
    char path[64], text[STAT_BYTES];
    uint64_t user, system, children_user, children_system;
    const char *name, *end;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    errno = ESRCH; /* an empty or unexpected file */
    n = read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    name = strchr(text, '(');
    end = strrchr(text, ')');
    if (!name || !end || end < name ||
        sscanf(end + 1,
               " %c %d %*d %d %*d %*d %" SCNu64 " %*u %*u %*u %*u %" SCNu64 " %" SCNu64 " %" SCNu64
               " %" SCNu64 " %*d %*d %d %*d %" SCNu64 " %*u %" SCNd64,
               &s.state, &s.parent, &s.session, &s.flags, &user, &system, &children_user,
               &children_system, &s.n_threads, &s.start, &s.resident_pages) != 11)
        return false;
    s.ticks = user + system + children_user + children_system;
    (void)snprintf(s.name, sizeof(s.name), "%.*s", (int)(end - name - 1), name + 1);
    *ret = s;
    return true;
}

bool process_has_ended(const struct process_stat *s)
{
    return s->state == 'X' || (s->state == 'Z' && s->n_threads <= 1);
}

int process_open(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    /* The kernel never returns EPERM here, but a seccomp filter older than the call does. */
    if (fd < 0 && errno == EPERM)
        errno = ENOSYS;
    return fd;
}

static int send_to(int pidfd, int sig)
{
    return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

bool process_is_there(int pidfd)
{
    int r = send_to(pidfd, 0);

    return r == 0 || r == -EPERM;
}

/* The pidfd pins the process: facts that are read by pid after it was opened are about this process. */
bool process_signal(pid_t pid, uint64_t start, int sig)
{
    _cleanup_close_ int fd = -1;
    struct process_stat now;

    if (pid <= 1)
        return false;
    fd = process_open(pid);
    if (fd < 0 && errno != ENOSYS)
        return false;
    if (!process_read(pid, &now) || now.start != start)
        return false;
    return (fd < 0 ? kill(pid, sig) : send_to(fd, sig)) == 0;
}

/* ---- children ---- */

bool process_is_child(pid_t pid)
{
    siginfo_t si;

    return waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0;
}

int process_signal_child(pid_t child, int sig)
{
    _cleanup_close_ int fd = -1;

    assert(child > 1);
    fd = process_open(child);
    if (!process_is_child(child))
        return -ESRCH;
    if (fd >= 0)
        return send_to(fd, sig);
    return kill(child, sig) < 0 ? -errno : 0;
}

/* A child that has not been reaped keeps its pid, and so the id of its group. */
int process_signal_child_group(pid_t child, int sig)
{
    assert(child > 1);
    if (!process_is_child(child))
        return -ESRCH;
    return kill(-child, sig) < 0 ? -errno : 0;
}

/* ---- the processes of a cgroup ---- */

struct pids {
    pid_t *list;
    size_t n;
};

static void pids_done(struct pids *p)
{
    free(p->list);
}

static int compare_pids(const void *a, const void *b)
{
    const pid_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Sorts the list. The kernel lists a process of another pid namespace as 0: it is counted, never signalled. */
static int read_listed(const char *path, struct pids *ret, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    char *rest, *line;
    size_t len, n = 0;
    pid_t *list;
    int r = io_read_file(AT_FDCWD, path, LISTED_MAX_BYTES, &text, &len, e);

    if (r < 0)
        return r;
    list = calloc(len / 2 + 1, sizeof(*list)); /* each takes at least a digit and a line feed */
    if (!list)
        return err_oom(e);
    rest = text;
    while ((line = strsep(&rest, "\n"))) {
        uint64_t pid;

        if (str_parse_u64(line, 0, INT_MAX, &pid, NULL) == 0)
            list[n++] = (pid_t)pid;
    }
    qsort(list, n, sizeof(*list), compare_pids);
    free(ret->list);
    *ret = (struct pids){.list = list, .n = n};
    return 0;
}

/* A pid may be reused between list and signal: the file is read again once the processes are open. */
static int kill_batch(const char *path, const pid_t *pids, size_t n, struct err *e)
{
    _cleanup_(pids_done) struct pids now = {0};
    int fds[BATCH], r;

    assert(n <= BATCH);
    for (size_t i = 0; i < n; i++) {
        fds[i] = process_open(pids[i]);
        if (fds[i] < 0)
            fds[i] = -errno;
        if (fds[i] != -EMFILE && fds[i] != -ENFILE)
            continue;
        n = i;
        if (n > 0)
            fd_close(fds[--n]); /* reading the list needs a descriptor */
    }
    r = read_listed(path, &now, e);
    for (size_t i = 0; i < n; i++) {
        bool is_listed = now.n && bsearch(&pids[i], now.list, now.n, sizeof(pid_t), compare_pids);

        if (is_listed && fds[i] >= 0)
            (void)send_to(fds[i], SIGKILL);
        else if (is_listed && fds[i] == -ENOSYS)
            (void)kill(pids[i], SIGKILL);
        fd_close(fds[i]);
    }
    return r;
}

int process_kill_listed(const char *procs_path, size_t *ret_listed, struct err *e)
{
    _cleanup_(pids_done) struct pids listed = {0};
    pid_t batch[BATCH], self = getpid();
    size_t n = 0;
    int r = read_listed(procs_path, &listed, e);

    for (size_t i = 0; r == 0 && i < listed.n; i++) {
        if (listed.list[i] > 1 && listed.list[i] != self)
            batch[n++] = listed.list[i];
        if (n == BATCH || (n > 0 && i + 1 == listed.n)) {
            r = kill_batch(procs_path, batch, n, e);
            n = 0;
        }
    }
    if (r == 0)
        *ret_listed = listed.n;
    return r;
}

int process_count_listed(const char *procs_path, size_t *ret, struct err *e)
{
    _cleanup_(pids_done) struct pids listed = {0};
    int r = read_listed(procs_path, &listed, e);

    if (r == 0)
        *ret = listed.n;
    return r;
}

/* ---- all processes ---------------------------------------------------------------------------- */

static int add_row(struct proctable *t, size_t max_rows, const struct process_stat *s,
                   struct err *e)
{
    int r;

    if (t->n == max_rows)
        return err_set(e, ERR_EXHAUSTED, "more than %zu processes", max_rows);
    r = array_grow(&t->rows, &t->cap, t->n + 1, max_rows, e);
    if (r < 0)
        return r;
    t->rows[t->n++] = (struct proctable_row){.stat = *s};
    return 0;
}

static int compare_rows(const void *a, const void *b)
{
    const struct proctable_row *x = a, *y = b;

    return (x->stat.pid > y->stat.pid) - (x->stat.pid < y->stat.pid);
}

/* A shortage of resources hides processes: the caller would take them for gone. */
static bool is_shortage(int sys)
{
    return sys == EMFILE || sys == ENFILE || sys == ENOMEM;
}

int proctable_read(struct proctable *t, bool with_ended, size_t max_rows, struct err *e)
{
    _cleanup_(proctable_done) struct proctable fresh = {0};
    _cleanup_closedir_ DIR *dir = opendir("/proc");
    struct proctable old;
    struct dirent *d;
    pid_t self = getpid();

    if (!dir)
        return err_sys(e, errno, "open '/proc'");
    while ((d = readdir(dir))) {
        struct process_stat s;
        uint64_t pid;
        int r = 0;

        if (d->d_name[0] < '1' || d->d_name[0] > '9' ||
            str_parse_u64(d->d_name, 2, INT32_MAX, &pid, NULL) < 0 || (pid_t)pid == self)
            continue;
        if (!process_read((pid_t)pid, &s))
            r = is_shortage(errno) ? err_sys(e, errno, "reading '/proc/%d/stat'", (pid_t)pid) : 0;
        else if (with_ended || !process_has_ended(&s))
            r = add_row(&fresh, max_rows, &s, e);
        if (r < 0)
            return r;
    }
    if (fresh.n)
        qsort(fresh.rows, fresh.n, sizeof(*fresh.rows), compare_rows);
    old = *t;
    *t = fresh;
    fresh = old;
    return 0;
}

void proctable_done(struct proctable *t)
{
    free(t->rows);
    *t = (struct proctable){0};
}

struct proctable_row *proctable_find(const struct proctable *t, pid_t pid)
{
    const struct proctable_row key = {.stat = {.pid = pid}};

    return t->n ? bsearch(&key, t->rows, t->n, sizeof(*t->rows), compare_rows) : NULL;
}

void proctable_keep_members(struct proctable *t, const struct proctable *earlier)
{
    for (size_t i = 0; i < t->n; i++) {
        struct proctable_row *row = &t->rows[i];
        const struct proctable_row *before = proctable_find(earlier, row->stat.pid);

        if (!before || !before->is_member || before->stat.start != row->stat.start)
            continue;
        row->is_member = true;
        row->was_signaled = before->was_signaled;
    }
}

static bool is_unchanged(const struct process_stat *s)
{
    struct process_stat now;

    return process_read(s->pid, &now) && now.start == s->start && now.parent == s->parent;
}

/*
 * Reads the parent after the child: if it is still the process of the table, its pid was not reused since then, and
 * the child's parent pid means this process.
 */
static bool is_child_of(const struct proctable_row *child, const struct proctable_row *parent)
{
    struct process_stat now;

    return is_unchanged(&child->stat) && process_read(parent->stat.pid, &now) &&
           now.start == parent->stat.start;
}

void proctable_add_descendants(struct proctable *t)
{
    bool is_growing = true;

    while (is_growing) {
        is_growing = false;
        for (size_t i = 0; i < t->n; i++) {
            struct proctable_row *row = &t->rows[i];
            const struct proctable_row *parent;

            if (row->is_member || row->is_barred)
                continue;
            parent = proctable_find(t, row->stat.parent);
            if (parent && parent->is_member && is_child_of(row, parent))
                row->is_member = is_growing = true;
        }
    }
}

size_t proctable_count_members(const struct proctable *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += t->rows[i].is_member;
    return n;
}
