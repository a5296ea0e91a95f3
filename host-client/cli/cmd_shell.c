#include <unistd.h>

#include "cli/cli.h"

struct args {
    const char *cwd, *user;
};

static const struct cli_option shell_options[] = {
    CLI_OPT("cwd", 'C', CLI_STR, cwd, "DIR", "working directory (default: the project)"),
    CLI_OPT("user", 'u', CLI_STR, user, "USER", "run as this user of the box"),
    {0},
};

static int run_shell(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const char *const login[] = {
        "sh", "-c", "command -v bash >/dev/null && exec bash -il; exec sh -il", NULL};
    const struct args *a = args;
    struct bh_run_options o = {.size = sizeof(o),
                               .argv = login,
                               .cwd = a->cwd,
                               .user = a->user,
                               .pty = true,
                               .stdin_fd = STDIN_FILENO,
                               .no_hold = true};

    if (!isatty(STDIN_FILENO))
        return cli_fail(err, BH_FAILED_PRECONDITION, "",
                        "a shell needs a terminal; use 'bellhop exec %s -- sh' in a script",
                        operands[0]);
    return cli_run_attached(c, operands[0], &o, err);
}

const struct cli_command cmd_shell = {
    .name = "shell",
    .group = "Work",
    .operands = "NAME",
    .summary = "open a shell in a box",
    .details =
        "An idle shell does not count as use of the box: the box stops when its time is over.\n"
        "Typing, output and programs that run in the shell do count.",
    .examples = "  bellhop shell api\n"
                "  bellhop shell -u root api\n",
    .options = shell_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_shell,
};
