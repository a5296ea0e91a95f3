#include "proc/registry.h"

#include <assert.h>
#include <fcntl.h>
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
#define OOM_SCORE_RAISE 300 /* the OOM killer prefers commands to the agent by this much */
#define OOM_SCORE_MAX 1000
#define GENERATED_ID_BYTES 8
#define KEEP_CHECK_MS 100 /* between two searches for results that are too old */

static uint64_t hash_id(const char *id)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */

    for (; *id; id++)
        h = (h ^ (unsigned char)*id) * 1099511628211u;
    return h ? h : 1;
}

/* ---- one command's memory ---- */

void proc_remove_script(struct proc *p)
{
    if (p->script_path)
        (void)unlink(p->script_path);
    free(TAKE(p->script_path));
}

static void proc_free(struct proc *p)
{
    for (size_t i = 0; i < N_PROC_STREAMS; i++) {
        journal_done(&p->out[i]);
        spill_done(&p->spill[i], &p->reg->spill_budget);
        fd_close(p->out_fd[i]);
    }
    fd_close(p->stdin_fd);
    chunk_queue_clear(&p->stdin_queue);
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_mutex_destroy(&p->subs_lock);
    command_tree_done(&p->tree);
    cgroup_free(p->cgroup);
    proc_remove_script(p);
    proc_spec_done(&p->spec);
    proc_summary_done(&p->summary);
    free(p->writers);
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
    p->tree = COMMAND_TREE_NONE;
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
        r = proc_summary_init(&p->summary, &p->spec, e);
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

const struct proc_summary *proc_summary(const struct proc *p)
{
    return &p->summary;
}

pid_t proc_pid(struct proc *p)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

    return p->info.pid;
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

static struct proc *table_find(struct registry *reg, const char *id)
{
    struct proc *p = reg->by_id[hash_id(id) % N_ID_BUCKETS];

    while (p && !str_eq(p->id, id))
        p = p->id_next;
    return p;
}

static bool table_was_forgotten(const struct registry *reg, const char *id)
{
    uint64_t h = hash_id(id);

    for (size_t i = 0; i < REGISTRY_MAX_FORGOTTEN; i++)
        if (reg->forgotten[i] == h)
            return true;
    return false;
}

static void table_add(struct registry *reg, struct proc *p)
{
    struct proc **bucket = &reg->by_id[hash_id(p->id) % N_ID_BUCKETS];

    proc_ref(p);
    p->id_next = *bucket;
    *bucket = p;
    list_append(&reg->all, &p->all_link);
    list_append(&reg->running, &p->progress_link);
}

/* The caller unrefs p, without the lock. */
static void table_remove(struct registry *reg, struct proc *p)
{
    struct proc **at = &reg->by_id[hash_id(p->id) % N_ID_BUCKETS];

    assert(list_has(&reg->all, &p->all_link));
    while (*at != p)
        at = &(*at)->id_next;
    *at = p->id_next;
    p->id_next = NULL;
    list_remove(&reg->all, &p->all_link);
}

/* The caller unrefs p, without the lock. */
static void table_forget(struct registry *reg, struct proc *p)
{
    list_remove(&reg->kept, &p->progress_link);
    table_remove(reg, p);
    reg->forgotten[reg->forgotten_at++ % REGISTRY_MAX_FORGOTTEN] = hash_id(p->id);
}

/* ---- finding and starting ---- */

/* With the lock: is there room for one more command? */
static int check_room(const struct registry *reg, struct err *e)
{
    if (reg->running.n >= reg->o.max_running)
        return err_set(e, ERR_EXHAUSTED, "%zu commands are running, the most allowed",
                       reg->running.n);
    if (reg->n_lingering >= REGISTRY_MAX_LINGERING)
        return err_set(e, ERR_EXHAUSTED,
                       "descendants of %zu ended commands hold their output open, the most allowed",
                       reg->n_lingering);
    return 0;
}

/* *ret: fresh, or the command that has its id already and was started by the same request. */
static int add_or_attach(struct registry *reg, struct proc *fresh, struct proc **ret, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&reg->lock);
    struct proc *p = table_find(reg, fresh->id);
    int r;

    if (p && memcmp(p->spec.digest, fresh->spec.digest, SPEC_DIGEST_BYTES) != 0)
        return err_field(e, ERR_EXISTS, "id", "'%s' is the id of another command", p->id);
    if (!p) {
        r = check_room(reg, e);
        if (r < 0)
            return r;
        fresh->serial = ++reg->next_serial;
        table_add(reg, fresh);
        p = fresh;
    }
    *ret = proc_ref(p);
    return 0;
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
    r = add_or_attach(reg, fresh, &p, e);
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

int registry_start_file(struct registry *reg, const char *path, const char *user,
                        const char *workdir, struct err *e)
{
    _cleanup_proc_ struct proc *p = NULL;
    struct proc_spec spec;
    bool is_new;
    int r;

    proc_spec_init(&spec);
    spec.default_user = user;
    spec.workdir = workdir;
    r = io_read_file(AT_FDCWD, path, REGISTRY_START_FILE_MAX_BYTES, &spec.script, &spec.script_len,
                     e);
    if (r == 0 && !(spec.id = strdup(REGISTRY_START_FILE_ID)))
        r = err_oom(e);
    if (r == 0)
        r = registry_start(reg, &spec, &p, &is_new, e);
    proc_spec_done(&spec);
    return r < 0 ? err_wrap(e, r, "the start file '%s'", path) : 0;
}

static int err_no_command(const struct registry *reg, const char *id, struct err *e)
{
    char time[32];

    if (table_was_forgotten(reg, id))
        return err_field(e, ERR_NOT_FOUND, "id",
                         "the result of '%.128s' has been forgotten (kept are %zu for %s)", id,
                         reg->o.max_kept, str_format_duration(reg->o.keep_ms, time, sizeof(time)));
    return err_field(e, ERR_NOT_FOUND, "id", "no command has the id '%.128s'", id);
}

int registry_get(struct registry *reg, const char *id, struct proc **ret, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&reg->lock);
    struct proc *p = table_find(reg, id);

    if (!p)
        return err_no_command(reg, id, e);
    *ret = proc_ref(p);
    return 0;
}

