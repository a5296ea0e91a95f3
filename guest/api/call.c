/*
 * call: methods over HTTP. One with a single request: collects the body, runs the handler, on a worker if it may
 * block, and replies with its result or its stream. One to which the client streams: takes the envelopes of the
 * body as they arrive, and replies with one message.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/dialect.h"
#include "api/stream.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "http/request.h"
#include "http/respond.h"

#define INLINE_BODY_BYTES (64 * 1024) /* a larger one is parsed by a worker */
/* The head of a stream waits so long for the first message: an earlier failure gets its own status. */
#define FIRST_WAIT_MS 1000

enum phase {
    PHASE_BODY,
    PHASE_JOB,    /* a worker runs the handler */
    PHASE_READY,  /* the handler has returned */
    PHASE_SINGLE, /* waits for the one message of a SINGLE method */
    PHASE_FIRST,  /* waits for the first message of a stream */
};

struct call {
    struct buf body;
    _Atomic size_t
        charged; /* to the budget of bodies; discharged once, by the request or the worker */
    const struct codec *codec;
    enum phase phase;
    _Atomic bool is_done; /* the worker has set the fields below */
    _Atomic int refs;     /* the request's and the worker's */
    json_t *params;
    json_t *result;
    char *text; /* the result's, dumped by the worker */
    size_t text_len;
    struct source *source;
    int r;
    struct err error;
    struct rpc_call rpc;
    void (*free_headers)(void *headers); /* of rpc.headers */
    /* the request's thread's: */
    struct deadline *deadline;
    struct deadline *first_wait;
    int64_t first_until_ms;
};

static void call_unref(struct call *c)
{
    if (--c->refs > 0)
        return;
    if (c->source)
        c->source->ops->free(c->source);
    json_decref(c->params);
    json_decref(c->result);
    free(c->text);
    buf_done(&c->body);
    if (c->rpc.headers)
        c->free_headers((void *)(uintptr_t)c->rpc.headers);
    free(c);
}

static void discharge_body(struct request *q, struct call *c)
{
    request_discharge(q, atomic_exchange(&c->charged, 0));
}

/* A compressed body would fail as malformed JSON. */
static int check_content_encoding(struct request *q, struct err *e)
{
    const char *encoding = request_header(q, "Content-Encoding");

    if (!encoding || strcasecmp(encoding, "identity") == 0)
        return 0;
    q->error_status = HTTP_UNSUPPORTED_MEDIA_TYPE;
    return err_field(e, ERR_UNIMPLEMENTED, "Content-Encoding", "'%.40s' is not supported: identity",
                     encoding);
}

static int check_connect_version(struct request *q, struct err *e)
{
    const char *version = request_header(q, "Connect-Protocol-Version");

    if (!version || str_eq(version, "1"))
        return 0;
    return err_field(e, ERR_INVALID, "Connect-Protocol-Version", "'%.20s' is not known, 1 is",
                     version);
}

static int read_headers(struct request *q, struct call *c, struct err *e)
{
    const struct dialect *d = request_dialect(q);
    int64_t deadline_ms = -1;
    bool own_first = d->reads_own_headers_first;
    int r = 0;

    c->free_headers = d->free_headers;
    if (own_first)
        r = d->read_headers(q, request_method(q), &c->rpc, &deadline_ms, e);
    if (r == 0)
        r = check_content_encoding(q, e);
    if (r == 0)
        r = check_connect_version(q, e);
    if (r == 0 && !own_first && d->read_headers)
        r = d->read_headers(q, request_method(q), &c->rpc, &deadline_ms, e);
    if (r < 0 || deadline_ms < 0)
        return r;
    return deadline_new(q, deadline_ms, request_make_late, &c->deadline, e);
}

static int call_begin(struct request *q, struct err *e)
{
    struct call *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return err_oom(e);
    q->state = c;
    c->refs = 1;
    buf_init(&c->body, WIRE_JSON_MAX_BYTES);
    r = request_dialect(q)->choose_codec(q, request_method(q), &c->codec, e);
    if (r < 0)
        return r;
    q->codec = c->codec;
    r = read_headers(q, c, e);
    if (r < 0)
        return r;
    return q->declared && q->declared != UINT64_MAX ? buf_reserve(&c->body, 1, e) : 0;
}

static int call_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct call *c = q->state;
    int r;

    r = request_charge(q, *len, e);
    if (r < 0)
        return r;
    c->charged += *len;
    r = buf_add(&c->body, data, *len, e);
    if (r < 0)
        return r;
    *len = 0;
    return 0;
}

static int parse_body(struct request *q, struct call *c, struct err *e)
{
    const char *text = c->body.data;
    size_t len = c->body.len;
    int r;

    if (c->codec->has_envelopes) {
        r = encode_open_envelope(text, len, &text, &len, e);
        if (r < 0)
            return r;
    }
    r = codec_parse(c->codec, q->method, text, len, &c->params, e);
    buf_done(&c->body);
    discharge_body(q, c);
    return r;
}

static int dump_result(const struct request *q, struct call *c, struct err *e)
{
    _cleanup_buf_ struct buf out;
    int r;

    buf_init(&out, STREAM_MESSAGE_MAX);
    r = codec_write(c->codec, q->method, c->result, &out, e);
    if (r == 0)
        r = buf_reserve(&out, 1, e); /* so that text is not NULL for an empty message */
    if (r < 0)
        return r;
    c->text_len = out.len;
    c->text = buf_take(&out);
    return 0;
}

