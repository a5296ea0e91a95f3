#include "api/files/resume.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "http/request.h"
#include "event/pool.h"

struct resumes {
    struct pool *pool;
    int64_t age_ms;
    struct resume_store *store; /* owned */
    pthread_mutex_t taking;     /* before lock: one upload at a time is taken from the store */
    pthread_mutex_t lock;
    pthread_cond_t released;
    /* guarded by lock: */
    struct resume *first; /* newest first */
    bool is_sweeping;
    bool is_store_due; /* a sweep looks through the store too */
    int64_t store_due_ms;
    struct pool_item sweep;
};

/* Its bytes are given up. Blocks. */
static void drop_write(struct resumes *t, struct resume *u)
{
    fs_write_free(TAKE(u->write));
    fs_caller_unref(TAKE(u->caller));
    if (u->note)
        resume_store_remove(t->store, u->id);
    u->note = resume_note_free(u->note);
}

/* Frees an upload that has left the table and has no reference. Blocks. */
static void resumable_destroy(struct resumes *t, struct resume *u)
{
    drop_write(t, u);
    request_unref(u->holder);
    free(u->path);
    free(u);
}

int resumes_new(struct pool *pool, int64_t age_ms, struct resume_store *store, struct resumes **ret,
                struct err *e)
{
    struct resumes *t = calloc(1, sizeof(*t));
    pthread_condattr_t attr;

    if (!t)
        return err_oom(e);
    t->pool = pool;
    t->age_ms = age_ms;
    t->store = store;
    t->store_due_ms = INT64_MIN;
    (void)pthread_mutex_init(&t->taking, NULL);
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
        if (u->note && !u->is_dropped) {
            fs_write_leave(TAKE(u->write));
            u->note = resume_note_free(u->note);
        }
        resumable_destroy(t, u);
    }
    resume_store_free(t->store);
    (void)pthread_cond_destroy(&t->released);
    (void)pthread_mutex_destroy(&t->lock);
    (void)pthread_mutex_destroy(&t->taking);
    free(t);
    return NULL;
}

/* Called with the lock. Removes uploads from the table that are dropped or too old, and not in
 * use. */
static struct resume *take_old(struct resumes *t, int64_t now_ms)
{
    struct resume **at = &t->first;
    struct resume *out = NULL;

    while (*at) {
        struct resume *u = *at;

        if (u->refs || (!u->is_dropped && now_ms - u->used_ms < u->age_ms)) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        u->next = out;
        out = u;
    }
    return out;
}

static void destroy_all(struct resumes *t, struct resume *u)
{
    while (u) {
        struct resume *next = u->next;

        resumable_destroy(t, u);
        u = next;
    }
}

static void sweep_job(void *arg)
{
    struct resumes *t = arg;
    int64_t wait_ms = RESUME_STORE_SWEEP_MS;
    struct resume *old;
    bool is_store_due;

    (void)pthread_mutex_lock(&t->lock);
    old = take_old(t, clock_mono_ms());
    is_store_due = t->is_store_due;
    t->is_store_due = false;
    (void)pthread_mutex_unlock(&t->lock);
    destroy_all(t, old);
    if (is_store_due)
        wait_ms = resume_store_sweep(t->store, t->age_ms);
    (void)pthread_mutex_lock(&t->lock);
    if (is_store_due && wait_ms < RESUME_STORE_SWEEP_MS)
        t->store_due_ms = clock_mono_ms() + wait_ms;
    t->is_sweeping = false;
    (void)pthread_mutex_unlock(&t->lock);
}

void resumes_sweep(struct resumes *t, int64_t now_ms)
{
    bool is_due = false;

    (void)pthread_mutex_lock(&t->lock);
    for (const struct resume *u = t->first; u; u = u->next)
        is_due |= !u->refs && (u->is_dropped || now_ms - u->used_ms >= u->age_ms);
    if (now_ms >= t->store_due_ms) {
        t->store_due_ms = now_ms + RESUME_STORE_SWEEP_MS;
        t->is_store_due = true;
    }
    is_due = (is_due || t->is_store_due) && !t->is_sweeping;
    t->is_sweeping = t->is_sweeping || is_due;
    (void)pthread_mutex_unlock(&t->lock);
    if (!is_due)
        return;
    t->sweep = (struct pool_item){.fn = sweep_job, .arg = t};
    pool_push(t->pool, &t->sweep);
}

/* Called with the lock. */
static unsigned count_uploads(const struct resumes *t, bool is_open, struct resume **ret_oldest)
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

/* In the table, held by q, if there is room. */
static int resumable_insert(struct resumes *t, struct resume *u, struct request *q, struct err *e)
{
    struct resume *oldest = NULL;
    bool is_full;

    u->refs = 1;
    if (!u->age_ms || u->age_ms > t->age_ms)
        u->age_ms = t->age_ms;
    u->holder = request_ref(q);
    u->used_ms = clock_mono_ms();
    (void)pthread_mutex_lock(&t->lock);
    if (count_uploads(t, false, &oldest) >= RESUME_MAX_CLOSED && oldest)
        oldest->is_dropped = true;
    is_full = count_uploads(t, true, &oldest) >= RESUME_MAX_OPEN;
    if (!is_full) {
        u->next = t->first;
        t->first = u;
    }
    (void)pthread_mutex_unlock(&t->lock);
    if (!is_full)
        return 0;
    return err_set(e, ERR_EXHAUSTED, "%d uploads are unfinished: complete or cancel one",
                   RESUME_MAX_OPEN);
}

