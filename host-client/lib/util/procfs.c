#include "lib/util/procfs.h"

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

/* Opens a pidfd. It pins the process: a check after the open stays true. */
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

/* Takes one snapshot. *seen: empty, or an earlier snapshot, whose members still count; it is
 * replaced. */
static int look_for_members(const struct procfs_group *g, struct proctable *seen, size_t *ret_n,
                            struct err *e)
{
    _cleanup_(proctable_done) struct proctable now = {0};
    struct proctable old = *seen;
    int r = proctable_read(&now, false, PROCFS_MAX_PROCESSES, e);

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
    *ret_n = proctable_count_members(&now);
    *seen = now;
    now = old;
    return 0;
}

int procfs_count(const struct procfs_group *g, size_t *ret, struct err *e)
{
    _cleanup_(proctable_done) struct proctable seen = {0};

    return look_for_members(g, &seen, ret, e);
}

/* Sends sig to the members that got none since forget_signals(). *ret: their number. */
static void signal_new_members(struct proctable *seen, int sig, size_t *ret)
{
    *ret = 0;
    for (size_t i = 0; i < seen->n; i++) {
        struct proctable_row *row = &seen->rows[i];

        if (!row->is_member || row->was_signaled ||
            !process_signal(row->stat.pid, row->stat.start, sig))
            continue;
        row->was_signaled = true;
        ++*ret;
    }
}

static void forget_signals(struct proctable *seen)
{
    for (size_t i = 0; i < seen->n; i++)
        seen->rows[i].was_signaled = false;
}

/* *ret_n: the members left after the grace. */
static int end_gently(const struct procfs_group *g, int grace_ms, struct proctable *seen,
                      size_t *ret_n, struct err *e)
{
    int64_t deadline = clock_mono_ms() + grace_ms;
    int r = look_for_members(g, seen, ret_n, e);
    size_t n_told;

    if (r == 0 && grace_ms > 0)
        signal_new_members(seen, SIGTERM, &n_told);
    while (r == 0 && *ret_n > 0 && clock_until_ms(deadline) > 0) {
        (void)poll(NULL, 0, POLL_MS);
        r = look_for_members(g, seen, ret_n, e);
    }
    return r;
}

/* A fork in progress when its process was stopped shows up in a later snapshot. */
static int kill_until_gone(const struct procfs_group *g, struct proctable *seen, struct err *e)
{
    int64_t deadline = clock_mono_ms() + KILL_WAIT_MS;

    for (;;) {
        size_t n, n_told;
        int r;

        forget_signals(seen);
        signal_new_members(seen, SIGKILL, &n_told);
        r = look_for_members(g, seen, &n, e);
        if (r < 0 || n == 0)
            return r;
        if (clock_until_ms(deadline) == 0)
            return err_set(e, ERR_DEADLINE, "%zu processes are still there after SIGKILL", n);
        (void)poll(NULL, 0, POLL_MS);
    }
}

int procfs_end(const struct procfs_group *g, int grace_ms, struct err *e)
{
    _cleanup_(proctable_done) struct proctable seen = {0};
    size_t n, n_new = 1;
    int r = end_gently(g, grace_ms, &seen, &n, e);

    if (r < 0 || n == 0)
        return r;
    /* Stop members until no new one shows up: survivors of a kill in progress could fork. */
    forget_signals(&seen);
    for (int i = 0; r == 0 && i < STOP_ROUNDS && n_new > 0; i++) {
        r = look_for_members(g, &seen, &n, e);
        if (r == 0)
            signal_new_members(&seen, SIGSTOP, &n_new);
    }
    if (r == 0)
        return kill_until_gone(g, &seen, e);
    forget_signals(&seen);
    signal_new_members(&seen, SIGKILL, &n_new); /* leave none stopped */
    return r;
}
