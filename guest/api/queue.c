#include "api/queue.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "event/pool.h"

struct queue {
    struct source source; /* first: the server has a pointer to it */
    queue_work_fn work;
    void *arg;
    void (*free_arg)(void *);
    struct buf taken; /* the server's: what source.text points to */
    bool is_gone;     /* atomic: the server has freed the source */
    int64_t due_ms;   /* atomic: when what is open must be told of; 0: nothing is */
    pthread_mutex_t lock;
    pthread_cond_t room; /* the worker waits here */
    /* guarded by lock: */
    int refs; /* the server's and the worker's */
    struct buf open;
    bool waits;   /* the server found nothing */
    bool is_done; /* the work has returned: result and error are set */
    int result;
    struct err error;
};

static struct pool *worker_pool; /* set once, before threads start */

void queue_use_pool(struct pool *p)
{
    worker_pool = p;
}

/* Called with the lock; gives it up. */
static void unref_and_unlock(struct queue *q)
{
    bool is_last = --q->refs == 0;

    (void)pthread_mutex_unlock(&q->lock);
    if (!is_last)
        return;
    buf_done(&q->open);
    buf_done(&q->taken);
    (void)pthread_cond_destroy(&q->room);
    (void)pthread_mutex_destroy(&q->lock);
    free(q);
}

/* Called with the lock. */
static void take_open(struct queue *q)
{
    struct buf swap = q->taken;

    q->taken = q->open;
    buf_clear(&swap);
    q->open = swap;
    q->source.text = q->taken.data;
    q->source.text_len = q->taken.len;
    __atomic_store_n(&q->due_ms, 0, __ATOMIC_RELAXED);
}

static int queue_next(struct source *s, json_t **ret_msg, struct err *e)
{
    struct queue *q = (struct queue *)s;
    int r = SOURCE_WAIT;

    (void)ret_msg;
    (void)pthread_mutex_lock(&q->lock);
    s->text_len = 0;
    if (q->open.len) {
        take_open(q);
        r = SOURCE_TEXT;
        (void)pthread_cond_broadcast(&q->room);
    } else if (q->is_done) {
        r = q->result < 0 ? q->result : SOURCE_END;
        if (r < 0)
            *e = q->error;
    }
    q->waits = r == SOURCE_WAIT;
    (void)pthread_mutex_unlock(&q->lock);
    return r;
}

static void queue_source_free(struct source *s)
{
    struct queue *q = (struct queue *)s;

    (void)pthread_mutex_lock(&q->lock);
    __atomic_store_n(&q->is_gone, true, __ATOMIC_RELAXED);
    q->source.waker.fn = NULL;
    (void)pthread_cond_broadcast(&q->room);
    unref_and_unlock(q);
}

static const struct source_ops queue_ops = {.next = queue_next, .free = queue_source_free};

static void run_work(void *arg)
{
    struct queue *q = arg;
    struct err e = {0};
    int r = queue_is_gone(q) ? 0 : q->work(q, q->arg, &e);

    if (q->free_arg)
        q->free_arg(q->arg);
    (void)pthread_mutex_lock(&q->lock);
    q->is_done = true;
    q->result = r;
    q->error = e;
    source_wake(&q->source); /* the lock makes it be before free(), if at all */
    unref_and_unlock(q);
}

int queue_source_new(queue_work_fn work, void *arg, void (*free_arg)(void *), struct source **ret,
                     struct err *e)
{
    struct queue *q = calloc(1, sizeof(*q));
    pthread_condattr_t attr;
    int r;

    assert(worker_pool);
    if (!q) {
        if (free_arg)
            free_arg(arg);
        return err_oom(e);
    }
    *q = (struct queue){
        .source.ops = &queue_ops, .work = work, .arg = arg, .free_arg = free_arg, .refs = 2};
    buf_init(&q->open, QUEUE_TEXT_MAX_BYTES);
    buf_init(&q->taken, QUEUE_TEXT_MAX_BYTES);
    (void)pthread_mutex_init(&q->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&q->room, &attr);
    (void)pthread_condattr_destroy(&attr);
    r = pool_run(worker_pool, run_work, q, e);
    if (r < 0) {
        if (free_arg)
            free_arg(arg);
        (void)pthread_mutex_lock(&q->lock);
        q->refs = 1;
        unref_and_unlock(q);
        return r;
    }
    *ret = &q->source;
    return 0;
}

/* Waits until there is room. Called with the lock. */
static int wait_for_room(struct queue *q, struct err *e)
{
    int64_t until_ms = clock_mono_ms() + QUEUE_STALL_MS;
    struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
                             .tv_nsec = (long)(until_ms % 1000) * 1000000};

    while (q->open.len >= QUEUE_MAX_BYTES && !q->is_gone)
        if (pthread_cond_timedwait(&q->room, &q->lock, &until) != 0)
            return err_set(e, ERR_CANCELED, "the client took nothing for %d s",
                           QUEUE_STALL_MS / 1000);
    return q->is_gone ? err_set(e, ERR_CANCELED, "the client has gone") : 0;
}

/* Called with the lock. */
static void wake_server(struct queue *q)
{
    __atomic_store_n(&q->due_ms, 0, __ATOMIC_RELAXED);
    if (q->waits)
        source_wake(&q->source);
    q->waits = false;
}

/* Called with the lock, after something was added. */
static void tell_server(struct queue *q, bool is_first)
{
    int64_t now = clock_mono_ms();

    if (is_first || q->open.len >= QUEUE_BATCH_BYTES)
        wake_server(q);
    else if (!q->due_ms)
        __atomic_store_n(&q->due_ms, now + QUEUE_BATCH_MS, __ATOMIC_RELAXED);
    else if (now >= q->due_ms)
        wake_server(q);
}

int queue_push(struct queue *q, const char *text, size_t len, struct err *e)
{
    int r;

    (void)pthread_mutex_lock(&q->lock);
    r = wait_for_room(q, e);
    if (r == 0) {
        bool is_first = !q->open.cap && !q->taken.cap;

        r = buf_add(&q->open, text, len, e);
        if (r == 0)
            tell_server(q, is_first);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return r;
}

int queue_push_take(struct queue *q, json_t *msg, size_t weight, struct err *e)
{
    _cleanup_json_ json_t *held = msg;
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r = msg ? jx_dump(msg, &text, &len, e) : err_oom(e);

    (void)weight;
    if (r < 0)
        return r;
    text[len] = '\n'; /* in the place of the NUL */
    return queue_push(q, text, len + 1, e);
}

bool queue_is_gone(struct queue *q)
{
    int64_t due = __atomic_load_n(&q->due_ms, __ATOMIC_RELAXED);

    if (due && clock_mono_ms() >= due) {
        (void)pthread_mutex_lock(&q->lock);
        wake_server(q);
        (void)pthread_mutex_unlock(&q->lock);
    }
    return __atomic_load_n(&q->is_gone, __ATOMIC_RELAXED);
}
