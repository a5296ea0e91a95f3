/*
 * reap: the one place that waits for processes. SIGCHLD wakes the loop; waitid() without taking
 * says who has ended; a command's status goes to its command, an adopted orphan's to nobody. A
 * child that did not get as far as exec is left for spawn() to reap: a later look finds it gone.
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

#define SWEEP_MS 1000   /* a look without a signal while commands run, should one be lost */
#define SWEEP_SOON_MS 2 /* a child that spawn() is about to hand over */

enum owner {
    OWNER_NOBODY, /* adopted */
    OWNER_COMMAND,
    OWNER_SPAWN, /* spawn() has not returned */
};

/* *ret is a reference, NULL for OWNER_NOBODY. */
static enum owner find_owner(struct registry *reg, pid_t pid, struct proc **ret)
{
    enum owner owner = OWNER_NOBODY;

    (void)pthread_mutex_lock(&reg->lock);
    for (struct proc *p = reg->running; p && owner == OWNER_NOBODY; p = p->running_next) {
        if (atomic_load(&p->child_pid) != pid)
            continue;
        (void)pthread_mutex_lock(&p->lock);
        if (p->info.state == PROC_STARTING)
            owner = OWNER_SPAWN;
        else if (p->info.state == PROC_RUNNING && !p->is_reaped)
            owner = OWNER_COMMAND;
        if (owner != OWNER_NOBODY)
            *ret = proc_ref(p);
        (void)pthread_mutex_unlock(&p->lock);
    }
    (void)pthread_mutex_unlock(&reg->lock);
    return owner;
}

/* False: it has not ended. */
static bool reap_command(struct proc *p, pid_t pid)
{
    struct rusage ru = {0};
    int status = 0;
    pid_t got;

    /* With the lock, which a signal to it needs: the number is free after the wait. */
    (void)pthread_mutex_lock(&p->lock);
    got = wait4(pid, &status, WNOHANG, &ru);
    if (got != 0) {
        p->is_reaped = true;
        p->child_pid = 0;
        p->had_others_in_group = got == pid && (kill(-pid, 0) == 0 || errno == EPERM);
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (got != 0)
        proc_reaped(p, status, &ru, got != pid);
    return got != 0;
}

/* False: not yet. */
static bool reap_started(struct proc *p, pid_t pid)
{
    return launch_take_over(p) && reap_command(p, pid);
}

static bool reap_adopted(struct registry *reg, pid_t pid)
{
    if (waitpid(pid, NULL, WNOHANG) != pid)
        return false;
    (void)pthread_mutex_lock(&reg->lock);
    reg->totals.adopted_total++;
    (void)pthread_mutex_unlock(&reg->lock);
    return true;
}

/* The oldest ended child, left as it is. 0: none has ended; -1: there are no children. */
static pid_t peek(idtype_t which, id_t id)
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

    /* An orphan that has ended, and whose signal is still on its way, proves nothing. */
    while ((pid = peek(P_ALL, 0)) > 0 && find_owner(reg, pid, &p) == OWNER_NOBODY)
        if (!reap_adopted(reg, pid))
            break;
    proc_unref(p);
    return pid >= 0;
}

/* Of a child that has ended, or is none of ours any more; false: it can't be taken yet. */
static bool reap_pid(struct registry *reg, pid_t pid)
{
    struct proc *p = NULL;
    bool is_done = true;

    switch (find_owner(reg, pid, &p)) {
    case OWNER_NOBODY:
        (void)reap_adopted(reg, pid);
        break;
    case OWNER_COMMAND:
        is_done = reap_command(p, pid);
        break;
    case OWNER_SPAWN:
        is_done = reap_started(p, pid);
        break;
    }
    proc_unref(p);
    return is_done;
}

static struct proc **running(struct registry *reg, size_t *ret_n)
{
    struct proc **all;
    size_t n = 0;

    (void)pthread_mutex_lock(&reg->lock);
    all = reg->n_running ? calloc(reg->n_running, sizeof(struct proc *)) : NULL;
    for (struct proc *p = reg->running; all && p; p = p->running_next)
        all[n++] = proc_ref(p);
    (void)pthread_mutex_unlock(&reg->lock);
    *ret_n = n;
    return all;
}

/*
 * Asks for each by number: when the child in the way of the general look can't be taken yet, and
 * for those that are no children of ours any more, since somebody in this process waited for them.
 */
static void reap_each(struct registry *reg)
{
    size_t n;
    _cleanup_free_ struct proc **all = running(reg, &n);

    for (size_t i = 0; i < n; i++) {
        pid_t pid = atomic_load(&all[i]->child_pid);

        if (pid > 0 && peek(P_PID, (id_t)pid) != 0)
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

    while ((pid = peek(P_ALL, 0)) > 0) {
        if (reap_pid(reg, pid))
            continue;
        reap_each(reg);
        next_ms = SWEEP_SOON_MS;
        break;
    }
    oom_look(&reg->oom);
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

    /* A caller may have it ignored: the kernel would wait for the children then, and free their numbers. */
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
