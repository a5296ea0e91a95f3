#include "proc/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"

#include "common/banned.h"

#define MARK_BASE ((rlim_t)1 << 62)
#define MARK_INSTANCE_BITS 30
#define STAT_BYTES 1024
#define LIMITS_BYTES 2048
#define MAX_SWEEPS 50
#define MAX_SIGNAL_SWEEPS 8 /* a grace follows, and a kill */
#define SETTLE_MS 500       /* how long what was told to stop is waited for */
#define POLL_MS 5

struct entry {
    pid_t pid, ppid, session;
    char state;
    uint64_t start; /* with pid, the identity of a process */
    rlim_t mark;    /* 0: none that is ours to read */
    bool is_member;
    bool is_handled; /* got the signal in an earlier sweep */
};

struct table {
    struct entry *list;
    size_t n, cap;
};

rlim_t tree_mark(uint32_t instance, uint32_t serial)
{
    rlim_t tag = instance & ((1u << (MARK_INSTANCE_BITS - 1)) - 1);

    return MARK_BASE | tag << 32 | serial;
}

static rlim_t mark_instance(rlim_t mark)
{
    return mark >> 32;
}

static void table_done(struct table *t)
{
    free(t->list);
}

/* A small file of /proc in one read; false when the process is gone. */
static bool read_small(int proc_fd, pid_t pid, const char *name, char *out, size_t out_bytes)
{
    _cleanup_close_ int fd = -1;
    char path[64];
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%d/%s", pid, name);
    fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, out, out_bytes - 1);
    if (n <= 0)
        return false;
    out[n] = '\0';
    return true;
}

/* "PID (any (name)) S PPID PGRP SESSION ... STARTTIME(22nd)" */
static bool read_stat(int proc_fd, pid_t pid, struct entry *ret)
{
    char text[STAT_BYTES], *at;
    int pgrp;

    if (!read_small(proc_fd, pid, "stat", text, sizeof(text)))
        return false;
    at = strrchr(text, ')');
    if (!at || sscanf(at + 1, " %c %d %d %d", &ret->state, &ret->ppid, &pgrp, &ret->session) != 4)
        return false;
    for (int column = 2; column < 22 && at; column++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, " %" SCNu64, &ret->start) != 1)
        return false;
    ret->pid = pid;
    return true;
}

static rlim_t read_mark(int proc_fd, pid_t pid)
{
    static const char title[] = "Max realtime timeout";
    char text[LIMITS_BYTES], *at;
    uint64_t v;

    if (!read_small(proc_fd, pid, "limits", text, sizeof(text)))
        return 0;
    at = strstr(text, title);
    if (!at || sscanf(at + sizeof(title) - 1, " %" SCNu64, &v) != 1)
        return 0;
    return (rlim_t)v & MARK_BASE ? (rlim_t)v : 0;
}

rlim_t tree_read_mark(pid_t pid)
{
    _cleanup_close_ int proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return proc_fd < 0 ? 0 : read_mark(proc_fd, pid);
}

static int table_add(struct table *t, const struct entry *en, struct err *e)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 256;
        struct entry *list;

        if (cap > TREE_MAX_MEMBERS * 2)
            return err_set(e, ERR_EXHAUSTED, "more than %d processes", TREE_MAX_MEMBERS);
        list = reallocarray(t->list, cap, sizeof(*list));
        if (!list)
            return err_oom(e);
        t->list = list;
        t->cap = cap;
    }
    t->list[t->n++] = *en;
    return 0;
}

static int read_all(int proc_fd, DIR *dir, struct table *t, struct err *e)
{
    struct dirent *d;
    pid_t self = getpid();

    rewinddir(dir);
    t->n = 0;
    while ((d = readdir(dir))) {
        struct entry en = {0};
        uint64_t pid;
        int r;

        if (d->d_name[0] < '1' || d->d_name[0] > '9' ||
            str_parse_u64(d->d_name, 1, INT32_MAX, &pid, NULL) < 0 || (pid_t)pid == self)
            continue;
        if (!read_stat(proc_fd, (pid_t)pid, &en) || en.state == 'Z' || en.state == 'X')
            continue;
        en.mark = read_mark(proc_fd, (pid_t)pid);
        r = table_add(t, &en, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Marked by this agent, for whichever command. */
static bool is_marked_alike(const struct tree *t, const struct entry *en)
{
    return en->mark && mark_instance(en->mark) == mark_instance(t->mark);
}

static bool is_root(const struct tree *t, const struct entry *en)
{
    if (en->mark == t->mark)
        return true;
    /* Another command of this agent: its session number may be our old one, used again. */
    if (is_marked_alike(t, en))
        return false;
    return en->session == t->leader || en->pid == t->leader;
}

static bool has_member_parent(const struct table *t, const struct entry *en)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->list[i].is_member && t->list[i].pid == en->ppid)
            return true;
    return false;
}

static void mark_members(const struct tree *tree, struct table *t)
{
    bool is_growing = true;

    for (size_t i = 0; i < t->n; i++)
        t->list[i].is_member = is_root(tree, &t->list[i]);
    while (is_growing) {
        is_growing = false;
        for (size_t i = 0; i < t->n; i++) {
            struct entry *en = &t->list[i];

            /* What carries another command's mark is that command's, whoever its parent is. */
            if (en->is_member || is_marked_alike(tree, en) || !has_member_parent(t, en))
                continue;
            en->is_member = is_growing = true;
        }
    }
}

static bool was_handled(const struct table *before, const struct entry *en)
{
    for (size_t i = 0; i < before->n; i++)
        if (before->list[i].is_handled && before->list[i].pid == en->pid &&
            before->list[i].start == en->start)
            return true;
    return false;
}

/* By descriptor, and only when the number still means the process that was looked at. */
static bool send(int proc_fd, const struct entry *en, int sig)
{
    _cleanup_close_ int fd = (int)syscall(SYS_pidfd_open, en->pid, 0);
    struct entry now = {0};

    if (fd < 0 && errno != ENOSYS)
        return false;
    if (!read_stat(proc_fd, en->pid, &now) || now.start != en->start)
        return false;
    if (fd < 0)
        return kill(en->pid, sig) == 0;
    return syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) == 0;
}

