#include "http/feed.h"

#include <stdlib.h>

#include "common/cleanup.h"
#include "http/ring.h"
#include "http/state.h"

#define BLOCK_BYTES (16 * 1024) /* the library's own buffer, for replies of known size */

struct feed {
    struct request *request; /* a reference */
    struct pool *pool;
    const struct feed_ops *ops;
    void *from;
    struct reply *response;
    struct pool_item item; /* queued or running while has_job */
    pthread_mutex_t lock;
    /* guarded by lock: */
    int refs; /* the response's, and the job's while has_job */
    struct ring ring;
    bool has_job;
    bool wants_data; /* the connection waits for some */
    bool is_ended;
    bool is_left; /* the response is over */
    int r;
};

static void unref_and_unlock(struct feed *f)
{
    bool is_last = --f->refs == 0;

    (void)pthread_mutex_unlock(&f->lock);
    if (!is_last)
        return;
    ring_done(&f->ring);
    (void)pthread_mutex_destroy(&f->lock);
    request_unref(f->request);
    free(f);
}

/* Called with the lock. One read into the free room; false: nothing to do now. */
static bool work_step(struct feed *f)
{
    struct err error = {0};
    size_t room, len = 0;
    char *at;
    int r;

    if (f->r < 0 || f->is_ended || f->is_left)
        return false;
    room = ring_room(&f->ring, &at);
    if (!room)
        return false;
    (void)pthread_mutex_unlock(&f->lock);
    r = f->ops->read(f->from, at, room, &len, &error);
    (void)pthread_mutex_lock(&f->lock);
    if (r < 0)
        f->r = r;
    f->is_ended = r == 0 && !len;
    ring_add(&f->ring, r < 0 ? 0 : len);
    if (f->wants_data) {
        f->wants_data = false;
        (void)pthread_mutex_unlock(&f->lock);
        request_wake(f->request);
        (void)pthread_mutex_lock(&f->lock);
    }
    return true;
}

static void run_job(void *arg)
{
    struct feed *f = arg;

    (void)pthread_mutex_lock(&f->lock);
    while (work_step(f))
        ;
    if (f->is_left && f->from) {
        void *from = TAKE(f->from);

        (void)pthread_mutex_unlock(&f->lock);
        f->ops->close(from);
        (void)pthread_mutex_lock(&f->lock);
    }
    f->has_job = false;
    unref_and_unlock(f);
}

/* Called with the lock. */
static void schedule(struct feed *f)
{
    if (f->has_job)
        return;
    f->has_job = true;
    f->refs++;
    f->item = (struct pool_item){.fn = run_job, .arg = f};
    pool_push(f->pool, &f->item);
}

static ssize_t read_feed(void *arg, uint64_t pos, char *data, size_t max)
{
    struct feed *f = arg;

    (void)pos;
    for (;;) {
        bool is_over;
        size_t n;
        int r;

        (void)pthread_mutex_lock(&f->lock);
        n = ring_get(&f->ring, data, max);
        r = f->r;
        is_over = f->is_ended;
        f->wants_data = !n && !is_over && r == 0;
        if (!is_over && r == 0 && f->ring.len <= f->ring.cap / 2)
            schedule(f);
        (void)pthread_mutex_unlock(&f->lock);
        f->request->bytes_out += n;
        if (n)
            return (ssize_t)n;
        if (r < 0 || request_is_gone(f->request))
            return request_break_off(f->request, data);
        if (is_over) {
            if (f->ops->ended)
                f->ops->ended(f->from, f->response);
            return REPLY_END;
        }
        if (request_park(f->request))
            return 0;
    }
}

static void free_feed(void *arg)
{
    struct feed *f = arg;

    (void)pthread_mutex_lock(&f->lock);
    f->is_left = true;
    schedule(f); /* closing may block */
    unref_and_unlock(f);
}

int feed_response_take(struct request *q, uint64_t size, const struct feed_ops *ops, void *from,
                       struct reply **ret, struct err *e)
{
    struct feed *f = calloc(1, sizeof(*f));
    size_t cap = size < FEED_RING_BYTES ? (size_t)size + 1 : FEED_RING_BYTES;

    if (!f || ring_init(&f->ring, cap, NULL) < 0) {
        free(f);
        ops->close(from);
        return err_oom(e);
    }
    f->request = request_ref(q);
    f->pool = q->server->o.pool;
    f->ops = ops;
    f->from = from;
    f->refs = 1;
    (void)pthread_mutex_init(&f->lock, NULL);
    f->response = reply_new_stream(size, BLOCK_BYTES, read_feed, f, free_feed);
    if (!f->response) {
        free_feed(f);
        return err_oom(e);
    }
    *ret = f->response;
    return 0;
}
