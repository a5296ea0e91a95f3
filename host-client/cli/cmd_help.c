#include <stdio.h>

#include "cli/cli.h"

struct args {
    bool man;
};

static const struct cli_option help_options[] = {
    CLI_OPT("man", 0, CLI_FLAG, man, NULL, "print the source of the man page"),
    {0},
};

static int run_help(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    const struct cli_command *cmd = operands[0] ? cli_find_command(operands[0]) : NULL;

    (void)c;
    if (operands[0] && !cmd && cli_print_topic(stdout, operands[0]) == 0)
        return EXIT_CLI_OK;
    if (operands[0] && !cmd)
        return cli_fail(err, BH_INVALID_ARGUMENT, "command", "no command or topic '%.60s'",
                        operands[0]);
    if (a->man)
        cli_print_man(stdout, cmd);
    else if (cmd)
        cli_print_help(stdout, cmd);
    else
        cli_print_overview(stdout);
    return EXIT_CLI_OK;
}

const struct cli_command cmd_help = {
    .name = "help",
    .group = "Help",
    .operands = "[COMMAND|TOPIC]",
    .summary = "explain a command",
    .examples = "  bellhop help up\n",
    .options = help_options,
    .args_bytes = sizeof(struct args),
    .max_operands = 1,
    .flags = CLI_NO_CONTEXT,
    .run = run_help,
};
