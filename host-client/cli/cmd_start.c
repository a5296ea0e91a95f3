#include "cli/cli.h"

static int run_start(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    (void)args;
    return cli_each_box(c, operands, "running", bh_start, err);
}

const struct cli_command cmd_start = {
    .name = "start",
    .group = "Boxes",
    .operands = "NAME...",
    .summary = "start stopped boxes, with their agents",
    .examples = "  bellhop start api\n",
    .min_operands = 1,
    .max_operands = 256,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_start,
};
