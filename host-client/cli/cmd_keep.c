#include <stdio.h>

#include "cli/cli.h"
#include "common/clock.h"

struct args {
    int64_t keep_ms;
};

static const struct cli_option keep_options[] = {
    CLI_OPT("for", 0, CLI_DURATION, keep_ms, "TIME", "time from now, such as 2h"),
    {0},
};

static int run_keep(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    int64_t deadline_ms = 0;
    char text[CLOCK_TEXT_BYTES];
    int r;

    if (a->keep_ms <= 0)
        return cli_fail(err, BH_INVALID_ARGUMENT, "for",
                        "--for TIME is required, such as --for 2h");
    r = bh_get(c->ctx, operands[0], &box, err);
    if (r == 0)
        r = bh_extend(box, a->keep_ms, &deadline_ms, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(
            json_pack("{s:s, s:I}", "name", operands[0], "deadline_ms", (json_int_t)deadline_ms));
    clock_text(deadline_ms, text);
    (void)printf("%s lives until %s\n", operands[0], text);
    return EXIT_CLI_OK;
}

const struct cli_command cmd_keep = {
    .name = "keep",
    .group = "Boxes",
    .operands = "NAME --for TIME",
    .summary = "let a box live longer",
    .details =
        "keep never shortens the time. A box that is used is prolonged automatically. Use is:\n"
        "  a command that runs, attached or detached (exec -d, or started by another program);\n"
        "  a call of the box's agent, by bellhop or on its socket; a connection to one of its "
        "ports;\n"
        "  a hold; a coding agent that works, and anything else that keeps the processor busy.\n"
        "Not use: an idle shell, a server without connections, a coding agent that waits, and\n"
        "queries such as ls, status and activity.",
    .examples = "  bellhop keep api --for 2h\n",
    .options = keep_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_keep,
};