static int open_proc(int *ret_fd, DIR **ret_dir, struct err *e)
{
    _cleanup_close_ int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir;

    if (fd < 0)
        return err_sys(e, errno, "open '/proc'");
    dir = fdopendir(fd);
    if (!dir)
        return err_sys(e, errno, "open '/proc'");
    *ret_fd = TAKE_FD(fd);
    *ret_dir = dir;
    return 0;
}

static int look(const struct tree *tree, int proc_fd, DIR *dir, struct table *t, struct err *e)
{
    int r = read_all(proc_fd, dir, t, e);

    if (r == 0)
        mark_members(tree, t);
    return r;
}

static size_t count_members(const struct table *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += t->list[i].is_member;
    return n;
}

int tree_count(const struct tree *tree, size_t *ret, struct err *e)
{
    _cleanup_(table_done) struct table t = {0};
    _cleanup_closedir_ DIR *dir = NULL;
    int proc_fd = -1, r;

    r = open_proc(&proc_fd, &dir, e);
    if (r == 0)
        r = look(tree, proc_fd, dir, &t, e);
    if (r == 0)
        *ret = count_members(&t);
    return r;
}

/*
 * One look; stops those that were not stopped before. *ret_new: how many there were; *ret_running: how
 * many were told so before and have not come to it yet, each of which may be in the middle of a fork.
 */
static int stop_new(const struct tree *tree, int proc_fd, DIR *dir, struct table *before,
                    size_t *ret_new, size_t *ret_running, struct err *e)
{
    _cleanup_(table_done) struct table now = {0};
    struct table old;
    size_t n = 0, n_running = 0;
    int r;

    r = look(tree, proc_fd, dir, &now, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < now.n; i++) {
        struct entry *en = &now.list[i];

        if (!en->is_member)
            continue;
        en->is_handled = was_handled(before, en);
        n_running += en->is_handled && en->state == 'R';
        if (!en->is_handled && send(proc_fd, en, SIGSTOP)) {
            en->is_handled = true;
            n++;
        }
    }
    old = *before;
    *before = now;
    now = old;
    *ret_new = n;
    *ret_running = n_running;
    return 0;
}

/* Of the signals that are sent to end something. */
static bool is_ending(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGQUIT || sig == SIGHUP;
}

/*
 * What a member forks after the look at /proc, and before its signal, would get none and live through
 * the whole grace. A stopped one forks nothing.
 */
static int look_to_signal(const struct tree *tree, int sig, int proc_fd, DIR *dir, struct table *t,
                          struct err *e)
{
    int64_t deadline = clock_mono_ms() + SETTLE_MS;
    size_t n_new, n_running;
    int r;

    if (!is_ending(sig))
        return look(tree, proc_fd, dir, t, e);
    for (int i = 0; i<MAX_SIGNAL_SWEEPS; i += n_new> 0) {
        r = stop_new(tree, proc_fd, dir, t, &n_new, &n_running, e);
        if (r < 0)
            return r;
        if (n_new == 0 && (n_running == 0 || clock_mono_ms() >= deadline))
            break;
        if (n_new == 0)
            (void)poll(NULL, 0, POLL_MS);
    }
    return 0;
}

static size_t send_all(int proc_fd, const struct table *t, int sig)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += t->list[i].is_member && send(proc_fd, &t->list[i], sig);
    return n;
}

int tree_signal(const struct tree *tree, int sig, size_t *ret, struct err *e)
{
    _cleanup_(table_done) struct table t = {0};
    _cleanup_closedir_ DIR *dir = NULL;
    int proc_fd = -1, r;

    r = open_proc(&proc_fd, &dir, e);
    if (r < 0)
        return r;
    r = look_to_signal(tree, sig, proc_fd, dir, &t, e);
    if (r == 0)
        *ret = send_all(proc_fd, &t, sig);
    /* Also when a look failed: what was stopped for it goes on. */
    if (sig != SIGSTOP && sig != SIGTSTP && sig != SIGKILL)
        (void)send_all(proc_fd, &t, SIGCONT);
    return r;
}

int tree_kill(const struct tree *tree, int wait_ms, size_t *ret_left, struct err *e)
{
    _cleanup_(table_done) struct table t = {0};
    _cleanup_closedir_ DIR *dir = NULL;
    int64_t deadline = clock_mono_ms() + wait_ms;
    size_t n_new = 1, n_running;
    int proc_fd = -1, r;

    r = open_proc(&proc_fd, &dir, e);
    for (int i = 0; r == 0 && n_new > 0 && i < MAX_SWEEPS;
         i++) /* a fork that is late is met below */
        r = stop_new(tree, proc_fd, dir, &t, &n_new, &n_running, e);
    if (r < 0)
        return r;
    for (;;) {
        size_t n = count_members(&t);

        for (size_t i = 0; i < t.n; i++)
            if (t.list[i].is_member)
                (void)send(proc_fd, &t.list[i], SIGKILL);
        if (n == 0 || clock_mono_ms() >= deadline) {
            *ret_left = n;
            return 0;
        }
        (void)poll(NULL, 0, POLL_MS);
        r = look(tree, proc_fd, dir, &t, e);
        if (r < 0)
            return r;
    }
}
