/* named_box: boxes and others named on the command line, and paths and bytes in their replies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"

/* ---- boxes ---- */

const char *cli_time_left(const struct bh_box_info *i, char *out, size_t n)
{
    int64_t left = i->deadline_ms - clock_real_ms();

    if (!i->deadline_ms || (i->state != BH_STATE_RUNNING && i->state != BH_STATE_PAUSED))
        return "-";
    return str_format_duration(left > 0 ? left : 0, out, n);
}

/* ---- several names ---- */

/* Tells why the call for a name failed: at once, or in the document. */
static void note_failure(struct cli *c, const char *name, const struct bh_error *err,
                         json_t *errors)
{
    struct bh_error told = *err;
    json_t *entry;

    if (c->json) {
        entry = cli_error_json(err);
        (void)json_object_set_new(entry, "name", json_string(name));
        (void)json_array_append_new(errors, entry);
        return;
    }
    (void)snprintf(told.message, sizeof(told.message), "%.100s: %.400s", name, err->message);
    cli_print_error(c, &told);
}

int cli_each_name(struct cli *c, char **names, const struct cli_each *each, struct bh_error *err)
{
    _cleanup_json_ json_t *errors = json_array(), *done = each->done_take, *doc = NULL;
    bool is_alone = !names[0] || !names[1];
    struct bh_error first = {0};

    for (; *names; names++) {
        struct bh_error failed = {0};
        int r = each->fn(c, each->arg, *names, done, &failed);

        if (r == 0)
            continue;
        /* After an interrupt the rest would only be canceled, too. */
        if (is_alone || (r == -BH_CANCELED && !c->json)) {
            *err = failed;
            return r;
        }
        cli_config_name_origin(c, &failed);
        note_failure(c, *names, &failed, errors);
        if (!first.code || r == -BH_CANCELED)
            first = failed;
        if (r == -BH_CANCELED)
            break;
    }
    if (c->json) {
        doc = json_pack("{s:O}", each->key, done);
        if (first.code && (json_object_set_new(doc, "error", cli_error_json(&first)) < 0 ||
                           json_object_set(doc, "errors", errors) < 0))
            return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
        if (cli_print_json_take(TAKE(doc)) != EXIT_CLI_OK)
            return EXIT_CLI_ERROR;
    }
    return first.code ? cli_exit_for(&first) : EXIT_CLI_OK;
}

struct each_box {
    const char *what;
    int (*fn)(struct bh_box *box, int64_t timeout_ms, struct bh_error *err);
};

static int do_box(struct cli *c, void *arg, const char *name, json_t *done, struct bh_error *err)
{
    const struct each_box *each = arg;
    _cleanup_box_ struct bh_box *box = NULL;
    const char *state;
    int r = bh_get(c->ctx, name, &box, err);

    if (r == 0)
        r = each->fn(box, CLI_BOX_WAIT_MS, err);
    if (r < 0)
        return r;
    state = each->what ? each->what : bh_state_name(bh_box_info(box)->state);
    if (c->json)
        (void)json_array_append_new(done, json_pack("{s:s, s:s}", "name", name, "state", state));
    else if (!c->quiet)
        (void)printf("%s: %s\n", name, state);
    return 0;
}

int cli_each_box(struct cli *c, char **names, const char *what,
                 int (*fn)(struct bh_box *box, int64_t timeout_ms, struct bh_error *err),
                 struct bh_error *err)
{
    struct each_box each = {what, fn};

    return cli_each_name(c, names, &(struct cli_each){"boxes", json_array(), do_box, &each}, err);
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
