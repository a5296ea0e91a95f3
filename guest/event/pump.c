#include "event/pump.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "event/pool.h"
#include "event/ring.h"

/* A job that gets no thread for so long is called off by the reader that waits for it. */
#define JOB_START_MS 100

/* The reason for which the parked side waits. */
enum pump_wait { NO_WAIT, WAIT_BEGIN, WAIT_ROOM, WAIT_DATA, WAIT_COMMIT };

struct pump {
    struct pump_options o;
    struct pool_item item; /* queued or running while has_job */
    bool is_left;          /* atomic; set with the lock held: the owner has left */
    int64_t
        due_ms; /* atomic; set with the lock held: when the parked reader must be woken; 0: no batch waits */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock: */
    int refs; /* the owner's, and the job's while has_job */
    struct ring ring;
    uint64_t n_put; /* bytes put, ever; atomic, set with the lock held */
    size_t lent;    /* bytes at the ring's head that the blocking reader looks at */
    bool has_job;
    bool is_working;    /* the job has a thread */
    bool is_called_off; /* the job does nothing once it gets a thread */
    bool has_bytes;     /* pump_write() has put some */
    bool is_fed;        /* by the parked side: run is a reader */
    bool is_begun;      /* begin has returned */
    bool is_run;        /* run has returned */
    bool is_ended;      /* no more bytes will be put */
    bool is_done;       /* the job has done all that it was there for */
    bool is_closed;
    enum pump_wait wait;
    unsigned n_waking; /* calls of o.wake that have not returned */
    int r;             /* the job's error */
    struct err error;
};

static void pump_unref_and_unlock(struct pump *p)
{
    bool is_last = --p->refs == 0;

    (void)pthread_mutex_unlock(&p->lock);
    if (!is_last)
        return;
    if (p->o.ops->free)
        p->o.ops->free(p->o.job);
    ring_done(&p->ring);
    (void)pthread_cond_destroy(&p->changed);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}

/* ---- waking the parked side. Called with the lock. ------------------------------------------- */

static bool is_wake_due(const struct pump *p)
{
    switch (p->wait) {
    case WAIT_BEGIN:
        return p->r < 0 ? !p->has_job : p->is_begun; /* an error is told when its traces are gone */
    case WAIT_ROOM:
        return p->r < 0 || p->is_run || p->is_done || p->ring.len <= p->ring.cap / 2;
    case WAIT_DATA:
        return p->r < 0 || p->is_ended || p->is_done || (p->ring.len && !p->due_ms);
    case WAIT_COMMIT:
        return !p->has_job;
    case NO_WAIT:
    default:
        return false;
    }
}

/*
 * Tells both sides that something has changed. The lock is released for the wake: the woken
 * thread wants it at once.
 */
static void pump_notify(struct pump *p)
{
    (void)pthread_cond_broadcast(&p->changed);
    if (p->is_left || !is_wake_due(p))
        return;
    p->wait = NO_WAIT;
    p->n_waking++;
    (void)pthread_mutex_unlock(&p->lock);
    p->o.wake(p->o.wake_arg);
    (void)pthread_mutex_lock(&p->lock);
    if (--p->n_waking == 0 && p->is_left)
        (void)pthread_cond_broadcast(&p->changed);
}

static void set_due(struct pump *p, int64_t due_ms)
{
    __atomic_store_n(&p->due_ms, due_ms, __ATOMIC_RELAXED);
}

