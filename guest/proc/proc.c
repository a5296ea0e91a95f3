/* proc: a command's life: adopts it after its start, assembles its result, serves callers. */
#include "proc/proc.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/process.h"

#define RUSAGE_BLOCK_BYTES 512

static void on_timeout(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    p->timeout_timer = NULL;
    if (!p->spec.leader_only) {
        killer_begin(p, REASON_TIMEOUT);
        return;
    }
    p->kill_reason = REASON_TIMEOUT;
    p->is_eof_waived = true;
    (void)proc_signal(p, SIGKILL, false, NULL); /* fails if it has ended: only its output is left */
    proc_check_end(p);
}

/* The registry's reference holds p until after registry_ended(): timers need none of their own. */
void proc_adopt(struct proc *p)
{
    int64_t at = p->started_mono_ms + (int64_t)p->spec.timeout_ms;
    bool is_canceled = false;

    if (p->is_adopted)
        return;
    p->is_adopted = true;
    output_watch(p);
    input_pump(p);
    if (p->spec.timeout_ms)
        (void)loop_timer_add(p->reg->loop, at, on_timeout, p, &p->timeout_timer, NULL);
    WITH_LOCK (&p->lock)
        is_canceled = p->cancel_asked;
    if (is_canceled)
        killer_begin(p, REASON_CANCELED);
}

static void set_status(struct proc *p, int status, bool is_lost)
{
    p->info.reason = REASON_EXITED;
    if (is_lost) {
        p->info.reason = REASON_LOST;
    } else if (WIFSIGNALED(status)) {
        p->info.reason = REASON_SIGNALED;
        p->info.signal = WTERMSIG(status);
        p->info.has_core = WCOREDUMP(status);
    } else {
        p->info.code = WEXITSTATUS(status);
    }
}

static void set_usage(struct proc_usage *u, const struct rusage *ru, bool counts_io)
{
    if (counts_io) {
        u->read_bytes = (int64_t)ru->ru_inblock * RUSAGE_BLOCK_BYTES;
        u->write_bytes = (int64_t)ru->ru_oublock * RUSAGE_BLOCK_BYTES;
    }
    u->user_ms = ru->ru_utime.tv_sec * 1000 + ru->ru_utime.tv_usec / 1000;
    u->system_ms = ru->ru_stime.tv_sec * 1000 + ru->ru_stime.tv_usec / 1000;
    u->max_rss_bytes = (int64_t)ru->ru_maxrss * 1024;
}

void proc_reaped(struct proc *p, int status, const struct rusage *ru, bool is_lost)
{
    const struct oom_death death = {
        .pid = p->info.pid,
        .signal = is_lost || !WIFSIGNALED(status) ? 0 : WTERMSIG(status),
        .is_killed_by_us = p->kill_phase == KILL_FORCE,
        .group = p->cgroup,
        .before = p->oom_kills_before,
        .started_mono_ms = p->started_mono_ms,
    };
    enum proc_oom oom;

    proc_adopt(p);
    oom = oom_verdict(&p->reg->oom, &death);
    WITH_LOCK (&p->lock) {
        set_status(p, status, is_lost);
        set_usage(&p->info.usage, ru, p->reg->counts_io);
        p->info.oom = oom;
        if (oom == OOM_YES && p->info.signal == SIGKILL)
            p->info.reason = REASON_OOM;
        p->info.usage.wall_ms = clock_mono_ms() - p->started_mono_ms;
    }
    output_drain(p);
    if (p->spec.kill_on_exit && p->kill_phase == KILL_NONE)
        killer_begin(p, REASON_NONE);
    else if (p->kill_phase != KILL_NONE)
        killer_reaped(p);
    proc_check_end(p);
}

static bool is_spilling(struct proc *p)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

    return p->is_spilling;
}

void proc_check_end(struct proc *p)
{
    bool is_open = p->out_fd[PROC_STDOUT] >= 0 || p->out_fd[PROC_STDERR] >= 0;
    bool must_wait = p->spec.wait_eof && p->kill_phase != KILL_DONE && !p->is_eof_waived;

    if (!is_open)
        registry_lingering(p, false);
    if (!p->is_reaped || p->info.state != PROC_RUNNING)
        return;
    if (p->kill_phase == KILL_TERM || p->kill_phase == KILL_FORCE)
        return;
    if (is_open && (must_wait || p->drain_timer))
        return;
    if (is_spilling(p) || killer_holds_end(p))
        return;
    proc_finish(p);
}

/*
 * A process group that was empty when the first process was reaped stays empty. While it has
 * members, the kernel gives its number to no process: if a process has the number, the group is
 * gone and this is another one.
 */
static bool is_group_left(const struct proc *p)
{
    if (!p->had_others_in_group || (kill(-p->info.pid, 0) < 0 && errno == ESRCH))
        return false;
    return kill(p->info.pid, 0) < 0 && errno == ESRCH;
}

static enum proc_tree tree_verdict(const struct proc *p)
{
    size_t n;

    if (p->cgroup && cgroup_count(p->cgroup, &n, NULL) == 0)
        return n > 0 ? TREE_LEFT : TREE_GONE;
    if (p->kill_phase == KILL_DONE ? p->n_left > 0 : is_group_left(p))
        return TREE_LEFT;
    return reap_has_children(p->reg) ? TREE_BEST_EFFORT : TREE_GONE;
}

