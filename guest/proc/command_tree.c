#include "proc/command_tree.h"

#include <assert.h>
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

#define MARK_BASE ((rlim_t)1 << 62)
#define MARK_INSTANCES ((uint32_t)1 << 29)
#define LIMITS_BYTES 2048
#define MAX_ANCESTORS 1024
#define MAX_SWEEPS 50
#define MAX_SIGNAL_SWEEPS 8 /* few: a grace period and a kill follow */
#define SETTLE_MS 500       /* wait for SIGSTOP to take effect */
#define POLL_MS 5

/* ---- marks ---- */

/* The rows of /proc/PID/limits that carry a mark. */
static const char *const mark_rows[] = {"Max realtime timeout", "Max resident set"};
#define N_MARKS N_ELEMENTS(mark_rows)

static bool is_mark(rlim_t limit)
{
    return (limit & ~(MARK_BASE - 1)) == MARK_BASE;
}

rlim_t command_tree_mark(uint32_t instance, uint32_t serial)
{
    rlim_t tag = instance % MARK_INSTANCES;

    return MARK_BASE | tag << 32 | serial;
}

uint32_t command_tree_new_instance(uint32_t random)
{
    static const int limits[] = COMMAND_TREE_MARK_LIMITS;
    uint32_t below = MARK_INSTANCES;

    for (size_t i = 0; i < N_ELEMENTS(limits); i++) {
        struct rlimit own = {0};

        (void)syscall(SYS_prlimit64, 0, limits[i], NULL, &own);
        if (is_mark(own.rlim_max) && (own.rlim_max - MARK_BASE) >> 32 < below)
            below = (uint32_t)((own.rlim_max - MARK_BASE) >> 32);
    }
    return below ? random % below : 0;
}

