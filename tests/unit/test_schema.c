/*
 * The schemas of common/wire/schema/ say what the decoders do: every method has them, and each
 * decoder's table of fields has the same names, the same required and nullable ones, and types that
 * agree. The tables are private to their files: they are seen as they are handed to jx_decode(),
 * which the linker replaces by the one below (see the Makefile).
 */
#include "common/jsonx.h"
#include "agent.h"
#include "api/dialect.h"
#include "api/openapi.h"

#include "test.h"

int __real_jx_decode(json_t *obj, const struct jx_field *fields, void *out, struct err *e);
int __wrap_jx_decode(json_t *obj, const struct jx_field *fields, void *out, struct err *e);

static json_t *components;
static int n_problems;

__attribute__((format(printf, 1, 2))) static void problem(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)fputs("# ", stderr);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
    n_problems++;
}

static json_t *find(const char *name)
{
    return json_object_get(components, name);
}

/* Follows $ref. */
static json_t *resolve(json_t *schema)
{
    static const char prefix[] = "#/components/schemas/";
    const char *ref;

    while ((ref = json_string_value(json_object_get(schema, "$ref"))))
        schema =
            strncmp(ref, prefix, sizeof(prefix) - 1) == 0 ? find(ref + sizeof(prefix) - 1) : NULL;
    return schema;
}

static bool list_has(json_t *list, const char *value)
{
    json_t *one;
    size_t i;

    json_array_foreach (list, i, one)
        if (value ? json_is_string(one) && strcmp(json_string_value(one), value) == 0
                  : json_is_null(one))
            return true;
    return false;
}

/* Are values of this JSON type accepted? */
static bool admits(json_t *schema, const char *type)
{
    json_t *s = resolve(schema);
    json_t *t = json_object_get(s, "type");
    json_t *values = json_object_get(s, "enum");
    json_t *any = json_object_get(s, "anyOf");
    json_t *one;
    size_t i;

    if (json_is_string(t))
        return strcmp(json_string_value(t), type) == 0;
    if (json_is_array(t))
        return list_has(t, type);
    if (values && strcmp(type, "null") == 0)
        return list_has(values, NULL);
    if (values)
        return strcmp(type, "string") == 0;
    json_array_foreach (any, i, one)
        if (admits(one, type))
            return true;
    return json_is_string(json_object_get(s, "const")) && strcmp(type, "string") == 0;
}

static const struct {
    jx_fn fn;
    const char *type;
    const char *also; /* bytes and paths have two forms */
} types[] = {
    {jx_str, "string", NULL},      {jx_bool, "boolean", NULL}, {jx_u32, "integer", NULL},
    {jx_u64, "integer", NULL},     {jx_i64, "integer", NULL},  {jx_object, "object", NULL},
    {jx_array, "array", NULL},     {jx_strv, "array", NULL},   {jx_argv, "array", NULL},
    {jx_path, "string", "object"}, {jx_bytes, "object", NULL},
};

static void check_type(const char *where, const struct jx_field *f, json_t *schema)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].fn != f->fn)
            continue;
        if (!admits(schema, types[i].type))
            problem("%s: '%s' is decoded as %s, which its schema refuses", where, f->name,
                    types[i].type);
        if (types[i].also && !admits(schema, types[i].also))
            problem("%s: '%s' may be %s, which its schema refuses", where, f->name, types[i].also);
    }
}

/* Compares a table of fields with the schema of the object that it decodes. */
static void compare(const char *where, const struct jx_field *fields, json_t *schema)
{
    json_t *s = resolve(schema);
    json_t *properties = json_object_get(s, "properties");
    json_t *required = json_object_get(s, "required");
    const char *name;
    json_t *v;

    if (!json_is_false(json_object_get(s, "additionalProperties")))
        problem("%s: needs \"additionalProperties\": false, as unknown fields are refused", where);
    for (const struct jx_field *f = fields; f->name; f++) {
        json_t *p = json_object_get(properties, f->name);

        if (!p) {
            problem("%s: field '%s' is not in the schema", where, f->name);
            continue;
        }
        if (list_has(required, f->name) != !!(f->flags & JX_REQUIRED))
            problem("%s: '%s' is required in one of decoder and schema alone", where, f->name);
        if (f->fn != jx_any && admits(p, "null") != !!(f->flags & JX_NULLABLE))
            problem("%s: '%s' may be null in one of decoder and schema alone", where, f->name);
        check_type(where, f, p);
    }
    json_object_foreach (properties, name, v) {
        const struct jx_field *f = fields;

        while (f->name && strcmp(f->name, name) != 0)
            f++;
        if (!f->name)
            problem("%s: the schema's '%s' is not a field", where, name);
    }
}