/* With the lock. The cgroup also counts processes that nobody waited for. */
static void add_group_usage(struct proc *p)
{
    struct proc_usage *u = &p->info.usage;
    struct cgroup_usage g;

    cgroup_get_usage(p->cgroup, &g);
    u->tree_peak_bytes = g.peak_bytes;
    if (g.user_us / 1000 > u->user_ms)
        u->user_ms = g.user_us / 1000;
    if (g.system_us / 1000 > u->system_ms)
        u->system_ms = g.system_us / 1000;
}

/* The timers that have no reference and nothing to do after the end. */
static void drop_end_timers(struct proc *p)
{
    p->timeout_timer = loop_timer_del(p->timeout_timer);
    p->poll_timer = loop_timer_del(p->poll_timer);
    p->drain_timer = loop_timer_del(p->drain_timer);
    p->stall_timer = loop_timer_del(p->stall_timer);
}

void proc_finish(struct proc *p)
{
    enum proc_tree tree = tree_verdict(p);

    assert(p->info.state == PROC_RUNNING);
    proc_ref(p); /* once the end is announced, another thread may forget the command */
    drop_end_timers(p);
    input_close(p);
    WITH_LOCK (&p->lock) {
        if (p->kill_reason != REASON_NONE && p->info.reason != REASON_OOM)
            p->info.reason = p->kill_reason;
        p->info.tree = tree;
        if (p->cgroup)
            add_group_usage(p);
        p->info.ended_ms = clock_real_ms();
        p->info.state = PROC_ENDED;
    }
    if (p->out_fd[PROC_STDOUT] >= 0 || p->out_fd[PROC_STDERR] >= 0)
        registry_lingering(p, true);
    if (p->cgroup)
        cgroup_remove(p->cgroup);
    proc_remove_script(p);
    /*
     * registry_ended() comes before the announcement: a reader of the end may forget the command.
     */
    registry_ended(p);
    proc_wake_all(p);
    proc_unref(p);
}

void proc_abandon(struct proc *p)
{
    for (size_t i = 0; i < N_PROC_STREAMS; i++)
        p->out_watch[i] = loop_watch_del(p->out_watch[i]);
    p->stdin_watch = loop_watch_del(p->stdin_watch);
    p->watch_timer = loop_timer_del(p->watch_timer);
    drop_end_timers(p);
    if (p->wake_timer) {
        p->wake_timer = loop_timer_del(p->wake_timer);
        proc_unref(p);
    }
    if (p->linger_timer) {
        p->linger_timer = loop_timer_del(p->linger_timer);
        proc_unref(p);
    }
    registry_lingering(p, false);
}

/* ---- what callers ask ---- */

int proc_check_started(const struct proc *p, struct err *e)
{
    if (p->info.state == PROC_STARTING)
        return err_field(e, ERR_PRECONDITION, "id", "'%s' is still being started", p->id);
    if (p->info.state == PROC_FAILED)
        return err_field(e, ERR_PRECONDITION, "id", "'%s' could not be started", p->id);
    return 0;
}

/* With the lock, which keeps the reaper away. */
static int signal_leader(const struct proc *p, int sig, struct err *e)
{
    int sys = p->is_reaped ? -ESRCH : process_signal_child(p->info.pid, sig);

    if (sys == -ESRCH)
        return err_field(e, ERR_PRECONDITION, "id", "'%s' has ended", p->id);
    return sys < 0 ? err_sys(e, -sys, "sending signal %d to '%s'", sig, p->id) : 0;
}

int proc_signal(struct proc *p, int sig, bool is_tree, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = NULL;
    int r;

    if (is_tree)
        return killer_signal_tree(p, sig, e);
    locked = mutex_lock(&p->lock);
    r = proc_check_started(p, e);
    return r < 0 ? r : signal_leader(p, sig, e);
}

static void on_waived(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    if (p->is_adopted)
        proc_check_end(p);
    proc_unref(p);
}

void proc_waive_eof(struct proc *p)
{
    p->is_eof_waived = true;
    proc_post(p, on_waived);
}

int proc_resize(struct proc *p, unsigned cols, unsigned rows, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

    if (!p->spec.has_pty)
        return err_field(e, ERR_PRECONDITION, "id", "'%s' has no terminal", p->id);
    if (p->out_fd[PROC_STDOUT] < 0)
        return err_field(e, ERR_PRECONDITION, "id", "the terminal of '%s' is closed", p->id);
    return pty_resize(p->out_fd[PROC_STDOUT], cols, rows, e);
}

void proc_own(struct proc *p)
{
    WITH_LOCK (&p->lock)
        p->n_owners++;
}

void proc_detach(struct proc *p)
{
    WITH_LOCK (&p->lock)
        p->is_detached = true;
}

static void on_cancel(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    if (p->is_adopted)
        killer_begin(p, REASON_CANCELED);
    proc_unref(p);
}

void proc_disown(struct proc *p)
{
    bool is_cancel = false;

    WITH_LOCK (&p->lock) {
        p->n_owners--;
        is_cancel = p->n_owners == 0 && p->spec.cancel_on_leave && !p->is_detached &&
                    (p->info.state == PROC_STARTING || p->info.state == PROC_RUNNING);
        p->cancel_asked = p->cancel_asked || is_cancel;
    }
    if (is_cancel)
        proc_post(p, on_cancel);
}
