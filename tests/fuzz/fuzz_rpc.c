/*
 * The decoder of every method's request, with any JSON: an accepted request has every required
 * field and no unknown one; an error names a field of the request or of the method. No handler runs
 * past its decoder: jx_decode() is replaced (see the Makefile).
 * fuzz-flags: -max_len=4096
 */
#include "fuzz.h"

#include "common/jsonx.h"
#include "agent.h"
#include "api/rpc.h"

int __real_jx_decode(json_t *obj, const struct jx_field *fields, void *out, struct err *e);
int __wrap_jx_decode(json_t *obj, const struct jx_field *fields, void *out, struct err *e);

static int depth;

static const struct jx_field *find(const struct jx_field *fields, const char *name)
{
    while (fields->name && strcmp(fields->name, name) != 0)
        fields++;
    return fields->name ? fields : NULL;
}

static void check_taken(json_t *obj, const struct jx_field *fields)
{
    const char *name;
    json_t *v;

    CHECK(json_is_object(obj));
    json_object_foreach (obj, name, v)
        CHECK(find(fields, name));
    for (; fields->name; fields++)
        CHECK(!(fields->flags & JX_REQUIRED) || json_object_get(obj, fields->name));
}

/* "limits.pids" and "argv[3]" begin with a field of the request; long names are truncated. */
static void check_refused(json_t *obj, const struct jx_field *fields, const struct err *e)
{
    char name[ERR_FIELD_BYTES];
    const char *key;
    json_t *v;
    bool is_there = false;

    CHECK(e->code == ERR_INVALID && e->message[0]);
    if (!json_is_object(obj))
        return;
    CHECK(e->field[0] || json_object_get(obj, ""));
    (void)snprintf(name, sizeof(name), "%s", e->field);
    json_object_foreach (obj, key, v)
        is_there = is_there || strncmp(name, key, strnlen(key, ERR_FIELD_BYTES - 1)) == 0;
    name[strcspn(name, ".[")] = '\0';
    CHECK(is_there || find(fields, name));
}

int __wrap_jx_decode(json_t *obj, const struct jx_field *fields, void *out, struct err *e)
{
    struct err why = {0};
    int r;

    depth++;
    r = __real_jx_decode(obj, fields, out, &why);
    depth--;
    CHECK(r == 0 || r == -why.code);
    if (r == 0)
        check_taken(obj, fields);
    else
        check_refused(obj, fields, &why);
    if (e && r < 0)
        *e = why;
    if (depth == 0 && r == 0)
        return err_set(e, ERR_CANCELED, "far enough");
    return r;
}

FUZZ(data, size)
{
    static struct agent agent;
    const struct rpc_method *m;
    struct source *source = NULL;
    struct rpc_call call = {.agent = &agent};
    struct err e = {0};
    json_t *ret = NULL;
    size_t n = 0;
    int r;

    if (!size)
        return 0;
    while (rpc_at(n))
        n++;
    m = rpc_at(data[0] % n);
    r = jx_parse((const char *)data + 1, size - 1, &call.params, &e);
    CHECK((r == 0) == (call.params != NULL));
    if (r < 0)
        return 0;
    r = m->kind == RPC_UNARY ? m->unary(&call, &ret, &e) : m->source(&call, &source, &e);
    CHECK(r < 0 && e.code && !ret && !source);
    json_decref(call.params);
    return 0;
}