int resume_new(struct resumes *t, struct request *q, const char *path, struct fs_caller *caller,
               struct fs_write *write, struct resume **ret, struct err *e)
{
    struct resume *u = calloc(1, sizeof(*u));
    int r;

    if (!u || !(u->path = strdup(path)) || io_random_hex(RESUME_ID_BYTES / 2, u->id, e) < 0) {
        free(u ? u->path : NULL);
        free(u);
        return err_oom(e);
    }
    r = resumable_insert(t, u, q, e);
    if (r < 0) {
        resumable_destroy(t, u);
        return r;
    }
    u->caller = caller;
    u->write = write;
    *ret = u;
    return 0;
}

void resume_keep(struct resumes *t, struct resume *u, const char *user)
{
    /* If it can't be kept, it is an upload all the same. */
    (void)resume_store_keep(t->store, u->id, u->path, user, u->write, &u->note, NULL);
}

void resume_note_piece(struct resumes *t, struct resume *u, bool is_whole)
{
    struct resume_note *n = u->note;
    bool is_news;

    if (!n)
        return;
    is_news = n->has_length != u->has_length || n->has_floor != is_whole || n->age_ms != u->age_ms;
    n->age_ms = u->age_ms;
    n->has_length = u->has_length;
    n->length = u->length;
    n->has_floor = is_whole;
    n->floor = u->offset;
    if (is_news && resume_store_put(t->store, n, NULL) < 0) {
        /* A wrong note is worse than none. */
        resume_store_remove(t->store, u->id);
        u->note = resume_note_free(n);
    }
}

/* Called with the lock. */
static struct resume *resumable_find(struct resumes *t, const char *id)
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

/* Called with the lock. Waits for the holder before. */
static int resumable_hold(struct resumes *t, struct resume *u, struct request *q, struct err *e)
{
    int r = 0;

    u->refs++;
    if (!wait_for(t, u))
        r = err_set(e, ERR_UNAVAILABLE, "a request before this one does not end");
    else if (u->is_dropped)
        r = -ERR_NOT_FOUND;
    else
        u->holder = request_ref(q);
    u->refs -= r < 0;
    return r;
}

/* As resume_hold(), for uploads in the table. */
static int hold_known(struct resumes *t, struct request *q, const char *id, struct resume **ret,
                      struct err *e)
{
    struct resume *u;
    int r = -ERR_NOT_FOUND;

    (void)pthread_mutex_lock(&t->lock);
    u = resumable_find(t, id);
    if (u)
        r = resumable_hold(t, u, q, e);
    (void)pthread_mutex_unlock(&t->lock);
    if (r == 0)
        *ret = u;
    return r;
}

/* Looks for an upload that an earlier agent has noted. */
static int resumable_take(struct resumes *t, struct request *q, const char *id, struct resume **ret,
                          struct err *e)
{
    struct resume *u = calloc(1, sizeof(*u));
    int r;

    if (!u)
        return err_oom(e);
    r = resume_store_take(t->store, id, t->age_ms, &u->note, &u->caller, &u->write, e);
    if (r < 0) {
        free(u);
        return r;
    }
    (void)snprintf(u->id, sizeof(u->id), "%s", id);
    u->path = strdup(u->note->asked);
    u->has_length = u->note->has_length;
    u->length = u->note->length;
    u->age_ms = u->note->age_ms;
    u->offset = fs_write_offset(u->write);
    u->is_known = true;
    r = u->path ? resumable_insert(t, u, q, e) : err_oom(e);
    if (r < 0) { /* it stays where it is */
        fs_write_leave(TAKE(u->write));
        u->note = resume_note_free(u->note);
        resumable_destroy(t, u);
        return r;
    }
    resume_store_touch(t->store, id);
    *ret = u;
    return 0;
}

int resume_hold(struct resumes *t, struct request *q, const char *id, struct resume **ret,
                struct err *e)
{
    struct err why = {0};
    int r = hold_known(t, q, id, ret, e);

    if (r != -ERR_NOT_FOUND)
        return r;
    (void)pthread_mutex_lock(&t->taking);
    r = hold_known(t, q, id, ret, e); /* another thread may have taken it meanwhile */
    if (r == -ERR_NOT_FOUND)
        r = resumable_take(t, q, id, ret, &why);
    (void)pthread_mutex_unlock(&t->taking);
    if (r == -ERR_EXHAUSTED || r == -ERR_UNAVAILABLE) {
        if (e && why.code)
            *e = why;
        return r;
    }
    /* Any other error with another agent's upload: for this agent it does not exist. */
    return r < 0 ? err_field(e, ERR_NOT_FOUND, "upload", "there is no such upload (any more)") : 0;
}

void resume_drop(struct resume *u)
{
    u->is_known = false;
}

void resume_release(struct resumes *t, struct resume *u)
{
    struct request *holder;

    if (!u)
        return;
    if (u->state != RESUME_OPEN || !u->is_known)
        drop_write(t, u);
    else if (u->note)
        resume_store_touch(t->store, u->id);
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
