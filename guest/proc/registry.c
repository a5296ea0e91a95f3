#include "proc/registry.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "proc/proc.h"
#include "event/pool.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define OOM_SCORE_RAISE 300 /* how much sooner than the agent its commands go */
#define OOM_SCORE_MAX 1000
#define GENERATED_ID_BYTES 8
#define KEEP_CHECK_MS 100 /* looks for results that are too old are at least this far apart */

static uint64_t hash_id(const char *id)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */

    for (; *id; id++)
        h = (h ^ (unsigned char)*id) * 1099511628211u;
    return h ? h : 1;
}

/* ---- one command's memory ---- */

static void proc_free(struct proc *p)
{
    for (size_t i = 0; i < N_PROC_STREAMS; i++) {
        journal_done(&p->out[i]);
        spill_done(&p->spill[i], &p->reg->spill_budget);
        fd_close(p->out_fd[i]);
    }
    fd_close(p->stdin_fd);
    chunk_free_all(p->stdin_first);
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_mutex_destroy(&p->subs_lock);
    tree_done(&p->tree);
    cgroup_free(p->cgroup);
    if (p->script_path)
        (void)unlink(p->script_path);
    free(p->script_path);
    proc_spec_done(&p->spec);
    words_done(&p->words);
    free(p->id);
    free(p);
}

struct proc *proc_ref(struct proc *p)
{
    (void)atomic_fetch_add(&p->refs, 1);
    return p;
}

struct proc *proc_unref(struct proc *p)
{
    if (p && atomic_fetch_sub(&p->refs, 1) == 1)
        proc_free(p);
    return NULL;
}

