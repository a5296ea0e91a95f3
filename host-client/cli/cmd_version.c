#include <stdio.h>

#include "cli/cli.h"

static int run_version(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    (void)args;
    (void)operands;
    (void)err;
    if (c->json)
        return cli_print_json_take(json_pack("{s:s}", "version", bh_version()));
    (void)printf("bellhop %s\n", bh_version());
    return EXIT_CLI_OK;
}

const struct cli_command cmd_version = {
    .name = "version",
    .group = "Help",
    .operands = "",
    .summary = "print the version",
    .flags = CLI_NO_CONTEXT,
    .run = run_version,
};
