#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/b64.h"
#include "common/cleanup.h"
#include "common/io.h"

#include "common/banned.h"

struct args {
    bool follow;
    const char *id;
};

static const struct cli_option options[] = {
    {"follow", 'f', CLI_FLAG, offsetof(struct args, follow), NULL,
     "go on as more is written, until it ends", NULL},
    {"id", 0, CLI_STR, offsetof(struct args, id), "ID",
     "of this command (exec -d printed it), not the coding agent", NULL},
    {0},
};

static int print_data(json_t *data)
{
    json_t *text = json_object_get(data, "text"), *b64 = json_object_get(data, "b64");
    _cleanup_free_ char *raw = NULL;
    size_t len = 0;

    if (json_is_string(text))
        return io_write_all(STDOUT_FILENO, json_string_value(text), json_string_length(text), NULL);
    raw = json_is_string(b64) ? malloc(json_string_length(b64) + 1) : NULL;
    if (!raw || b64_decode(json_string_value(b64), json_string_length(b64), raw, &len, NULL) < 0)
        return 0;
    return io_write_all(STDOUT_FILENO, raw, len, NULL);
}

/* What is held of one stream: its head, and its end where the middle was dropped. */
static int print_held(struct cli *c, json_t *stream)
{
    json_int_t dropped = json_integer_value(json_object_get(stream, "dropped_bytes"));
    int r = print_data(stream);

    if (r == 0 && dropped) {
        cli_warn(c, "%lld bytes are not held any more", (long long)dropped);
        r = print_data(json_object_get(stream, "tail"));
    }
    return r;
}

static int on_message(void *arg, const char *line)
{
    json_t *msg = json_loads(line, JSON_ALLOW_NUL, NULL);
    json_t *data = json_object_get(msg, "data");
    int r = data ? print_data(data) : 0;

    (void)arg;
    json_decref(msg);
    return r;
}

static int call(struct bh_box *box, const char *method, json_t *params, json_t **ret,
                struct bh_error *err)
{
    _cleanup_free_ char *text = params ? json_dumps(params, JSON_COMPACT) : NULL;
    _cleanup_free_ char *reply = NULL;
    int r;

    json_decref(params);
    if (!text)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    r = bh_call(box, method, text, ret ? NULL : on_message, NULL, 0, ret ? &reply : NULL, err);
    if (r == 0 && ret)
        *ret = json_loads(reply, JSON_ALLOW_NUL, NULL);
    return r;
}

static int show(struct cli *c, struct bh_box *box, const char *id, bool follow,
                struct bh_error *err)
{
    json_t *held = NULL, *out, *errors, *params;
    int r = 0;

    /* One document means: when it has ended. */
    if (c->json && follow)
        r = call(box, "Exec/Wait", json_pack("{s:s}", "id", id), &held, err);
    json_decref(held);
    if (r == 0)
        r = call(box, "Exec/Get", json_pack("{s:s, s:b}", "id", id, "output", 1), &held, err);

    if (r < 0)
        return r;
    out = json_object_get(held, "stdout");
    errors = json_object_get(held, "stderr");
    if (c->json)
        return cli_print_json_take(held);
    r = print_held(c, out);
    if (r == 0)
        r = print_held(c, errors);
    params = json_pack("{s:s, s:I, s:I}", "id", id, "stdout_offset",
                       json_integer_value(json_object_get(out, "bytes")), "stderr_offset",
                       json_integer_value(json_object_get(errors, "bytes")));
    json_decref(held);
    if (r == 0 && follow)
        return call(box, "Exec/Attach", params, NULL, err);
    json_decref(params);
    return r ? EXIT_CLI_ERROR : EXIT_CLI_OK;
}

static int run(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    const char *id = a->id;
    json_t *info;
    int r = cli_get_box(c, operands[0], &box, err);

    if (r < 0)
        return r;
    info = json_loads(bh_box_info(box)->json, JSON_ALLOW_NUL, NULL);
    if (!id)
        id = json_string_value(json_object_get(json_object_get(info, "agent"), "exec_id"));
    if (!id || !*id)
        r = cli_fail(err, BH_NOT_FOUND, "id", "'%s' has no coding agent; name a command with --id",
                     operands[0]);
    else
        r = show(c, box, id, a->follow, err);
    json_decref(info);
    return r;
}

const struct cli_command cmd_logs = {
    .name = "logs",
    .group = "Work",
    .operands = "NAME",
    .summary = "show what the coding agent has printed",
    .examples = "  bellhop logs api\n"
                "  bellhop logs -f api\n",
    .options = options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run,
};
