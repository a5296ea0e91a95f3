#include <stdio.h>

#include "cli/cli.h"

static int run_completion(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    (void)c;
    (void)args;
    if (cli_print_completion(stdout, operands[0]) < 0)
        return cli_fail(err, BH_INVALID_ARGUMENT, "shell",
                        "no completion for '%.60s': bash, zsh or fish", operands[0]);
    return EXIT_CLI_OK;
}

const struct cli_command cmd_completion = {
    .name = "completion",
    .group = "Help",
    .operands = "bash|zsh|fish",
    .summary = "print a completion script for a shell",
    .examples = "  eval \"$(bellhop completion bash)\"\n",
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_NO_CONTEXT,
    .run = run_completion,
};