/* Bytes were put: notifies, or lets them wait for a batch. */
static void pump_notify_batch(struct pump *p)
{
    bool is_first = !p->has_bytes;
    int64_t now_ms;

    p->has_bytes = true;
    if (!is_first && p->ring.len < p->o.batch_bytes) {
        now_ms = clock_mono_ms();
        if (!p->due_ms)
            set_due(p, now_ms + p->o.batch_ms);
        if (now_ms < p->due_ms)
            return;
    }
    set_due(p, 0);
    pump_notify(p);
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Called with the lock. The owner has left, but the bytes that it put count. */
static bool is_kept(const struct pump *p)
{
    return p->o.ops->keeps && p->is_begun && (p->ring.len || p->is_ended);
}

/* Called with the lock. */
static void pump_count_put(struct pump *p, size_t n)
{
    __atomic_store_n(&p->n_put, p->n_put + n, __ATOMIC_RELAXED);
}

/* Called with the lock. Nobody takes the bytes that run left: `more` of them, and the ring's. */
static void pump_refuse_unread(struct pump *p, size_t more)
{
    if (p->is_fed && p->is_run && p->r == 0 && p->ring.len + more)
        p->r = err_set(&p->error, ERR_INVALID, "there are bytes after the end");
}

/* Called with the lock. One call of the ops, without the lock. False: nothing to do now. */
static bool pump_work_step(struct pump *p)
{
    const struct pump_ops *ops = p->o.ops;
    struct err error = {0};
    const char *piece;
    size_t taken = 0, put = 0, room = 0;
    char *at;
    int r;

    if (p->r < 0 || p->is_done || (p->is_left && !is_kept(p)))
        return false;
    if (!p->is_begun) {
        (void)pthread_mutex_unlock(&p->lock);
        r = ops->begin ? ops->begin(p->o.job, &error) : 0;
        (void)pthread_mutex_lock(&p->lock);
        p->is_begun = true;
    } else if (ops->run && !p->is_run) {
        (void)pthread_mutex_unlock(&p->lock);
        r = ops->run(p->o.job, p, &error);
        (void)pthread_mutex_lock(&p->lock);
        p->is_run = true;
        p->is_done = r == 0 && !ops->commit;
        taken = p->lent;
        p->lent = 0;
    } else if (ops->read && !p->is_ended && (room = ring_room(&p->ring, &at))) {
        (void)pthread_mutex_unlock(&p->lock);
        r = ops->read(p->o.job, at, room, &put, &error);
        (void)pthread_mutex_lock(&p->lock);
        p->is_ended = r == 0 && !put;
        if (r == PUMP_IDLE)
            return false;
    } else if (ops->write && (taken = ring_peek(&p->ring, &piece))) {
        (void)pthread_mutex_unlock(&p->lock);
        r = ops->write(p->o.job, piece, taken, &error);
        (void)pthread_mutex_lock(&p->lock);
    } else if (ops->commit && p->is_ended) {
        (void)pthread_mutex_unlock(&p->lock);
        r = ops->commit(p->o.job, &error);
        (void)pthread_mutex_lock(&p->lock);
        p->is_done = r == 0;
    } else {
        return false;
    }
    ring_drop(&p->ring, taken);
    ring_add(&p->ring, r < 0 ? 0 : put);
    pump_count_put(p, r < 0 ? 0 : put);
    if (r < 0) {
        p->r = r;
        p->error = error;
    }
    pump_refuse_unread(p, 0);
    return true;
}

/* Called with the lock. */
static bool must_close(const struct pump *p)
{
    return p->o.ops->close && !p->is_closed && (p->is_begun || !p->o.ops->begin);
}

/* Called with the lock. The job's work, on its thread or in pump_stop(). */
static void pump_work(struct pump *p)
{
    while (pump_work_step(p))
        pump_notify(p);
    if (must_close(p) && (p->r < 0 || p->is_done || p->is_left)) {
        p->is_closed = true;
        (void)pthread_mutex_unlock(&p->lock);
        p->o.ops->close(p->o.job);
        (void)pthread_mutex_lock(&p->lock);
    }
}

static void pump_job(void *arg)
{
    struct pump *p = arg;

    (void)pthread_mutex_lock(&p->lock);
    /* Called off and left: nobody else closes it. Working already: pump_stop() does the work. */
    if (!p->is_working && (!p->is_called_off || p->is_left)) {
        p->is_working = true;
        pump_work(p);
        p->is_working = false;
    }
    p->has_job = p->is_called_off = false;
    pump_notify(p);
    pump_unref_and_unlock(p);
}

/* Called with the lock. */
static void pump_schedule(struct pump *p)
{
    if (p->has_job)
        return;
    p->has_job = true;
    p->refs++;
    p->item = (struct pool_item){.fn = pump_job, .arg = p};
    pool_push(p->o.pool, &p->item);
}

/* Called with the lock. Reads ahead again when half of the ring is free. */
static void pump_schedule_read(struct pump *p)
{
    if (p->o.ops->read && !p->is_ended && p->r == 0 && p->ring.len <= p->ring.cap / 2)
        pump_schedule(p);
}

int pump_start(struct pump *p, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);
    int r;

    if (p->has_job)
        return 0;
    r = pool_run(p->o.pool, pump_job, p, e);
    if (r < 0)
        return r;
    p->has_job = true; /* the job waits for the lock */
    p->refs++;
    return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

int pump_new(const struct pump_options *o, struct pump **ret, struct err *e)
{
    static const struct pump_ops no_ops = {0};
    struct pump *p = calloc(1, sizeof(*p));

    if (!p || ring_init(&p->ring, o->max_bytes, NULL) < 0) {
        free(p);
        return err_oom(e);
    }
    p->o = *o;
    if (!p->o.ops)
        p->o.ops = &no_ops;
    p->refs = 1;
    (void)pthread_mutex_init(&p->lock, NULL);
    clock_cond_init(&p->changed);
    *ret = p;
    return 0;
}

static void pump_depart(struct pump *p, bool must_wait)
{
    if (!p)
        return;
    (void)pthread_mutex_lock(&p->lock);
    __atomic_store_n(&p->is_left, true, __ATOMIC_RELAXED);
    (void)pthread_cond_broadcast(&p->changed);
    if (must_close(p))
        pump_schedule(p); /* undoing blocks too */
    if (must_wait && p->has_job && !p->is_working) {
        /* Maybe the pool has no thread left, or this is the last one: its work is done here. */
        p->is_called_off = p->is_working = true;
        pump_work(p);
        p->is_working = false;
    }
    while (p->n_waking || (must_wait && p->is_working))
        (void)pthread_cond_wait(&p->changed, &p->lock);
    pump_unref_and_unlock(p);
}

void pump_leave(struct pump *p)
{
    pump_depart(p, false);
}

void pump_stop(struct pump *p)
{
    pump_depart(p, true);
}

/* ---- the parked side ------------------------------------------------------------------------- */

/* Called with the lock. The job's error. */
static int pump_failure(const struct pump *p, struct err *e)
{
    if (p->r < 0 && e)
        *e = p->error;
    return p->r;
}

int pump_begin(struct pump *p, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

    if (p->is_begun || p->r < 0)
        return pump_failure(p, e);
    p->wait = WAIT_BEGIN;
    pump_schedule(p);
    return PUMP_WAIT;
}

int pump_put(struct pump *p, const void *data, size_t *len, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);
    size_t n;

    p->is_fed = true;
    pump_refuse_unread(p, *len);
    if (p->r < 0)
        return pump_failure(p, e);
    n = ring_put(&p->ring, data, *len);
    pump_count_put(p, n);
    *len -= n;
    p->wait = *len ? WAIT_ROOM : NO_WAIT;
    if (!p->o.ops->run)
        pump_schedule(p);
    else if (n)
        (void)pthread_cond_broadcast(&p->changed);
    return *len ? PUMP_WAIT : 0;
}

