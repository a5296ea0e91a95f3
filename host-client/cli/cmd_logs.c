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

static int on_message(void *arg, const char *line)
{
    json_t *msg = json_loads(line, 0, NULL);
    json_t *data = json_object_get(msg, "data");
    int r = data ? print_data(data) : 0;

    (void)arg;
    json_decref(msg);
    return r;
}

static int run(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *params = NULL;
    json_t *info, *p;
    const char *id = a->id;
    int r = cli_get_box(c, operands[0], &box, err);

    if (r < 0)
        return r;
    info = json_loads(bh_box_info(box)->json, 0, NULL);
    if (!id)
        id = json_string_value(json_object_get(json_object_get(info, "agent"), "exec_id"));
    if (!id || !*id) {
        json_decref(info);
        return cli_fail(err, BH_NOT_FOUND, "id",
                        "'%s' has no coding agent; name a command with --id", operands[0]);
    }
    p = json_pack("{s:s, s:b}", "id", id, "follow", a->follow);
    params = p ? json_dumps(p, JSON_COMPACT) : NULL;
    json_decref(p);
    json_decref(info);
    if (!params)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    return bh_call(box, "Exec/Attach", params, on_message, NULL, 0, NULL, err);
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
