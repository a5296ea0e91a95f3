#include "lib/procfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"

#include "common/banned.h"

#define ENVIRON_BYTES (256 * 1024)
#define POLL_MS 10
#define KILL_WAIT_MS 5000
#define STOP_ROUNDS 50 /* a fork bomb that outruns this is killed as far as it was seen */

struct stat_line {
    char state;
    pid_t parent;
    uint64_t start;
};

/* The command's name may hold anything, but its ')' is the last one of the line. */
static bool read_stat(pid_t pid, struct stat_line *ret)
{
    _cleanup_close_ int fd = -1;
    unsigned long long start = 0;
    char path[64];
    char line[1024];
    const char *p;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
    if (n <= 0)
        return false;
    line[n] = '\0';
    p = strrchr(line, ')');
    if (!p || sscanf(p + 1,
                     " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                     "%*d %*d %llu",
                     &ret->state, &ret->parent, &start) != 3)
        return false;
    ret->start = start;
    return true;
}

uint64_t procfs_start_time(pid_t pid)
{
    struct stat_line s;

    return pid > 0 && read_stat(pid, &s) && s.state != 'Z' && s.state != 'X' ? s.start : 0;
}

bool procfs_is_alive(pid_t pid, uint64_t start)
{
    return start && procfs_start_time(pid) == start;
}

/* The descriptor pins the process: what is checked after it was opened stays true of it. */
static int open_that(pid_t pid, uint64_t start)
{
    int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

    if (fd >= 0 && !procfs_is_alive(pid, start)) {
        fd_close(fd);
        return -1;
    }
    return fd;
}

bool procfs_kill(pid_t pid, uint64_t start, int sig)
{
    _cleanup_close_ int fd = open_that(pid, start);

    return fd >= 0 && syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) == 0;
}

bool procfs_wait_gone(pid_t pid, uint64_t start, int wait_ms)
{
    _cleanup_close_ int fd = open_that(pid, start);
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return fd < 0 || poll(&p, 1, wait_ms) > 0;
}

/* ---- groups ---- */

struct member {
    pid_t pid;
    pid_t parent;
    uint64_t start;
    bool is_in;
};

struct table {
    struct member *rows;
    size_t n;
};

static bool has_mark(pid_t pid, const char *mark)
{
    _cleanup_free_ char *data = NULL;
    _cleanup_close_ int fd = -1;
    size_t mark_len = strlen(mark);
    size_t len = 0;
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    data = fd < 0 ? NULL : malloc(ENVIRON_BYTES + 1);
    if (!data)
        return false;
    while (len < ENVIRON_BYTES) {
        ssize_t n = read(fd, data + len, ENVIRON_BYTES - len);

        if (n <= 0)
            break;
        len += (size_t)n;
    }
    data[len] = '\0';
    for (size_t i = 0; i < len; i += strlen(data + i) + 1)
        if (strlen(data + i) == mark_len && memcmp(data + i, mark, mark_len) == 0)
            return true;
    return false;
}

static bool add_row(struct table *t, size_t *cap, const struct member *m)
{
    if (t->n == *cap) {
        size_t more = *cap ? *cap * 2 : 256;
        struct member *rows =
            more <= PROCFS_MAX_MEMBERS * 4 ? reallocarray(t->rows, more, sizeof(*rows)) : NULL;

        if (!rows)
            return false;
        t->rows = rows;
        *cap = more;
    }
    t->rows[t->n++] = *m;
    return true;
}

static void read_all(const struct procfs_group *g, struct table *t)
{
    _cleanup_closedir_ DIR *dir = opendir("/proc");
    const struct dirent *d;
    size_t cap = 0;

    while (dir && (d = readdir(dir))) {
        struct stat_line s;
        struct member m = {0};
        uint64_t pid;

        if (str_parse_u64(d->d_name, 1, INT32_MAX, &pid, NULL) < 0 || (pid_t)pid == getpid() ||
            !read_stat((pid_t)pid, &s) || s.state == 'Z' || s.state == 'X')
            continue;
        m = (struct member){.pid = (pid_t)pid, .parent = s.parent, .start = s.start};
        m.is_in =
            (m.pid == g->root && m.start == g->root_start) || (g->mark && has_mark(m.pid, g->mark));
        if (!add_row(t, &cap, &m))
            return;
    }
}

static const struct member *find_row(const struct table *t, pid_t pid)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i].pid == pid)
            return &t->rows[i];
    return NULL;
}

/* Children of members are members, until that adds nothing. */
static void close_over_children(struct table *t)
{
    bool is_grown = true;

    while (is_grown) {
        is_grown = false;
        for (size_t i = 0; i < t->n; i++) {
            const struct member *parent = t->rows[i].is_in ? NULL : find_row(t, t->rows[i].parent);

            if (parent && parent->is_in) {
                t->rows[i].is_in = true;
                is_grown = true;
            }
        }
    }
}

static size_t for_members(const struct procfs_group *g, int sig, struct member **ret)
{
    struct table t = {0};
    size_t n = 0;

    read_all(g, &t);
    close_over_children(&t);
    for (size_t i = 0; i < t.n; i++) {
        if (!t.rows[i].is_in)
            continue;
        if (sig)
            (void)procfs_kill(t.rows[i].pid, t.rows[i].start, sig);
        t.rows[n++] = t.rows[i];
    }
    if (ret)
        *ret = t.rows;
    else
        free(t.rows);
    return n;
}

size_t procfs_count(const struct procfs_group *g)
{
    return for_members(g, 0, NULL);
}

static size_t wait_empty(const struct procfs_group *g, int wait_ms)
{
    int64_t deadline = clock_mono_ms() + wait_ms;
    size_t n;

    while ((n = procfs_count(g)) > 0 && clock_until_ms(deadline) > 0)
        (void)poll(NULL, 0, POLL_MS);
    return n;
}

int procfs_end(const struct procfs_group *g, int grace_ms, struct err *e)
{
    _cleanup_free_ struct member *members = NULL;
    size_t n;
    size_t before = 0;

    if (for_members(g, grace_ms > 0 ? SIGTERM : 0, NULL) == 0 ||
        (grace_ms > 0 && wait_empty(g, grace_ms) == 0))
        return 0;
    /* Stopped first: what is killed one by one could fork a new member meanwhile, and a parent
     * that goes takes the ancestry of its children along. */
    for (int i = 0; i < STOP_ROUNDS; i++) {
        free(TAKE(members));
        n = for_members(g, SIGSTOP, &members);
        if (n == before)
            break;
        before = n;
    }
    for (size_t i = 0; i < before; i++)
        (void)procfs_kill(members[i].pid, members[i].start, SIGKILL);
    for (size_t i = 0; i < before; i++)
        if (!procfs_wait_gone(members[i].pid, members[i].start, KILL_WAIT_MS))
            return err_set(e, ERR_DEADLINE, "the process %d is still there after SIGKILL",
                           (int)members[i].pid);
    return 0;
}
