/*
 * openapi: the OpenAPI document, made of the rows of routes and methods and of the schemas in
 * common/wire/schema/. An allocation that fails leaves a part out; nothing else can fail.
 */
#include "api/openapi.h"

#include <stdio.h>
#include <string.h>

#include "api/dialect.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "http/respond.h"
#include "version.h"

/* ---- the schemas ---- */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"
static const struct {
    const char *name;
    const char *text;
} schema_files[] = {
#include "schema.inc"
};
#pragma GCC diagnostic pop

static json_t *schema_parse(size_t i)
{
    json_t *v = NULL;

    return jx_parse(schema_files[i].text, strlen(schema_files[i].text), &v, NULL) < 0 ? NULL : v;
}

json_t *schema_new_file(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(schema_files); i++)
        if (str_eq(schema_files[i].name, name))
            return schema_parse(i);
    return NULL;
}

/* The codes are rows of errors.def. */
static json_t *new_codes(void)
{
    json_t *list = json_array();

    for (int code = 1; list && code < ERR_N_CODES; code++)
        (void)json_array_append_new(list, json_string(err_wire_name(code)));
    return list ? json_pack("{s:o}", "enum", list) : NULL;
}

/* kernel.limits in the reply of System.Ready has a member for each row of limits.def. */
static int add_limits(json_t *components)
{
    static const char *const names[] = {
#define LIMIT(field, name, ...) #name,
#include "common/wire/limits.def"
    };
    json_t *limits, *required = json_array(), *properties = json_object();
    int r = 0;

    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        r |= json_array_append_new(required, json_string(names[i]));
        r |= json_object_set_new(properties, names[i], json_pack("{s:s}", "type", "boolean"));
    }
    r |= json_unpack(components, "{s:{s:{s:{s:{s:o}}}}}", "System.Ready.Reply", "properties",
                     "kernel", "properties", "limits", &limits);
    if (r < 0) {
        json_decref(required);
        json_decref(properties);
        return r;
    }
    r = json_object_set_new(limits, "required", required);
    return r | json_object_set_new(limits, "properties", properties);
}

json_t *schema_new_components(void)
{
    _cleanup_json_ json_t *all = json_object();

    if (!all || json_object_set_new(all, "ErrorCode", new_codes()) < 0)
        return NULL;
    for (size_t i = 0; i < N_ELEMENTS(schema_files); i++) {
        _cleanup_json_ json_t *one = NULL;

        if (str_eq(schema_files[i].name, "routes"))
            continue;
        one = schema_parse(i);
        if (!one || json_object_update(all, one) < 0)
            return NULL;
    }
    return add_limits(all) < 0 ? NULL : json_incref(all);
}

/* ---- references and replies ---- */

#define REF "#/components/schemas/"

static json_t *new_ref(const char *name)
{
    char ref[128];

    (void)snprintf(ref, sizeof(ref), REF "%s", name);
    return json_pack("{s:s}", "$ref", ref);
}

/* {"description", "content": {type: {"schema"}}} */
static json_t *new_response(const char *description, const char *type, json_t *schema_taken)
{
    return json_pack("{s:s, s:{s:{s:o}}}", "description", description, "content", type, "schema",
                     schema_taken);
}

static json_t *new_error_response(const char *description)
{
    return new_response(description, WIRE_TYPE_JSON, new_ref("Error"));
}

static void add_content(json_t *content, const char *type, json_t *schema_taken)
{
    (void)json_object_set_new(content, type, json_pack("{s:o}", "schema", schema_taken));
}

/* ---- methods ---- */

static bool is_stream(const struct rpc_method *m)
{
    return m->kind == RPC_SOURCE && !(m->flags & RPC_SINGLE);
}

/* The schema of one line, event or envelope of a reply. */
static json_t *new_piece(const char *message, const char *other, const char *another)
{
    json_t *list = json_array();

    (void)json_array_append_new(list, new_ref(message));
    (void)json_array_append_new(list, new_ref(other));
    if (another)
        (void)json_array_append_new(list, new_ref(another));
    return json_pack("{s:o}", "anyOf", list);
}

