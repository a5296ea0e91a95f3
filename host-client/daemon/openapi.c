/*
 * openapi: each row of routes.def is an operation. What it takes and gives stands in schema/routes.json; a row that is
 * not there, such as one that passes on what a box answers, has its path, its summary and the error. An allocation that
 * fails leaves a part out.
 */
#include "daemon/openapi.h"

#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "daemon/answers.h"
#include "http/route.h"

#define TYPE_JSON "application/json"
#define PATH_BYTES 256

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"
static const struct {
    const char *name;
    const char *text;
} daemon_schemas[] = {
#include "daemon_schema.inc"
};
#pragma GCC diagnostic pop

static json_t *read_schema(const char *name)
{
    json_t *v = NULL;

    for (size_t i = 0; i < N_ELEMENTS(daemon_schemas); i++)
        if (str_eq(daemon_schemas[i].name, name))
            (void)jx_parse(daemon_schemas[i].text, strlen(daemon_schemas[i].text), &v, NULL);
    return v;
}

static json_t *new_ref(const char *name)
{
    char ref[96];

    (void)snprintf(ref, sizeof(ref), "#/components/schemas/%s", name);
    return json_pack("{s:s}", "$ref", ref);
}

/* {"description", "content"}; without a type there is no content, without a schema any. */
static json_t *new_response(const char *description, const char *type, json_t *schema_taken)
{
    if (!type)
        return json_pack("{s:s}", "description", description);
    return json_pack("{s:s, s:{s:{s:o}}}", "description", description, "content", type, "schema",
                     schema_taken);
}

static json_t *new_responses(json_t *described, bool is_head)
{
    json_t *out = json_object(), *v;
    const char *status;

    json_object_foreach (json_object_get(described, "replies"), status, v) {
        const char *name = json_string_value(v);
        bool has_body = *name && !is_head;

        (void)json_object_set_new(out, status,
                                  new_response("the answer", has_body ? TYPE_JSON : NULL,
                                               has_body ? new_ref(name) : NULL));
    }
    json_object_foreach (json_object_get(described, "types"), status, v)
        (void)json_object_set_new(
            out, status,
            new_response("the answer", json_string_value(v), json_pack("{s:s}", "type", "string")));
    if (!described)
        (void)json_object_set_new(out, "200", new_response("see docs/daemon.md", NULL, NULL));
    (void)json_object_set_new(out, "default",
                              is_head ? new_response("an error", NULL, NULL)
                                      : new_response("an error", TYPE_JSON, new_ref("Error")));
    return out;
}

static void add_parameter(json_t *list, const char *name, const char *place, json_t *schema_taken,
                          const char *description)
{
    json_t *one = json_pack("{s:s, s:s, s:b, s:o}", "name", name, "in", place, "required",
                            str_eq(place, "path"), "schema", schema_taken);

    if (one && description)
        (void)json_object_set_new(one, "description", json_string(description));
    (void)json_array_append_new(list, one);
}

/* The path as OpenAPI writes it, and its variable segments. */
static void read_path(const char *path, char out[PATH_BYTES], json_t *parameters)
{
    size_t n = 0;

    for (const char *p = path; *p && n < PATH_BYTES - 1; p++) {
        if (strncmp(p, "...}", 4) == 0)
            p += 3;
        out[n++] = *p;
        if (*p == '{') {
            char name[32];

            (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(p + 1, ".}"), p + 1);
            add_parameter(parameters, name, "path",
                          json_pack("{s:s, s:i}", "type", "string", "minLength", 1), NULL);
        }
    }
    out[n] = '\0';
}

static void add_query(json_t *parameters, const struct api_route *row, json_t *described)
{
    const char *name;
    json_t *v;
    size_t i;

    for (const char *const *q = row->query; q && *q; q++) {
        json_t *one = json_object_get(json_object_get(described, "query"), *q);
        json_t *schema = json_object_get(one, "schema");

        add_parameter(parameters, *q, "query", schema ? json_incref(schema) : json_object(),
                      json_string_value(json_object_get(one, "description")));
    }
    if (!row->query) /* a route of its own operations checks them itself */
        json_object_foreach (json_object_get(described, "query"), name, v)
            add_parameter(parameters, name, "query", json_incref(json_object_get(v, "schema")),
                          json_string_value(json_object_get(v, "description")));
    json_array_foreach (json_object_get(described, "headers"), i, v)
        add_parameter(parameters, json_string_value(v), "header",
                      json_pack("{s:s}", "type", "string"), NULL);
}

