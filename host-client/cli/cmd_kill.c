#include "cli/cli.h"
#include "common/str.h"

struct args {
    const char *signal;
    bool tree;
};

static int run_kill(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

    for (char **id = operands + 1; r == 0 && *id; id++) {
        struct bh_exec *exec = NULL;

        r = bh_exec_attach(box, *id, &exec, err);
        if (r == 0)
            r = bh_exec_signal(exec, a->signal ? a->signal : "SIGTERM", a->tree, err);
        (void)bh_exec_free(exec);
    }
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:i}", "signaled", (int)strv_len(operands + 1)));
    return r;
}

static const struct cli_option kill_options[] = {
    CLI_OPT("signal", 's', CLI_STR, signal, "SIGNAL", "signal name or number (default: TERM)"),
    CLI_OPT("tree", 0, CLI_FLAG, tree, NULL, "signal the descendants too"),
    {0},
};

const struct cli_command cmd_kill = {
    .name = "kill",
    .group = "Work",
    .operands = "NAME ID...",
    .summary = "send a signal to a command in a box",
    .details = "With --tree the signal also goes to the command's descendants, in any session, "
               "even after\n"
               "the command itself has ended.",
    .examples = "  bellhop kill api server\n"
                "  bellhop kill --tree -s KILL api $id\n",
    .options = kill_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 256,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_kill,
};