/* Instructions for the replaced jx_decode(). */
static struct {
    const char *method;
    json_t *schema;     /* of the request */
    const char *within; /* a property whose own decoder is wanted, or NULL */
    json_t *inner;      /* its schema */
    int depth;
    bool is_seen;
} probe;

int __wrap_jx_decode(json_t *obj, const struct jx_field *fields, void *out, struct err *e)
{
    char where[128];
    int r;

    if (!probe.within && probe.depth == 0) {
        probe.is_seen = true;
        compare(probe.method, fields, probe.schema);
    } else if (probe.within && (probe.depth > 0 || probe.is_seen)) {
        (void)snprintf(where, sizeof(where), "%s: %s", probe.method, probe.within);
        compare(where, fields, probe.inner);
        probe.inner = NULL;
    } else {
        /* The request itself, on the way to the property's decoder. */
        probe.is_seen = true;
        probe.depth++;
        r = __real_jx_decode(obj, fields, out, e);
        probe.depth--;
        if (r < 0 || !probe.inner)
            return err_set(e, ERR_INVALID, "seen");
        return 0; /* an array, whose elements are decoded next */
    }
    return err_set(e, ERR_INVALID, "seen");
}

static void call(const struct rpc_method *m, json_t *params)
{
    static struct agent agent; /* no decoder looks into it */
    struct rpc_call c = {.agent = &agent, .params = params};
    struct source *source = NULL;
    struct err e = {0};
    json_t *ret = NULL;
    int r = m->kind == RPC_UNARY ? m->unary(&c, &ret, &e) : m->source(&c, &source, &e);

    if (r == 0)
        problem("%s/%s: goes on after its decoder said no", m->service, m->name);
}

/* The schema of an object with fields, or of such an object's array; NULL for anything else. */
static json_t *inner_of(json_t *property, bool *ret_is_array)
{
    json_t *s = resolve(property);

    *ret_is_array = admits(property, "array") && !json_object_get(s, "properties");
    if (*ret_is_array)
        s = resolve(json_object_get(s, "items"));
    /* Bytes have a decoder without a table. */
    if (!json_object_get(s, "properties") || s == find("Bytes"))
        return NULL;
    return s;
}

static json_t *new_example(json_t *schema)
{
    if (admits(schema, "string"))
        return json_string("x");
    if (admits(schema, "integer"))
        return json_integer(1);
    if (admits(schema, "array"))
        return json_array();
    return json_pack("{s:s}", "text", "x");
}

static void probe_within(const struct rpc_method *m, json_t *schema, const char *name,
                         json_t *inner, bool is_array)
{
    json_t *required = json_object_get(resolve(schema), "required");
    json_t *params = json_object();
    json_t *one;
    size_t i;

    json_array_foreach (required, i, one) {
        const char *field = json_string_value(one);

        (void)json_object_set_new(
            params, field,
            new_example(json_object_get(json_object_get(resolve(schema), "properties"), field)));
    }
    (void)json_object_set_new(params, name, is_array ? json_pack("[{}]") : json_object());
    probe.within = name;
    probe.inner = inner;
    probe.is_seen = false;
    call(m, params);
    if (probe.inner)
        problem("%s: nothing decodes the object '%s'", probe.method, name);
    json_decref(params);
}

static void check_request(const struct rpc_method *m, const char *label)
{
    char name[96];
    const char *property;
    json_t *schema, *params = json_object(), *v;

    (void)snprintf(name, sizeof(name), "%s.Request", label);
    schema = find(name);
    if (schema) {
        memset(&probe, 0, sizeof(probe));
        probe.method = label;
        probe.schema = schema;
        call(m, params);
        if (!probe.is_seen)
            problem("%s: decodes nothing", label);
        json_object_foreach (json_object_get(resolve(schema), "properties"), property, v) {
            bool is_array;
            json_t *inner = inner_of(v, &is_array);

            if (inner)
                probe_within(m, schema, property, inner, is_array);
        }
    } else {
        problem("common/wire/schema/ has no '%s'", name);
    }
    json_decref(params);
}

TEST(every_request_has_a_schema_that_says_what_its_decoder_does)
{
    const struct rpc_method *m;

    components = schema_new_components();
    for (size_t i = 0; (m = rpc_at(i)); i++) {
        char label[64];

        (void)snprintf(label, sizeof(label), "%s.%s", m->service, m->name);
        check_request(m, label);
    }
    json_decref(components);
    T_INT(n_problems, 0);
}