static int proc_new(struct registry *reg, struct proc_spec *take, struct proc **ret, struct err *e)
{
    struct proc *p = calloc(1, sizeof(*p));
    char id[GENERATED_ID_BYTES * 2 + 1];
    int r = 0;

    if (!p)
        return err_oom(e);
    p->reg = reg;
    p->refs = 1;
    p->stdin_fd = p->out_fd[PROC_STDOUT] = p->out_fd[PROC_STDERR] = -1;
    p->oom_kills_before = -1;
    p->tree = TREE_NONE;
    p->info.code = -1;
    p->info.usage.read_bytes = p->info.usage.write_bytes = p->info.usage.tree_peak_bytes = -1;
    p->id = TAKE(take->id);
    p->spec = *take;
    *take = (struct proc_spec){0};
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_mutex_init(&p->subs_lock, NULL);
    for (size_t i = 0; i < N_PROC_STREAMS; i++) {
        journal_init(&p->out[i], &reg->budget, p->spec.head_bytes, p->spec.tail_bytes);
        spill_init(&p->spill[i], p->spec.spill_bytes);
    }
    if (!p->id) {
        r = io_random_hex(GENERATED_ID_BYTES, id, e);
        p->id = r == 0 ? strdup(id) : NULL;
        if (r == 0 && !p->id)
            r = err_oom(e);
    }
    if (r == 0)
        r = words_init(&p->words, &p->spec, e);
    if (r < 0) {
        proc_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

const char *proc_id(const struct proc *p)
{
    return p->id;
}

const struct proc_spec *proc_spec(const struct proc *p)
{
    return &p->spec;
}

const struct words *proc_words(const struct proc *p)
{
    return &p->words;
}

pid_t proc_pid(struct proc *p)
{
    pid_t pid;

    (void)pthread_mutex_lock(&p->lock);
    pid = p->info.pid;
    (void)pthread_mutex_unlock(&p->lock);
    return pid;
}

const char *proc_reason_name(enum proc_reason reason)
{
    static const char *const names[N_REASONS] = {
        [REASON_NONE] = "none",       [REASON_EXITED] = "exited", [REASON_SIGNALED] = "signaled",
        [REASON_TIMEOUT] = "timeout", [REASON_OOM] = "oom",       [REASON_CANCELED] = "canceled",
        [REASON_LOST] = "lost",
    };

    return names[reason];
}

/* ---- the table; all with the lock ---- */

static struct proc *find(struct registry *reg, const char *id)
{
    struct proc *p = reg->by_id[hash_id(id) % N_ID_BUCKETS];

    while (p && !str_eq(p->id, id))
        p = p->id_next;
    return p;
}

static bool is_forgotten(const struct registry *reg, const char *id)
{
    uint64_t h = hash_id(id);

    for (size_t i = 0; i < REGISTRY_MAX_FORGOTTEN; i++)
        if (reg->forgotten[i] == h)
            return true;
    return false;
}

static void list(struct registry *reg, struct proc *p)
{
    struct proc **bucket = &reg->by_id[hash_id(p->id) % N_ID_BUCKETS];

    proc_ref(p);
    p->id_next = *bucket;
    *bucket = p;
    p->list_prev = reg->last;
    if (reg->last)
        reg->last->list_next = p;
    else
        reg->first = p;
    reg->last = p;
    p->is_listed = true;
}

static void add_running(struct registry *reg, struct proc *p)
{
    p->running_next = reg->running;
    if (reg->running)
        reg->running->running_prev = p;
    reg->running = p;
    reg->n_running++;
}

static void drop_running(struct registry *reg, struct proc *p)
{
    if (p->running_prev)
        p->running_prev->running_next = p->running_next;
    else
        reg->running = p->running_next;
    if (p->running_next)
        p->running_next->running_prev = p->running_prev;
    p->running_next = p->running_prev = NULL;
    reg->n_running--;
}

/* The caller unrefs p, without the lock. */
static void unlist(struct registry *reg, struct proc *p)
{
    struct proc **at = &reg->by_id[hash_id(p->id) % N_ID_BUCKETS];

    assert(p->is_listed);
    while (*at != p)
        at = &(*at)->id_next;
    *at = p->id_next;
    if (p->list_prev)
        p->list_prev->list_next = p->list_next;
    else
        reg->first = p->list_next;
    if (p->list_next)
        p->list_next->list_prev = p->list_prev;
    else
        reg->last = p->list_prev;
    p->id_next = p->list_next = p->list_prev = NULL;
    p->is_listed = false;
}

static void unkeep(struct registry *reg, struct proc *p)
{
    struct proc *before = NULL, *at = reg->kept_first;

    while (at != p) {
        before = at;
        at = at->kept_next;
    }
    if (before)
        before->kept_next = p->kept_next;
    else
        reg->kept_first = p->kept_next;
    if (reg->kept_last == p)
        reg->kept_last = before;
    p->kept_next = NULL;
    reg->n_kept--;
}

static void forget(struct registry *reg, struct proc *p)
{
    unkeep(reg, p);
    unlist(reg, p);
    reg->forgotten[reg->forgotten_at++ % REGISTRY_MAX_FORGOTTEN] = hash_id(p->id);
}

/* ---- finding and starting ---- */

static int attach(struct proc *p, const struct proc_spec *spec, struct err *e)
{
    if (memcmp(p->spec.digest, spec->digest, SPEC_DIGEST_BYTES) != 0)
        return err_field(e, ERR_EXISTS, "id", "'%s' is the id of another command", p->id);
    return 0;
}

/* With the lock: room for one more? */
static int check_room(const struct registry *reg, struct err *e)
{
    if (reg->n_running >= reg->o.max_running)
        return err_set(e, ERR_EXHAUSTED, "%zu commands are running, the most allowed",
                       reg->n_running);
    if (reg->n_lingering >= REGISTRY_MAX_LINGERING)
        return err_set(e, ERR_EXHAUSTED,
                       "descendants of %zu ended commands hold their output open, the most allowed",
                       reg->n_lingering);
    return 0;
}

static int list_new(struct registry *reg, struct proc *fresh, struct proc **ret, struct err *e)
{
    struct proc *p;
    int r;

    (void)pthread_mutex_lock(&reg->lock);
    p = find(reg, fresh->id);
    r = p ? attach(p, &fresh->spec, e) : check_room(reg, e);
    if (r == 0 && !p) {
        fresh->serial = ++reg->next_serial;
        add_running(reg, fresh);
        list(reg, fresh);
        p = fresh;
    }
    if (r == 0)
        *ret = proc_ref(p);
    (void)pthread_mutex_unlock(&reg->lock);
    return r;
}

int registry_start(struct registry *reg, struct proc_spec *take, struct proc **ret,
                   bool *ret_is_new, struct err *e)
{
    struct proc *fresh = NULL, *p = NULL;
    int r = 0;

    if (take->id)
        r = proc_spec_check_id(take->id, e);
    if (r == 0)
        r = proc_new(reg, take, &fresh, e);
    if (r < 0) {
        proc_spec_done(take);
        return r;
    }
    r = list_new(reg, fresh, &p, e);
    if (r == 0 && p == fresh) {
        r = pool_run(reg->pool, launch_run, proc_ref(fresh), e);
        if (r < 0) {
            proc_unref(fresh); /* launch_run's */
            registry_failed(fresh);
            p = proc_unref(p);
        }
    }
    if (r == 0) {
        *ret_is_new = p == fresh;
        *ret = p;
    }
    proc_unref(fresh);
    return r;
}

static int not_found(const struct registry *reg, const char *id, struct err *e)
{
    char time[32];

    if (is_forgotten(reg, id))
        return err_field(e, ERR_NOT_FOUND, "id",
                         "the result of '%.128s' has been forgotten (kept are %zu for %s)", id,
                         reg->o.max_kept, str_format_duration(reg->o.keep_ms, time, sizeof(time)));
    return err_field(e, ERR_NOT_FOUND, "id", "no command has the id '%.128s'", id);
}

int registry_get(struct registry *reg, const char *id, struct proc **ret, struct err *e)
{
    struct proc *p;
    int r = 0;

    (void)pthread_mutex_lock(&reg->lock);
    p = find(reg, id);
    if (p)
        *ret = proc_ref(p);
    else
        r = not_found(reg, id, e);
    (void)pthread_mutex_unlock(&reg->lock);
    return r;
}

struct proc *registry_find(struct registry *reg, bool (*is_it)(struct proc *p, const void *arg),
                           const void *arg)
{
    struct proc *p;

    (void)pthread_mutex_lock(&reg->lock);
    p = reg->last;
    while (p && !is_it(p, arg))
        p = p->list_prev;
    if (p)
        proc_ref(p);
    (void)pthread_mutex_unlock(&reg->lock);
    return p;
}

int registry_list(struct registry *reg, struct proc ***ret, size_t *ret_n, struct err *e)
{
    struct proc **all;
    size_t n = 0;

    (void)pthread_mutex_lock(&reg->lock);
    all = calloc(reg->n_running + reg->n_kept + 1, sizeof(*all));
    for (struct proc *p = reg->first; all && p; p = p->list_next)
        all[n++] = proc_ref(p);
    (void)pthread_mutex_unlock(&reg->lock);
    if (!all)
        return err_oom(e);
    *ret = all;
    *ret_n = n;
    return 0;
}

static bool has_ended(struct proc *p)
{
    bool has;

    (void)pthread_mutex_lock(&p->lock);
    has = p->info.state == PROC_ENDED;
    (void)pthread_mutex_unlock(&p->lock);
    return has;
}

int registry_forget(struct registry *reg, const char *id, struct err *e)
{
    struct proc *p;
    int r = 0;

    (void)pthread_mutex_lock(&reg->lock);
    p = find(reg, id);
    if (!p)
        r = not_found(reg, id, e);
    else if (!p->ended_mono_ms)
        r = err_field(e, ERR_PRECONDITION, "id", "'%s' is running", id);
    else
        forget(reg, p);
    (void)pthread_mutex_unlock(&reg->lock);
    if (r == 0)
        proc_unref(p);
    return r;
}

void registry_count(struct registry *reg, struct registry_counts *ret)
{
    (void)pthread_mutex_lock(&reg->lock);
    *ret = reg->totals;
    ret->running = reg->n_running;
    ret->kept = reg->n_kept;
    (void)pthread_mutex_unlock(&reg->lock);
    ret->journal_bytes = atomic_load(&reg->budget.used);
}

/* ---- what happens to a command ---- */

void registry_failed(struct proc *p)
{
    struct registry *reg = p->reg;

    (void)pthread_mutex_lock(&reg->lock);
    unlist(reg, p);
    drop_running(reg, p);
    reg->totals.failed_total++;
    (void)pthread_mutex_unlock(&reg->lock);
    proc_unref(p);
}

/* Takes what is too old or too many from the kept; the caller unrefs the chain. */
static struct proc *take_old(struct registry *reg, int64_t now)
{
    struct proc *old = NULL;

    while (reg->kept_first && (reg->n_kept > reg->o.max_kept ||
                               reg->kept_first->ended_mono_ms + reg->o.keep_ms <= now)) {
        struct proc *p = reg->kept_first;

        forget(reg, p);
        p->kept_next = old;
        old = p;
    }
    return old;
}

static void unref_chain(struct proc *p)
{
    while (p) {
        struct proc *next = p->kept_next;

        p->kept_next = NULL;
        proc_unref(p);
        p = next;
    }
}

static void on_keep_timer(struct loop *l, void *arg);

/* For the time the oldest is too old: nothing kept, no timer, and an idle agent sleeps. */
static void set_keep_timer(struct registry *reg, int64_t at)
{
    int64_t soonest = clock_mono_ms() + KEEP_CHECK_MS;

    if (at && !reg->keep_timer)
        (void)loop_timer_add(reg->loop, at > soonest ? at : soonest, on_keep_timer, reg,
                             &reg->keep_timer, NULL);
}

/* With the lock: when the oldest result is too old; 0: there is none. */
static int64_t next_forgetting(const struct registry *reg)
{
    return reg->kept_first ? reg->kept_first->ended_mono_ms + reg->o.keep_ms : 0;
}

static void on_keep_timer(struct loop *l, void *arg)
{
    struct registry *reg = arg;
    struct proc *old;
    int64_t next;

    (void)l;
    reg->keep_timer = NULL;
    (void)pthread_mutex_lock(&reg->lock);
    old = take_old(reg, clock_mono_ms());
    next = next_forgetting(reg);
    (void)pthread_mutex_unlock(&reg->lock);
    unref_chain(old);
    set_keep_timer(reg, next);
}

void registry_ended(struct proc *p)
{
    struct registry *reg = p->reg;
    struct proc *old;
    int64_t next;

    assert(has_ended(p));
    (void)pthread_mutex_lock(&reg->lock);
    p->ended_mono_ms = clock_mono_ms();
    if (reg->kept_last)
        reg->kept_last->kept_next = p;
    else
        reg->kept_first = p;
    reg->kept_last = p;
    drop_running(reg, p);
    reg->n_kept++;
    reg->totals.ended_total[p->info.reason]++;
    reg->totals.last_end_mono_ms = p->ended_mono_ms;
    old = take_old(reg, p->ended_mono_ms);
    next = next_forgetting(reg);
    (void)pthread_mutex_unlock(&reg->lock);
    unref_chain(old);
    set_keep_timer(reg, next);
}

void registry_lingering(struct proc *p, bool on)
{
    struct registry *reg = p->reg;

    if (p->is_lingering == on)
        return;
    p->is_lingering = on;
    (void)pthread_mutex_lock(&reg->lock);
    reg->n_lingering += on ? 1 : (size_t)-1;
    (void)pthread_mutex_unlock(&reg->lock);
    if (on)
        proc_ref(p);
    else
        proc_unref(p);
}

void registry_relieve(struct registry *reg)
{
    size_t enough = reg->budget.max / 4 * 3;

    (void)pthread_mutex_lock(&reg->lock);
    for (struct proc *p = reg->kept_first; p; p = p->kept_next) {
        if (atomic_load(&reg->budget.used) <= enough)
            break;
        (void)pthread_mutex_lock(&p->lock);
        for (size_t i = 0; i < N_PROC_STREAMS && !output_is_wanted(p); i++)
            journal_evict(&p->out[i]);
        (void)pthread_mutex_unlock(&p->lock);
    }
    (void)pthread_mutex_unlock(&reg->lock);
}

/* On a pool thread. */
void registry_relieve_spill(struct registry *reg, uint64_t bytes)
{
    (void)pthread_mutex_lock(&reg->lock);
    for (struct proc *p = reg->kept_first; p; p = p->kept_next) {
        if (atomic_load(&reg->spill_budget.used) + bytes <= reg->spill_budget.max)
            break;
        (void)pthread_mutex_lock(&p->lock);
        for (size_t i = 0; i < N_PROC_STREAMS && !p->is_spilling; i++)
            spill_evict(&p->spill[i], &reg->spill_budget);
        (void)pthread_mutex_unlock(&p->lock);
    }
    (void)pthread_mutex_unlock(&reg->lock);
}

/* ---- its own life ---- */

/* Raised, not lowered: lowering the agent's own needs a capability that boxes do not give. */
static int children_oom_score(void)
{
    _cleanup_free_ char *text = NULL;
    int64_t own;
    size_t len;
    int sum;

    if (io_read_file(AT_FDCWD, "/proc/self/oom_score_adj", 64, &text, &len, NULL) < 0)
        return -1;
    text[strcspn(text, "\n")] = '\0';
    if (str_parse_i64(text, -OOM_SCORE_MAX, OOM_SCORE_MAX, &own, NULL) < 0)
        return -1;
    sum = (int)own + OOM_SCORE_RAISE;
    if (sum < 0) /* the agent is far below zero: its commands are ordinary processes */
        sum = 0;
    return sum > OOM_SCORE_MAX ? OOM_SCORE_MAX : sum;
}

static void set_defaults(struct registry_options *o)
{
    if (!o->max_running)
        o->max_running = REGISTRY_MAX_RUNNING;
    if (!o->max_kept)
        o->max_kept = REGISTRY_MAX_KEPT;
    if (!o->keep_ms)
        o->keep_ms = REGISTRY_KEEP_MS;
    if (!o->output_bytes)
        o->output_bytes = JOURNAL_BUDGET_BYTES;
    if (!o->spill_bytes)
        o->spill_bytes = SPILL_BUDGET_BYTES;
}

int registry_new(struct loop *l, struct pool *pool, const struct registry_options *o,
                 struct registry **ret, struct err *e)
{
    struct registry *reg = calloc(1, sizeof(*reg));
    const char *path = getenv("PATH");
    int r;

    if (!reg)
        return err_oom(e);
    reg->loop = l;
    reg->pool = pool;
    reg->o = *o;
    set_defaults(&reg->o);
    reg->budget.max = reg->o.output_bytes;
    reg->spill_budget.max = reg->o.spill_bytes;
    reg->signal_fd = -1;
    reg->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    oom_init(&reg->oom);
    reg->counts_io = access("/proc/self/io", F_OK) == 0;
    reg->ignored_signals = spawn_ignored_signals();
    (void)pthread_mutex_init(&reg->lock, NULL);
    reg->oom_score_adj = children_oom_score();
    user_cache_init(&reg->users);
    reg->path = strdup(path && *path ? path : DEFAULT_PATH);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    r = reg->path ? io_random(&reg->instance, sizeof(reg->instance), e) : err_oom(e);
    reg->instance = tree_new_instance(reg->instance);
    if (r == 0)
        r = reap_init(reg, e);
    if (r < 0) {
        registry_free(reg);
        return r;
    }
    *ret = reg;
    return 0;
}

struct registry *registry_free(struct registry *reg)
{
    struct proc *p;

    if (!reg)
        return NULL;
    reap_done(reg);
    while ((p = reg->first)) {
        unlist(reg, p);
        proc_abandon(p);
        proc_unref(p);
    }
    (void)pthread_mutex_destroy(&reg->lock);
    oom_done(&reg->oom);
    fd_close(reg->null_fd);
    user_cache_done(&reg->users);
    free(reg->path);
    strv_free(reg->env);
    free(reg);
    return NULL;
}
