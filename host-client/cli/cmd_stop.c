#include "cli/cli.h"

static int run_stop(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    (void)args;
    return cli_each_box(c, operands, "stopped", bh_stop, err);
}

const struct cli_command cmd_stop = {
    .name = "stop",
    .group = "Boxes",
    .operands = "NAME...",
    .summary = "end everything that runs in boxes; their disks stay",
    .details =
        "Any command on a stopped box starts it again. A stopped box stays until 'bellhop rm' or\n"
        "'bellhop gc --stopped-for' removes it.",
    .examples = "  bellhop stop api\n",
    .min_operands = 1,
    .max_operands = 256,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_stop,
};