/* The hard limits that are marks; 0: the row has none. */
static void read_marks(pid_t pid, rlim_t ret[N_MARKS])
{
    _cleanup_close_ int fd = -1;
    char path[64], text[LIMITS_BYTES];
    ssize_t n;

    memset(ret, 0, N_MARKS * sizeof(*ret));
    (void)snprintf(path, sizeof(path), "/proc/%d/limits", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return;
    text[n] = '\0';
    for (size_t i = 0; i < N_MARKS; i++) {
        const char *row = strstr(text, mark_rows[i]);
        uint64_t hard;

        if (row && sscanf(row + strlen(mark_rows[i]), " %*s %" SCNu64, &hard) == 1 && is_mark(hard))
            ret[i] = hard;
    }
}

static bool carries_mark(pid_t pid, rlim_t mark)
{
    rlim_t marks[N_MARKS];

    read_marks(pid, marks);
    for (size_t i = 0; i < N_MARKS; i++)
        if (marks[i] == mark)
            return true;
    return false;
}

bool command_tree_find_serial(pid_t pid, uint32_t instance, uint32_t *ret_serial)
{
    rlim_t marks[N_MARKS];

    read_marks(pid, marks);
    for (size_t i = 0; i < N_MARKS; i++) {
        uint32_t serial = (uint32_t)marks[i];

        if (marks[i] != command_tree_mark(instance, serial))
            continue;
        *ret_serial = serial;
        return true;
    }
    return false;
}

/* ---- members ---- */

void command_tree_init(struct command_tree *t, pid_t leader, uint64_t start, bool is_waited_for,
                       rlim_t mark)
{
    assert(leader >= 2);
    *t = COMMAND_TREE_NONE;
    t->leader = leader;
    t->start = start;
    t->mark = mark;
    if (is_waited_for)
        return;
    t->leader_fd = process_open(leader);
    /* Checked after the open: if the pid is a child's now, it was the child's then. */
    t->has_leader = process_is_child(leader);
}

void command_tree_done(struct command_tree *t)
{
    fd_close(t->leader_fd);
    proctable_done(&t->seen);
    *t = COMMAND_TREE_NONE;
}

/* Has the pid, which is also the session's id, belonged to the leader since command_tree_init()? */
static bool is_leader_there(const struct command_tree *t)
{
    struct process_stat now;

    if (!t->has_leader || (t->leader_fd >= 0 && !process_is_there(t->leader_fd)))
        return false;
    return process_read(t->leader, &now) &&
           (now.start == t->start || (!t->start && t->leader_fd >= 0));
}

/*
 * Start times order processes by age on Linux. gVisor takes them from the wall clock, which can be
 * set back; the lack of pidfds identifies gVisor (and Linux before 5.3).
 */
static bool has_ordered_start_times(void)
{
    _cleanup_close_ int fd = process_open(getpid());

    return fd >= 0 || errno != ENOSYS;
}

static void bar_strangers(const struct command_tree *t, struct proctable *now)
{
    struct proctable_row *ancestor = proctable_find(now, getppid());
    bool has_ages = has_ordered_start_times();

    for (size_t i = 0; i < now->n; i++)
        now->rows[i].is_barred = has_ages && now->rows[i].stat.start < t->start;
    for (int i = 0; ancestor && i < MAX_ANCESTORS; i++) {
        ancestor->is_barred = true;
        ancestor = proctable_find(now, ancestor->stat.parent);
    }
}

/*
 * The rows were read before the leader is checked: if the leader exists now, the pid was the
 * leader's when they were read.
 */
static void add_roots(const struct command_tree *t, struct proctable *now)
{
    bool has_leader = is_leader_there(t);

    for (size_t i = 0; i < now->n; i++) {
        struct proctable_row *row = &now->rows[i];
        const struct process_stat *s = &row->stat;

        if (!row->is_member && !row->is_barred)
            row->is_member = (has_leader && (s->session == t->leader || s->pid == t->leader)) ||
                             carries_mark(s->pid, t->mark);
    }
}

static int find_members(struct command_tree *t, struct err *e)
{
    struct proctable now = {0};
    int r = proctable_read(&now, false, COMMAND_TREE_MAX_MEMBERS * 2, e);

    if (r < 0)
        return r;
    bar_strangers(t, &now);
    proctable_keep_members(&now, &t->seen);
    add_roots(t, &now);
    proctable_add_descendants(&now);
    proctable_done(&t->seen);
    t->seen = now;
    return 0;
}

int command_tree_count(struct command_tree *t, size_t *ret, struct err *e)
{
    int r = find_members(t, e);

    if (r == 0)
        *ret = proctable_count_members(&t->seen);
    return r;
}

/* ---- signals ---- */

static bool signal_member(const struct proctable_row *row, int sig)
{
    return process_signal(row->stat.pid, row->stat.start, sig);
}

static size_t signal_members(const struct command_tree *t, int sig)
{
    size_t n = 0;

    for (size_t i = 0; i < t->seen.n; i++)
        n += t->seen.rows[i].is_member && signal_member(&t->seen.rows[i], sig);
    return n;
}

static void forget_signals(struct command_tree *t)
{
    for (size_t i = 0; i < t->seen.n; i++)
        t->seen.rows[i].was_signaled = false;
}

/*
 * Reads /proc once and stops members that were not stopped before. *ret_new: how many these are;
 * *ret_running: how many got SIGSTOP before and still run; each of them may be in the middle of a
 * fork.
 */
static int stop_new_members(struct command_tree *t, size_t *ret_new, size_t *ret_running,
                            struct err *e)
{
    size_t n = 0, n_running = 0;
    int r = find_members(t, e);

    if (r < 0)
        return r;
    for (size_t i = 0; i < t->seen.n; i++) {
        struct proctable_row *row = &t->seen.rows[i];

        if (!row->is_member)
            continue;
        n_running += row->was_signaled && row->stat.state == 'R';
        if (!row->was_signaled && signal_member(row, SIGSTOP)) {
            row->was_signaled = true;
            n++;
        }
    }
    *ret_new = n;
    *ret_running = n_running;
    return 0;
}

static bool is_ending(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGQUIT || sig == SIGHUP;
}

/*
 * A process that a member forks between the reading of /proc and its signal would miss the signal
 * and live through the whole grace period. A stopped member does not fork; but the sweep that sees
 * it stopped may have read the place of its last child before that was there: one more sweep does.
 */
static int find_members_to_signal(struct command_tree *t, int sig, struct err *e)
{
    int64_t deadline = clock_mono_ms() + SETTLE_MS;
    bool is_settled = false, was_settled;
    size_t n_new, n_running;
    int r;

    if (!is_ending(sig))
        return find_members(t, e);
    for (int i = 0; i<MAX_SIGNAL_SWEEPS; i += n_new> 0) {
        r = stop_new_members(t, &n_new, &n_running, e);
        if (r < 0)
            return r;
        was_settled = is_settled;
        is_settled = n_new == 0 && n_running == 0;
        if (n_new == 0 && ((is_settled && was_settled) || clock_mono_ms() >= deadline))
            break;
        if (n_new == 0 && !is_settled)
            (void)poll(NULL, 0, POLL_MS);
    }
    return 0;
}

int command_tree_signal(struct command_tree *t, int sig, size_t *ret, struct err *e)
{
    int r;

    forget_signals(t);
    r = find_members_to_signal(t, sig, e);
    if (r == 0)
        *ret = signal_members(t, sig);
    /* Also after a failed reading of /proc: members that were stopped for it must continue. */
    if (sig != SIGSTOP && sig != SIGTSTP && sig != SIGKILL)
        (void)signal_members(t, SIGCONT);
    return r;
}

int command_tree_kill(struct command_tree *t, int wait_ms, size_t *ret_left, struct err *e)
{
    int64_t deadline = clock_mono_ms() + wait_ms;
    size_t n_new = 1, n_running;
    int r = 0;

    forget_signals(t);
    /* A process forked after the last sweep is killed in the loop below. */
    for (int i = 0; r == 0 && n_new > 0 && i < MAX_SWEEPS; i++)
        r = stop_new_members(t, &n_new, &n_running, e);
    for (;;) {
        size_t n = proctable_count_members(&t->seen);

        /* Also after a failed reading of /proc: no member may stay stopped. */
        (void)signal_members(t, SIGKILL);
        if (r < 0)
            return r;
        if (n == 0 || clock_mono_ms() >= deadline) {
            *ret_left = n;
            return 0;
        }
        (void)poll(NULL, 0, POLL_MS);
        r = find_members(t, e);
    }
}
