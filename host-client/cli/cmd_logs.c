#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"

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

struct output {
    struct cli_held held[3]; /* by stream, 1 and 2 */
};

static int put(struct cli_held *held, const char *data, size_t len, bool is_last)
{
    _cleanup_free_ char *text = NULL;

    if (!cli_shows_raw(STDOUT_FILENO)) {
        text = cli_escape_content(held, data, len, is_last, &len);
        data = text;
    }
    return data ? io_write_all(STDOUT_FILENO, data, len, NULL) : -1;
}

static int print_data(struct cli_held *held, json_t *data)
{
    size_t len;
    _cleanup_free_ char *bytes = cli_bytes_of(data, &len);

    return bytes ? put(held, bytes, len, false) : 0;
}

static int stream_of(json_t *data)
{
    const char *name = json_string_value(json_object_get(data, "stream"));

    return name && strcmp(name, "stderr") == 0 ? 2 : 1;
}

/* What is held of one stream: its head, and its end where the middle was dropped. */
static int print_held(struct cli *c, struct cli_held *held, json_t *stream)
{
    json_int_t dropped = json_integer_value(json_object_get(stream, "dropped_bytes"));
    int r = print_data(held, stream);

    if (r == 0 && dropped) {
        cli_warn(c, "%lld bytes are not held any more", (long long)dropped);
        r = print_data(held, json_object_get(stream, "tail"));
    }
    return r;
}

static int on_message(void *arg, const char *line)
{
    json_t *msg = json_loads(line, JSON_ALLOW_NUL, NULL);
    json_t *data = json_object_get(msg, "data");
    struct output *o = arg;
    int r = data ? print_data(&o->held[stream_of(data)], data) : 0;

    json_decref(msg);
    return r;
}

static int follow_take(struct bh_box *box, json_t *params, struct output *o, struct bh_error *err)
{
    _cleanup_free_ char *text = params ? json_dumps(params, JSON_COMPACT) : NULL;

    json_decref(params);
    return text ? bh_call(box, "Exec/Attach", text, on_message, o, 0, NULL, err)
                : cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
}

static int wait_for(struct bh_box *box, const char *id, struct bh_error *err)
{
    struct bh_exec *exec = NULL;
    int r = bh_exec_attach(box, id, &exec, err);

    if (r == 0)
        r = bh_exec_wait(exec, 0, NULL, err);
    (void)bh_exec_free(exec);
    return r;
}

static int show(struct cli *c, struct bh_box *box, const char *id, bool follow,
                struct bh_error *err)
{
    json_t *held = NULL, *out, *errors, *params;
    struct output o = {0};
    int r = 0;

    /* One document means: when it has ended. */
    if (c->json && follow)
        r = wait_for(box, id, err);
    if (r == 0)
        r = cli_call_take(box, "Exec/Get", json_pack("{s:s, s:b}", "id", id, "output", 1), &held,
                          err);
    if (r < 0)
        return r;
    out = json_object_get(held, "stdout");
    errors = json_object_get(held, "stderr");
    if (c->json)
        return cli_print_json_take(held);
    r = print_held(c, &o.held[1], out);
    if (r == 0)
        r = print_held(c, &o.held[2], errors);
    params = json_pack("{s:s, s:I, s:I}", "id", id, "stdout_offset",
                       json_integer_value(json_object_get(out, "bytes")), "stderr_offset",
                       json_integer_value(json_object_get(errors, "bytes")));
    json_decref(held);
    if (r == 0 && follow)
        return follow_take(box, params, &o, err);
    json_decref(params);
    for (int i = 1; r == 0 && i <= 2; i++)
        r = put(&o.held[i], "", 0, true);
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
