#include <stdio.h>

#include "cli/cli.h"

static int run_restore(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

    (void)args;
    if (r == 0)
        r = bh_restore(box, operands[1], 0, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(cli_box_json(bh_box_info(box)));
    if (!c->quiet)
        (void)printf("%s: %s, with the content of %s\n", operands[0],
                     bh_state_name(bh_box_info(box)->state), cli_text(operands[1]));
    return EXIT_CLI_OK;
}

const struct cli_command cmd_restore = {
    .name = "restore",
    .group = "Boxes",
    .operands = "NAME SNAPSHOT",
    .summary = "give a box's disk the content of a snapshot again",
    .details =
        "What is on the disk now is lost, and the box's processes end. The box keeps its name,\n"
        "its id and its keys. One that ran or was paused runs afterwards, a stopped one stays\n"
        "stopped. The snapshot may be of another box, over the same image. A damaged snapshot is\n"
        "refused, and nothing changes.",
    .examples = "  bellhop restore api before-upgrade\n",
    .min_operands = 2,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_restore,
};
