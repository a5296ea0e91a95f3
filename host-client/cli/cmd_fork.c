#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"

static int run_fork(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct bh_fork_options o = {
        .size = sizeof(o), .name = operands[1], .host_env = (const char *const *)environ};
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_box_ struct bh_box *forked = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

    (void)args;
    if (r == 0)
        r = bh_fork(box, &o, &forked, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(cli_box_json(bh_box_info(forked)));
    if (c->quiet)
        (void)puts(bh_box_info(forked)->name);
    else
        (void)printf("%s: %s, with the content of %s\n", bh_box_info(forked)->name,
                     bh_state_name(bh_box_info(forked)->state), operands[0]);
    return EXIT_CLI_OK;
}

const struct cli_command cmd_fork = {
    .name = "fork",
    .group = "Boxes",
    .operands = "NAME [NEW]",
    .summary = "make a second box with the content and the options of a box",
    .details =
        "NAME stands still for a moment and keeps running. The new box has its disk's content,\n"
        "its options, variables and secrets; its token, its coding agent's password and its time\n"
        "to live are its own. NEW is the new box's name (default: NAME and a number). Memory and\n"
        "processes are not forked: the new box starts.",
    .examples = "  bellhop fork api\n"
                "  bellhop fork api api-try\n",
    .min_operands = 1,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_fork,
};
