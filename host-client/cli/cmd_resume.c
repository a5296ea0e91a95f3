#include "cli/cli.h"

static int run_resume(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    (void)args;
    return cli_each_box(c, operands, "running", bh_resume, err);
}

const struct cli_command cmd_resume = {
    .name = "resume",
    .group = "Boxes",
    .operands = "NAME...",
    .summary = "let paused boxes run again",
    .details =
        "A box that runs already is no error; a stopped one is, unless it was paused to disk.",
    .examples = "  bellhop resume api\n",
    .min_operands = 1,
    .max_operands = 256,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_resume,
};
