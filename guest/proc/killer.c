/*
 * killer: ends a whole tree: SIGTERM, a grace period, SIGKILL. A pool thread reads /proc; the
 * loop's thread decides. Nothing is decided while a job is on its way.
 */
#include <assert.h>
#include <signal.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "proc/proc.h"
#include "event/pool.h"

#define POLL_FIRST_MS 5
#define POLL_MAX_MS 100
/*
 * How long a killed tree may take to disappear before it counts as left: exiting takes processor
 * time.
 */
#define KILL_WAIT_MS 5000
#define MAX_BLIND 20 /* failed reads of /proc before the command ends all the same */

enum job_kind {
    JOB_SIGNAL,
    JOB_COUNT,
    JOB_KILL,
};

struct job {
    struct pool_item item;
    struct proc *proc;         /* a reference */
    struct command_tree *tree; /* the command's; with is_asked: &asked_tree */
    enum job_kind kind;
    int sig;
    bool is_asked; /* a caller's signal: nothing waits for the outcome */
    struct command_tree asked_tree;
    int result;
    size_t n;
};

static void killer_decide(struct proc *p, const struct job *done);

static void job_free(struct job *j)
{
    command_tree_done(&j->asked_tree);
    proc_unref(j->proc);
    free(j);
}

static void on_job_done(struct loop *l, void *arg)
{
    struct job *j = arg;

    (void)l;
    j->proc->has_job = false;
    killer_decide(j->proc, j);
    job_free(j);
}

/*
 * A command's own cgroup is complete; marks and sessions may miss processes. The cgroup is killed
 * first: that is atomic, and a fork bomb can't slow down the search of /proc afterwards.
 */
static void job_kill(struct job *j, const struct cgroup *g)
{
    size_t n_group;
    bool is_known = g && cgroup_kill(g, KILL_WAIT_MS, &n_group, NULL) == 0;

    j->result = command_tree_kill(j->tree, KILL_WAIT_MS, &j->n, NULL);
    if (is_known)
        j->n = n_group;
}

static void job_count(struct job *j, const struct cgroup *g)
{
    size_t n_group;

    j->result = command_tree_count(j->tree, &j->n, NULL);
    if (g && cgroup_count(g, &n_group, NULL) == 0 && n_group > j->n)
        j->n = n_group;
}

static void job_run(void *arg)
{
    struct job *j = arg;

    switch (j->kind) {
    case JOB_SIGNAL:
        j->result = command_tree_signal(j->tree, j->sig, &j->n, NULL);
        break;
    case JOB_COUNT:
        job_count(j, j->proc->cgroup);
        break;
    case JOB_KILL:
        job_kill(j, j->proc->cgroup);
        break;
    }
    if (j->is_asked)
        atomic_fetch_sub(&j->proc->n_asked, 1);
    if (j->is_asked || loop_post(j->proc->reg->loop, on_job_done, j, NULL) < 0)
        job_free(j);
}

static int job_new(struct proc *p, enum job_kind kind, int sig, struct job **ret, struct err *e)
{
    struct job *j = calloc(1, sizeof(*j));

    if (!j)
        return err_oom(e);
    *j = (struct job){.proc = proc_ref(p),
                      .tree = &p->tree,
                      .kind = kind,
                      .sig = sig,
                      .asked_tree = COMMAND_TREE_NONE};
    *ret = j;
    return 0;
}

static void on_poll(struct loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    p->poll_timer = NULL;
    proc_ref(p);
    if (p->kill_phase == KILL_NONE)
        proc_check_end(p);
    else
        killer_decide(p, NULL);
    proc_unref(p);
}

static void poll_in(struct proc *p, int ms)
{
    p->poll_timer = loop_timer_del(p->poll_timer);
    (void)loop_timer_add(p->reg->loop, clock_mono_ms() + ms, on_poll, p, &p->poll_timer, NULL);
}

static void poll_again(struct proc *p)
{
    poll_in(p, p->poll_ms);
    p->poll_ms = p->poll_ms * 2 < POLL_MAX_MS ? p->poll_ms * 2 : POLL_MAX_MS;
}

bool killer_holds_end(struct proc *p)
{
    if (p->kill_phase != KILL_NONE || atomic_load(&p->n_asked) == 0)
        return false;
    if (!p->poll_timer)
        poll_in(p, POLL_FIRST_MS);
    return true;
}

/*
 * Out of memory: retries later. The pool can't refuse the job: without threads, the loop's own
 * thread runs it.
 */
static void job_start(struct proc *p, enum job_kind kind, int sig)
{
    struct job *j;

    assert(!p->has_job);
    p->poll_timer = loop_timer_del(p->poll_timer);
    if (job_new(p, kind, sig, &j, NULL) < 0) {
        poll_in(p, POLL_MAX_MS);
        return;
    }
    p->has_job = true;
    j->item = (struct pool_item){.fn = job_run, .arg = j};
    pool_push(p->reg->pool, &j->item);
}