int pump_finish(struct pump *p, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

    p->is_ended = true;
    if (p->r < 0 || (p->is_done && !p->has_job))
        return pump_failure(p, e);
    p->wait = WAIT_COMMIT;
    pump_schedule(p);
    (void)pthread_cond_broadcast(&p->changed);
    return PUMP_WAIT;
}

int pump_take(struct pump *p, void *data, size_t *len, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);
    bool is_over = p->r < 0 || p->is_ended || p->is_done;

    *len = data ? ring_get(&p->ring, data, *len) : p->ring.len;
    set_due(p, 0);
    p->wait = *len || is_over ? NO_WAIT : WAIT_DATA;
    pump_schedule_read(p);
    if (*len) {
        (void)pthread_cond_broadcast(&p->changed);
        return 0;
    }
    if (!is_over)
        return PUMP_WAIT;
    return p->r < 0 ? pump_failure(p, e) : PUMP_END;
}

uint64_t pump_received(const struct pump *p)
{
    return __atomic_load_n(&p->n_put, __ATOMIC_RELAXED);
}

bool pump_keeps(const struct pump *p)
{
    return p->o.ops->keeps;
}

/* ---- the blocking side ----------------------------------------------------------------------- */

/* Called with the lock. Waits for a change; false: none came within timeout_ms (0: no timeout). */
static bool wait_changed_for(struct pump *p, int64_t timeout_ms)
{
    struct timespec until = clock_timespec(clock_mono_ms() + timeout_ms);

    if (!timeout_ms)
        return pthread_cond_wait(&p->changed, &p->lock) == 0;
    return pthread_cond_timedwait(&p->changed, &p->lock, &until) == 0;
}

