/*
 * inflow: a method to which the client streams: takes the envelopes of the body as they arrive, and replies
 * with one message.
 */
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "api/handlers.h"
#include "api/service.h"
#include "api/stream.h"
#include "http/deadline.h"
#include "http/respond.h"

#define ENVELOPE_KEEP_BYTES (64 * 1024)

struct flow {
    struct inflow *inflow;
    struct deadline *deadline;
    void *headers;
    struct buf envelope; /* the arriving one */
    json_t *pending;     /* a message that the method could not take yet */
    bool has_given_back; /* flow_body() returned the last byte, which comes again */
};

static int flow_begin(struct request *q, struct err *e)
{
    const struct dialect *d = request_dialect(q);
    const struct rpc_method *m = request_method(q);
    struct flow *f = calloc(1, sizeof(*f));
    struct rpc_call call = {.agent = request_agent(q)};
    const struct codec *codec;
    int64_t deadline_ms = -1;
    int r;

    if (!f)
        return err_oom(e);
    q->state = f;
    buf_init(&f->envelope, WIRE_JSON_MAX_BYTES);
    request_allow_silence(q, true);
    r = d->choose_codec(q, m, &codec, e);
    if (r < 0)
        return r;
    q->codec = codec;
    if (d->read_headers)
        r = d->read_headers(q, m, &call, &deadline_ms, e);
    f->headers = (void *)(uintptr_t)call.headers;
    if (r == 0 && deadline_ms >= 0)
        r = deadline_new(q, deadline_ms, request_make_late, &f->deadline, e);
    if (r == 0)
        r = m->inflow(&call, &f->inflow, e);
    if (r < 0)
        return r;
    f->inflow->waker = (struct waker){stream_wake_request, q};
    return 0;
}

/* Appends bytes to the arriving envelope, which is charged to the budget of bodies until it is complete. */
static int fill_envelope(struct request *q, struct flow *f, const char *data, size_t len,
                         size_t *ret_used, struct err *e)
{
    size_t want = ENCODE_ENVELOPE_BYTES, n;
    int r;

    if (f->envelope.len >= want)
        want += encode_envelope_len(f->envelope.data);
    n = want - f->envelope.len < len ? want - f->envelope.len : len;
    r = request_charge(q, n, e);
    if (r < 0)
        return r;
    r = buf_add(&f->envelope, data, n, e);
    if (r < 0) {
        request_discharge(q, n);
        return r;
    }
    *ret_used = n;
    return 0;
}

static bool has_whole_envelope(const struct flow *f)
{
    return f->envelope.len >= ENCODE_ENVELOPE_BYTES &&
           f->envelope.len == ENCODE_ENVELOPE_BYTES + encode_envelope_len(f->envelope.data);
}

static int open_envelope(struct request *q, struct flow *f, struct err *e)
{
    const char *text;
    size_t len;
    int r;

    r = encode_open_envelope(f->envelope.data, f->envelope.len, &text, &len, e);
    if (r == 0)
        r = codec_parse(q->codec, q->method, text, len, &f->pending, e);
    request_discharge(q, f->envelope.len);
    if (f->envelope.cap > ENVELOPE_KEEP_BYTES)
        buf_done(&f->envelope); /* the next one may come in hours, and be small */
    buf_clear(&f->envelope);
    return r;
}

/* Calls step until it is done. REQUEST_PARKED: it has to wait. */
static int wait_for(struct request *q, int (*step)(struct flow *f, json_t **ret, struct err *e),
                    json_t **ret, struct err *e)
{
    struct flow *f = q->state;

    for (;;) {
        int r;

        if (request_is_late(q))
            return dialect_set_late(q, e);
        r = step(f, ret, e);
        if (r != INFLOW_WAIT)
            return r < 0 ? r : 0;
        if (request_park(q))
            return REQUEST_PARKED;
        if (request_is_gone(q))
            return err_set(e, ERR_CANCELED, "the client has gone");
    }
}

static int take_pending(struct flow *f, json_t **ret, struct err *e)
{
    (void)ret;
    return f->pending ? f->inflow->ops->take(f->inflow, f->pending, e) : INFLOW_DONE;
}

static int drop_pending(struct request *q, struct flow *f, struct err *e)
{
    int r = wait_for(q, take_pending, NULL, e);

    if (r == 0) {
        json_decref(f->pending);
        f->pending = NULL;
    }
    return r;
}

/*
 * If a connection is suspended after all of a piece was taken, libmicrohttpd calls it again at once, and may
 * then never call it after the resume. So the last byte is left to be taken after the resume.
 */
static int flow_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct flow *f = q->state;
    int r = drop_pending(q, f, e);

    if (r == REQUEST_PARKED)
        return 0;
    if (r == 0 && f->has_given_back && *len) {
        f->has_given_back = false;
        data++;
        *len -= 1;
    }
    while (r == 0 && *len) {
        size_t used = 0;

        r = fill_envelope(q, f, data, *len, &used, e);
        data += used;
        *len -= used;
        if (r == 0 && has_whole_envelope(f)) {
            r = open_envelope(q, f, e);
            if (r == 0)
                r = drop_pending(q, f, e);
        }
    }
    if (r != REQUEST_PARKED)
        return r;
    f->has_given_back = true;
    *len += 1;
    return 0;
}

static int step_finish(struct flow *f, json_t **ret, struct err *e)
{
    return f->inflow->ops->finish(f->inflow, ret, e);
}

static int flow_reply(struct request *q, const json_t *answer, struct err *e)
{
    _cleanup_buf_ struct buf out;
    size_t len;
    int r;

    buf_init(&out, WIRE_JSON_MAX_BYTES);
    r = codec_write_message(q->codec, q->method, answer, &out, e);
    if (r == 0)
        r = encode_end(ENCODING_CONNECT, NULL, &out, e);
    if (r < 0)
        return r;
    len = out.len;
    return respond_text_take(q, HTTP_OK, request_codec(q)->reply_type, buf_take(&out), len, e);
}

static int flow_finish(struct request *q, struct err *e)
{
    struct flow *f = q->state;
    _cleanup_json_ json_t *answer = NULL;
    int r = drop_pending(q, f, e);

    if (r == 0 && f->envelope.len)
        return err_set(e, ERR_INVALID, "the body ends within an envelope");
    if (r == 0)
        r = wait_for(q, step_finish, &answer, e);
    if (r == REQUEST_PARKED)
        return 0;
    return r < 0 ? r : flow_reply(q, answer, e);
}

static void flow_done(struct request *q)
{
    struct flow *f = q->state;

    if (!f)
        return;
    request_allow_silence(q, false);
    deadline_drop(f->deadline);
    if (f->inflow)
        f->inflow->ops->free(f->inflow);
    json_decref(f->pending);
    request_discharge(q, f->envelope.len);
    buf_done(&f->envelope);
    if (f->headers)
        request_dialect(q)->free_headers(f->headers);
    free(f);
}

const struct request_ops inflow_ops = {
    .begin = flow_begin, .body = flow_body, .finish = flow_finish, .done = flow_done};