static json_t *new_operation(const struct api_route *row, const char *verb, json_t *described,
                             json_t *parameters_taken)
{
    static const char *const scopes[] = {"open", "read", "use", "admin"};
    const char *body = json_string_value(json_object_get(described, "body"));
    json_t *op;
    char id[PATH_BYTES + 8];

    add_query(parameters_taken, row, described);
    (void)snprintf(id, sizeof(id), "%s %s", verb, row->path);
    op = json_pack("{s:s, s:s, s:s, s:o, s:o}", "operationId", id, "summary", row->route.summary,
                   "x-scope", scopes[row->scope], "parameters", parameters_taken, "responses",
                   new_responses(described, str_eq(verb, "HEAD")));
    if (body)
        (void)json_object_set_new(
            op, "requestBody",
            json_pack("{s:{s:{s:o}}}", "content", TYPE_JSON, "schema", new_ref(body)));
    if (row->guest_path)
        (void)json_object_set_new(op, "x-passed-to", json_string(row->guest_path));
    if (row->scope == SCOPE_OPEN)
        (void)json_object_set_new(op, "security", json_array());
    return op;
}

static void add_row(json_t *paths, const struct api_route *row, json_t *all)
{
    const char *name;
    enum verb verb;

    for (size_t i = 0; (verb = verb_at(i, &name)); i++) {
        json_t *parameters = json_array(), *item, *described;
        char path[PATH_BYTES], key[PATH_BYTES + 8], lower[16];

        if (!(row->route.verbs & verb)) {
            json_decref(parameters);
            continue;
        }
        read_path(row->path, path, parameters);
        (void)snprintf(key, sizeof(key), "%s %s", name, row->path);
        described = json_object_get(all, key);
        if (!described && verb == VERB_HEAD) {
            (void)snprintf(key, sizeof(key), "GET %s", row->path);
            described = json_object_get(all, key);
        }
        item = json_object_get(paths, path);
        if (!item && json_object_set_new(paths, path, item = json_object()) < 0)
            item = NULL;
        for (size_t c = 0; c <= strlen(name) && c < sizeof(lower); c++)
            lower[c] = (char)(name[c] | (name[c] ? 0x20 : 0));
        if (json_object_get(item, lower))
            json_decref(parameters);
        else
            (void)json_object_set_new(item, lower, new_operation(row, name, described, parameters));
    }
}

static json_t *new_paths(void)
{
    _cleanup_json_ json_t *all = read_schema("routes");
    json_t *paths = json_object();
    const struct api_route *row;

    for (size_t i = 0; (row = routes_at(i)); i++)
        add_row(paths, row, all);
    return paths;
}

static json_t *new_components(void)
{
    json_t *schemas = read_schema("components");
    json_t *codes = json_array();

    for (int code = 1; codes && code < ERR_N_CODES; code++)
        (void)json_array_append_new(codes, json_string(err_wire_name(code)));
    (void)json_object_set_new(schemas, "ErrorCode", json_pack("{s:o}", "enum", codes));
    return json_pack("{s:{s:{s:s, s:s}}, s:o}", "securitySchemes", "bearer", "type", "http",
                     "scheme", "bearer", "schemas", schemas);
}

json_t *openapi_new_document(void)
{
    return json_pack("{s:s, s:{s:s, s:s, s:s}, s:[{s:s}], s:o, s:[{s:[]}], s:o}", "openapi",
                     "3.1.0", "info", "title", "bellhop-daemon", "version", bh_version(),
                     "description",
                     "The boxes of one machine. A request on the unix socket needs no token. "
                     "x-scope: the right that a token must have.",
                     "servers", "url", "/", "paths", new_paths(), "security", "bearer",
                     "components", new_components());
}

int answer_openapi(struct job *j, struct err *e)
{
    return job_reply_take(j, openapi_new_document(), e);
}
