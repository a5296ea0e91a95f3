#include <stdio.h>

#include "cli/cli.h"

#define HOLD_ID_BYTES 129

struct args {
    int64_t for_ms;
    const char *reason, *id;
};

static int run_hold(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct bh_hold_options o = {
        .size = sizeof(o), .id = a->id, .reason = a->reason, .ttl_ms = a->for_ms};
    _cleanup_box_ struct bh_box *box = NULL;
    char id[HOLD_ID_BYTES];
    int r = bh_get(c->ctx, operands[0], &box, err);

    if (r == 0)
        r = bh_hold_take(box, &o, id, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(json_pack("{s:s}", "id", id));
    (void)puts(cli_text(id));
    return EXIT_CLI_OK;
}

static const struct cli_option hold_options[] = {
    CLI_OPT("for", 'f', CLI_DURATION, for_ms, "TIME",
            "length of the hold (default: 10m; at most 24h)"),
    CLI_OPT("reason", 'r', CLI_STR, reason, "TEXT", "shown by activity"),
    CLI_OPT("id", 0, CLI_STR, id, "ID", "hold id; reusing an id renews that hold"),
    {0},
};

const struct cli_command cmd_hold = {
    .name = "hold",
    .group = "Work",
    .operands = "NAME",
    .summary = "keep a box in use for a while; prints the hold's id",
    .details = "The box does not stop as unused until the hold is released or expires.\n"
               "A program in the box does the same with 'bellhopd hold'.",
    .examples = "  bellhop hold api --for 2h --reason 'waiting for review'\n"
                "  bellhop release api ID\n",
    .options = hold_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_hold,
};
