#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/b64.h"
#include "common/cleanup.h"

int cli_get_box(struct cli *c, const char *name, struct bh_box **ret, struct bh_error *err)
{
    return bh_get(c->ctx, name, ret, err);
}

int cli_call_take(struct bh_box *box, const char *method, json_t *params, json_t **ret,
                  struct bh_error *err)
{
    _cleanup_free_ char *text = params ? json_dumps(params, JSON_COMPACT) : NULL;
    _cleanup_free_ char *reply = NULL;
    json_t *v;
    int r;

    json_decref(params);
    if (!text)
        return cli_fail(err, BH_INVALID_ARGUMENT, "", "a name is not valid UTF-8");
    r = bh_call(box, method, text, NULL, NULL, 0, &reply, err);
    if (r < 0 || !ret)
        return r;
    v = json_loads(reply, JSON_ALLOW_NUL, NULL);
    if (!v)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    *ret = v;
    return 0;
}

char *cli_bytes_of(json_t *v, size_t *ret_len)
{
    json_t *b64 = json_object_get(v, "b64");
    json_t *text = json_is_string(v) ? v : json_object_get(v, "text");
    char *out;

    *ret_len = 0;
    if (json_is_string(b64)) {
        out = malloc(json_string_length(b64) / 4 * 3 + 1);
        if (out &&
            b64_decode(json_string_value(b64), json_string_length(b64), out, ret_len, NULL) == 0) {
            out[*ret_len] = '\0';
            return out;
        }
        free(out);
        return NULL;
    }
    if (!json_is_string(text))
        return NULL;
    out = malloc(json_string_length(text) + 1);
    if (!out)
        return NULL;
    *ret_len = json_string_length(text);
    memcpy(out, json_string_value(text), *ret_len + 1);
    return out;
}

void cli_print_bytes(json_t *v)
{
    size_t len;
    _cleanup_free_ char *data = cli_bytes_of(v, &len);

    if (data)
        cli_put_name(data, len);
}

int cli_box_path(const char *word, const char *field, const char **ret, struct bh_error *err)
{
    if (word[0] != ':' || !word[1])
        return cli_fail(err, BH_INVALID_ARGUMENT, field,
                        "'%.200s': a path in the box starts with a colon, such as :/workspace",
                        word);
    *ret = word + 1;
    return 0;
}
