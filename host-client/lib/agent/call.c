#include "lib/agent/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/box/box.h"

int params_path(json_t *p, struct bh_box *box, const char *key, const char *path, struct err *e)
{
    _cleanup_free_ char *workdir = box_workdir(box->dir, &box->spec);
    _cleanup_free_ char *full = NULL;

    if (!path || !*path)
        return err_field(e, ERR_INVALID, key, "%s must not be empty", key);
    /* Not cleaned: "link/.." is what the link leads to says. */
    full = workdir ? str_eq(path, ".") ? strdup(workdir) : path_join(workdir, path) : NULL;
    if (!full || json_object_set_new(p, key, jx_new_path(full)) < 0)
        return err_oom(e);
    return 0;
}

json_t *params_new(struct bh_box *box, const char *key, const char *path, struct err *e)
{
    json_t *p = json_object();
    int r = p ? params_path(p, box, key, path, e) : err_oom(e);

    if (r < 0) {
        json_decref(p);
        return NULL;
    }
    return p;
}

void params_text(json_t *p, const char *key, const char *s)
{
    if (s)
        (void)json_object_set_new(p, key, json_string(s));
}

void params_flag(json_t *p, const char *key, bool on)
{
    if (on)
        (void)json_object_set_new(p, key, json_true());
}

void params_count(json_t *p, const char *key, uint64_t n)
{
    if (n)
        (void)json_object_set_new(p, key, json_integer((json_int_t)n));
}

void params_list(json_t *p, const char *key, const char *const *list)
{
    json_t *a = list ? json_array() : NULL;

    for (; a && *list; list++)
        (void)json_array_append_new(a, json_string(*list));
    if (a)
        (void)json_object_set_new(p, key, a);
}

void params_mode(json_t *p, const char *key, uint32_t mode)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%04o", (unsigned)mode);
    if (mode)
        params_text(p, key, text);
}

int params_call_take(struct bh_box *box, const char *method, json_t *params, json_t **ret,
                     struct err *e)
{
    struct client *c = NULL;
    int r = params ? box_wake(box, e) : -e->code;

    if (r == 0)
        r = box_client(box, &c, e);
    if (r == 0)
        r = client_call(c, method, params, 0, ret, e);
    json_decref(params);
    return r;
}

const char *params_get(json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));

    return s ? s : "";
}
