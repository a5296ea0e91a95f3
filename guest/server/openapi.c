/* openapi: the document of what there is, made of the same rows that route the requests. */
#include <stdio.h>
#include <strings.h>

#include "common/jsonx.h"
#include "common/wire/wire.h"
#include "rpc/rpc.h"
#include "server/handlers.h"
#include "server/respond.h"
#include "server/route.h"
#include "version.h"

#include "common/banned.h"

static json_t *new_replies(void)
{
    return json_pack("{s:{s:s}, s:{s:s, s:{s:{s:{s:s}}}}}", "200", "description", "the reply",
                     "default", "description", "an error", "content", WIRE_TYPE_JSON, "schema",
                     "$ref", "#/components/schemas/Error");
}

static json_t *new_method(const struct rpc_method *m)
{
    bool is_stream = m->kind == RPC_SOURCE && !(m->flags & RPC_SINGLE);
    char id[128];
    json_t *op, *op_post;

    (void)snprintf(id, sizeof(id), "%s.%s", m->service, m->name);
    op_post = json_pack("{s:s, s:[s], s:{s:{s:{s:{s:s}}}}, s:o}", "operationId", id, "tags",
                        m->service, "requestBody", "content", WIRE_TYPE_JSON, "schema", "type",
                        "object", "responses", new_replies());
    if (op_post && is_stream)
        (void)json_object_set_new(
            op_post, "description",
            json_string("a stream of JSON messages: application/x-ndjson, text/event-stream or "
                        "application/connect+json"));
    op = json_object();
    (void)json_object_set_new(op, "post", op_post);
    return op;
}

static const struct {
    enum verb verb;
    const char *name;
} verbs[] = {{VERB_GET, "get"}, {VERB_HEAD, "head"}, {VERB_PUT, "put"}};

static json_t *new_route(const struct route *route, const char *rest)
{
    json_t *item = json_object();

    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        char id[64];
        json_t *op;

        if (!(route->verbs & verbs[i].verb) && !(route->flags & ROUTE_ANY_VERB))
            continue;
        (void)snprintf(id, sizeof(id), "%s.%s", route->name, verbs[i].name);
        op = json_pack("{s:s, s:s, s:o}", "operationId", id, "summary", route->summary, "responses",
                       new_replies());
        if (op && route->flags & ROUTE_OPEN)
            (void)json_object_set_new(op, "security", json_array());
        (void)json_object_set_new(item, verbs[i].name, op);
    }
    if (rest)
        (void)json_object_set_new(item, "parameters",
                                  json_pack("[{s:s, s:s, s:b, s:{s:s}}]", "name", rest, "in",
                                            "path", "required", 1, "schema", "type", "string"));
    return item;
}

static void add_routes(json_t *paths)
{
    const struct route *route;

    for (size_t i = 1; (route = route_at(i)); i++) {
        const char *rest = NULL;
        char path[128];

        if (route->flags & ROUTE_REST)
            rest = route->max_body_bytes && !(route->flags & ROUTE_ANY_VERB) ? "path" : "port";
        (void)snprintf(path, sizeof(path), rest ? "%s{%s}" : "%s%s", route->prefix,
                       rest ? rest : "");
        (void)json_object_set_new(paths, path, new_route(route, rest));
    }
}

static json_t *new_document(void)
{
    json_t *paths = json_object();
    const struct rpc_method *m;

    for (size_t i = 0; (m = rpc_at(i)); i++) {
        char path[128];

        (void)snprintf(path, sizeof(path), "/" WIRE_SERVICE_PREFIX "%s/%s", m->service, m->name);
        (void)json_object_set_new(paths, path, new_method(m));
    }
    add_routes(paths);
    return json_pack(
        "{s:s, s:{s:s, s:s}, s:o, s:[{s:[]}], s:{s:{s:{s:s, s:s}}, s:{s:{s:s, s:[s,s], "
        "s:{s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}}}}}}",
        "openapi", "3.1.0", "info", "title", "bellhopd", "version", BELLHOP_VERSION, "paths", paths,
        "security", "bearer", "components", "securitySchemes", "bearer", "type", "http", "scheme",
        "bearer", "schemas", "Error", "type", "object", "required", "code", "message", "properties",
        "code", "type", "string", "message", "type", "string", "field", "type", "string", "detail",
        "type", "object");
}

static int openapi_finish(struct request *q, struct err *e)
{
    _cleanup_json_ json_t *doc = new_document();

    return doc ? respond_json(q, MHD_HTTP_OK, doc, e) : err_oom(e);
}

const struct request_ops openapi_ops = {.finish = openapi_finish};