static void killer_force(struct proc *p)
{
    p->kill_phase = KILL_FORCE;
    p->poll_ms = POLL_FIRST_MS;
    job_start(p, JOB_KILL, SIGKILL);
}

static void killer_done(struct proc *p, size_t n_left)
{
    command_tree_done(&p->tree);
    p->n_left = n_left;
    p->kill_phase = KILL_DONE;
    proc_finish(p);
}

static void killer_decide_in_grace(struct proc *p, const struct job *done)
{
    bool is_counted = done && done->kind == JOB_COUNT && done->result == 0;

    if (is_counted && done->n == 0 && p->is_reaped) {
        killer_done(p, 0);
        return;
    }
    if (clock_mono_ms() >= p->kill_deadline_ms) {
        killer_force(p);
        return;
    }
    if (!done) {
        job_start(p, JOB_COUNT, 0);
        return;
    }
    poll_again(p);
}

/* The fallback when /proc can't be read: it is not mounted, or descriptors or memory are short. */
static void kill_group(struct proc *p)
{
    WITH_LOCK (&p->lock)
        if (!p->is_reaped)
            (void)process_signal_child_group(p->info.pid, SIGKILL);
}

/*
 * A first process that survives SIGKILL (in an uninterruptible wait for a disk, say) is polled for
 * ever.
 */
static void killer_decide_in_force(struct proc *p, const struct job *done)
{
    if (!done) {
        job_start(p, JOB_KILL, SIGKILL);
        return;
    }
    if (done->result < 0)
        kill_group(p);
    if (p->is_reaped && (done->result == 0 || ++p->n_blind > MAX_BLIND))
        killer_done(p, done->n);
    else
        poll_again(p);
}

/* done: the job that ended; NULL: the timer or the reaper calls. */
static void killer_decide(struct proc *p, const struct job *done)
{
    if (p->info.state != PROC_RUNNING || p->has_job)
        return;
    if (p->is_reaped && !reap_has_children(p->reg)) {
        killer_done(p, 0); /* no child, no orphan: no process of any tree is left */
        return;
    }
    switch (p->kill_phase) {
    case KILL_TERM:
        killer_decide_in_grace(p, done);
        break;
    case KILL_FORCE:
        killer_decide_in_force(p, done);
        break;
    case KILL_NONE:
    case KILL_DONE:
        break;
    }
}

/*
 * With the lock, which keeps the first process from being reaped: the tree must be captured
 * together with the decision to signal it, because its number may be another process's later. The
 * command runs or has ended.
 */
static void capture_tree(const struct proc *p, struct command_tree *ret)
{
    command_tree_init(ret, p->info.pid, p->start, p->is_reaped,
                      command_tree_mark(p->reg->instance, p->serial));
}

void killer_begin(struct proc *p, enum proc_reason reason)
{
    if (p->info.state != PROC_RUNNING || p->kill_phase != KILL_NONE)
        return;
    WITH_LOCK (&p->lock)
        capture_tree(p, &p->tree);
    p->kill_reason = reason;
    p->poll_ms = POLL_FIRST_MS;
    p->kill_deadline_ms = clock_mono_ms() + (int64_t)p->spec.kill_grace_ms;
    p->kill_phase = KILL_TERM;
    if (p->spec.kill_grace_ms == 0)
        killer_force(p);
    else
        job_start(p, JOB_SIGNAL, SIGTERM);
}

void killer_reaped(struct proc *p)
{
    killer_decide(p, NULL);
}

/*
 * The signal is sent here, so that the caller learns of a failure, except on the loop's thread, which must not wait
 * for /proc, and for a kill that a cgroup does without /proc.
 */
static bool is_sent_here(const struct proc *p, int sig)
{
    return !loop_is_here(p->reg->loop) && !(sig == SIGKILL && p->cgroup);
}

int killer_signal_tree(struct proc *p, int sig, struct err *e)
{
    struct job *j;
    int r;

    r = job_new(p, sig == SIGKILL ? JOB_KILL : JOB_SIGNAL, sig, &j, e);
    if (r < 0)
        return r;
    j->is_asked = true;
    j->tree = &j->asked_tree;
    WITH_LOCK (&p->lock) {
        r = proc_check_started(p, e);
        if (r == 0)
            capture_tree(p, j->tree);
    }
    if (r < 0) {
        job_free(j);
        return r;
    }
    atomic_fetch_add(&p->n_asked, 1);
    if (is_sent_here(p, sig)) {
        r = command_tree_signal(j->tree, sig, &j->n, e);
        if (r < 0)
            (void)err_wrap(e, r, "no process of '%s' got signal %d", p->id, sig);
        if (r < 0 || sig != SIGKILL) {
            atomic_fetch_sub(&p->n_asked, 1);
            job_free(j);
            return r;
        }
    }
    /* After a kill the job looks for processes that were forked meanwhile. */
    if (pool_run(p->reg->pool, job_run, j, NULL) < 0)
        job_run(j); /* no thread is available: all the more reason to kill */
    return 0;
}
