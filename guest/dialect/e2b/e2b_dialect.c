/*
 * e2b_dialect: E2B as a row of the table of dialects: routes, methods, codecs, headers, errors, and what
 * lets the pages of a browser call (its SDK runs there): an agent with a token, or an open one with
 * --cors.
 */
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "api/dialect.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "dialect/e2b/e2b.h"
#include "dialect/e2b/proto.h"
#include "dialect/e2b/rest_routes.h"
#include "dialect/e2b/account.h"
#include "http/request.h"
#include "http/respond.h"
#include "system/auth.h"

#define PREFLIGHT_AGE_S "7200"
#define ENVELOPE_MAX_BYTES 8192
#define LATE_MS 2000 /* after the client's deadline, for a method that keeps it itself */
#define KEEPALIVE_DEFAULT_MS 90000
#define KEEPALIVE_MAX_S 86400
#define REPLAY_HEADER "Bellhop-Replay" /* ours: what a command wrote before comes first */
/*
 * E2B's Python SDK 1.0 to 1.4, which fails on unknown fields. 1.5, which ignores them, sends the same
 * and gets the same, as from envd.
 */
#define LEGACY_AGENT "connect-python"

/* ---- routes ---- */

static const struct route call_route = {
    .name = "e2b_rpc",
    .path = "/process.Process/",
    .verbs = VERB_POST,
    .flags = ROUTE_PAGES,
    .max_body_bytes = WIRE_JSON_MAX_BYTES,
    .ops = &call_ops,
};

static const struct route inflow_route = {
    .name = "e2b_inflow",
    .path = "/process.Process/",
    .verbs = VERB_POST,
    .flags = ROUTE_SLOW_BODY | ROUTE_PAGES,
    .max_body_bytes = UINT64_MAX,
    .ops = &inflow_ops,
};

static const struct route e2b_routes[] = {
    {
        .name = "e2b_health",
        .path = "/health",
        .verbs = VERB_GET,
        .flags = ROUTE_OPEN | ROUTE_RESERVE | ROUTE_QUIET | ROUTE_PAGES,
        .max_body_bytes = REQUEST_DRAIN_BYTES, /* dropped, with GET as with envd */
        .ops = &e2b_health_ops,
    },
    {
        .name = "e2b_init",
        .path = "/init",
        .verbs = VERB_POST,
        .flags = ROUTE_OPEN | ROUTE_QUIET | ROUTE_PAGES, /* the token is in the body */
        .max_body_bytes = INIT_MAX_BYTES,
        .ops = &e2b_init_ops,
    },
    {
        .name = "e2b_envs",
        .path = "/envs",
        .verbs = VERB_GET,
        .flags = ROUTE_QUIET | ROUTE_PAGES,
        .max_body_bytes = REQUEST_DRAIN_BYTES, /* dropped, with GET as with envd */
        .ops = &e2b_envs_ops,
    },
    {
        .name = "e2b_metrics",
        .path = "/metrics",
        .verbs = VERB_GET,
        .flags = ROUTE_QUIET | ROUTE_PAGES,
        .max_body_bytes = REQUEST_DRAIN_BYTES, /* dropped, with GET as with envd */
        .ops = &e2b_metrics_ops,
    },
    {
        .name = "e2b_files",
        .path = "/files",
        .verbs = VERB_GET,
        .flags = ROUTE_OPEN | ROUTE_PAGES, /* open: file_query checks who may */
        .max_body_bytes = UINT64_MAX,      /* dropped, with a bound of its own */
        .ops = &e2b_file_get_ops,
    },
    {
        .name = "e2b_files",
        .path = "/files",
        .verbs = VERB_POST,
        .flags = ROUTE_OPEN | ROUTE_CHANGES | ROUTE_PAGES,
        .max_body_bytes = UINT64_MAX,
        .ops = &e2b_file_post_ops,
    },
    {
        .name = "e2b_compose",
        .path = "/files/compose",
        .verbs = VERB_POST,
        .flags = ROUTE_CHANGES | ROUTE_PAGES,
        .max_body_bytes = COMPOSE_MAX_BYTES,
        .ops = &e2b_compose_ops,
    },
    {
        .name = "e2b_unknown",
        .path = "/process.Process/",
        .verbs = VERB_ANY,
        .flags = ROUTE_REST | ROUTE_PAGES,
        .max_body_bytes = WIRE_JSON_MAX_BYTES,
        .ops = &e2b_unknown_ops,
    },
    {
        .name = "e2b_unknown_fs",
        .path = "/filesystem.Filesystem/",
        .verbs = VERB_ANY,
        .flags = ROUTE_REST | ROUTE_PAGES,
        .max_body_bytes = WIRE_JSON_MAX_BYTES,
        .ops = &e2b_unknown_ops,
    },
};

