/*
 * reap: the only place that waits for processes. SIGCHLD wakes the loop; waitid(WNOWAIT) finds a
 * zombie; its status goes to its command, an adopted orphan's is dropped. A child that failed
 * before exec is left to spawn(): a later search finds it gone.
 */
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "proc/proc.h"

#define SWEEP_MS 1000   /* search without a signal while commands run, should one be lost */
#define SWEEP_SOON_MS 2 /* retry for a child that spawn() is about to hand over */

enum owner {
    OWNER_NOBODY, /* adopted */
    OWNER_COMMAND,
    OWNER_SPAWN, /* spawn() has not returned */
};

/* *ret is a reference, NULL for OWNER_NOBODY. */
static enum owner find_owner(struct registry *reg, pid_t pid, struct proc **ret)
{
    _cleanup_unlock_ pthread_mutex_t *reg_locked = mutex_lock(&reg->lock);

    LIST_EACH_BACK (struct proc, progress_link, p, &reg->running) {
        _cleanup_unlock_ pthread_mutex_t *locked = NULL;
        bool is_starting;

        if (atomic_load(&p->child_pid) != pid)
            continue;
        locked = mutex_lock(&p->lock);
        is_starting = p->info.state == PROC_STARTING;
        if (!is_starting && (p->info.state != PROC_RUNNING || p->is_reaped))
            continue;
        *ret = proc_ref(p);
        return is_starting ? OWNER_SPAWN : OWNER_COMMAND;
    }
    return OWNER_NOBODY;
}

/* False: it has not ended. */
static bool reap_command(struct proc *p, pid_t pid)
{
    struct rusage ru = {0};
    int status = 0;
    pid_t got = 0;

    /*
     * Signals are sent with the lock: after wait4() the kernel may give the number to another
     * process.
     */
    WITH_LOCK (&p->lock) {
        got = wait4(pid, &status, WNOHANG, &ru);
        if (got == 0)
            return false;
        p->is_reaped = true;
        p->child_pid = 0;
        p->had_others_in_group = got == pid && (kill(-pid, 0) == 0 || errno == EPERM);
    }
    proc_reaped(p, status, &ru, got != pid);
    return true;
}

static bool reap_adopted(struct registry *reg, pid_t pid)
{
    if (waitpid(pid, NULL, WNOHANG) != pid)
        return false;
    WITH_LOCK (&reg->lock)
        reg->totals.adopted_total++;
    return true;
}

/* The oldest zombie, which is not reaped. 0: none has ended; -1: there are no children. */
static pid_t find_zombie(idtype_t which, id_t id)
{
    siginfo_t si = {0};

    while (waitid(which, id, &si, WEXITED | WNOHANG | WNOWAIT) < 0)
        if (errno != EINTR)
            return -1;
    return si.si_pid;
}

bool reap_has_children(struct registry *reg)
{
    struct proc *p = NULL;
    pid_t pid;

    /* A zombie whose SIGCHLD is still on its way does not count as a child that is left. */
    while ((pid = find_zombie(P_ALL, 0)) > 0 && find_owner(reg, pid, &p) == OWNER_NOBODY)
        if (!reap_adopted(reg, pid))
            break;
    proc_unref(p);
    return pid >= 0;
}

/* For a child that has ended, or is not ours any more. False: it can't be reaped yet. */
static bool reap_pid(struct registry *reg, pid_t pid)
{
    _cleanup_proc_ struct proc *p = NULL;

    switch (find_owner(reg, pid, &p)) {
    case OWNER_COMMAND:
        return reap_command(p, pid);
    case OWNER_SPAWN:
        return launch_take_over(p) && reap_command(p, pid);
    case OWNER_NOBODY:
        break;
    }
    (void)reap_adopted(reg, pid);
    return true;
}

/* References, latest start first. NULL: none, or out of memory. */
static struct proc **copy_running(struct registry *reg, size_t *ret_n)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&reg->lock);
    struct proc **all = reg->running.n ? calloc(reg->running.n, sizeof(*all)) : NULL;
    size_t n = 0;

    *ret_n = all ? reg->running.n : 0;
    if (all)
        LIST_EACH_BACK (struct proc, progress_link, p, &reg->running)
            all[n++] = proc_ref(p);
    return all;
}

/*
 * Waits for each command by its number. This is needed when the oldest zombie can't be reaped yet
 * and hides the others, and for children that somebody else in this process has waited for.
 */
static void reap_each(struct registry *reg)
{
    size_t n;
    _cleanup_free_ struct proc **all = copy_running(reg, &n);

    for (size_t i = 0; i < n; i++) {
        pid_t pid = atomic_load(&all[i]->child_pid);

        if (pid > 0 && find_zombie(P_PID, (id_t)pid) != 0)
            (void)reap_pid(reg, pid);
        proc_unref(all[i]);
    }
}

static void on_sweep(struct loop *l, void *arg);

static void set_sweep(struct registry *reg, int64_t in_ms)
{
    reg->sweep_timer = loop_timer_del(reg->sweep_timer);
    (void)loop_timer_add(reg->loop, clock_mono_ms() + in_ms, on_sweep, reg, &reg->sweep_timer,
                         NULL);
}

static void reap_all(struct registry *reg)
{
    int64_t next_ms = SWEEP_MS;
    pid_t pid;

    while ((pid = find_zombie(P_ALL, 0)) > 0) {
        if (reap_pid(reg, pid))
            continue;
        reap_each(reg);
        next_ms = SWEEP_SOON_MS;
        break;
    }
    oom_check(&reg->oom);
    if (pid < 0)
        reap_each(reg);
    if (pid >= 0)
        set_sweep(reg, next_ms);
}

static void on_sweep(struct loop *l, void *arg)
{
    struct registry *reg = arg;

    (void)l;
    reg->sweep_timer = NULL;
    reap_all(reg);
    reap_each(reg);
}

static void on_signal(struct loop *l, uint32_t events, void *arg)
{
    struct registry *reg = arg;
    struct signalfd_siginfo si[16];

    (void)l;
    (void)events;
    while (read(reg->signal_fd, si, sizeof(si)) == (ssize_t)sizeof(si))
        ;
    reap_all(reg);
}

int reap_init(struct registry *reg, struct err *e)
{
    sigset_t set;

    /*
     * If SIGCHLD is ignored (inherited), the kernel reaps the children itself and frees their
     * numbers.
     */
    (void)signal(SIGCHLD, SIG_DFL);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    reg->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (reg->signal_fd < 0)
        return err_sys(e, errno, "watching for SIGCHLD");
    return loop_watch_add(reg->loop, reg->signal_fd, EPOLLIN, on_signal, reg, &reg->signal_watch,
                          e);
}

void reap_done(struct registry *reg)
{
    reg->sweep_timer = loop_timer_del(reg->sweep_timer);
    reg->keep_timer = loop_timer_del(reg->keep_timer);
    reg->signal_watch = loop_watch_del(reg->signal_watch);
    fd_close(reg->signal_fd);
    reg->signal_fd = -1;
}