static json_t *new_method_reply(const struct rpc_method *m)
{
    json_t *content = json_object();
    char name[96];

    (void)snprintf(name, sizeof(name), "%s.%s.%s", m->service, m->name,
                   is_stream(m) ? "Message" : "Reply");
    if (!is_stream(m))
        add_content(content, WIRE_TYPE_JSON, new_ref(name));
    if (m->kind == RPC_SOURCE) {
        add_content(content, WIRE_TYPE_NDJSON, new_piece(name, "StreamError", "StreamKeepalive"));
        add_content(content, WIRE_TYPE_SSE, new_piece(name, "StreamError", NULL));
        add_content(content, WIRE_TYPE_CONNECT, new_piece(name, "ConnectEnd", NULL));
    }
    return json_pack("{s:s, s:o}", "description",
                     m->kind == RPC_SOURCE
                         ? "one object; or, by the Accept header or the body's type, a stream: the "
                           "schema is that of each line, event or envelope"
                         : "the reply",
                     "content", content);
}

static json_t *new_method_request(const struct rpc_method *m)
{
    json_t *content = json_object();
    char name[96];

    (void)snprintf(name, sizeof(name), "%s.%s.Request", m->service, m->name);
    add_content(content, WIRE_TYPE_JSON, new_ref(name));
    if (m->kind == RPC_SOURCE)
        add_content(content, WIRE_TYPE_CONNECT, new_ref(name));
    return json_pack("{s:o}", "content", content);
}

static json_t *new_method(const struct rpc_method *m)
{
    json_t *op;
    char id[96];

    (void)snprintf(id, sizeof(id), "%s.%s", m->service, m->name);
    op = json_pack("{s:s, s:[s], s:o, s:{s:o, s:o}}", "operationId", id, "tags", m->service,
                   "requestBody", new_method_request(m), "responses", "200", new_method_reply(m),
                   "default", new_error_response("an error; its status follows from its code"));
    if (op && m->flags & RPC_READS)
        (void)json_object_set_new(op, "description", json_string("Changes nothing."));
    return json_pack("{s:o}", "post", op);
}

/* ---- routes ---- */

static json_t *find_operation(json_t *described, const char *verb)
{
    json_t *op = json_object_get(described, verb);

    if (!op && strcmp(verb, "head") == 0)
        op = json_object_get(described, "get");
    return op ? op : json_object_get(described, "any");
}

/* The reply to HEAD is that to GET without its body. */
static void drop_content(json_t *responses)
{
    const char *status;
    json_t *one;

    json_object_foreach (responses, status, one)
        (void)json_object_del(one, "content");
}

/* The path of a file stands in the address, or is a parameter: two paths of one description. */
static bool is_by_query(const struct route *route, json_t *described)
{
    json_t *first = json_array_get(json_object_get(described, "parameters"), 0);

    return !(route->flags & ROUTE_REST) &&
           str_eq(json_string_value(json_object_get(first, "in")), "path");
}

static json_t *new_operation(const struct route *route, const char *verb, json_t *described)
{
    json_t *op = json_deep_copy(find_operation(described, verb));
    json_t *responses = json_object_get(op, "responses");
    char id[64];

    (void)snprintf(id, sizeof(id), "%s%s.%s", route->name,
                   is_by_query(route, described) ? ".by_query" : "", verb);
    (void)json_object_set_new(op, "operationId", json_string(id));
    (void)json_object_set_new(op, "summary", json_string(route->summary));
    if (strcmp(verb, "head") == 0)
        drop_content(responses);
    (void)json_object_set_new(responses, "default",
                              strcmp(verb, "head") == 0
                                  ? json_pack("{s:s}", "description", "an error")
                                  : new_error_response("an error"));
    if (route->flags & ROUTE_OPEN)
        (void)json_object_set_new(op, "security", json_array());
    return op;
}

