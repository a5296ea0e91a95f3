#include "http/feed.h"

#include <stdlib.h>

#include "http/state.h"

#define BLOCK_BYTES (16 * 1024) /* the library's own buffer, for replies of known size */

struct feed {
    struct request *request; /* a reference */
    const struct feed_ops *ops;
    void *from; /* the pump's */
    struct pump *pump;
    struct reply *reply;
};

static void feed_wake(void *arg)
{
    request_wake(arg);
}

static ssize_t read_feed(void *arg, uint64_t pos, char *data, size_t max)
{
    struct feed *f = arg;

    (void)pos;
    for (;;) {
        size_t n = max;
        int r = pump_take(f->pump, data, &n, NULL);

        f->request->bytes_out += n;
        if (r == 0)
            return (ssize_t)n;
        if (r < 0 || request_is_gone(f->request))
            return request_break_off(f->request, data);
        if (r == PUMP_END) {
            if (f->ops->ended)
                f->ops->ended(f->from, f->reply);
            return REPLY_END;
        }
        if (request_park(f->request))
            return 0;
    }
}

static void feed_free(void *arg)
{
    struct feed *f = arg;

    pump_leave(f->pump);
    request_unref(f->request);
    free(f);
}

int feed_response_take(struct request *q, uint64_t size, const struct feed_ops *ops, void *from,
                       struct reply **ret, struct err *e)
{
    const struct pump_options o = {
        .pool = q->server->o.pool,
        .ops = &ops->pump,
        .job = from,
        .max_bytes = size < FEED_RING_BYTES ? (size_t)size + 1 : FEED_RING_BYTES,
        .wake = feed_wake,
        .wake_arg = q,
    };
    struct feed *f = calloc(1, sizeof(*f));

    if (!f || pump_new(&o, &f->pump, NULL) < 0) {
        free(f);
        ops->pump.close(from);
        return err_oom(e);
    }
    f->request = request_ref(q);
    f->ops = ops;
    f->from = from;
    f->reply = reply_new_stream(size, BLOCK_BYTES, read_feed, f, feed_free);
    if (!f->reply) {
        feed_free(f);
        return err_oom(e);
    }
    *ret = f->reply;
    return 0;
}
