#include "http/upload.h"

#include <stdlib.h>

#include "common/cleanup.h"
#include "http/ring.h"
#include "http/state.h"

struct upload {
    struct request *request; /* a reference */
    struct pool *pool;
    const struct sink_ops *ops;
    void *sink;
    struct pool_item item; /* queued or running while has_job */
    pthread_mutex_t lock;
    /* guarded by lock: */
    int refs; /* the request's, and the job's while has_job */
    struct ring ring;
    bool has_job;
    bool wants_room; /* the connection waits for room in the ring */
    bool is_begun;   /* begin has been called */
    bool is_ended;   /* the body is complete */
    bool is_done;    /* committed */
    bool is_left;    /* the request is over */
    bool is_closed;
    int r; /* the sink's error */
    struct err error;
};

static void unref_and_unlock(struct upload *u)
{
    bool is_last = --u->refs == 0;

    (void)pthread_mutex_unlock(&u->lock);
    if (!is_last)
        return;
    u->ops->free(u->sink);
    ring_done(&u->ring);
    (void)pthread_mutex_destroy(&u->lock);
    request_unref(u->request);
    free(u);
}

/* Called with the lock. The client has gone, but what it sent counts. */
static bool is_kept(const struct upload *u)
{
    return u->ops->keeps && u->is_begun && (u->ring.len || u->is_ended);
}

/* Called with the lock, gives it up for the step, and has it again. False: nothing to do now. */
static bool work_step(struct upload *u)
{
    struct err error = {0};
    const char *piece;
    size_t len = 0;
    int r;

    if (u->r < 0 || u->is_done || (u->is_left && !is_kept(u)))
        return false;
    if (!u->is_begun) {
        u->is_begun = true;
        (void)pthread_mutex_unlock(&u->lock);
        r = u->ops->begin(u->sink, &error);
    } else if ((len = ring_peek(&u->ring, &piece))) {
        (void)pthread_mutex_unlock(&u->lock);
        r = u->ops->write(u->sink, piece, len, &error);
    } else if (u->is_ended) {
        (void)pthread_mutex_unlock(&u->lock);
        r = u->ops->commit(u->sink, &error);
        (void)pthread_mutex_lock(&u->lock);
        u->is_done = r == 0;
        (void)pthread_mutex_unlock(&u->lock);
    } else {
        return false;
    }
    (void)pthread_mutex_lock(&u->lock);
    ring_drop(&u->ring, len);
    if (r < 0) {
        u->r = r;
        u->error = error;
    }
    return true;
}

static void close_sink(struct upload *u)
{
    bool must = u->is_begun && !u->is_closed && (u->r < 0 || u->is_done || u->is_left);

    if (!must)
        return;
    u->is_closed = true;
    (void)pthread_mutex_unlock(&u->lock);
    u->ops->close(u->sink);
    (void)pthread_mutex_lock(&u->lock);
}

static void run_job(void *arg)
{
    struct upload *u = arg;

    (void)pthread_mutex_lock(&u->lock);
    while (work_step(u)) {
        bool has_room = u->ring.len <= u->ring.cap / 2;

        if (!u->wants_room || (!has_room && u->r == 0))
            continue;
        u->wants_room = false;
        (void)pthread_mutex_unlock(&u->lock);
        request_wake(u->request);
        (void)pthread_mutex_lock(&u->lock);
    }
    close_sink(u);
    u->has_job = false;
    (void)pthread_mutex_unlock(&u->lock);
    request_wake(u->request);
    (void)pthread_mutex_lock(&u->lock);
    unref_and_unlock(u);
}

/* Called with the lock. */
static void schedule(struct upload *u)
{
    if (u->has_job)
        return;
    u->has_job = true;
    u->refs++;
    u->item = (struct pool_item){.fn = run_job, .arg = u};
    pool_push(u->pool, &u->item);
}

int upload_new_take(struct request *q, const struct sink_ops *ops, void *sink, struct upload **ret,
                    struct err *e)
{
    struct upload *u = calloc(1, sizeof(*u));
    size_t cap = q->declared < UPLOAD_RING_BYTES ? (size_t)q->declared + 1 : UPLOAD_RING_BYTES;

    if (!u || ring_init(&u->ring, cap, NULL) < 0) {
        ops->free(sink);
        free(u);
        return err_oom(e);
    }
    u->request = request_ref(q);
    u->pool = q->server->o.pool;
    u->ops = ops;
    u->sink = sink;
    u->refs = 1;
    (void)pthread_mutex_init(&u->lock, NULL);
    *ret = u;
    return 0;
}

/* Called with the lock. */
static int failure(const struct upload *u, struct err *e)
{
    if (u->r < 0)
        *e = u->error;
    return u->r;
}

/* Schedules, and waits until the job has nothing more to do. */
static int wait_for_job(struct upload *u, bool is_end, struct err *e)
{
    for (;;) {
        bool is_over;
        int r;

        (void)pthread_mutex_lock(&u->lock);
        u->is_ended = u->is_ended || is_end;
        r = failure(u, e);
        is_over = r < 0 || (is_end ? u->is_done && !u->has_job : u->is_begun && !u->has_job);
        if (!is_over)
            schedule(u);
        (void)pthread_mutex_unlock(&u->lock);
        request_hold_body(u->request, u->ops->keeps && r == 0 && !is_end);
        if (is_over)
            return r;
        if (request_park(u->request))
            return REQUEST_PARKED;
        if (request_is_gone(u->request))
            return err_set(e, ERR_CANCELED, "the client has gone");
    }
}

int upload_begin(struct upload *u, struct err *e)
{
    return wait_for_job(u, false, e);
}

int upload_body(struct upload *u, const char *data, size_t *len, struct err *e)
{
    size_t left = *len;

    for (;;) {
        int r;

        (void)pthread_mutex_lock(&u->lock);
        r = failure(u, e);
        if (r == 0) {
            left -= ring_put(&u->ring, data + (*len - left), left);
            u->wants_room = left > 0;
            schedule(u);
        }
        (void)pthread_mutex_unlock(&u->lock);
        request_hold_body(u->request, u->ops->keeps && r == 0);
        if (r < 0)
            return r;
        if (!left || request_park(u->request)) {
            *len = left;
            return 0;
        }
        if (request_is_gone(u->request))
            return err_set(e, ERR_CANCELED, "the client has gone");
    }
}

int upload_finish(struct upload *u, struct err *e)
{
    return wait_for_job(u, true, e);
}

void upload_leave(struct upload *u)
{
    if (!u)
        return;
    (void)pthread_mutex_lock(&u->lock);
    u->is_left = true;
    if (u->is_begun && !u->is_closed)
        schedule(u); /* undoing blocks too */
    unref_and_unlock(u);
}