/* Parses the body and calls the handler. On the connection's thread or a worker's. */
static int run_method(struct request *q, struct call *c, struct err *e)
{
    const struct rpc_method *m = request_method(q);
    int r;

    r = parse_body(q, c, e);
    if (r < 0)
        return r;
    c->rpc.params = c->params;
    if (m->kind == RPC_SOURCE) {
        r = m->source(&c->rpc, &c->source, e);
        json_decref(
            TAKE(c->params)); /* a reply may take hours; the source has copied what it needs */
        return r;
    }
    r = m->unary(&c->rpc, &c->result, e);
    if (r < 0)
        return r;
    return dump_result(q, c, e);
}

static void run_call(struct request *q)
{
    struct call *c = q->state;

    c->r = run_method(q, c, &c->error);
    c->is_done = true;
    request_wake(q);
    call_unref(c);
}

static int reply_unary(struct request *q, struct call *c, struct err *e)
{
    return respond_text_take(q, HTTP_OK, c->codec->reply_type, TAKE(c->text), c->text_len, e);
}

/* A stream that fails before its first message is an ordinary error, except with Connect. */
static int reply_failure(struct request *q, struct call *c, int r, struct err *e)
{
    struct err error = *e;

    return c->codec->has_envelopes ? stream_error(q, &error, e) : r;
}

/* True: go on waiting for the first message; a timer ends it. Connect needs no wait: its errors have no status. */
static bool waits_for_first(struct request *q, struct call *c)
{
    if (c->codec->has_envelopes)
        return false;
    if (!c->first_wait) {
        c->first_until_ms = clock_mono_ms() + FIRST_WAIT_MS;
        return deadline_new(q, FIRST_WAIT_MS, request_wake, &c->first_wait, NULL) == 0;
    }
    return clock_mono_ms() < c->first_until_ms;
}

static int reply_stream(struct request *q, struct call *c, struct err *e)
{
    json_t *first = NULL;
    int r;

    for (;;) {
        if (request_is_late(q))
            return reply_failure(q, c, dialect_set_late(q, e), e);
        r = c->source->ops->next(c->source, &first, e);
        if (r < 0)
            return reply_failure(q, c, r, e);
        if (r != SOURCE_WAIT || !waits_for_first(q, c))
            break;
        if (request_park(q))
            return 0;
        if (request_is_gone(q))
            return err_set(e, ERR_CANCELED, "the client has gone");
    }
    deadline_drop(TAKE(c->first_wait));
    return stream_begin_take(q, TAKE(c->source), first, e);
}

static int reply_single(struct request *q, struct call *c, struct err *e)
{
    _cleanup_json_ json_t *msg = NULL;
    int r;

    if (request_is_late(q))
        return dialect_set_late(q, e);
    r = stream_pull(q, c->source, &msg, e);
    if (r == SOURCE_WAIT)
        return 0;
    if (r == SOURCE_MESSAGE) {
        c->result = TAKE(msg);
        r = dump_result(q, c, e);
        return r < 0 ? r : reply_unary(q, c, e);
    }
    return r < 0 ? r : err_set(e, ERR_INTERNAL, "the method ended without a reply");
}

static int reply_ready(struct request *q, struct call *c, struct err *e)
{
    if (c->r < 0) {
        *e = c->error;
        return reply_failure(q, c, c->r, e);
    }
    if (request_method(q)->kind == RPC_UNARY)
        return reply_unary(q, c, e);
    source_set_waker(c->source, stream_wake_request, q);
    c->phase = c->codec->is_stream ? PHASE_FIRST : PHASE_SINGLE;
    return c->codec->is_stream ? reply_stream(q, c, e) : reply_single(q, c, e);
}

static bool needs_worker(const struct request *q, const struct call *c)
{
    return request_method(q)->flags & RPC_BLOCKS || c->body.len > INLINE_BODY_BYTES;
}

static int start_call(struct request *q, struct call *c, struct err *e)
{
    int r;

    c->rpc.agent = request_agent(q);
    if (!needs_worker(q, c)) {
        c->r = run_method(q, c, &c->error);
        c->phase = PHASE_READY;
        return 0;
    }
    c->phase = PHASE_JOB;
    c->refs++;
    r = request_run(q, run_call, e);
    if (r < 0)
        c->refs--;
    return r;
}

static int call_finish(struct request *q, struct err *e)
{
    struct call *c = q->state;

    if (c->phase == PHASE_BODY) {
        int r = start_call(q, c, e);

        if (r < 0)
            return r;
    }
    while (c->phase == PHASE_JOB) {
        if (c->is_done)
            c->phase = PHASE_READY;
        else if (request_is_late(q))
            return reply_failure(q, c, dialect_set_late(q, e),
                                 e); /* the handler goes on, and its changes stay */
        else if (request_park(q))
            return 0;
    }
    if (c->phase == PHASE_FIRST)
        return reply_stream(q, c, e);
    return c->phase == PHASE_SINGLE ? reply_single(q, c, e) : reply_ready(q, c, e);
}

static void call_done(struct request *q)
{
    struct call *c = q->state;

    if (!c)
        return;
    deadline_drop(TAKE(c->deadline));
    deadline_drop(TAKE(c->first_wait));
    discharge_body(q, c);
    call_unref(c);
}

const struct request_ops call_ops = {
    .begin = call_begin, .body = call_body, .finish = call_finish, .done = call_done};

/* ==== methods to which the client streams ==== */

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
