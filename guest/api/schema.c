#include "api/schema.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"

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
    return json_incref(all);
}