struct proc *registry_find(struct registry *reg, bool (*is_match)(struct proc *p, const void *arg),
                           const void *arg)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&reg->lock);

    LIST_EACH_BACK (struct proc, all_link, p, &reg->all)
        if (is_match(p, arg))
            return proc_ref(p);
    return NULL;
}

/* The session's number belongs to the command until its first process has been reaped. */
static bool leads_session(struct proc *p, pid_t session)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

    return p->info.state == PROC_RUNNING && !p->is_reaped && p->info.pid == session;
}

int registry_find_owner(struct registry *reg, pid_t pid, char out[SPEC_ID_MAX_BYTES + 1],
                        struct err *e)
{
    uint32_t serial = 0;
    bool is_marked = command_tree_find_serial(pid, reg->instance, &serial);
    pid_t session = getsid(pid);
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&reg->lock);

    LIST_EACH_BACK (struct proc, all_link, p, &reg->all) {
        if (is_marked ? p->serial != serial : !leads_session(p, session))
            continue;
        (void)snprintf(out, SPEC_ID_MAX_BYTES + 1, "%s", p->id);
        return 0;
    }
    return err_set(e, ERR_NOT_FOUND, "process %d is no command's", pid);
}

int registry_list(struct registry *reg, struct proc ***ret, size_t *ret_n, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&reg->lock);
    struct proc **all = calloc(reg->all.n + 1, sizeof(*all));
    size_t n = 0;

    if (!all)
        return err_oom(e);
    LIST_EACH (struct proc, all_link, p, &reg->all)
        all[n++] = proc_ref(p);
    *ret = all;
    *ret_n = n;
    return 0;
}

int registry_forget(struct registry *reg, const char *id, struct err *e)
{
    _cleanup_proc_ struct proc *p = NULL; /* the table's reference: dropped without the lock */
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&reg->lock);
    struct proc *found = table_find(reg, id);

    if (!found)
        return err_no_command(reg, id, e);
    if (!found->ended_mono_ms)
        return err_field(e, ERR_PRECONDITION, "id", "'%s' is running", id);
    table_forget(reg, found);
    p = found;
    return 0;
}

void registry_count(struct registry *reg, struct registry_counts *ret)
{
    WITH_LOCK (&reg->lock) {
        *ret = reg->totals;
        ret->running = reg->running.n;
        ret->kept = reg->kept.n;
    }
    ret->journal_bytes = atomic_load(&reg->budget.used);
}

/* ---- what happens to a command ---- */

