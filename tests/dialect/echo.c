/*
 * echo: a dialect of its own for the tests: POST /echo.v1.Echo/Say returns its text, Count streams
 * numbers as NDJSON, GET /echo/hello is a route. Its errors are {"oops": TEXT}. It shows that a dialect
 * is one file and one row (dialects.c) and nothing else.
 */
#include <stdlib.h>

#include "api/dialect.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/wire/wire.h"
#include "dialect/dialects.h"
#include "http/respond.h"

#define COUNT_MAX 1000

extern const struct dialect echo_dialect;

/* ---- methods ---- */

static int echo_say(const struct rpc_call *call, json_t **ret, struct err *e)
{
    const char *text = json_string_value(json_object_get(call->params, "text"));

    if (!text)
        return err_field(e, ERR_INVALID, "text", "nothing to say");
    *ret = json_pack("{s:s}", "text", text);
    return *ret ? 0 : err_oom(e);
}

struct count {
    struct source source;
    json_int_t n, to;
};

static int count_next(struct source *s, json_t **ret_msg, struct err *e)
{
    struct count *c = (struct count *)s;

    if (c->n == c->to)
        return SOURCE_END;
    *ret_msg = json_pack("{s:I}", "n", ++c->n);
    return *ret_msg ? SOURCE_MESSAGE : err_oom(e);
}

static void count_free(struct source *s)
{
    free(s);
}

static int echo_count(const struct rpc_call *call, struct source **ret, struct err *e)
{
    static const struct source_ops ops = {.next = count_next, .free = count_free};
    json_int_t to = json_integer_value(json_object_get(call->params, "to"));
    struct count *c;

    if (to < 0 || to > COUNT_MAX)
        return err_field(e, ERR_INVALID, "to", "cannot count to that");
    c = calloc(1, sizeof(*c));
    if (!c)
        return err_oom(e);
    *c = (struct count){.source.ops = &ops, .to = to};
    *ret = &c->source;
    return 0;
}

static const struct rpc_method methods[] = {
    {.service = "Echo", .name = "Say", .kind = RPC_UNARY, .unary = echo_say},
    {.service = "Echo", .name = "Count", .kind = RPC_SOURCE, .source = echo_count},
};

static int echo_choose_codec(struct request *q, const struct rpc_method *m,
                             const struct codec **ret, struct err *e)
{
    static const struct codec json = {.reply_type = WIRE_TYPE_JSON};
    static const struct codec lines = {
        .reply_type = WIRE_TYPE_NDJSON, .encoding = ENCODING_NDJSON, .is_stream = true};

    (void)q;
    (void)e;
    *ret = m->kind == RPC_SOURCE ? &lines : &json;
    return 0;
}

/* ---- routes, errors ---- */

static int hello_finish(struct request *q, struct err *e)
{
    return respond_empty(q, 204, e);
}

static const struct request_ops hello_ops = {.finish = hello_finish};
static const struct route routes[] = {
    {.name = "echo_hello", .path = "/echo/hello", .verbs = VERB_GET, .ops = &hello_ops},
};
static const struct route call_route = {.name = "echo_rpc",
                                        .path = "/echo.v1.",
                                        .verbs = VERB_POST,
                                        .max_body_bytes = WIRE_JSON_MAX_BYTES,
                                        .ops = &call_ops};

static int echo_write_error(const struct request *q, const struct err *error,
                            struct error_reply *ret, struct err *e)
{
    _cleanup_json_ json_t *body = json_pack("{s:s}", "oops", error->message);

    (void)q;
    ret->type = "application/oops+json";
    return body ? jx_dump(body, &ret->text, &ret->len, e) : err_oom(e);
}

const struct dialect echo_dialect = {
    .name = "echo",
    .method_prefix = "/echo.v1.",
    .methods = methods,
    .n_methods = N_ELEMENTS(methods),
    .call_route = &call_route,
    .routes = routes,
    .n_routes = N_ELEMENTS(routes),
    .choose_codec = echo_choose_codec,
    .write_error = echo_write_error,
};

/* In the place of guest/dialect/dialects.c. */
const struct dialect *const dialects[] = {&native_dialect, &echo_dialect, NULL};
