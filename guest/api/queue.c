#include "api/queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "event/pump.h"

struct queue {
    struct source source; /* first: the server has a pointer to it */
    struct pump *pump;
    queue_work_fn work;
    void *arg;
    void (*free_arg)(void *);
    struct buf
        taken; /* the server's: source.text, then the start of a line whose end is still in the pump */
};

static struct pool *worker_pool; /* set once, before threads start */

void queue_use_pool(struct pool *p)
{
    worker_pool = p;
}

/* ---- the worker's side ----------------------------------------------------------------------- */

static int queue_run(void *job, struct pump *p, struct err *e)
{
    struct queue *q = job;

    (void)p;
    return q->work(q, q->arg, e);
}

static void queue_free(void *job)
{
    struct queue *q = job;

    if (q->free_arg)
        q->free_arg(q->arg);
    buf_done(&q->taken);
    free(q);
}

static const struct pump_ops queue_pump_ops = {.run = queue_run, .free = queue_free};

int queue_push(struct queue *q, const char *text, size_t len, struct err *e)
{
    int r;

    if (len > QUEUE_TEXT_MAX_BYTES)
        return err_set(e, ERR_EXHAUSTED, "more than %u bytes", QUEUE_TEXT_MAX_BYTES);
    r = pump_write(q->pump, text, len, e);
    if (r == -ERR_CANCELED)
        return queue_is_gone(q) ? err_set(e, ERR_CANCELED, "the client has gone")
                                : err_set(e, ERR_CANCELED, "the client took nothing for %d s",
                                          QUEUE_STALL_MS / 1000);
    return r;
}

int queue_push_take(struct queue *q, json_t *msg, struct err *e)
{
    _cleanup_json_ json_t *held = msg;
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r = msg ? jx_dump(msg, &text, &len, e) : err_oom(e);

    if (r < 0)
        return r;
    text[len] = '\n'; /* in the place of the NUL */
    return queue_push(q, text, len + 1, e);
}

bool queue_is_gone(struct queue *q)
{
    return pump_poll(q->pump);
}

/* ---- the server's side ----------------------------------------------------------------------- */

static int queue_next(struct source *s, json_t **ret_msg, struct err *e)
{
    struct queue *q = (struct queue *)s;
    struct buf *b = &q->taken;

    (void)ret_msg;
    buf_consume(b, s->text_len);
    s->text_len = 0;
    for (;;) {
        size_t n;
        const char *end;
        int r = pump_take(q->pump, NULL, &n, e);

        if (r == 0)
            r = buf_reserve(b, n, e);
        if (r == 0)
            r = pump_take(q->pump, b->data + b->len, &n, e);
        if (r < 0)
            return r;
        if (r != 0)
            return r == PUMP_END ? SOURCE_END : SOURCE_WAIT;
        end = memrchr(b->data + b->len, '\n', n);
        b->len += n;
        if (!end)
            continue;
        s->text = b->data;
        s->text_len = (size_t)(end + 1 - b->data);
        return SOURCE_TEXT;
    }
}

static void queue_source_free(struct source *s)
{
    pump_leave(((struct queue *)s)->pump);
}

int queue_source_new(queue_work_fn work, void *arg, void (*free_arg)(void *), struct source **ret,
                     struct err *e)
{
    static const struct source_ops source_ops = {.next = queue_next, .free = queue_source_free};
    struct queue *q = calloc(1, sizeof(*q));
    struct pump_options o = {
        .pool = worker_pool,
        .ops = &queue_pump_ops,
        .job = q,
        .max_bytes = QUEUE_MAX_BYTES,
        .wake = source_wake,
        .wake_arg = q,
        .stall_ms = QUEUE_STALL_MS,
        .batch_bytes = QUEUE_BATCH_BYTES,
        .batch_ms = QUEUE_BATCH_MS,
    };
    int r;

    assert(worker_pool);
    if (!q) {
        if (free_arg)
            free_arg(arg);
        return err_oom(e);
    }
    *q = (struct queue){.source.ops = &source_ops, .work = work, .arg = arg, .free_arg = free_arg};
    buf_init(&q->taken, QUEUE_TEXT_MAX_BYTES + 2 * QUEUE_MAX_BYTES);
    r = pump_new(&o, &q->pump, e);
    if (r < 0) {
        queue_free(q);
        return r;
    }
    r = pump_start(q->pump, e);
    if (r < 0) {
        pump_leave(q->pump); /* frees q */
        return r;
    }
    *ret = &q->source;
    return 0;
}