void registry_failed(struct proc *p)
{
    struct registry *reg = p->reg;

    WITH_LOCK (&reg->lock) {
        table_remove(reg, p);
        list_remove(&reg->running, &p->progress_link);
        reg->totals.failed_total++;
    }
    proc_unref(p);
}

/*
 * With the lock: moves the results that are too old or too many to *old. Returns when the next is
 * due; 0: never.
 */
static int64_t forget_old(struct registry *reg, int64_t now, struct list *old)
{
    struct list_link *first;

    while ((first = reg->kept.first)) {
        struct proc *p = LIST_OF(struct proc, progress_link, first);
        int64_t due = p->ended_mono_ms + reg->o.keep_ms;

        if (reg->kept.n <= reg->o.max_kept && due > now)
            return due;
        table_forget(reg, p);
        list_append(old, &p->progress_link);
    }
    return 0;
}

static void unref_all(struct list *l)
{
    struct list_link *link;

    while ((link = list_take_first(l)))
        proc_unref(LIST_OF(struct proc, progress_link, link));
}

static void on_keep_timer(struct loop *l, void *arg);

/* Without results there is no timer: an idle agent sleeps. */
static void set_keep_timer(struct registry *reg, int64_t at)
{
    int64_t soonest = clock_mono_ms() + KEEP_CHECK_MS;

    if (at && !reg->keep_timer)
        (void)loop_timer_add(reg->loop, at > soonest ? at : soonest, on_keep_timer, reg,
                             &reg->keep_timer, NULL);
}

static void on_keep_timer(struct loop *l, void *arg)
{
    struct registry *reg = arg;
    struct list old = {0};
    int64_t next = 0;

    (void)l;
    reg->keep_timer = NULL;
    WITH_LOCK (&reg->lock)
        next = forget_old(reg, clock_mono_ms(), &old);
    unref_all(&old);
    set_keep_timer(reg, next);
}

void registry_ended(struct proc *p)
{
    struct registry *reg = p->reg;
    struct list old = {0};
    int64_t next = 0;

    assert(p->info.state == PROC_ENDED);
    WITH_LOCK (&reg->lock) {
        p->ended_mono_ms = clock_mono_ms();
        list_remove(&reg->running, &p->progress_link);
        list_append(&reg->kept, &p->progress_link);
        reg->totals.ended_total[p->info.reason]++;
        reg->totals.last_end_mono_ms = p->ended_mono_ms;
        next = forget_old(reg, p->ended_mono_ms, &old);
    }
    unref_all(&old);
    set_keep_timer(reg, next);
}

void registry_lingering(struct proc *p, bool on)
{
    struct registry *reg = p->reg;

    if (p->is_lingering == on)
        return;
    p->is_lingering = on;
    WITH_LOCK (&reg->lock)
        reg->n_lingering += on ? 1 : (size_t)-1;
    if (on)
        proc_ref(p);
    else
        proc_unref(p);
}

void registry_relieve(struct registry *reg)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&reg->lock);
    size_t enough = reg->budget.max / 4 * 3;

    LIST_EACH (struct proc, progress_link, p, &reg->kept) {
        _cleanup_unlock_ pthread_mutex_t *p_locked = NULL;

        if (atomic_load(&reg->budget.used) <= enough)
            break;
        p_locked = mutex_lock(&p->lock);
        for (size_t i = 0; i < N_PROC_STREAMS && !output_is_wanted(p); i++)
            journal_evict(&p->out[i]);
    }
}

/* On a pool thread. */
void registry_relieve_spill(struct registry *reg, uint64_t bytes)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&reg->lock);

    LIST_EACH (struct proc, progress_link, p, &reg->kept) {
        _cleanup_unlock_ pthread_mutex_t *p_locked = NULL;

        if (atomic_load(&reg->spill_budget.used) + bytes <= reg->spill_budget.max)
            break;
        p_locked = mutex_lock(&p->lock);
        for (size_t i = 0; i < N_PROC_STREAMS && !p->is_spilling; i++)
            spill_evict(&p->spill[i], &reg->spill_budget);
    }
}

/* ---- the registry ---- */

/*
 * The commands' score is raised: lowering the agent's own needs a capability that boxes do not
 * grant.
 */
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
    if (sum < 0) /* the agent is far below 0: its commands are ordinary processes */
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
    reg->instance = command_tree_new_instance(reg->instance);
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
    while ((p = LIST_OF(struct proc, all_link, reg->all.first))) {
        table_remove(reg, p);
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
