/*
 * call: a method of the rpc API over HTTP: reads the body, chooses the encoding, runs the handler
 * where it may run, and sends what comes of it.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "agent.h"
#include "api/rpc.h"
#include "api/codec.h"
#include "http/deadline.h"
#include "dialect/e2b/headers.h"
#include "api/handlers.h"
#include "http/refuse.h"
#include "http/respond.h"
#include "http/state.h"
#include "api/stream.h"

#define INLINE_BODY_BYTES (64 * 1024) /* a larger one is parsed by a worker */
/* A stream's head waits so long for its first message: a failure before it has a status of its own. */
#define FIRST_WAIT_MS 1000
#define LATE_MS 2000 /* for a method that keeps the client's deadline itself */

enum phase {
    PHASE_BODY,
    PHASE_JOB,    /* a worker runs the handler */
    PHASE_READY,  /* the handler has returned */
    PHASE_SINGLE, /* a SINGLE method's one message is being waited for */
    PHASE_FIRST,  /* a stream's first message is */
};

struct call {
    struct buf body;
    _Atomic size_t charged; /* of the budget for bodies: given back once, by who comes first */
    bool is_connect;
    bool is_stream; /* else: one JSON object */
    enum encoding enc;
    enum phase phase;
    _Atomic bool is_done; /* the worker's word that what follows is set */
    _Atomic int refs;     /* the request's and the worker's */
    json_t *params;
    json_t *result;
    char *text; /* the result's, dumped by the worker */
    size_t text_len;
    struct source *source;
    int r;
    struct err error;
    struct rpc_call rpc;
    char *user; /* the memory of rpc.user */
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
    free(c->user);
    free(c);
}

/* Whether the client names this type in Accept; a wildcard is no wish. */
static bool accepts(struct request *q, const char *type)
{
    const char *accept = request_header(q, "Accept");

    return accept && strcasestr(accept, type);
}

/* Connect's protocol, and nothing else. */
static int choose_connect(struct request *q, struct call *c, struct err *e)
{
    bool is_stream = q->method->kind == RPC_SOURCE && !(q->method->flags & RPC_SINGLE);

    c->is_connect = c->is_stream = is_stream;
    c->enc = ENCODING_CONNECT;
    return codec_choose(q, is_stream, e);
}

static int choose_encoding(struct request *q, struct call *c, struct err *e)
{
    const char *type = request_header(q, "Content-Type");
    bool can_stream = q->method->kind == RPC_SOURCE;

    if (q->method->flags & RPC_DIALECT)
        return choose_connect(q, c, e);
    c->is_connect = type && codec_type_is(type, WIRE_TYPE_CONNECT);
    q->error_status = MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
    if (type && !c->is_connect && !codec_type_is(type, WIRE_TYPE_JSON))
        return err_field(e, ERR_INVALID, "Content-Type",
                         "the body's type must be application/json, not '%.80s'", type);
    if (c->is_connect && !can_stream)
        return err_field(e, ERR_INVALID, "Content-Type",
                         "%s/%s is unary: the body's type must be application/json",
                         q->method->service, q->method->name);
    q->error_status = 0;
    c->enc = ENCODING_NDJSON;
    c->is_stream = can_stream && !(q->method->flags & RPC_SINGLE);
    if (c->is_connect || !can_stream) {
        c->is_stream = can_stream;
        c->enc = ENCODING_CONNECT;
    } else if (accepts(q, WIRE_TYPE_SSE)) {
        c->is_stream = true;
        c->enc = ENCODING_SSE;
    } else if (accepts(q, WIRE_TYPE_NDJSON)) {
        c->is_stream = true;
    }
    return 0;
}

/* All requests' bodies together have a budget, so that many large ones can't take the memory. */
static int charge(struct request *q, struct call *c, size_t len, struct err *e)
{
    int r;

    if (q->server->body_bytes + len > SERVER_BODY_BUDGET)
        return err_set(e, ERR_EXHAUSTED, "too many large requests at once");
    r = buf_reserve(&c->body, len, e);
    if (r == 0) {
        q->server->body_bytes += len;
        c->charged += len;
    }
    return r;
}

static void give_back(const struct request *q, struct call *c)
{
    q->server->body_bytes -= atomic_exchange(&c->charged, 0);
}