/* The row of this path for a verb, or NULL. */
static const struct route *row_for(const char *path, enum verb verb)
{
    for (size_t i = 0; i < native_dialect.n_routes; i++)
        if (native_dialect.routes[i].verbs & verb && str_eq(native_dialect.routes[i].path, path))
            return &native_dialect.routes[i];
    return NULL;
}

static json_t *new_route(const char *path, json_t *described)
{
    const char *name;
    enum verb verb;
    json_t *item = json_object();
    json_t *parameters = json_object_get(described, "parameters");

    if (parameters)
        (void)json_object_set(item, "parameters", parameters);
    for (size_t i = 0; (verb = verb_at(i, &name)); i++) {
        const struct route *row = row_for(path, verb);
        char key[16];

        for (size_t j = 0; j <= strlen(name); j++)
            key[j] = (char)(name[j] | (name[j] ? 0x20 : 0)); /* lower case */
        if (row)
            (void)json_object_set_new(item, key, new_operation(row, key, described));
    }
    return item;
}

/* The path behind the prefix is the first parameter. */
static void add_route(json_t *paths, const struct route *route, json_t *described)
{
    json_t *first = json_array_get(json_object_get(described, "parameters"), 0);
    json_t *item = new_route(route->path, described);
    char path[128];

    if (route->flags & ROUTE_REST)
        (void)snprintf(path, sizeof(path), "%s{%s}", route->path,
                       json_string_value(json_object_get(first, "name")));
    else
        (void)snprintf(path, sizeof(path), "%s", route->path);
    if (is_by_query(route, described)) {
        json_t *own = json_deep_copy(json_object_get(item, "parameters"));

        (void)json_object_set_new(json_array_get(own, 0), "in", json_string("query"));
        (void)json_object_set_new(item, "parameters", own);
    }
    (void)json_object_set_new(paths, path, item);
}

/* ---- the document ---- */

static json_t *new_paths(void)
{
    _cleanup_json_ json_t *described = schema_new_file("routes");
    json_t *paths = json_object();
    const struct rpc_method *m;

    for (size_t i = 0; (m = rpc_at(i)); i++) {
        char path[128];

        (void)snprintf(path, sizeof(path), "/" WIRE_SERVICE_PREFIX "%s/%s", m->service, m->name);
        (void)json_object_set_new(paths, path, new_method(m));
    }
    for (size_t i = 0; i < native_dialect.n_routes; i++) {
        const struct route *route = &native_dialect.routes[i];

        if (i == 0 || !str_eq(route->path, route[-1].path))
            add_route(paths, route, json_object_get(described, route->name));
    }
    return paths;
}

static json_t *new_components(void)
{
    return json_pack("{s:{s:{s:s, s:s}, s:{s:s, s:s, s:s}}, s:o, s:{s:o, s:o, s:o}}",
                     "securitySchemes", "bearer", "type", "http", "scheme", "bearer", "e2b", "type",
                     "apiKey", "in", "header", "name", "X-Access-Token", "schemas",
                     schema_new_components(), "responses", "Precondition",
                     new_error_response("the condition fails; the header ETag has the tag that is "
                                        "there"),
                     "TooLarge", new_error_response("larger than the agent takes"), "DiskFull",
                     new_error_response("the disk is full; what was there is as it was"));
}

json_t *openapi_new_document(void)
{
    return json_pack("{s:s, s:{s:s, s:s, s:s}, s:[{s:s}], s:o, s:[{s:[]}, {s:[]}], s:o}", "openapi",
                     "3.1.0", "info", "title", "bellhopd", "version", BELLHOP_VERSION,
                     "description",
                     "Makes a box a place where coding agents can work. A path is a string or "
                     "{\"b64\"}, bytes are {\"text\"} or {\"b64\"}.",
                     "servers", "url", "/", "paths", new_paths(), "security", "bearer", "e2b",
                     "components", new_components());
}

static int openapi_finish(struct request *q, struct err *e)
{
    _cleanup_json_ json_t *doc = openapi_new_document();

    return doc ? respond_json(q, HTTP_OK, doc, e) : err_oom(e);
}

const struct request_ops openapi_ops = {.finish = openapi_finish};
