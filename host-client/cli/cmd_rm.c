#include "cli/cli.h"

struct args {
    bool force;
};

static int run_rm(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;

    return cli_each_box(c, operands, "removed", bh_destroy, a->force, err);
}

static const struct cli_option rm_options[] = {
    CLI_OPT("force", 'f', CLI_FLAG, force, NULL, "ignore boxes that do not exist"),
    {0},
};

const struct cli_command cmd_rm = {
    .name = "rm",
    .group = "Boxes",
    .operands = "NAME...",
    .summary = "remove boxes and everything in them",
    .details =
        "Their names and keys are free again. What remains is a record without any content:\n"
        "when and why the box ended, its events, and the last lines of its guest agent. It is\n"
        "kept for 30 days (ls --all, events, gc --records-for).\n\n"
        "A name that fails does not keep the others from being removed: each error is printed, "
        "and\n"
        "the exit status is that of the first.",
    .examples = "  bellhop rm api\n",
    .options = rm_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 256,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_rm,
};