/* ---- methods ---- */

#define UNARY_KIND RPC_UNARY
#define SOURCE_KIND RPC_SOURCE
#define INFLOW_KIND RPC_INFLOW
#define UNARY_FN(fn) .unary = e2b_##fn
#define SOURCE_FN(fn) .source = e2b_##fn
#define INFLOW_FN(fn) .inflow = e2b_##fn
#define BLOCKS RPC_BLOCKS
#define SINGLE RPC_SINGLE
#define READS RPC_READS
#define QUIET RPC_QUIET
#define KEEPS_TIME RPC_KEEPS_TIME
#define R(service_, name_, fn, kind_, flags_) \
    {.service = service_, .name = name_, .kind = kind_##_KIND, .flags = flags_, kind_##_FN(fn)},

static const struct rpc_method e2b_methods[] = {
#include "dialect/e2b/methods.def"
};

/* ---- codecs ---- */

static int read_proto(const struct rpc_method *m, const char *data, size_t len, json_t **ret,
                      struct err *e)
{
    return proto_read(m, PROTO_REQUEST, data, len, ret, e);
}

static int write_proto(const struct rpc_method *m, const json_t *msg, struct buf *out,
                       struct err *e)
{
    return proto_write(m, PROTO_REPLY, msg, out, e);
}

#define STREAMS .encoding = ENCODING_CONNECT, .is_stream = true, .has_envelopes = true
#define IN_PROTO .parse = read_proto, .write = write_proto

/* The types of unary methods and of streams, as JSON and as protobuf. */
static const struct codec e2b_codecs[2][2] = {
    {{.reply_type = WIRE_TYPE_JSON}, {.reply_type = "application/proto", IN_PROTO}},
    {{.reply_type = WIRE_TYPE_CONNECT, STREAMS},
     {.reply_type = "application/connect+proto", STREAMS, IN_PROTO}},
};

static int e2b_choose_codec(struct request *q, const struct rpc_method *m, const struct codec **ret,
                            struct err *e)
{
    const struct codec *can =
        e2b_codecs[m->kind == RPC_INFLOW || (m->kind == RPC_SOURCE && !(m->flags & RPC_SINGLE))];
    const char *type = request_header(q, "Content-Type");
    char good[64];

    for (int i = 0; type && i < 2; i++)
        if (codec_type_is(type, can[i].reply_type)) {
            *ret = &can[i];
            return 0;
        }
    q->codec = &e2b_codecs[0][0]; /* a client that sends another type does not read envelopes */
    q->error_status = HTTP_UNSUPPORTED_MEDIA_TYPE;
    (void)snprintf(good, sizeof(good), "%s, %s", can[0].reply_type, can[1].reply_type);
    (void)request_reply_header(q, "Accept-Post", good, NULL);
    return err_set(e, ERR_UNKNOWN, "the body's type must be one of %s", good);
}

/* ---- replies of methods ---- */

int e2b_reply_empty(json_t **ret, struct err *e)
{
    *ret = json_object();
    return *ret ? 0 : err_oom(e);
}

int e2b_reply_list(const char *name, json_t *list, json_t **ret, struct err *e)
{
    *ret = json_array_size(list) ? json_pack("{s:O}", name, list) : json_object();
    return *ret ? 0 : err_oom(e);
}

/* ---- headers of methods ---- */

static void e2b_free_headers(void *headers)
{
    struct e2b_headers *h = headers;

    free(h->user);
    free(h);
}

static int e2b_read_headers(struct request *q, const struct rpc_method *m, struct rpc_call *call,
                            int64_t *ret_deadline_ms, struct err *e)
{
    const char *timeout = request_header(q, "Connect-Timeout-Ms");
    const char *keepalive = request_header(q, "Keepalive-Ping-Interval");
    const char *agent = request_header(q, "User-Agent");
    struct e2b_headers *h = calloc(1, sizeof(*h));
    uint64_t ms = 0, s = 0;
    int r;

    if (!h)
        return err_oom(e);
    call->headers = h;
    h->user = account_of_basic(request_header(q, "Authorization"));
    h->wants_replay = request_header(q, REPLAY_HEADER) != NULL;
    h->is_legacy = agent && str_eq(agent, LEGACY_AGENT);
    /* A value that is no number means the default, as it does with envd. */
    h->keepalive_ms = keepalive && str_parse_u64(keepalive, 1, KEEPALIVE_MAX_S, &s, NULL) == 0
                          ? (int64_t)s * 1000
                          : KEEPALIVE_DEFAULT_MS;
    if (!timeout || !*timeout)
        return 0;
    r = str_parse_u64(timeout, 0, DEADLINE_MAX_MS, &ms, e);
    if (r < 0)
        return err_at(e, r, "Connect-Timeout-Ms");
    call->timeout_ms = (int64_t)ms;
    if (ms)
        *ret_deadline_ms = (int64_t)ms + (m->flags & RPC_KEEPS_TIME ? LATE_MS : 0);
    return 0;
}

/* ---- errors ---- */

int e2b_set_late(struct err *e)
{
    return err_set(e, ERR_DEADLINE, "context deadline exceeded");
}

/* Code and message are all that Connect has. */
static void e2b_reword(struct err *error)
{
    error->field[0] = '\0';
    error->detail_name[0] = '\0';
}

/* Of the REST routes: {"code":404,"message":"..."}. */
static int write_rest_error(const struct err *error, struct error_reply *ret, struct err *e)
{
    _cleanup_json_ json_t *body = NULL;
    struct err copy = *error;

    str_make_utf8(copy.message); /* it may quote a name that is no text */
    body = json_pack("{s:i, s:s}", "code", ret->status, "message", copy.message);
    ret->type = "application/json; charset=utf-8";
    return body ? jx_dump(body, &ret->text, &ret->len, e) : err_oom(e);
}

static int write_envelope_error(const struct err *error, struct error_reply *ret, struct err *e)
{
    _cleanup_buf_ struct buf out;
    int r;

    buf_init(&out, ENVELOPE_MAX_BYTES);
    r = encode_end(ENCODING_CONNECT, error, &out, e);
    if (r < 0)
        return r;
    ret->status = HTTP_OK;
    ret->len = out.len;
    ret->text = buf_take(&out);
    return 0;
}

/*
 * A REST route tells an error by status and a body of its own, a unary method by status and Connect's
 * JSON, a stream in its last envelope.
 */
static int e2b_write_error(const struct request *q, const struct err *error,
                           struct error_reply *ret, struct err *e)
{
    const struct codec *codec = request_codec(q);
    struct err copy = *error;
    int r;

    if (!codec)
        return write_rest_error(error, ret, e);
    e2b_reword(&copy);
    if (!codec->has_envelopes)
        return service_write_json_error(q, &copy, ret, e);
    r = write_envelope_error(&copy, ret, e);
    ret->type = codec->reply_type;
    return r;
}

static int e2b_refuse_token(struct request *q, struct err *e)
{
    (void)q;
    return err_set(e, ERR_UNAUTHENTICATED,
                   "unauthorized access, please provide a valid access token or method signing "
                   "if supported");
}

/* ---- web pages ---- */

static int e2b_check_page(struct request *q, const char *header, struct err *e)
{
    if (request_agent(q)->allows_pages)
        return 0;
    return err_field(e, ERR_DENIED, header,
                     "an agent without a token takes no requests of web pages (--cors lets "
                     "them call these routes)");
}

/* Nothing but the token tells a page that may call from any other. */
static bool may_pages_call(const struct request *q)
{
    const struct agent *a = request_agent(q);

    return a->allows_pages || !auth_is_open(a->auth);
}

static void e2b_add_headers(struct request *q, struct reply *response)
{
    reply_add_header(response, "Vary", "Origin");
    if (!request_header(q, "Origin") || !may_pages_call(q))
        return;
    reply_add_header(response, "Access-Control-Allow-Origin", "*");
    reply_add_header(response, "Access-Control-Expose-Headers",
                     "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Location, "
                     "Cache-Control, X-Content-Type-Options");
}

/* A method that is not allowed gets the same reply without the permissions. */
static int preflight_finish(struct request *q, struct err *e)
{
    const char *verb = request_header(q, "Access-Control-Request-Method");
    const char *headers = request_header(q, "Access-Control-Request-Headers");
    enum verb allowed = verb_parse(verb);
    struct reply *response = reply_new_empty();

    if (!response)
        return err_oom(e);
    reply_add_header(response, "Vary", "Access-Control-Request-Method");
    reply_add_header(response, "Vary", "Access-Control-Request-Headers");
    if (allowed != VERB_OPTIONS && allowed != VERB_OTHER) {
        reply_add_header(response, "Access-Control-Allow-Methods", verb);
        if (headers && *headers)
            reply_add_header(response, "Access-Control-Allow-Headers", headers);
        reply_add_header(response, "Access-Control-Max-Age", PREFLIGHT_AGE_S);
    }
    return respond_queue(q, HTTP_NO_CONTENT, response, e);
}

static const struct request_ops preflight_ops = {.finish = preflight_finish};

static const struct route preflight_route = {
    .name = "e2b_preflight",
    .path = "",
    .verbs = VERB_OPTIONS,
    .flags = ROUTE_OPEN | ROUTE_QUIET | ROUTE_PAGES,
    .ops = &preflight_ops,
};

static const struct route *e2b_preflight(struct request *q)
{
    return request_header(q, "Origin") && request_header(q, "Access-Control-Request-Method")
               ? &preflight_route
               : NULL;
}

/* ---- the row ---- */

static int e2b_init_state(struct agent *a, void **ret_state, struct err *e)
{
    struct e2b *s = NULL;
    int r = e2b_new(a->default_user, a->workdir, &s, e);

    *ret_state = s;
    return r;
}

static void e2b_free_state(void *state)
{
    e2b_free(state);
}

const struct e2b_headers *e2b_headers(const struct rpc_call *call)
{
    return call->headers;
}

struct e2b *e2b_of(const struct agent *a)
{
    return dialect_state(a, &e2b_dialect);
}

const struct dialect e2b_dialect = {
    .name = "e2b",
    .method_prefix = "/",
    .methods = e2b_methods,
    .n_methods = N_ELEMENTS(e2b_methods),
    .call_route = &call_route,
    .inflow_route = &inflow_route,
    .routes = e2b_routes,
    .n_routes = N_ELEMENTS(e2b_routes),
    .init = e2b_init_state,
    .free = e2b_free_state,
    .choose_codec = e2b_choose_codec,
    .read_headers = e2b_read_headers,
    .reads_own_headers_first = true,
    .free_headers = e2b_free_headers,
    .set_late = e2b_set_late,
    .reword = e2b_reword,
    .write_error = e2b_write_error,
    .refuse_token = e2b_refuse_token,
    .check_page = e2b_check_page,
    .preflight = e2b_preflight,
    .add_headers = e2b_add_headers,
};