static bool wait_changed(struct pump *p)
{
    return wait_changed_for(p, p->o.stall_ms);
}

int pump_write(struct pump *p, const void *data, size_t len, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);
    const char *from = data;

    while (len && !p->is_left) {
        size_t n = ring_put(&p->ring, from, len);

        pump_count_put(p, n);
        from += n;
        len -= n;
        if (n)
            pump_notify_batch(p);
        else if (!wait_changed(p) && p->ring.len == p->ring.cap)
            return err_set(e, ERR_CANCELED, "nothing was taken for %d s",
                           (int)(p->o.stall_ms / 1000));
    }
    return p->is_left ? err_set(e, ERR_CANCELED, "the reader has gone") : 0;
}

void pump_end(struct pump *p)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

    p->is_ended = true;
    pump_notify(p);
}

ssize_t pump_peek(struct pump *p, size_t want, const void **ret_data, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);
    const char *piece;
    size_t n;

    if (p->lent) {
        ring_drop(&p->ring, p->lent);
        p->lent = 0;
        pump_notify(p);
        pump_schedule_read(p);
    }
    while (p->ring.len < want && !p->is_ended && !p->is_left && p->r == 0) {
        pump_schedule_read(p);
        if (!wait_changed(p) && p->ring.len < want)
            return err_set(e, ERR_CANCELED, "nothing came for %d s", (int)(p->o.stall_ms / 1000));
    }
    if (p->is_left)
        return err_set(e, ERR_CANCELED, "the writer has gone");
    n = ring_peek(&p->ring, &piece);
    *ret_data = piece;
    return n ? (ssize_t)n : pump_failure(p, e);
}

ssize_t pump_read(struct pump *p, const void **ret_data, struct err *e)
{
    ssize_t n = pump_peek(p, 1, ret_data, e);

    if (n > PUMP_LEND_BYTES)
        n = PUMP_LEND_BYTES;
    if (n > 0) {
        _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

        p->lent = (size_t)n;
    }
    return n;
}

bool pump_poll(struct pump *p)
{
    int64_t due_ms = __atomic_load_n(&p->due_ms, __ATOMIC_RELAXED);

    if (due_ms && clock_mono_ms() >= due_ms) {
        _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

        set_due(p, 0);
        pump_notify(p);
    }
    return __atomic_load_n(&p->is_left, __ATOMIC_RELAXED);
}

/* Called with the lock. */
static size_t pump_count_available(const struct pump *p)
{
    return p->is_ended || p->is_left || p->r < 0 ? SIZE_MAX : p->ring.len - p->lent;
}

size_t pump_available(struct pump *p)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);

    return pump_count_available(p);
}

size_t pump_await_job(struct pump *p)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&p->lock);
    size_t n;

    while (!(n = pump_count_available(p)) && p->has_job && !p->is_called_off)
        if (!wait_changed_for(p, JOB_START_MS))
            p->is_called_off = !p->is_working;
    return n;
}
