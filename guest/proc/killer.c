/*
 * killer: ends a whole tree: TERM, a grace, KILL. The looks at /proc are a pool thread's work; the
 * loop's thread decides. While a job is on its way nothing else is decided.
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
/* How long a killed tree may take to go before it counts as left: it needs the processor for that. */
#define KILL_WAIT_MS 5000
#define MAX_BLIND 20 /* looks that fail, before the end of a command is told all the same */

enum job_kind {
    JOB_SIGNAL,
    JOB_COUNT,
    JOB_KILL,
};

struct job {
    struct pool_item item;
    struct proc *proc; /* a reference */
    struct tree *tree; /* the command's, or with is_asked `asked_tree` */
    enum job_kind kind;
    int sig;
    bool is_asked; /* by a caller: nothing is waiting for the outcome */
    struct tree asked_tree;
    int result;
    size_t n;
};

static void decide(struct proc *p, const struct job *done);

static void job_free(struct job *j)
{
    tree_done(&j->asked_tree);
    proc_unref(j->proc);
    free(j);
}

static void on_job_done(struct loop *l, void *arg)
{
    struct job *j = arg;

    (void)l;
    j->proc->has_job = false;
    decide(j->proc, j);
    job_free(j);
}

/*
 * A command's own group misses nobody; the marks and sessions may. It goes first: it is killed at
 * once, and what forks without end does not slow the look at /proc down.
 */
static void kill_all(struct job *j, const struct cgroup *g)
{
    size_t n_group;
    bool is_known = g && cgroup_kill(g, KILL_WAIT_MS, &n_group, NULL) == 0;

    j->result = tree_kill(j->tree, KILL_WAIT_MS, &j->n, NULL);
    if (is_known)
        j->n = n_group;
}

static void count_all(struct job *j, const struct cgroup *g)
{
    size_t n_group;

    j->result = tree_count(j->tree, &j->n, NULL);
    if (g && cgroup_count(g, &n_group, NULL) == 0 && n_group > j->n)
        j->n = n_group;
}

static void job_work(struct job *j)
{
    switch (j->kind) {
    case JOB_SIGNAL:
        j->result = tree_signal(j->tree, j->sig, &j->n, NULL);
        break;
    case JOB_COUNT:
        count_all(j, j->proc->cgroup);
        break;
    case JOB_KILL:
        kill_all(j, j->proc->cgroup);
        break;
    }
}

static void run_job(void *arg)
{
    struct job *j = arg;

    job_work(j);
    if (j->is_asked)
        atomic_fetch_sub(&j->proc->n_asked, 1);
    if (j->is_asked || loop_post(j->proc->reg->loop, on_job_done, j, NULL) < 0)
        job_free(j);
}

static int new_job(struct proc *p, enum job_kind kind, int sig, struct job **ret, struct err *e)
{
    struct job *j = calloc(1, sizeof(*j));

    if (!j)
        return err_oom(e);
    *j = (struct job){
        .proc = proc_ref(p), .tree = &p->tree, .kind = kind, .sig = sig, .asked_tree = TREE_NONE};
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
        decide(p, NULL);
    proc_unref(p);
}

