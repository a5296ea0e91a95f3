#include "cli/cli.h"
#include "common/cleanup.h"

struct args {
    int64_t timeout_ms;
};

static int wait_for(struct bh_box *box, const struct args *a, const char *id,
                    struct bh_run_result *result, struct bh_error *err)
{
    struct bh_exec *exec = NULL;
    int hold = -1;
    int r = bh_exec_attach(box, id, &exec, err);

    if (r == 0)
        r = bh_hold(box, &hold, err);
    if (r == 0)
        r = bh_exec_wait(exec, a->timeout_ms, result, err);
    fd_close(hold);
    (void)bh_exec_free(exec);
    return r;
}

static int run_wait(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    struct bh_run_result result = {.size = sizeof(result)};
    _cleanup_box_ struct bh_box *box = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

    if (r == 0)
        r = wait_for(box, args, operands[1], &result, err);
    if (r == -BH_DEADLINE_EXCEEDED) {
        cli_print_error(c, err);
        return EXIT_EXEC_TIMEOUT;
    }
    if (r == 0 && c->json)
        r = cli_print_result(box, operands[1], false, err);
    return r < 0 ? cli_exit_for_exec(c, err) : cli_exit_for_run(c, &result);
}

static const struct cli_option wait_options[] = {
    CLI_OPT("timeout", 't', CLI_DURATION, timeout_ms, "TIME",
            "stop waiting after this time, with status 124"),
    {0},
};

const struct cli_command cmd_wait = {
    .name = "wait",
    .group = "Work",
    .operands = "NAME ID",
    .summary = "wait for a command's end; the exit status is the command's",
    .details =
        "The result of a command is kept for ten minutes after its end. The box counts as used\n"
        "meanwhile.",
    .examples = "  id=$(bellhop exec -d api -- make all)\n"
                "  bellhop wait api $id && echo built\n"
                "  bellhop wait --json api $id | jq .usage\n",
    .options = wait_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_wait,
};
