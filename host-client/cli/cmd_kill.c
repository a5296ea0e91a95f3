#include "cli/cli.h"

struct args {
    const char *signal;
    bool tree;
};

struct target {
    const struct args *args;
    struct bh_box *box;
};

static int kill_exec(struct cli *c, void *arg, const char *id, json_t *done, struct bh_error *err)
{
    const struct target *t = arg;
    const char *signal = t->args->signal;
    struct bh_exec *exec = NULL;
    int r = bh_exec_attach(t->box, id, &exec, err);

    (void)c;
    if (r == 0)
        r = bh_exec_signal(exec, signal ? signal : "SIGTERM", t->args->tree, err);
    if (r == 0)
        (void)json_integer_set(done, json_integer_value(done) + 1);
    (void)bh_exec_free(exec);
    return r;
}

static int run_kill(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

    return r < 0 ? r
                 : cli_each_name(c, operands + 1,
                                 &(struct cli_each){"signaled", json_integer(0), kill_exec,
                                                    &(struct target){args, box}},
                                 err);
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
