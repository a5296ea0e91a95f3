#include "server/resume.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/io.h"
#include "server/request.h"
#include "system/pool.h"

#include "common/banned.h"

struct resumes {
    struct pool *pool;
    int64_t age_ms;
    pthread_mutex_t lock;
    pthread_cond_t released;
    /* guarded by lock: */
    struct resume *first; /* newest first */
    bool is_sweeping;
    struct pool_item sweep;
};

/* What has left the table and has no reference. Blocks. */
static void destroy(struct resume *u)
{
    fs_write_free(u->write);
    fs_caller_unref(u->caller);
    request_unref(u->holder);
    free(u->path);
    free(u);
}

int resumes_new(struct pool *pool, int64_t age_ms, struct resumes **ret, struct err *e)
{
    struct resumes *t = calloc(1, sizeof(*t));
    pthread_condattr_t attr;

    if (!t)
        return err_oom(e);
    t->pool = pool;
    t->age_ms = age_ms;
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&t->released, &attr);
    (void)pthread_condattr_destroy(&attr);
    *ret = t;
    return 0;
}

struct resumes *resumes_free(struct resumes *t)
{
    if (!t)
        return NULL;
    while (t->first) {
        struct resume *u = t->first;

        t->first = u->next;
        destroy(u);
    }
    (void)pthread_cond_destroy(&t->released);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
    return NULL;
}

/* Called with the lock. Takes what is dropped or too old, and nobody uses, out of the table. */
static struct resume *take_old(struct resumes *t, int64_t now_ms)
{
    struct resume **at = &t->first;
    struct resume *out = NULL;

    while (*at) {
        struct resume *u = *at;

        if (u->refs || (!u->is_dropped && now_ms - u->used_ms < t->age_ms)) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        u->next = out;
        out = u;
    }
    return out;
}

static void destroy_all(struct resume *u)
{
    while (u) {
        struct resume *next = u->next;

        destroy(u);
        u = next;
    }
}

static void sweep_job(void *arg)
{
    struct resumes *t = arg;
    struct resume *old;

    (void)pthread_mutex_lock(&t->lock);
    old = take_old(t, clock_mono_ms());
    (void)pthread_mutex_unlock(&t->lock);
    destroy_all(old);
    (void)pthread_mutex_lock(&t->lock);
    t->is_sweeping = false;
    (void)pthread_mutex_unlock(&t->lock);
}

void resumes_sweep(struct resumes *t, int64_t now_ms)
{
    bool is_due = false;

    (void)pthread_mutex_lock(&t->lock);
    for (const struct resume *u = t->first; u; u = u->next)
        is_due |= !u->refs && (u->is_dropped || now_ms - u->used_ms >= t->age_ms);
    is_due = is_due && !t->is_sweeping;
    t->is_sweeping = t->is_sweeping || is_due;
    (void)pthread_mutex_unlock(&t->lock);
    if (!is_due)
        return;
    t->sweep = (struct pool_item){.fn = sweep_job, .arg = t};
    pool_push(t->pool, &t->sweep);
}

/* Called with the lock. */
static unsigned count(const struct resumes *t, bool is_open, struct resume **ret_oldest)
{
    unsigned n = 0;

    for (struct resume *u = t->first; u; u = u->next)
        if (!u->is_dropped && (u->state == RESUME_OPEN) == is_open) {
            n++;
            if (!u->refs)
                *ret_oldest = u;
        }
    return n;
}

int resume_new(struct resumes *t, struct request *q, const char *path, struct fs_caller *caller,
               struct fs_write *write, struct resume **ret, struct err *e)
{
    struct resume *u = calloc(1, sizeof(*u));
    struct resume *oldest = NULL;
    bool is_full;

    if (!u || !(u->path = strdup(path)) || io_random_hex(RESUME_ID_BYTES / 2, u->id, e) < 0) {
        free(u ? u->path : NULL);
        free(u);
        return err_oom(e);
    }
    u->refs = 1;
    u->holder = request_ref(q);
    u->used_ms = clock_mono_ms();
    (void)pthread_mutex_lock(&t->lock);
    if (count(t, false, &oldest) >= RESUME_MAX_CLOSED && oldest)
        oldest->is_dropped = true;
    is_full = count(t, true, &oldest) >= RESUME_MAX_OPEN;
    if (!is_full) {
        u->next = t->first;
        t->first = u;
    }
    (void)pthread_mutex_unlock(&t->lock);
    if (is_full) {
        destroy(u);
        return err_set(e, ERR_EXHAUSTED, "%d uploads are unfinished: complete or cancel one",
                       RESUME_MAX_OPEN);
    }
    u->caller = caller;
    u->write = write;
    *ret = u;
    return 0;
}

/* Called with the lock. */
static struct resume *find(struct resumes *t, const char *id)
{
    for (struct resume *u = t->first; u; u = u->next)
        if (!u->is_dropped && strcmp(u->id, id) == 0)
            return u;
    return NULL;
}

/* Called with the lock, which it gives up for a moment. */
static void cut_holder(struct resumes *t, struct resume *u)
{
    struct request *q = request_ref(u->holder);

    (void)pthread_mutex_unlock(&t->lock);
    request_cut(q);
    request_unref(q);
    (void)pthread_mutex_lock(&t->lock);
}

/* Called with the lock and a reference. False: not within the time. */
static bool wait_for(struct resumes *t, struct resume *u)
{
    int64_t until_ms = clock_mono_ms() + RESUME_WAIT_MS;
    const struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};
    const struct request *cut = NULL;

    while (u->holder) {
        if (u->holder != cut) {
            cut = u->holder;
            cut_holder(t, u);
            continue;
        }
        if (pthread_cond_timedwait(&t->released, &t->lock, &until) != 0)
            return !u->holder;
    }
    return true;
}

int resume_hold(struct resumes *t, struct request *q, const char *id, struct resume **ret,
                struct err *e)
{
    struct resume *u;
    int r = 0;

    (void)pthread_mutex_lock(&t->lock);
    u = find(t, id);
    if (u) {
        u->refs++;
        if (!wait_for(t, u))
            r = err_set(e, ERR_UNAVAILABLE, "a request before this one does not end");
        else if (u->is_dropped)
            r = -ERR_NOT_FOUND;
        else
            u->holder = request_ref(q);
        u->refs -= r < 0;
    }
    (void)pthread_mutex_unlock(&t->lock);
    if (!u || r == -ERR_NOT_FOUND)
        return err_field(e, ERR_NOT_FOUND, "upload", "there is no such upload (any more)");
    if (r == 0)
        *ret = u;
    return r;
}

void resume_drop(struct resume *u)
{
    u->is_known = false;
}

void resume_release(struct resumes *t, struct resume *u)
{
    struct fs_caller *caller = NULL;
    struct fs_write *write = NULL;
    struct request *holder;

    if (!u)
        return;
    if (u->state != RESUME_OPEN || !u->is_known) {
        write = u->write;
        caller = u->caller;
        u->write = NULL;
        u->caller = NULL;
        fs_write_free(write);
        fs_caller_unref(caller);
    }
    (void)pthread_mutex_lock(&t->lock);
    holder = u->holder;
    u->holder = NULL;
    u->is_dropped = u->is_dropped || !u->is_known;
    u->used_ms = clock_mono_ms();
    u->refs--;
    (void)pthread_cond_broadcast(&t->released);
    (void)pthread_mutex_unlock(&t->lock);
    request_unref(holder);
}
