#include "rpc/queue.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/clock.h"
#include "system/pool.h"

#include "common/banned.h"

struct message {
    json_t *json;
    size_t weight;
    struct message *next;
};

struct queue {
    struct source source; /* first: the server has a pointer to it */
    queue_work_fn work;
    void *arg;
    void (*free_arg)(void *);
    pthread_mutex_t lock;
    pthread_cond_t room; /* the worker waits here */
    /* guarded by lock: */
    int refs; /* the server's and the worker's */
    struct message *first, *last;
    size_t bytes;
    bool is_gone; /* the server has freed the source */
    bool is_done; /* the work has returned: result and error are set */
    int result;
    struct err error;
};

static struct pool *worker_pool; /* set once, before threads start */

void queue_use_pool(struct pool *p)
{
    worker_pool = p;
}

/* Called with the lock. */
static struct message *take_first(struct queue *q)
{
    struct message *m = q->first;

    q->first = m->next;
    if (!q->first)
        q->last = NULL;
    q->bytes -= m->weight;
    return m;
}

static void drop_messages(struct queue *q)
{
    while (q->first) {
        struct message *m = take_first(q);

        json_decref(m->json);
        free(m);
    }
}

/* Called with the lock; gives it up. */
static void unref_and_unlock(struct queue *q)
{
    bool is_last = --q->refs == 0;

    (void)pthread_mutex_unlock(&q->lock);
    if (!is_last)
        return;
    drop_messages(q);
    (void)pthread_cond_destroy(&q->room);
    (void)pthread_mutex_destroy(&q->lock);
    free(q);
}

static int queue_next(struct source *s, json_t **ret_msg, struct err *e)
{
    struct queue *q = (struct queue *)s;
    struct message *m;
    int r = SOURCE_WAIT;

    (void)pthread_mutex_lock(&q->lock);
    if (q->first) {
        m = take_first(q);
        *ret_msg = m->json;
        free(m);
        r = SOURCE_MESSAGE;
        (void)pthread_cond_signal(&q->room);
    } else if (q->is_done) {
        r = q->result < 0 ? q->result : SOURCE_END;
        if (r < 0)
            *e = q->error;
    }
    (void)pthread_mutex_unlock(&q->lock);
    return r;
}

static void queue_source_free(struct source *s)
{
    struct queue *q = (struct queue *)s;

    (void)pthread_mutex_lock(&q->lock);
    q->is_gone = true;
    q->source.waker.fn = NULL;
    (void)pthread_cond_signal(&q->room);
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

    while (q->bytes >= QUEUE_MAX_BYTES && !q->is_gone)
        if (pthread_cond_timedwait(&q->room, &q->lock, &until) != 0)
            return err_set(e, ERR_CANCELED, "the client took nothing for %d s",
                           QUEUE_STALL_MS / 1000);
    return q->is_gone ? err_set(e, ERR_CANCELED, "the client has gone") : 0;
}

int queue_push_take(struct queue *q, json_t *msg, size_t weight, struct err *e)
{
    struct message *m = malloc(sizeof(*m));
    bool was_empty;
    int r;

    if (!m || !msg) {
        json_decref(msg);
        free(m);
        return err_oom(e);
    }
    *m = (struct message){.json = msg, .weight = weight + sizeof(*m)};
    (void)pthread_mutex_lock(&q->lock);
    r = wait_for_room(q, e);
    if (r < 0) {
        (void)pthread_mutex_unlock(&q->lock);
        json_decref(msg);
        free(m);
        return r;
    }
    was_empty = !q->first;
    if (q->last)
        q->last->next = m;
    else
        q->first = m;
    q->last = m;
    q->bytes += m->weight;
    if (was_empty)
        source_wake(&q->source);
    (void)pthread_mutex_unlock(&q->lock);
    return 0;
}

bool queue_is_gone(struct queue *q)
{
    bool is_gone;

    (void)pthread_mutex_lock(&q->lock);
    is_gone = q->is_gone;
    (void)pthread_mutex_unlock(&q->lock);
    return is_gone;
}
