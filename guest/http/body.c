#include "http/body.h"

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

static void body_wake(void *arg)
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
        .max_bytes = size < BODY_RING_BYTES ? (size_t)size + 1 : BODY_RING_BYTES,
        .wake = body_wake,
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

/* ---- uploads ---------------------------------------------------------------------------------- */

int upload_new_take(struct request *q, const struct pump_ops *ops, void *sink, size_t max_bytes,
                    struct pump **ret, struct err *e)
{
    const struct pump_options o = {
        .pool = q->server->o.pool,
        .ops = ops,
        .job = sink,
        .max_bytes = q->declared < max_bytes ? (size_t)q->declared + 1 : max_bytes,
        .wake = body_wake,
        .wake_arg = q,
        .stall_ms = 2 * REQUEST_STALL_MS, /* the sweep ends the request before */
    };
    int r = pump_new(&o, ret, e);

    if (r < 0)
        ops->free(sink);
    return r;
}

/* Calls look() until it does not have to wait or the request is parked. */
static int upload_wait(struct request *q, struct pump *p, bool is_end,
                       int (*look)(struct pump *p, struct err *e), struct err *e)
{
    for (;;) {
        int r = look(p, e);

        request_hold_body(q, pump_keeps(p) && r >= 0 && !is_end);
        if (r != PUMP_WAIT)
            return r;
        if (request_park(q))
            return REQUEST_PARKED;
        if (request_is_gone(q))
            return err_set(e, ERR_CANCELED, "the client has gone");
    }
}

int upload_begin(struct request *q, struct pump *p, struct err *e)
{
    return upload_wait(q, p, false, pump_begin, e);
}

int upload_body(struct request *q, struct pump *p, const char *data, size_t *len, struct err *e)
{
    size_t left = *len;

    for (;;) {
        int r = pump_put(p, data + (*len - left), &left, e);

        request_hold_body(q, pump_keeps(p) && r >= 0);
        if (r < 0)
            return r;
        if (r != PUMP_WAIT || request_park(q)) {
            *len = left;
            return 0;
        }
        if (request_is_gone(q))
            return err_set(e, ERR_CANCELED, "the client has gone");
    }
}

int upload_finish(struct request *q, struct pump *p, struct err *e)
{
    return upload_wait(q, p, true, pump_finish, e);
}