/* Compressed bodies would be read as JSON, and told to be broken. */
static int check_content_encoding(struct request *q, struct err *e)
{
    const char *encoding = request_header(q, "Content-Encoding");

    if (!encoding || strcasecmp(encoding, "identity") == 0)
        return 0;
    q->error_status = MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
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

/* Connect's word for a deadline is good for the plain JSON of everybody else. */
static int set_deadline(struct request *q, struct call *c, struct err *e)
{
    const char *text = request_header(q, "Connect-Timeout-Ms");
    uint64_t ms;
    int r;

    if (q->method->flags & RPC_DIALECT) {
        int64_t in_ms = c->rpc.timeout_ms;

        if (!in_ms)
            return 0;
        if (q->method->flags & RPC_KEEPS_TIME)
            in_ms += LATE_MS;
        return deadline_new(q, in_ms, request_make_late, &c->deadline, e);
    }
    if (!text)
        return 0;
    r = str_parse_u64(text, 0, DEADLINE_MAX_MS, &ms, e);
    if (r < 0)
        return err_at(e, r, "Connect-Timeout-Ms");
    return deadline_new(q, (int64_t)ms, request_make_late, &c->deadline, e);
}

static int read_headers(struct request *q, struct call *c, struct err *e)
{
    int r = 0;

    if (q->method->flags & RPC_DIALECT)
        r = e2b_read_headers(q, &c->rpc, &c->user, e);
    if (r == 0)
        r = check_content_encoding(q, e);
    if (r == 0)
        r = check_connect_version(q, e);
    return r == 0 ? set_deadline(q, c, e) : r;
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
    r = choose_encoding(q, c, e);
    if (r < 0)
        return r;
    r = read_headers(q, c, e);
    if (r < 0)
        return r;
    return q->declared && q->declared != UINT64_MAX ? buf_reserve(&c->body, 1, e) : 0;
}

static int call_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct call *c = q->state;
    int r;

    r = charge(q, c, *len, e);
    if (r < 0)
        return r;
    r = buf_add(&c->body, data, *len, e);
    if (r < 0)
        return r;
    *len = 0;
    return 0;
}

static int parse(const struct request *q, struct call *c, struct err *e)
{
    const char *text = c->body.data;
    size_t len = c->body.len;
    int r;

    if (c->is_connect) {
        r = encode_open_envelope(text, len, &text, &len, e);
        if (r < 0)
            return r;
    }
    r = codec_parse(q, text, len, &c->params, e);
    buf_done(&c->body);
    give_back(q, c);
    return r;
}

static int dump(const struct request *q, struct call *c, struct err *e)
{
    _cleanup_buf_ struct buf out;
    int r;

    buf_init(&out, STREAM_MESSAGE_MAX);
    r = codec_write(q, c->result, &out, e);
    if (r == 0)
        r = buf_reserve(&out, 1, e); /* an empty message has memory too */
    if (r < 0)
        return r;
    c->text_len = out.len;
    c->text = buf_take(&out);
    return 0;
}

/* Parses and calls the handler. On the connection's thread or a worker's. */
static int execute(const struct request *q, struct call *c, struct err *e)
{
    const struct rpc_method *m = q->method;
    int r;

    r = parse(q, c, e);
    if (r < 0)
        return r;
    c->rpc.params = c->params;
    if (m->kind == RPC_SOURCE) {
        r = m->source(&c->rpc, &c->source, e);
        json_decref(
            TAKE(c->params)); /* a reply may take hours; the source has what it needs of it */
        return r;
    }
    r = m->unary(&c->rpc, &c->result, e);
    if (r < 0)
        return r;
    return dump(q, c, e);
}

static void run_call(struct request *q)
{
    struct call *c = q->state;

    c->r = execute(q, c, &c->error);
    c->is_done = true;
    request_wake(q);
    call_unref(c);
}

static int reply_unary(struct request *q, struct call *c, struct err *e)
{
    return respond_text_take(q, MHD_HTTP_OK, codec_type(q), TAKE(c->text), c->text_len, e);
}

/* A stream that fails before it says anything is an ordinary error, but for Connect's clients. */
static int reply_failure(struct request *q, struct call *c, int r, struct err *e)
{
    struct err error = *e;

    return c->is_connect ? stream_error(q, c->enc, &error, e) : r;
}

static void wake_request(void *arg)
{
    request_wake(arg);
}

/* Whether the head goes on waiting, with a wake-up for its end. Connect's has nothing to wait for. */
static bool waits_for_first(struct request *q, struct call *c)
{
    if (c->is_connect)
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
            return reply_failure(q, c, deadline_error(q, e), e);
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
    return stream_begin_take(q, c->enc, TAKE(c->source), first, e);
}

static int reply_single(struct request *q, struct call *c, struct err *e)
{
    _cleanup_json_ json_t *msg = NULL;
    int r;

    if (request_is_late(q))
        return deadline_error(q, e);
    r = stream_pull(q, c->source, &msg, e);
    if (r == SOURCE_WAIT)
        return 0;
    if (r == SOURCE_MESSAGE) {
        c->result = TAKE(msg);
        r = dump(q, c, e);
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
    if (q->method->kind == RPC_UNARY)
        return reply_unary(q, c, e);
    source_set_waker(c->source, wake_request, q);
    c->phase = c->is_stream ? PHASE_FIRST : PHASE_SINGLE;
    return c->is_stream ? reply_stream(q, c, e) : reply_single(q, c, e);
}

static bool needs_worker(const struct request *q, const struct call *c)
{
    return q->method->flags & RPC_BLOCKS || c->body.len > INLINE_BODY_BYTES;
}

static int start(struct request *q, struct call *c, struct err *e)
{
    int r;

    c->rpc.agent = q->server->agent;
    if (!needs_worker(q, c)) {
        c->r = execute(q, c, &c->error);
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
        int r = start(q, c, e);

        if (r < 0)
            return r;
    }
    while (c->phase == PHASE_JOB) {
        if (c->is_done)
            c->phase = PHASE_READY;
        else if (request_is_late(q))
            return reply_failure(q, c, deadline_error(q, e), e); /* what it changes, it changes */
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
    give_back(q, c);
    call_unref(c);
}

const struct request_ops call_ops = {
    .begin = call_begin, .body = call_body, .finish = call_finish, .done = call_done};
