#include "cli/cli.h"

struct args {
    bool input, only_new;
    uint64_t stdout_offset, stderr_offset;
};

static int run_attach(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct cli_attach how = {.input = a->input,
                             .only_new = a->only_new,
                             .offset = {0, a->stdout_offset, a->stderr_offset}};

    return cli_attach(c, operands[0], operands[1], &how, err);
}

static const struct cli_option attach_options[] = {
    CLI_OPT("interactive", 'i', CLI_FLAG, input, NULL,
            "pass input on, if the command's is open (default for a terminal)"),
    CLI_OPT("new", 'n', CLI_FLAG, only_new, NULL, "print only new output"),
    CLI_OPT("stdout-offset", 0, CLI_SIZE, stdout_offset, "N",
            "print standard output from this byte on"),
    CLI_OPT("stderr-offset", 0, CLI_SIZE, stderr_offset, "N",
            "print standard error from this byte on"),
    {0},
};

const struct cli_command cmd_attach = {
    .name = "attach",
    .group = "Work",
    .operands = "NAME ID",
    .summary = "show the output of a command that runs, and type into it",
    .details =
        "Prints the output that is kept, then new output as it comes, until the command ends. The\n"
        "exit status is the command's, as with exec. Any number of clients can attach, and none\n"
        "slows the command down. ^C detaches with status 130, and the command goes on. A command\n"
        "with a terminal (exec -dt) gets every key, ^C too; ^P ^Q detaches from it.",
    .examples = "  id=$(bellhop exec -d api -- make all)\n"
                "  bellhop attach api $id\n"
                "  bellhop exec -dt --id top api -- top; bellhop attach api top\n"
                "  echo yes | bellhop attach -i api $id    # started by exec -d -i\n",
    .options = attach_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_attach,
};
