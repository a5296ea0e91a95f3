/* native: Bellhop's own API as the first dialect. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api/dialect.h"
#include "api/rpc.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "http/respond.h"

/* ---- methods ---- */

#define UNARY_KIND RPC_UNARY
#define SOURCE_KIND RPC_SOURCE
#define UNARY_FN(fn) .unary = rpc_##fn
#define SOURCE_FN(fn) .source = rpc_##fn
#define BLOCKS RPC_BLOCKS
#define SINGLE RPC_SINGLE
#define READS RPC_READS
#define QUIET RPC_QUIET
#define LARGE 0 /* the client's */
#define R(service_, name_, fn, kind_, flags_) \
    {.service = service_, .name = name_, .kind = kind_##_KIND, .flags = flags_, kind_##_FN(fn)},

static const struct rpc_method native_methods[] = {
#include "common/wire/rpc.def"
};

const struct rpc_method *rpc_at(size_t i)
{
    return i < N_ELEMENTS(native_methods) ? &native_methods[i] : NULL;
}

/* ---- codecs ---- */

static const struct codec json_codec = {.reply_type = WIRE_TYPE_JSON};
static const struct codec ndjson_codec = {
    .reply_type = WIRE_TYPE_NDJSON, .encoding = ENCODING_NDJSON, .is_stream = true};
static const struct codec sse_codec = {
    .reply_type = WIRE_TYPE_SSE, .encoding = ENCODING_SSE, .is_stream = true};
static const struct codec connect_codec = {.reply_type = WIRE_TYPE_CONNECT,
                                           .encoding = ENCODING_CONNECT,
                                           .is_stream = true,
                                           .has_envelopes = true};

/* Whether Accept names this type; a wildcard does not count. */
static bool accept_names(struct request *q, const char *type)
{
    const char *accept = request_header(q, "Accept");

    return accept && strcasestr(accept, type);
}

static int native_choose_codec(struct request *q, const struct rpc_method *m,
                               const struct codec **ret, struct err *e)
{
    const char *type = request_header(q, "Content-Type");
    bool is_connect = type && codec_type_is(type, WIRE_TYPE_CONNECT);
    bool can_stream = m->kind == RPC_SOURCE;

    q->error_status = HTTP_UNSUPPORTED_MEDIA_TYPE;
    if (type && !is_connect && !codec_type_is(type, WIRE_TYPE_JSON))
        return err_field(e, ERR_INVALID, "Content-Type",
                         "the body's type must be application/json, not '%.80s'", type);
    if (is_connect && !can_stream)
        return err_field(e, ERR_INVALID, "Content-Type",
                         "%s/%s is unary: the body's type must be application/json", m->service,
                         m->name);
    q->error_status = 0;
    if (is_connect)
        *ret = &connect_codec;
    else if (can_stream && accept_names(q, WIRE_TYPE_SSE))
        *ret = &sse_codec;
    else if (can_stream && (!(m->flags & RPC_SINGLE) || accept_names(q, WIRE_TYPE_NDJSON)))
        *ret = &ndjson_codec;
    else
        *ret = &json_codec;
    return 0;
}

/* Connect's header for a deadline counts with plain JSON too. */
static int native_read_headers(struct request *q, const struct rpc_method *m, struct rpc_call *call,
                               int64_t *ret_deadline_ms, struct err *e)
{
    const char *text = request_header(q, "Connect-Timeout-Ms");
    uint64_t ms;
    int r;

    (void)m;
    (void)call;
    if (!text)
        return 0;
    r = str_parse_u64(text, 0, DEADLINE_MAX_MS, &ms, e);
    if (r < 0)
        return err_at(e, r, "Connect-Timeout-Ms");
    *ret_deadline_ms = (int64_t)ms;
    return 0;
}

/* ---- routes ---- */

static const struct route call_route = {
    .name = "rpc",
    .path = "/" WIRE_SERVICE_PREFIX,
    .verbs = VERB_POST,
    .max_body_bytes = WIRE_JSON_MAX_BYTES,
    .ops = &call_ops,
    .summary = "a method",
};

#define FILES .name = "files", .path = "/v1/files/", .summary = "a file's bytes"
/* The path is a parameter, which no proxy rewrites. */
#define FILES_BY_QUERY .name = "files", .path = "/v1/files", .summary = "a file's bytes, by ?path="
#define UPLOADS \
    .name = "uploads", .path = "/v1/uploads/", .summary = "an upload that can be resumed"
#define ARCHIVE .name = "archive", .path = "/v1/archive", .summary = "a tree as an archive"
#define PROXY .name = "proxy", .path = "/v1/proxy/", .summary = "HTTP to a port in the box"
/* A body is refused as it arrives, as an invalid request and not as too large. */
#define NO_BODY UINT64_MAX

static const struct route native_routes[] = {
    {
        .name = "health",
        .path = "/v1/health",
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_OPEN | ROUTE_RESERVE | ROUTE_QUIET,
        .ops = &health_ops,
        .summary = "204 while the agent answers; needs no token",
    },
    {
        .name = "ready",
        .path = "/v1/ready",
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_QUIET,
        .ops = &ready_ops,
        .summary = "what works in the box; 503 when something needed is missing",
    },
    {
        .name = "metrics",
        .path = "/v1/metrics",
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_QUIET,
        .ops = &metrics_ops,
        .summary = "counters as Prometheus text",
    },
    {
        .name = "openapi",
        .path = "/v1/openapi.json",
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_QUIET,
        .ops = &openapi_ops,
        .summary = "this document",
    },
    {
        FILES,
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_REST,
        .max_body_bytes = NO_BODY,
        .ops = &file_get_ops,
    },
    {
        FILES,
        .verbs = VERB_PUT | VERB_POST | VERB_PATCH,
        .flags = ROUTE_REST | ROUTE_CHANGES,
        .max_body_bytes = UINT64_MAX,
        .ops = &file_put_ops,
    },
    {
        FILES,
        .verbs = VERB_DELETE,
        .flags = ROUTE_REST | ROUTE_CHANGES,
        .max_body_bytes = NO_BODY,
        .ops = &file_delete_ops,
    },
    {
        FILES,
        .verbs = VERB_OPTIONS,
        .flags = ROUTE_REST,
        .max_body_bytes = NO_BODY,
        .ops = &file_options_ops,
    },
    {
        FILES_BY_QUERY,
        .verbs = VERB_GET | VERB_HEAD,
        .max_body_bytes = NO_BODY,
        .ops = &file_get_ops,
    },
    {
        FILES_BY_QUERY,
        .verbs = VERB_PUT | VERB_POST | VERB_PATCH,
        .flags = ROUTE_CHANGES,
        .max_body_bytes = UINT64_MAX,
        .ops = &file_put_ops,
    },
    {
        FILES_BY_QUERY,
        .verbs = VERB_DELETE,
        .flags = ROUTE_CHANGES,
        .max_body_bytes = NO_BODY,
        .ops = &file_delete_ops,
    },
    {
        FILES_BY_QUERY,
        .verbs = VERB_OPTIONS,
        .max_body_bytes = NO_BODY,
        .ops = &file_options_ops,
    },
    {
        UPLOADS,
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_REST,
        .max_body_bytes = NO_BODY,
        .ops = &upload_look_ops,
    },
    {
        UPLOADS,
        .verbs = VERB_DELETE,
        .flags = ROUTE_REST | ROUTE_CHANGES,
        .max_body_bytes = NO_BODY,
        .ops = &upload_look_ops,
    },
    {
        UPLOADS,
        .verbs = VERB_PATCH,
        .flags = ROUTE_REST | ROUTE_CHANGES,
        .max_body_bytes = UINT64_MAX,
        .ops = &upload_append_ops,
    },
    {
        ARCHIVE,
        .verbs = VERB_GET | VERB_HEAD | VERB_POST, /* POST: the body names the paths */
        .max_body_bytes = UINT64_MAX,
        .ops = &archive_get_ops,
    },
    {
        ARCHIVE,
        .verbs = VERB_PUT,
        .flags = ROUTE_CHANGES,
        .max_body_bytes = UINT64_MAX,
        .ops = &archive_put_ops,
    },
    {
        PROXY,
        .verbs = VERB_GET | VERB_HEAD | VERB_OPTIONS,
        .flags = ROUTE_REST | ROUTE_PAGES | ROUTE_OWN_PAGES | ROUTE_RELAYS,
        .max_body_bytes = UINT64_MAX,
        .ops = &proxy_ops,
    },
    {
        PROXY,
        .verbs = VERB_ANY,
        .flags = ROUTE_REST | ROUTE_PAGES | ROUTE_OWN_PAGES | ROUTE_RELAYS | ROUTE_CHANGES,
        .max_body_bytes = UINT64_MAX,
        .ops = &proxy_ops,
    },
    {
        .name = "tunnel",
        .path = "/v1/tunnel/",
        .verbs = VERB_GET,
        .flags = ROUTE_REST,
        .ops = &tunnel_ops,
        .summary = "bytes to a port in the box, by Upgrade: tcp",
    },
};

const struct dialect native_dialect = {
    .name = "native",
    .method_prefix = "/" WIRE_SERVICE_PREFIX,
    .methods = native_methods,
    .n_methods = N_ELEMENTS(native_methods),
    .call_route = &call_route,
    .routes = native_routes,
    .n_routes = N_ELEMENTS(native_routes),
    .choose_codec = native_choose_codec,
    .read_headers = native_read_headers,
};
