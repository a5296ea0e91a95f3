#include "cli/cli.h"
#include "common/jsonx.h"

static int run_get(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const char *dir = operands[2] ? operands[2] : ".";
    _cleanup_box_ struct bh_box *box = NULL;
    const char *path = NULL;
    int r;

    (void)args;
    r = cli_box_path(operands[1], "path", &path, err);
    if (r == 0)
        r = bh_get(c->ctx, operands[0], &box, err);
    if (r == 0)
        r = bh_download(box, path, dir, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(
            json_pack("{s:o, s:o}", "path", jx_new_path(path), "dir", jx_new_path(dir)));
    return EXIT_CLI_OK;
}

const struct cli_command cmd_get = {
    .name = "get",
    .group = "Files",
    .operands = "NAME :PATH [DIR]",
    .summary = "copy a file or directory out of a box",
    .details =
        "PATH is copied into DIR (default: the current directory) under its own name; a missing "
        "DIR\n"
        "is created. A link to a directory arrives as a directory with the link's name, any other\n"
        "link as a link. A file arrives whole or not at all. An answer with anything but PATH is\n"
        "refused.",
    .examples = "  bellhop get api :/workspace/report.pdf\n"
                "  bellhop get api :/workspace/src out\n",
    .min_operands = 2,
    .max_operands = 3,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_get,
};
