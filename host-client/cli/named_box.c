/* named_box: boxes named on the command line, and paths and bytes in their replies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"

/* ---- boxes ---- */

const char *cli_time_left(const struct bh_box_info *i, char *out, size_t n)
{
    int64_t left = i->deadline_ms - clock_real_ms();

    if (!i->deadline_ms || (i->state != BH_STATE_RUNNING && i->state != BH_STATE_PAUSED))
        return "-";
    return str_format_duration(left > 0 ? left : 0, out, n);
}

/* Reports a box as a line, or as an element of the JSON list. */
static int report_box(struct cli *c, const char *name, const char *what, json_t *list)
{
    if (c->json)
        return json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "state", what));
    if (!c->quiet)
        (void)printf("%s: %s\n", name, what);
    return 0;
}

int cli_each_box(struct cli *c, char **names, const char *what,
                 int (*fn)(struct bh_box *box, int64_t timeout_ms, struct bh_error *err),
                 bool missing_ok, struct bh_error *err)
{
    json_t *list = json_array();
    int r = 0;

    for (; r == 0 && *names; names++) {
        _cleanup_box_ struct bh_box *box = NULL;

        r = bh_get(c->ctx, *names, &box, err);
        if (r == -BH_NOT_FOUND && missing_ok) {
            r = 0;
            continue;
        }
        if (r == 0)
            r = fn(box, CLI_BOX_WAIT_MS, err);
        if (r == 0)
            r = report_box(c, *names, what ? what : bh_state_name(bh_box_info(box)->state), list);
    }
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:o}", "boxes", list));
    json_decref(list);
    return r;
}

/* ---- paths and bytes ---- */

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