TEST(every_reply_has_a_schema)
{
    const struct rpc_method *m;

    components = schema_new_components();
    for (size_t i = 0; (m = rpc_at(i)); i++) {
        bool is_stream = m->kind == RPC_SOURCE && !(m->flags & RPC_SINGLE);
        char name[96];

        (void)snprintf(name, sizeof(name), "%s.%s.%s", m->service, m->name,
                       is_stream ? "Message" : "Reply");
        if (!resolve(find(name)))
            problem("common/wire/schema/ has no '%s'", name);
    }
    json_decref(components);
    T_INT(n_problems, 0);
}

/* "Fs.Stat.Reply" belongs to an existing method. */
static bool is_stale(const char *name)
{
    const char *dot = strchr(name, '.'), *last = strrchr(name, '.');
    const struct rpc_method *m;
    char label[64];

    if (!dot || dot == last || strncmp(name, "Files.", 6) == 0 || strcmp(last, ".Put.Reply") == 0)
        return false;
    for (size_t i = 0; (m = rpc_at(i)); i++) {
        (void)snprintf(label, sizeof(label), "%s.%s", m->service, m->name);
        if (strlen(label) == (size_t)(last - name) && strncmp(label, name, strlen(label)) == 0)
            return false;
    }
    return strcmp(last, ".Request") == 0 || strcmp(last, ".Reply") == 0 ||
           strcmp(last, ".Message") == 0;
}

static void check_refs(const char *name, json_t *v)
{
    const char *key;
    json_t *one;
    size_t i;

    if (json_object_get(v, "$ref") && !resolve(v))
        problem("%s: nothing is called '%s'", name, json_string_value(json_object_get(v, "$ref")));
    if (json_object_get(v, "allOf"))
        problem("%s: no allOf, see common/wire/schema/README.md", name);
    json_object_foreach (v, key, one)
        check_refs(name, one);
    json_array_foreach (v, i, one)
        check_refs(name, one);
}

TEST(schemas_refer_to_what_is_there_and_none_is_of_a_method_that_is_gone)
{
    const char *name;
    json_t *v;

    components = schema_new_components();
    T_OK(json_object_size(components) > 50);
    json_object_foreach (components, name, v) {
        if (strncmp(name, "Archive.Put", 11) != 0 && is_stale(name))
            problem("'%s' is of no method", name);
        check_refs(name, v);
    }
    json_decref(components);
    T_INT(n_problems, 0);
}

static json_t *operation(json_t *described, const char *verb)
{
    json_t *op = json_object_get(described, verb);

    return op ? op : json_object_get(described, "any");
}

/* Joins all rows of a path. */
static unsigned path_verbs(const char *path)
{
    unsigned verbs = 0;

    for (size_t i = 0; i < native_dialect.n_routes; i++)
        if (strcmp(native_dialect.routes[i].path, path) == 0)
            verbs |= native_dialect.routes[i].verbs;
    return verbs;
}

TEST(every_verb_of_every_route_is_described)
{
    static const struct {
        enum verb verb;
        const char *name;
    } verbs[] = {{VERB_GET, "get"},     {VERB_POST, "post"},     {VERB_PUT, "put"},
                 {VERB_PATCH, "patch"}, {VERB_DELETE, "delete"}, {VERB_OPTIONS, "options"}};
    json_t *routes = schema_new_file("routes");

    T_OK(routes);
    for (size_t i = 0; i < native_dialect.n_routes; i++) {
        const struct route *route = &native_dialect.routes[i];
        json_t *described = json_object_get(routes, route->name);

        for (size_t v = 0; v < sizeof(verbs) / sizeof(verbs[0]); v++) {
            bool is_there = path_verbs(route->path) & verbs[v].verb;

            if (is_there && !json_object_get(operation(described, verbs[v].name), "responses"))
                problem("common/wire/schema/routes.json has no '%s' of '%s'", verbs[v].name,
                        route->name);
            if (!is_there && json_object_get(described, verbs[v].name))
                problem("routes.json has '%s' of '%s', which is not served", verbs[v].name,
                        route->name);
        }
    }
    json_decref(routes);
    T_INT(n_problems, 0);
}

TEST(document_has_every_method_and_route)
{
    json_t *doc = openapi_new_document();
    json_t *paths = json_object_get(doc, "paths");
    const struct rpc_method *m;
    size_t n = 0;

    T_OK(doc);
    for (size_t i = 0; (m = rpc_at(i)); i++, n++) {
        char path[128];

        (void)snprintf(path, sizeof(path), "/bellhop.v1.%s/%s", m->service, m->name);
        T_OK(json_object_get(json_object_get(paths, path), "post"));
    }
    for (size_t i = 0; i < native_dialect.n_routes; i++) {
        const struct route *row = &native_dialect.routes[i];

        n += i == 0 || strcmp(row->path, row[-1].path) != 0;
    }
    T_INT((long long)json_object_size(paths), (long long)n);
    json_decref(doc);
}
