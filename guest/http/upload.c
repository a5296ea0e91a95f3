#include "http/upload.h"

#include "http/state.h"

static void upload_wake(void *arg)
{
    request_wake(arg);
}

int upload_new_take(struct request *q, const struct pump_ops *ops, void *sink, size_t max_bytes,
                    struct pump **ret, struct err *e)
{
    const struct pump_options o = {
        .pool = q->server->o.pool,
        .ops = ops,
        .job = sink,
        .max_bytes = q->declared < max_bytes ? (size_t)q->declared + 1 : max_bytes,
        .wake = upload_wake,
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
