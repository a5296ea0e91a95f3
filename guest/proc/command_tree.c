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
#define MAX_SIGNAL_SWEEPS 8 /* a grace follows, and a kill */
#define SETTLE_MS 500       /* how long what was told to stop is waited for */
#define POLL_MS 5

/* ---- marks ---- */

/* The rows of /proc/PID/limits that carry one. */
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

/* The hard limits; 0: none that is a mark. */
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

/* ---- who belongs to it ---- */

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
    /* Checked after the open: a number that is a child's now was the child's then. */
    t->has_leader = process_is_child(leader);
}

void command_tree_done(struct command_tree *t)
{
    fd_close(t->leader_fd);
    proctable_done(&t->seen);
    *t = COMMAND_TREE_NONE;
}

/* Has its number, which is the session's as well, been its own since command_tree_init()? */
static bool is_leader_there(const struct command_tree *t)
{
    struct process_stat now;

    if (!t->has_leader || (t->leader_fd >= 0 && !process_is_there(t->leader_fd)))
        return false;
    return process_read(t->leader, &now) &&
           (now.start == t->start || (!t->start && t->leader_fd >= 0));
}

/*
 * Start times order processes by age on Linux. gVisor takes them from the wall clock, which can be set back; it is
 * told by its lack of pidfds, which Linux before 5.3 has not either.
 */
static bool tells_ages(void)
{
    _cleanup_close_ int fd = process_open(getpid());

    return fd >= 0 || errno != ENOSYS;
}

static void bar_strangers(const struct command_tree *t, struct proctable *now)
{
    struct proctable_row *ancestor = proctable_find(now, getppid());
    bool has_ages = tells_ages();

    for (size_t i = 0; i < now->n; i++)
        now->rows[i].is_barred = has_ages && now->rows[i].stat.start < t->start;
    for (int i = 0; ancestor && i < MAX_ANCESTORS; i++) {
        ancestor->is_barred = true;
        ancestor = proctable_find(now, ancestor->stat.parent);
    }
}

/*
 * The rows are older than the look at the leader: if that one is there now, its number was its own when they
 * were read.
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

static int look_for_members(struct command_tree *t, struct err *e)
{
    struct proctable now = {0};
    int r = proctable_read(&now, COMMAND_TREE_MAX_MEMBERS * 2, e);

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
    int r = look_for_members(t, e);

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
 * One look; stops members that were not stopped before. *ret_new: how many there were; *ret_running: how
 * many were told so before and have not come to it yet, each of which may be in the middle of a fork.
 */
static int stop_new(struct command_tree *t, size_t *ret_new, size_t *ret_running, struct err *e)
{
    size_t n = 0, n_running = 0;
    int r = look_for_members(t, e);

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
 * A process that a member forks after the look at /proc, and before its signal, would get none and live
 * through the whole grace. A stopped member forks nothing.
 */
static int look_to_signal(struct command_tree *t, int sig, struct err *e)
{
    int64_t deadline = clock_mono_ms() + SETTLE_MS;
    size_t n_new, n_running;
    int r;

    if (!is_ending(sig))
        return look_for_members(t, e);
    for (int i = 0; i<MAX_SIGNAL_SWEEPS; i += n_new> 0) {
        r = stop_new(t, &n_new, &n_running, e);
        if (r < 0)
            return r;
        if (n_new == 0 && (n_running == 0 || clock_mono_ms() >= deadline))
            break;
        if (n_new == 0)
            (void)poll(NULL, 0, POLL_MS);
    }
    return 0;
}

int command_tree_signal(struct command_tree *t, int sig, size_t *ret, struct err *e)
{
    int r;

    forget_signals(t);
    r = look_to_signal(t, sig, e);
    if (r == 0)
        *ret = signal_members(t, sig);
    /* Also when a look failed: what was stopped for it goes on. */
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
    for (int i = 0; r == 0 && n_new > 0 && i < MAX_SWEEPS;
         i++) /* a fork that is late is met below */
        r = stop_new(t, &n_new, &n_running, e);
    for (;;) {
        size_t n = proctable_count_members(&t->seen);

        /* Also when a look failed: a member that was stopped does not stay so. */
        (void)signal_members(t, SIGKILL);
        if (r < 0)
            return r;
        if (n == 0 || clock_mono_ms() >= deadline) {
            *ret_left = n;
            return 0;
        }
        (void)poll(NULL, 0, POLL_MS);
        r = look_for_members(t, e);
    }
}
