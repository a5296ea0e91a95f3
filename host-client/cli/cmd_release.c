#include "cli/cli.h"

static int run_release(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

    (void)args;
    if (r == 0)
        r = bh_hold_release(box, operands[1], err);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:s}", "released", operands[1]));
    return r;
}

const struct cli_command cmd_release = {
    .name = "release",
    .group = "Work",
    .operands = "NAME ID",
    .summary = "end a hold on a box",
    .examples = "  bellhop release api $(bellhop hold api)\n",
    .min_operands = 2,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_release,
};