static void poll_in(struct proc *p, int ms)
{
    p->poll_timer = loop_timer_del(p->poll_timer);
    (void)loop_timer_add(p->reg->loop, clock_mono_ms() + ms, on_poll, p, &p->poll_timer, NULL);
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
 * Without memory, later. The pool can't refuse it: when a fork bomb has taken every thread there
 * could be, the loop's own does the work.
 */
static void start_job(struct proc *p, enum job_kind kind, int sig)
{
    struct job *j;

    assert(!p->has_job);
    p->poll_timer = loop_timer_del(p->poll_timer);
    if (new_job(p, kind, sig, &j, NULL) < 0) {
        poll_in(p, POLL_MAX_MS);
        return;
    }
    p->has_job = true;
    j->item = (struct pool_item){.fn = run_job, .arg = j};
    pool_push(p->reg->pool, &j->item);
}

static void force(struct proc *p)
{
    p->kill_phase = KILL_FORCE;
    p->poll_ms = POLL_FIRST_MS;
    start_job(p, JOB_KILL, SIGKILL);
}

static void be_done(struct proc *p, size_t n_left)
{
    tree_done(&p->tree);
    p->n_left = n_left;
    p->kill_phase = KILL_DONE;
    proc_finish(p);
}

static void decide_in_grace(struct proc *p, const struct job *done)
{
    bool is_counted = done && done->kind == JOB_COUNT && done->result == 0;

    if (is_counted && done->n == 0 && p->is_reaped) {
        be_done(p, 0);
        return;
    }
    if (clock_mono_ms() >= p->kill_deadline_ms) {
        force(p);
        return;
    }
    if (!done) {
        start_job(p, JOB_COUNT, 0);
        return;
    }
    poll_in(p, p->poll_ms);
    p->poll_ms = p->poll_ms * 2 < POLL_MAX_MS ? p->poll_ms * 2 : POLL_MAX_MS;
}

/* kill_group() is the fallback when /proc can't be read: it is not there, or descriptors or memory are short. */
static void kill_group(struct proc *p)
{
    (void)pthread_mutex_lock(&p->lock);
    if (!p->is_reaped)
        (void)process_signal_child_group(p->info.pid, SIGKILL);
    (void)pthread_mutex_unlock(&p->lock);
}

/* A first process that SIGKILL does not end (it waits for a disk, say) is looked at for ever. */
static void decide_in_force(struct proc *p, const struct job *done)
{
    if (!done) {
        start_job(p, JOB_KILL, SIGKILL);
        return;
    }
    if (done->result < 0)
        kill_group(p);
    if (p->is_reaped && (done->result == 0 || ++p->n_blind > MAX_BLIND))
        be_done(p, done->n);
    else
        poll_in(p, p->poll_ms);
    p->poll_ms = p->poll_ms * 2 < POLL_MAX_MS ? p->poll_ms * 2 : POLL_MAX_MS;
}

/* With done NULL: the timer. */
static void decide(struct proc *p, const struct job *done)
{
    if (p->info.state != PROC_RUNNING || p->has_job)
        return;
    if (p->is_reaped && !reap_has_children(p->reg)) {
        be_done(p, 0); /* no child, no orphan: nothing of any tree is left */
        return;
    }
    switch (p->kill_phase) {
    case KILL_TERM:
        decide_in_grace(p, done);
        break;
    case KILL_FORCE:
        decide_in_force(p, done);
        break;
    case KILL_NONE:
    case KILL_DONE:
        break;
    }
}

/*
 * With the lock, which keeps the first process from being waited for: the tree is captured together with the
 * decision to signal it, and no number is read again later. The command runs or has ended.
 */
static void capture_tree(const struct proc *p, struct tree *ret)
{
    tree_init(ret, p->info.pid, p->start, p->is_reaped, tree_mark(p->reg->instance, p->serial));
}

void killer_begin(struct proc *p, enum proc_reason reason)
{
    if (p->info.state != PROC_RUNNING || p->kill_phase != KILL_NONE)
        return;
    (void)pthread_mutex_lock(&p->lock);
    capture_tree(p, &p->tree);
    (void)pthread_mutex_unlock(&p->lock);
    p->kill_reason = reason;
    p->poll_ms = POLL_FIRST_MS;
    p->kill_deadline_ms = clock_mono_ms() + (int64_t)p->spec.kill_grace_ms;
    p->kill_phase = KILL_TERM;
    if (p->spec.kill_grace_ms == 0)
        force(p);
    else
        start_job(p, JOB_SIGNAL, SIGTERM);
}

void killer_reaped(struct proc *p)
{
    decide(p, NULL);
}

int killer_signal_tree(struct proc *p, int sig, struct err *e)
{
    struct job *j;
    int r;

    r = new_job(p, sig == SIGKILL ? JOB_KILL : JOB_SIGNAL, sig, &j, e);
    if (r < 0)
        return r;
    j->is_asked = true;
    j->tree = &j->asked_tree;
    (void)pthread_mutex_lock(&p->lock);
    r = proc_check_started(p, e);
    if (r == 0)
        capture_tree(p, j->tree);
    (void)pthread_mutex_unlock(&p->lock);
    if (r < 0) {
        job_free(j);
        return r;
    }
    atomic_fetch_add(&p->n_asked, 1);
    if (pool_run(p->reg->pool, run_job, j, NULL) < 0)
        run_job(j); /* no thread is to be had: all the more reason to do it */
    return 0;
}
