#include "lib/procfs.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/process.h"
#include "common/proctable.h"

#include "common/banned.h"

#define ENVIRON_BYTES (256 * 1024)
#define POLL_MS 10
#define KILL_WAIT_MS 5000
#define STOP_ROUNDS 50 /* a fork bomb that outruns this is killed as far as it was seen */

uint64_t procfs_start_time(pid_t pid)
{
    struct process_stat s;

    return pid > 0 && process_read(pid, &s) && !process_has_ended(&s) ? s.start : 0;
}

bool procfs_is_alive(pid_t pid, uint64_t start)
{
    return start && procfs_start_time(pid) == start;
}

/* The descriptor pins the process: what is checked after it was opened stays true of it. */
static int open_that(pid_t pid, uint64_t start)
{
    int fd = pid > 0 ? process_open(pid) : -1;

    if (fd >= 0 && !procfs_is_alive(pid, start)) {
        fd_close(fd);
        return -1;
    }
    return fd;
}

bool procfs_kill(pid_t pid, uint64_t start, int sig)
{
    return procfs_is_alive(pid, start) && process_signal(pid, start, sig);
}

bool procfs_wait_gone(pid_t pid, uint64_t start, int wait_ms)
{
    _cleanup_close_ int fd = open_that(pid, start);
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return fd < 0 || poll(&p, 1, wait_ms) > 0;
}

/* ---- groups ---- */

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

/*
 * One look; sends sig to the members, if it is not 0. *seen: empty, or an earlier look, whose members still are;
 * it becomes this look.
 */
static int look(const struct procfs_group *g, int sig, struct proctable *seen, size_t *ret_n,
                struct err *e)
{
    _cleanup_(proctable_done) struct proctable now = {0};
    struct proctable old = *seen;
    int r = proctable_read(&now, PROCFS_MAX_PROCESSES, e);

    if (r < 0)
        return r;
    proctable_keep_members(&now, seen);
    for (size_t i = 0; i < now.n; i++) {
        const struct process_stat *s = &now.rows[i].stat;

        if (!now.rows[i].is_member)
            now.rows[i].is_member = (s->pid == g->root && s->start == g->root_start) ||
                                    (g->mark && has_mark(s->pid, g->mark));
    }
    proctable_add_descendants(&now);
    for (size_t i = 0; sig && i < now.n; i++)
        if (now.rows[i].is_member)
            (void)process_signal(now.rows[i].stat.pid, now.rows[i].stat.start, sig);
    *ret_n = proctable_count_members(&now);
    *seen = now;
    now = old;
    return 0;
}

int procfs_count(const struct procfs_group *g, size_t *ret, struct err *e)
{
    _cleanup_(proctable_done) struct proctable seen = {0};

    return look(g, 0, &seen, ret, e);
}

/* *ret_n: how many are left after the grace. */
static int end_gently(const struct procfs_group *g, int grace_ms, struct proctable *seen,
                      size_t *ret_n, struct err *e)
{
    int64_t deadline = clock_mono_ms() + grace_ms;
    int r = look(g, grace_ms > 0 ? SIGTERM : 0, seen, ret_n, e);

    while (r == 0 && *ret_n > 0 && clock_until_ms(deadline) > 0) {
        (void)poll(NULL, 0, POLL_MS);
        r = look(g, 0, seen, ret_n, e);
    }
    return r;
}

static int kill_members(const struct proctable *seen, struct err *e)
{
    for (size_t i = 0; i < seen->n; i++)
        if (seen->rows[i].is_member)
            (void)process_signal(seen->rows[i].stat.pid, seen->rows[i].stat.start, SIGKILL);
    for (size_t i = 0; i < seen->n; i++) {
        const struct process_stat *s = &seen->rows[i].stat;

        if (seen->rows[i].is_member && !procfs_wait_gone(s->pid, s->start, KILL_WAIT_MS))
            return err_set(e, ERR_DEADLINE, "the process %d is still there after SIGKILL", s->pid);
    }
    return 0;
}

int procfs_end(const struct procfs_group *g, int grace_ms, struct err *e)
{
    _cleanup_(proctable_done) struct proctable seen = {0};
    size_t n, before = 0;
    int r = end_gently(g, grace_ms, &seen, &n, e);

    if (r < 0 || n == 0)
        return r;
    /* Stopped first: what is killed one by one could fork a new member meanwhile. */
    for (int i = 0; i < STOP_ROUNDS && n != before; i++) {
        before = n;
        r = look(g, SIGSTOP, &seen, &n, e);
        if (r < 0)
            return r;
    }
    return kill_members(&seen, e);
}
